"""The text of `explain`, pinned for the examples with which the query system is explained, and the answers that go with it."""

from __future__ import annotations

import pytest

from kartothek_cube.api.cube import C, Cube, build_cube, plan_cube_query, query_cube_arrow
from kartothek_cube.core.stores.memory import MemoryStore
from kartothek_cube.cube.explain import Step, StepRow, render_text
from tests.cube.cubes import table

PRODUCTS = [1, 2, 3, 5, 6]
LINES = ["l1", "l2"]
TRUE = bool(1)


def product_data():
    """Everything about products alone."""
    checks = table(PRODUCT=[1, 2, 3, 4, 5, 6], OK=[True, False, True, True, True, True])
    schedule = table(PRODUCT=[1, 2, 3, 4, 5], SCHED=[True, True, False, True, True])
    predictions = table(PRODUCT=[1, 2, 3, 6], PRED=[10, 20, 30, 60])
    return {"data_checks": checks, "schedule": schedule, "predictions": predictions}


def build(cube, seed):
    store = MemoryStore()
    data = {"source": seed, **product_data()}
    build_cube(data, cube, store, partition_on={i: [] for i in data if i != "source"})
    return store


@pytest.fixture
def flat():
    cube = Cube(["PRODUCT"], ["PART"], "flat", "source")
    return cube, build(cube, table(PRODUCT=PRODUCTS, PART=[p % 2 for p in PRODUCTS]))


@pytest.fixture
def deep():
    cube = Cube(["PRODUCT", "LINE"], ["PART"], "deep", "source", suppress_index_on=["LINE"])
    cells = [(p, line) for p in PRODUCTS for line in LINES]
    return cube, build(cube, table(PRODUCT=[p for p, _ in cells], LINE=[line for _, line in cells], PART=[p % 2 for p, _ in cells], UNITS=list(range(10))))


def explained(cube, store, *arguments, **named):
    return plan_cube_query(cube, store, *arguments, **named).explain()


def test_conditions_on_two_datasets_restrict_a_third(flat):
    cube, store = flat
    conditions = (C("OK") == TRUE) & (C("SCHED") == TRUE)
    rows = query_cube_arrow(cube, store, conditions, payload_columns=["PRED"]).to_pylist()
    assert [(row["PRODUCT"], row["PRED"]) for row in rows] == [(1, 10), (5, None)]
    assert explained(cube, store, conditions, payload_columns=["PRED"]) == EXPLAINED["restricted"]


def test_a_condition_of_fewer_dimensions_removes_all_cells_of_the_product(deep):
    cube, store = deep
    rows = query_cube_arrow(cube, store, C("SCHED") == TRUE, payload_columns=["UNITS"]).to_pylist()
    assert [(row["PRODUCT"], row["LINE"], row["UNITS"]) for row in rows] == [
        (p, line, 2 * PRODUCTS.index(p) + i) for p in (1, 2, 5) for i, line in enumerate(LINES)
    ]
    assert explained(cube, store, C("SCHED") == TRUE, partition_by="PRODUCT", payload_columns=["UNITS"]) == EXPLAINED["fewer dimensions"]


def test_a_projection_leaves_the_other_dimension_out(deep):
    cube, store = deep
    arguments = {"conditions": C("OK") == TRUE, "dimension_columns": "PRODUCT", "payload_columns": ["PRED"]}
    rows = query_cube_arrow(cube, store, **arguments).to_pylist()
    assert [(row["PRODUCT"], row["PRED"]) for row in rows] == [(1, 10), (3, 30), (5, None), (6, 60)]
    assert explained(cube, store, **arguments) == EXPLAINED["projection"]


def test_a_step_without_counts_has_blanks():
    text = render_text("Title", [Step(1, "First", "files", (StepRow("a", None, 1_234_567, "note"), StepRow("longer name", 0, None)))])
    assert text == "Title\n\n1. First\n   dataset         before      after  (files)\n   a                       1,234,567  note\n   longer name          0"


EXPLAINED = {
    "restricted": """\
Query of cube 'flat'

1. Labels
   dataset         before      after  (files)
   source                          2  partitioned by PART
   data_checks                     1  not partitioned
   schedule                        1  not partitioned
   predictions                     1  not partitioned

2. Pre-conditions: (OK == True) & (SCHED == True)
   dataset         before      after  (files)
   source               2          2
   data_checks          1          1  rows only: OK
   schedule             1          1  rows only: SCHED
   predictions          1          1

3. Partition by: nothing asked for
   dataset         before      after  (files → partitions)
   source               2          2  by PART
   data_checks          1          1  by nothing
   schedule             1          1  by nothing
   predictions          1          1  by nothing

4. Alignment
   dataset         before      after  (partitions)
   source                          2  seed
   data_checks          2          2  inner join
   schedule             2          2  inner join
   predictions          2          2  left join

5. Re-grouping
   dataset         before      after  (partitions → groups)
   all                  2          2  one group an aligned partition

6. Join inside a partition
   dataset         before      after  (files)
   source                          2  cells by PRODUCT
   data_checks                     1  inner join on PRODUCT
   schedule                        1  inner join on PRODUCT
   predictions                     1  left join on PRODUCT

7. Concatenation, ordered by PRODUCT, PART
   dataset         before      after  (files → reads)
   all                  5          8  1.6 reads per file if every group were loaded alone""",
    "fewer dimensions": """\
Query of cube 'deep'

1. Labels
   dataset         before      after  (files)
   source                          2  partitioned by PART
   schedule                        1  not partitioned
   data_checks                        gives nothing to this query
   predictions                        gives nothing to this query

2. Pre-conditions: (SCHED == True)
   dataset         before      after  (files)
   source               2          2
   schedule             1          1  rows only: SCHED

3. Partition by PRODUCT
   dataset         before      after  (files → partitions)
   source               2          5  by PART, PRODUCT
   schedule             1          1  by nothing

4. Alignment
   dataset         before      after  (partitions)
   source                          5  seed
   schedule             5          5  inner join

5. Re-grouping
   dataset         before      after  (partitions → groups)
   all                  5          5  by PRODUCT

6. Join inside a partition
   dataset         before      after  (files)
   source                          2  cells by PRODUCT, LINE
   schedule                        1  inner join on PRODUCT

7. Concatenation, ordered by PRODUCT, LINE, PART
   dataset         before      after  (files → reads)
   all                  3         10  3.3 reads per file if every group were loaded alone""",
    "projection": """\
Query of cube 'deep'

1. Labels
   dataset         before      after  (files)
   source                          2  partitioned by PART
   data_checks                     1  not partitioned
   predictions                     1  not partitioned
   schedule                           gives nothing to this query

2. Pre-conditions: (OK == True)
   dataset         before      after  (files)
   source               2          2
   data_checks          1          1  rows only: OK
   predictions          1          1

3. Partition by: nothing asked for
   dataset         before      after  (files → partitions)
   source               2          2  by PART
   data_checks          1          1  by nothing
   predictions          1          1  by nothing

4. Alignment
   dataset         before      after  (partitions)
   source                          2  seed
   data_checks          2          2  inner join
   predictions          2          2  left join

5. Re-grouping
   dataset         before      after  (partitions → groups)
   all                  2          2  one group an aligned partition

6. Join inside a partition
   dataset         before      after  (files)
   source                          2  cells by PRODUCT, LINE, projected to PRODUCT
   data_checks                     1  inner join on PRODUCT
   predictions                     1  left join on PRODUCT

7. Concatenation, ordered by PRODUCT, PART
   dataset         before      after  (files → reads)
   all                  4          6  1.5 reads per file if every group were loaded alone""",
}
