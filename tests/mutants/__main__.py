"""The fixed sample of mutants, judged by the tests: `make mutants`.

A copy of the package has all mutants of the sample, each behind a switch. One run of the tests
tells which of them come by which mutant; these run again with it, the quickest first, until one
fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.mutants.mutations import SWITCH, Mutant, Mutator

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).with_name("sample.json")
ROOMS = [
    *(f"core/{room}" for room in ("commit", "metadata", "snapshots", "scan", "rows", "io", "expressions")),
    *(f"cube/{room}" for room in ("query", "execute", "write")),
]
SIZE, SEED = 60, 31
# Without Spark, other environments and servers.
CHOICE = [
    "-m",
    "not spark and not interop and not servers",
    "--ignore=tests/test_shape.py",
    "--ignore=tests/test_flow.py",
]
# The first tests in a process of their own: most mutants do not survive them.
FIRST = 300


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """The modules of the rooms, in which the sample was drawn."""
    for room in ROOMS:
        places = [*(package / room).rglob("*.py"), package / f"{room}.py"]
        yield from ((room, path) for path in sorted(places) if path.exists())


def draw() -> None:
    """Draw a mutant in place of each that is not in the package any more; the others stay."""
    found = list[Mutant]()
    for room, path in modules(ROOT / "kartothek_cube"):
        mutator = Mutator(room)
        mutator.visit(ast.parse(path.read_text()))
        found += mutator.found
    old, known = sample(), set(found)
    others = iter(random.Random(SEED).sample(sorted(known.difference(old)), SIZE))
    new = [mutant if mutant in known else next(others) for mutant in old]
    SAMPLE.write_text(json.dumps([list(vars(m).values()) for m in new], indent=1, ensure_ascii=False) + "\n")
    print(f"{SIZE} of {len(found)} mutants, of which {sum(m not in old for m in new)} are new")


def sample() -> list[Mutant]:
    """The mutants, in the order of their numbers."""
    return [Mutant(*values) for values in json.loads(SAMPLE.read_text())]


def mutated_copy(folder: Path) -> None:
    """The repository with all mutants in its package, each behind its switch."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv*", ".node", "_build", ".hypothesis"))
    numbers = {mutant: k for k, mutant in enumerate(sample())}
    missing = set(numbers)
    shutil.copy(Path(__file__).with_name("switch.py"), folder / "kartothek_cube" / f"{SWITCH}.py")
    for room, path in modules(folder / "kartothek_cube"):
        mutator = Mutator(room, numbers)
        tree = mutator.visit(ast.parse(path.read_text()))
        if not missing.intersection(mutator.found):
            continue
        missing.difference_update(mutator.found)
        assert isinstance(tree, ast.Module)
        after = sum(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body) + bool(
            ast.get_docstring(tree)
        )
        tree.body.insert(after, ast.ImportFrom(f"kartothek_cube.{SWITCH}", [ast.alias(SWITCH)], 0))
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    if missing:
        raise SystemExit(
            "Not in the package any more; draw others in their place (--draw):\n" + "\n".join(map(str, missing))
        )


def pytest(folder: Path, *arguments: str, timeout: float | None = None, **environment: str) -> int:
    """The exit code of a run in the copy; 1 where it takes too long, since a mutant may not end."""
    env = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""} | environment
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.plugin", *arguments]
    log = Path(tempfile.mkstemp(prefix="mutant-", suffix=".log")[1])
    try:
        with log.open("w") as output:
            done = subprocess.run(
                command, cwd=folder, env=env, timeout=timeout, stdout=output, stderr=output, check=False
            )
    except subprocess.TimeoutExpired:
        return 1
    if done.returncode not in (0, 1, 5):
        print(f"pytest ended with {done.returncode}: {log}")
    return done.returncode


def record(folder: Path, workers: int, arguments: Iterable[str]) -> None:
    """Run all tests once; the folder then has times.jsonl and the hits."""
    hits = folder / "hits"
    hits.mkdir()
    place = {"KARTOTHEK_CUBE_HITS": str(hits), "KARTOTHEK_CUBE_TIMES": str(hits)}
    pytest(folder, "-n", str(workers), *CHOICE, *arguments, **place)


def tests_of(folder: Path) -> tuple[dict[int, list[str]], dict[str, float]]:
    """Tests that come by each mutant, the quickest first, and the seconds of each test."""
    seconds, failed = defaultdict[str, float](float), set[str]()
    for line in (folder / "hits/times.jsonl").read_text().splitlines():
        test, _, duration, outcome = json.loads(line)
        seconds[test] += duration
        if outcome == "failed":
            failed.add(test)
    of_file = defaultdict[str, list[str]](list)
    for test in seconds:
        of_file[test.partition("::")[0]].append(test)
    hits = defaultdict[int, set[str]](set)
    for path in (folder / "hits").glob("*.hits"):
        for line in path.read_text().splitlines():
            number, _, test = line.partition(" ")
            test, _, phase = test.rpartition(" (")
            # What a fixture does may be seen by other tests of its file.
            hits[int(number)] |= {test} if phase != "setup)" else {test, *of_file[test.partition("::")[0]]}
    return {k: sorted(tests & set(seconds) - failed, key=seconds.__getitem__) for k, tests in hits.items()}, seconds


def judge(folder: Path, hits: dict[int, list[str]], seconds: dict[str, float], number: int) -> bool:
    """Whether a test fails with the mutant."""
    tests = hits.get(number, [])
    for chosen in (tests[:FIRST], tests[FIRST:]):
        if chosen:
            names = folder / f"tests-{number}.txt"
            names.write_text("\n".join(chosen))
            limit = 120 + 4 * sum(map(seconds.__getitem__, chosen))
            code = pytest(folder, "-n", "0", "-x", f"@{names}", timeout=limit, KARTOTHEK_CUBE_MUTANT=str(number))
            if code != 0:
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw others in place of mutants that are gone")
    parser.add_argument("--folder", type=Path, help="keep the copy here; with hits in it, tests are not recorded again")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of mutants")
    parser.add_argument("arguments", nargs="*", help="for pytest, e.g. tests/unit")
    given = parser.parse_args()
    if given.draw:
        draw()
        return
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="mutants-")) / "copy"
    if not (folder / "hits").exists():
        mutated_copy(folder)
        record(folder, given.workers, given.arguments)
    hits, seconds = tests_of(folder)
    numbers = range(SIZE) if given.only is None else given.only
    killed = 0
    with ThreadPoolExecutor(given.workers) as pool:
        for number, is_killed in zip(numbers, pool.map(partial(judge, folder, hits, seconds), numbers), strict=True):
            killed += is_killed
            found = "killed  " if is_killed else "SURVIVED"
            print(f"{found} {number:2} {sample()[number]} ({len(hits.get(number, []))} tests)", flush=True)
    print(f"{killed} of {len(numbers)} mutants killed")


if __name__ == "__main__":
    main()
