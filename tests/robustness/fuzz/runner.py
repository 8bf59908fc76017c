"""Runs many cases in a child process with bounds on time and memory, starts it again when it dies,
and keeps what failed as small files.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.robustness.fuzz.mutators import Case, make_case, objects_from_json, objects_to_json
from tests.robustness.fuzz.oracle import check, open_case

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Settings:
    """``seconds`` bounds one case; ``megabytes`` is what the process may take above what it has at
    its start.
    """

    count: int
    seed: int = 1
    first: int = 0
    seconds: int = 10
    megabytes: int = 2048
    failures: Path = ROOT / "artifacts" / "fuzz"


@dataclass
class Report:
    """How many cases ended how, and what failed: number → what happened."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    slowest: float = 0.0


# --- the child ------------------------------------------------------------------------------------


def limit_memory(megabytes: int) -> None:
    """Allow so much address space above what is in use now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20,) * 2)


def run_case(case: Case, seed: int, number: int, folder: Path) -> str:
    """The outcome of one case; every third uses files."""
    local = folder / "store" if number % 3 == 0 else None
    try:
        if local is not None:
            local.mkdir()
        return check(case, open_case(case.objects, local), random.Random(seed * 7919 + number))
    finally:
        if local is not None:
            shutil.rmtree(local, ignore_errors=True)


def work(settings: Settings) -> None:
    """Run the cases one after the other and say on standard output what each was about and how it
    ended.
    """
    run_case(make_case(settings.seed, 1), settings.seed, 1, Path("/nowhere"))  # load what is loaded lazily
    limit_memory(settings.megabytes)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        for number in range(settings.first, settings.count):
            _say("begin", number)
            faulthandler.dump_traceback_later(settings.seconds, exit=True)
            started = time.monotonic()
            try:
                _sabotage(number)
                outcome = run_case(make_case(settings.seed, number), settings.seed, number, Path(folder))
                _say("end", number, outcome, time.monotonic() - started)
            except BaseException:
                _say("fail", number, traceback.format_exc())
            faulthandler.cancel_dump_traceback_later()


def _sabotage(number: int) -> None:
    """What a test of this module wants to see go wrong."""
    wanted = os.environ.get("FUZZ_SABOTAGE") if number == 2 else None
    if wanted == "hang":
        time.sleep(600)
    elif wanted == "abort":
        os.abort()
    elif wanted is not None:
        raise LookupError(wanted)


def _say(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


# --- the parent -----------------------------------------------------------------------------------


def run(settings: Settings) -> Report:
    """Run all cases, whatever becomes of the process that runs them."""
    report = Report()
    first = settings.first
    while first < settings.count:
        first = _run_child(settings, first, report)
    return report


def _run_child(settings: Settings, first: int, report: Report) -> int:
    arguments = ["--worker", f"--first={first}", f"--count={settings.count}", f"--seed={settings.seed}"]
    arguments += [f"--seconds={settings.seconds}", f"--megabytes={settings.megabytes}"]
    current = None
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.fuzz", *arguments], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
        )
        assert child.stdout is not None
        with child.stdout:
            for line in child.stdout:
                word, number, *rest = json.loads(line)
                current = number if word == "begin" else None
                if word == "end":
                    report.outcomes[rest[0]] += 1
                    report.slowest = max(report.slowest, rest[1])
                elif word == "fail":
                    _failed(settings, report, number, "failed", rest[0])
        code = child.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")[-4000:]
    if code == 0:
        return settings.count
    if current is None:
        raise RuntimeError(f"The process that runs the cases ended with {code} between two of them: {said}")
    _failed(settings, report, current, "hung" if code > 0 else "died", f"exit {code}\n{said}")
    return int(current) + 1


def _failed(settings: Settings, report: Report, number: int, kind: str, text: str) -> None:
    report.outcomes[kind] += 1
    case = make_case(settings.seed, number)
    report.failures[number] = f"seed {settings.seed}, case {number}, {case.story}: {text}"
    settings.failures.mkdir(parents=True, exist_ok=True)
    stem = settings.failures / f"{settings.seed}-{number}"
    stem.with_suffix(".json").write_bytes(objects_to_json(case.objects))
    stem.with_suffix(".txt").write_text(report.failures[number])


def replay(path: Path) -> str:
    """Run the case of a kept file in this process, with the verb and the store that it had."""
    seed, number = map(int, path.stem.split("-"))
    original = make_case(seed, number)
    case = Case(objects_from_json(path.read_bytes()), original.story, original.subset, original.exact)
    with tempfile.TemporaryDirectory() as folder:
        return run_case(case, seed, number, Path(folder))
