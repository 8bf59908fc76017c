"""Goes into the mutated copy of the package: is this mutant on, and which tests come by."""

import os

_ON = int(os.environ.get("KARTOTHEK_CUBE_MUTANT", "-1"))
_HITS = os.environ.get("KARTOTHEK_CUBE_HITS")
# Of the test that runs; the plugin of pytest empties it before each.
_seen: set[int] = set()


def _is_mutant(number: int) -> bool:
    if _HITS and number not in _seen:
        _seen.add(number)
        with open(os.path.join(_HITS, f"{os.getpid()}.hits"), "a") as file:  # noqa: PTH118, PTH123
            file.write(f"{number} {os.environ.get('PYTEST_CURRENT_TEST', '')}\n")
    return number == _ON
