"""The store calls of each verb, what the page *Calls to the store* says, and no verb is missing.

``REGENERATE=1`` writes the tables anew.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from kartothek_cube import options
from kartothek_cube.api import cube as cube_api
from kartothek_cube.api import dataset as dataset_api
from kartothek_cube.api import discover as discover_api
from kartothek_cube.core.stores.local import LocalStore, MemoryStore
from kartothek_cube.testing.stores import CountingStore, RoundsStore
from tests.caches import forget
from tests.support.checklists import REPOSITORY
from tests.support.store_calls import CUBE_CASES, CUBES, DATASET_CASES, DATASETS, UUID, Case, Z, stored

pytestmark = pytest.mark.slow

PAGE, ROUNDS = REPOSITORY / "docs" / "store-calls.md", Path(__file__).with_name("rounds.json")
# It says whether there is a file to open, and sends nothing.
NO_CALL = "local_path"


# --- the numbers ----------------------------------------------------------------------------------


def prepared(case: Case, size: dict[str, int], *, warm: bool) -> tuple[MemoryStore, Z, object]:
    """What the verb is called with."""
    store, z = MemoryStore(), Z(**size)
    given = case.make(store, z)
    if case.again or not warm:
        for known in (store, given):
            if isinstance(known, MemoryStore):
                forget(known)
    if case.again and warm:
        case.run(store, z, given)
    return store, z, given


def called(case: Case, size: dict[str, int], *, warm: bool) -> Counter[str]:
    """What the verb calls on a store without local paths."""
    with options(threads=1):  # more of them read more of the history ahead
        store, z, given = prepared(case, size, warm=warm)
        counting = CountingStore(store)
        case.run(counting, z, given)
    return Counter({operation: n for operation, n in counting.counts.items() if operation != NO_CALL})


def rounds(case: Case, *, warm: bool) -> int:
    """How many calls wait for each other in a far store, at most."""
    most = 0
    for size in sizes_of(case):
        store, z, given = prepared(case, size, warm=warm)
        counting = RoundsStore(store)
        with counting.rounds_counted():
            case.run(counting, z, given)
        most = max(most, counting.rounds)
    return most


def known_rounds() -> dict[str, list[int]]:
    """The rounds of each case, cold and warm."""
    return json.loads(ROUNDS.read_text(encoding="utf-8"))


def expected(formulas: str, size: dict[str, int]) -> Counter[str]:
    """The numbers of a case."""
    pairs = (part.split() for part in formulas.split(", "))
    return +Counter({operation: eval(formula, {}, size) for formula, operation in pairs})


def sizes_of(case: Case) -> list[dict[str, int]]:
    return [size for size in (DATASETS if case in DATASET_CASES else CUBES) if case.where(Z(**size))]


CASES = DATASET_CASES + CUBE_CASES
PARAMETERS = [
    pytest.param(case, size, id=f"{case.name}-{n}") for case in CASES for n, size in enumerate(sizes_of(case))
]


@pytest.mark.every(5)
@pytest.mark.parametrize(("case", "size"), PARAMETERS)
def test_a_verb_calls_a_store_that_is_new_to_it_as_often_as_the_page_says(case, size):
    assert called(case, size, warm=False) == expected(case.cold, size)


@pytest.mark.every(5)
@pytest.mark.parametrize(("case", "size"), PARAMETERS)
def test_a_verb_calls_a_store_that_it_knows_as_often_as_the_page_says(case, size):
    assert called(case, size, warm=True) == expected(case.warm or case.cold, size)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_verb_waits_for_a_far_store_no_longer_than_the_page_says(case):
    # Tasks that end early can spare a round.
    found = [rounds(case, warm=warm) for warm in (False, True)]
    assert all(n <= most for n, most in zip(found, known_rounds()[case.name], strict=True)), found


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_formula_is_tried_with_several_values_of_each_of_its_variables(case):
    sizes = sizes_of(case)
    for variable in set(re.findall(r"\b[A-Z]\b", f"{case.cold} {case.warm}")):
        assert len({size[variable] for size in sizes}) > 1, variable


def test_files_of_a_directory_are_opened_where_they_are(tmp_path):
    store = LocalStore(tmp_path)
    stored(store, Z(**DATASETS[1]))
    counting = CountingStore(store)
    forget(store)
    dataset_api.read_table(UUID, counting)
    assert counting.counts == {"get_versioned": 1, "local_path": 4}


# --- none is forgotten ----------------------------------------------------------------------------

# Public names that call no store, by the reason.
WITHOUT_STORE = {
    "a value, a class of values or a function of values": {
        *(
            "C",
            "CleanupReport",
            "CompactionPlan",
            "CompactionReport",
            "Condition",
            "Conjunction",
            "Cube",
            "CubeChanges",
            "CubeDescription",
            "CubeReport",
        ),
        *(
            "DatasetMetadataBase",
            "EqualityCondition",
            "Finding",
            "ForgetReport",
            "GarbageReport",
            "GreaterEqualCondition",
            "GreaterThanCondition",
            "Group",
        ),
        *(
            "InIntervalCondition",
            "IndexBase",
            "InequalityCondition",
            "IsInCondition",
            "IsNotInCondition",
            "LessEqualCondition",
            "LessThanCondition",
        ),
        *(
            "MigrationReport",
            "Partition",
            "PartitionIndex",
            "PublishedDelta",
            "QueryPlan",
            "Remark",
            "RowsReport",
            "DatasetLayout",
            "day",
            "month",
            "year",
            "ScanPlan",
            "SchemaWrapper",
            "SimpleCondition",
            "StagedPartitions",
            "Verdict",
            "VerifyReport",
            "VirtualColumn",
        ),
        *(
            "combine_metadata",
            "empty_dataframe_from_schema",
            "make_meta",
            "normalize_column_order",
            "normalize_type",
            "validate_compatible",
        ),
        "validate_shared_columns",
    },
    "opening a store neither reads nor writes": {"ensure_store", "lazy_store"},
    "made of verbs that have numbers": {"check_migration", "forget_cells", "rename_cube"},
}
APIS = (cube_api, dataset_api, discover_api)
PUBLIC = {name for module in APIS for name in module.__all__ if not name.isupper() or name == "C"}


def takes_a_store(value: object) -> bool:
    return any("store" in name for name in inspect.signature(value).parameters) if inspect.isfunction(value) else False


def test_every_public_verb_has_its_numbers():
    exempt = set().union(*WITHOUT_STORE.values())
    counted = {case.verb for case in CASES}
    assert counted | exempt == PUBLIC
    assert not counted & exempt


def test_what_has_no_numbers_takes_no_store():
    exempt = WITHOUT_STORE["a value, a class of values or a function of values"]
    assert not [
        name for module in APIS for name in exempt & set(module.__all__) if takes_a_store(getattr(module, name))
    ]


# --- the page -------------------------------------------------------------------------------------


def shown(formulas: str) -> str:
    """Numbers as the page has them; a call without a number happens once."""
    parts = [part.split() for part in formulas.split(", ")]
    spelled = [(formula.replace("*", "·").replace("-", "−"), operation) for formula, operation in parts]
    return "<br>".join(f"`{call}`" if number == "1" else f"{number} `{call}`" for number, call in spelled)


def table_of(cases: list[Case], known: dict[str, list[int]]) -> str:
    """Verbs with the same arguments and numbers share a row."""
    rows: dict[str, list[str]] = {}
    for case in cases:
        warm = shown(case.warm) if case.warm and case.warm != case.cold else ""
        waits = ", ".join(map(str, dict.fromkeys(known[case.name])))
        rows.setdefault(f"{case.note} | {shown(case.cold)} | {warm} | {waits}", []).append(f"`{case.verb}`")
    lines = [f"| {'<br>'.join(dict.fromkeys(verbs))} | {row} |" for row, verbs in rows.items()]
    return "\n".join(["| Verb | | Cold | Warm | Rounds |", "|---|---|---|---|---|", *lines]) + "\n"


def test_the_page_has_the_numbers_of_the_cases():
    if os.environ.get("REGENERATE"):
        found: dict[str, list[int]] = {}
        for case in CASES:  # datasets and cubes may have a verb of one name
            each = [rounds(case, warm=warm) for warm in (False, True)]
            found[case.name] = list(map(max, each, found.get(case.name, each)))
        lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
        ROUNDS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    known, text = known_rounds(), PAGE.read_text(encoding="utf-8")
    made = text
    for name, cases in (("datasets", DATASET_CASES), ("cubes", CUBE_CASES)):
        begin, end = f"<!-- table: {name} -->\n\n", "\n<!-- end -->"
        head, _, rest = made.partition(begin)
        _, _, tail = rest.partition(end)
        assert head != made, f"the page has no place for {name}"
        made = head + begin + table_of(cases, known) + end + tail
    if os.environ.get("REGENERATE"):
        PAGE.write_text(made, encoding="utf-8")
        return
    assert text == made, "REGENERATE=1 pytest tests/contract/test_store_calls.py"
