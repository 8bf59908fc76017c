"""What travels to executors is small: bounds on pickles, and nothing drags a snapshot along."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from kartothek_cube import Cube, build_cube, extend_cube, plan_cube_query
from kartothek_cube.core.stores.open import open_store, store_factory
from kartothek_cube.spark.read import load_groups
from kartothek_cube.spark.tasks import as_task, pack
from kartothek_cube.spark.types import wire_schema

CUBE = Cube(["x", "y"], ["p"], "sales_of_everything", index_columns=["i1", "i2"])


def plan_of(partitions, **query):
    url = f"hmemory://pickles-{partitions}"
    rows = np.arange(partitions)
    if not list(open_store(url).list("", recursive=True).keys):
        build_cube(
            pa.table({"x": rows, "y": rows, "p": rows, "i1": rows % 10, "i2": rows, "v1": rows * 1.5}), CUBE, url
        )
        extend_cube({"e": pa.table({"x": [1], "v2": [1.0]})}, CUBE, url, partition_on={"e": []})
    return plan_cube_query(CUBE, url, **query)


def size(value):
    return len(pickle.dumps(value))


def test_cubes_and_stores_are_small():
    assert size(CUBE) < 400
    assert size(store_factory("hfs:///srv/cubes/of/everything")) < 400


@pytest.mark.parametrize("query", [{}, {"partition_by": "i1"}, {"payload_columns": ["v1"]}])
def test_a_group_alone_is_small_and_does_not_drag_the_plan_along(query):
    few, many = plan_of(10, **query), plan_of(1000, **query)
    assert size(few.groups[0]) < 2_500
    if "partition_by" not in query:
        assert size(many.groups[0]) < size(few.groups[0]) + 100
        assert size(many.groups[:1000]) < 500_000


def test_a_packed_thousand_groups_are_small():
    (chunk,) = pack(plan_of(1000).groups, 1)
    assert len(chunk) < 16_000
    (chunk,) = pack(plan_of(1000).slices, 1)
    assert len(chunk) < 16_000


def test_what_a_task_does_is_pickled_by_name():
    from pyspark import cloudpickle

    factory, wire = store_factory("hfs:///srv/cubes"), wire_schema(plan_of(10).schema, "it")
    # In the library itself the function stands in a module; here, in a test, it is pickled whole,
    # so that this is an upper bound.
    work = as_task(lambda groups: load_groups(groups, factory, wire))
    assert len(cloudpickle.dumps(work)) < 6_000
