"""The session and the data frame of a call: a place for each."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kartothek_cube import spark as verbs
from kartothek_cube.api.dataset import store_dataframes_as_dataset
from kartothek_cube.core.stores.open import open_store
from kartothek_cube.errors import InvalidType


def signature_of(name):
    return inspect.signature(getattr(verbs, name)).parameters


VERBS = [n for n in verbs.__all__ if (p := signature_of(n).get("spark")) and p.kind is p.KEYWORD_ONLY]


class Frame:
    """What a data frame of Spark is known by."""

    columns = ("x", "v1")

    def mapInArrow(self):
        raise AssertionError


def connect_session():
    """An object of the class of Spark Connect, which cannot be imported without gRPC."""
    return type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


@pytest.fixture(params=["classic", "connect"])
def session(request):
    return object.__new__(SparkSession) if request.param == "classic" else connect_session()


@pytest.fixture
def store(store_url):
    store_dataframes_as_dataset(store_url, "d", [pa.table({"x": [1, 2], "v1": [0.5, 1.5]})])
    return open_store(store_url)


def test_there_are_verbs_with_a_session():
    assert len(VERBS) == 24


@pytest.mark.parametrize("name", VERBS)
def test_a_session_before_the_arguments_is_refused_with_the_right_call(name, session, store):
    needed = [p for p, each in signature_of(name).items() if each.default is each.empty]
    arguments = [{"df": Frame(), "data": Frame(), "store": store}.get(p, p) for p in needed]
    shown = ", ".join({"df": "df", "data": "data"}.get(p, p if "store" in p else repr(p)) for p in needed)
    with pytest.raises(InvalidType) as raised:
        getattr(verbs, name)(session, *arguments)
    call = f"{name}({shown}{', ' if shown else ''}spark=spark)"
    assert str(raised.value) == f"{name}: the session is the keyword spark=. The call is {call}."


@pytest.mark.parametrize(
    ("args", "named", "call"),
    [
        (["spark", "d", "store"], {}, "'d', store, spark=spark"),
        (["d", "spark", "store"], {}, "'d', store, spark=spark"),
        (["d", "store", "spark"], {}, "'d', store, spark=spark"),
        (["d"], {"store": "spark"}, "'d', spark=spark"),
        (["spark", "d", "store"], {"columns": ["x"], "spark": "spark"}, "'d', store, columns=['x'], spark=spark"),
        (["spark", "d", "hfs://user:secret@there"], {}, "'d', store, spark=spark"),
        (["spark", "hfs://user:secret@there", "d"], {}, "dataset_uuid, store, spark=spark"),
        (
            ["spark", "d", "store", "table", ["x"]],
            {"predicates": [[("v1", ">", 1)]]},
            "'d', store, 'table', ['x'], predicates=[[('v1', '>', 1)]], spark=spark",
        ),
    ],
)
def test_a_session_in_any_place_is_refused_with_the_other_arguments(session, store, args, named, call):
    values = {"spark": session, "store": store}
    args = [values.get(a, a) if isinstance(a, str) else a for a in args]
    named = {n: values.get(a, a) if isinstance(a, str) else a for n, a in named.items()}
    with pytest.raises(InvalidType) as raised:
        verbs.read_dataset_as_spark(*args, **named)
    assert str(raised.value).endswith(f"The call is read_dataset_as_spark({call}).")


@pytest.mark.parametrize(
    ("name", "arguments", "found", "call"),
    [
        ("store_dataset_from_spark", ["store", "d", Frame()], "df, the data frame, comes first", "df, store, 'd'"),
        (
            "store_dataset_from_spark",
            ["d", Frame(), "store"],
            "df, the data frame, comes first",
            "df, store, dataset_uuid",
        ),
        ("update_dataset_from_spark", ["store", Frame(), "d"], "df, the data frame, comes first", "df, store, 'd'"),
        (
            "merge_dataset_from_spark",
            ["store", Frame(), "d", ["x"]],
            "df, the data frame, comes first",
            "df, store, 'd', ['x']",
        ),
        (
            "append_to_cube_from_spark",
            ["c", {"seed": Frame()}, "store"],
            "data, the data frame, comes first",
            "data, 'c', store",
        ),
        (
            "store_dataset_from_spark",
            ["spark", "store", "d", Frame()],
            "the session is the keyword spark= and df, the data frame, comes first",
            "df, store, 'd', spark=spark",
        ),
    ],
)
def test_a_data_frame_in_the_place_of_another_argument_is_refused(session, store, name, arguments, found, call):
    values = {"spark": session, "store": store}
    arguments = [values.get(a, a) if isinstance(a, str) else a for a in arguments]
    with pytest.raises(InvalidType) as raised:
        getattr(verbs, name)(*arguments)
    assert str(raised.value) == f"{name}: {found}. The call is {name}({call})."
