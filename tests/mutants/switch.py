"""Goes into the mutated copy of the package: is this mutant on, and which tests come by."""

import os

_ON = int(os.environ.get("KARTOTHEK_CUBE_MUTANT", "-1"))
_HITS = os.environ.get("KARTOTHEK_CUBE_HITS")
_seen: set[tuple[int, str]] = set()


def _is_mutant(number: int) -> bool:
    if _HITS:
        hit = number, os.environ.get("PYTEST_CURRENT_TEST", "")
        if hit not in _seen:
            _seen.add(hit)
            with open(os.path.join(_HITS, f"{os.getpid()}.hits"), "a") as file:  # noqa: PTH118, PTH123
                file.write(f"{hit[0]} {hit[1]}\n")
    return number == _ON
