"""``python -m tests.robustness.fuzz --count 100000``: the long form of the fuzzer; ``--replay
FILE`` runs one kept case again.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.robustness.fuzz.runner import Settings, replay, run, work


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.robustness.fuzz",
        description="Reads damaged stores, and looks for anything but an answer or an error of this library.",
    )
    parser.add_argument("--count", type=int, default=100_000, help="run the cases up to this number")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="other seeds give other cases")
    parser.add_argument("--seconds", type=int, default=10, help="what one case may take")
    parser.add_argument("--megabytes", type=int, default=2048, help="what the process may take")
    parser.add_argument("--replay", type=Path, help="a file of an earlier failure")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def main() -> int:
    asked = parse()
    settings = Settings(asked.count, asked.seed, asked.first, asked.seconds, asked.megabytes)
    if asked.worker:
        work(settings)
        return 0
    if asked.replay:
        say(replay(asked.replay))
        return 0
    report = run(settings)
    say(f"seed {asked.seed}, {report.outcomes.total():,} cases, the slowest took {report.slowest:.2f} s")
    for outcome, count in report.outcomes.most_common():
        say(f"{count:9,} {outcome}")
    for text in list(report.failures.values())[:20]:
        say(f"\n{text}")
    if report.failures:
        say(f"\n{len(report.failures)} failures are kept in {settings.failures}; run one again with --replay FILE")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
