from __future__ import annotations

import pytest

from kartothek_cube.cli.context import Failure
from kartothek_cube.cli.options import select_names

NAMES = ["enrich", "enrich_cl", "seed", "un"]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, None, NAMES),
        ("*", None, NAMES),
        ("enrich", None, ["enrich"]),
        ("enrich*", None, ["enrich", "enrich_cl"]),
        ("?eed", None, ["seed"]),
        ("[a-s]*", None, ["enrich", "enrich_cl", "seed"]),
        (" seed , un ", None, ["seed", "un"]),
        (None, "enrich*", ["seed", "un"]),
        ("enrich*,un", "*_cl", ["enrich", "un"]),
        ("seed", "un", ["seed"]),
        (None, "*", []),
    ],
)
def test_globs_choose(include, exclude, expected):  # cube 248, 250
    assert select_names(NAMES, include, exclude) == expected


@pytest.mark.parametrize(
    ("include", "exclude", "part"),
    [("nope", None, "nope"), ("seed,x*", None, "x*"), (None, "[a-b]*", "[a-b]*"), ("", None, "")],
)
def test_a_pattern_that_matches_nothing_is_named(include, exclude, part):  # cube 249
    with pytest.raises(Failure) as failure:
        select_names(NAMES, include, exclude)
    assert (
        failure.value.message == f"Could not find dataset {part or repr(part)}, known datasets are {', '.join(NAMES)}"
    )
    assert failure.value.exit_code == 2


@pytest.mark.parametrize("command", ["stats", "delete", "compact", "files"])
@pytest.mark.parametrize("option", ["--include", "--exclude"])
def test_commands_name_it_too(run, command, option):  # cube 249
    ran = run("my_cube", command, option, "seed,x?")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        "Error: Could not find dataset x?, known datasets are enrich, seed, un\n",
    )
