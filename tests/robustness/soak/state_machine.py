"""``python -m tests.robustness.soak.state_machine --seconds 300``: the long form; ``--seed N`` runs
one again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from typing import Any

from tests.robustness.soak.cube_world import run_cube
from tests.robustness.soak.dataset_world import run_dataset, run_rows

WORLDS: dict[str, Any] = {"dataset": run_dataset, "rows": run_rows, "cube": run_cube}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.soak.state_machine")
    parser.add_argument("--world", choices=WORLDS, default="dataset")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--first", type=int, default=int(time.time()) * 1000, help="the first of the seeds")
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SOAK_SECONDS", "300")))
    asked = parser.parse_args()
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.count)
    begun, shown, runs, counts, failures = time.monotonic(), time.monotonic(), 0, Counter[str](), 0
    for seed in seeds:
        if time.monotonic() - begun > asked.seconds:
            break
        try:
            world = WORLDS[asked.world](seed)
            counts.update(world.counts)
            counts["store calls"] += world.scheduler.steps
            counts["interleavings"] += world.scheduler.switches
        except Exception:
            failures += 1
            say(
                f"\nFAILED: python -m tests.robustness.soak.state_machine --world {asked.world} --seed {seed}\n"
                f"{traceback.format_exc()}"
            )
            if failures >= 5:
                break
        runs += 1
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            say(f"{shown - begun:5.0f} s: {runs} runs, last seed {seed}, {failures} failures")
    say(f"{asked.world}: {runs} runs in {time.monotonic() - begun:.0f} s, {failures} failures")
    for what, count in sorted(counts.items()):
        say(f"{count:9,} {what}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
