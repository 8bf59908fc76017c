from __future__ import annotations

from datetime import date, datetime

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kartothek_cube.core.arguments import did_you_mean, join_names
from kartothek_cube.core.metadata.naming import (
    check_uuid,
    data_key,
    decode_key,
    document_key,
    index_key,
    label_of,
    new_id,
    quote,
    schema_key,
    unquote,
)
from kartothek_cube.core.stores.contract import check_key
from kartothek_cube.errors import InvalidInput


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # kartothek leaves the slash alone, which cuts the value when it is read back.
        ("a b/c=d&ä%", "a%20b%2Fc%3Dd%26%C3%A4%25"),
        (pd.Timestamp("2020-01-01 01:02:03.000004"), "2020-01-01%2001%3A02%3A03.000004"),
        (1e22, "1e%2B22"),
        (True, "True"),
        (date(2020, 1, 1), "2020-01-01"),
        (b"\xff", "%FF"),
        ("~.-_", "~.-_"),
        (" +:,*\\!'()", "%20%2B%3A%2C%2A%5C%21%27%28%29"),
        ("", ""),
        (-2, "-2"),
    ],
)
def test_values_are_quoted(value, text):
    assert quote(value) == text


@given(st.text())
def test_quoted_text_is_a_key_and_comes_back(text):
    assert unquote(quote(text)) == text
    if 0 < len(quote(text)) < 200:
        check_key(f"uuid/table/p={quote(text)}/f")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("u/t/a=1/b=2/x.parquet", ("u", "t", (("a", "1"), ("b", "2")), "x.parquet")),
        ("u/t/a=1=2/x.parquet", ("u", "t", (), "x.parquet")),
        ("u/t/a/b/x.parquet", ("u", "t", (), "x.parquet")),
        ("u/t", ("u/t", None, (), None)),
        ("u/t/=1/x.parquet", ("u", "t", (("", "1"),), "x.parquet")),
        ("u/t/c=/x.parquet", ("u", "t", (("c", ""),), "x.parquet")),
        ("u/t/a%2Fb=%C3%A4/x", ("u", "t", (("a/b", "ä"),), "x")),
    ],
)
def test_keys_are_decoded(key, expected):
    found = decode_key(key)
    assert (found.uuid, found.table, found.pairs, found.file) == expected


@pytest.mark.parametrize(
    ("pairs", "label"),
    [
        ([("location", "München")], "location=M%C3%BCnchen/data"),
        ([("location", "å\\ øß")], "location=%C3%A5%5C%20%C3%B8%C3%9F/data"),
        ([("index1", "value1"), ("index2", "value2")], "index1=value1/index2=value2/data"),
        ([("col a=ä", "%")], "col%20a%3D%C3%A4=%25/data"),
        ([], "data"),
    ],
)
def test_labels(pairs, label):
    assert label_of(pairs, "data") == label


def test_keys_of_a_dataset():
    assert data_key("ds", "table", "P=1/0001") == "ds/table/P=1/0001.parquet"
    assert schema_key("ds", "facts") == "ds/facts/_common_metadata"
    assert document_key("ds") == "ds.by-dataset-metadata.json"
    assert document_key("ds", msgpack=True) == "ds.by-dataset-metadata.msgpack.zstd"
    moment = datetime(2000, 1, 1, 1, 1, 1, 1)
    assert index_key("ds", "L", moment) == "ds/indices/L/2000-01-01T01%3A01%3A01.000001.by-dataset-index.parquet"
    assert index_key("ds", "a/b ä", moment).startswith("ds/indices/a/b%20%C3%A4/")


@pytest.mark.parametrize("uuid", ["a", "uuid+name-space_12", "8eedca1386ca4b78883f36d2a6381522", "cube++seed"])
def test_uuid(uuid):
    assert check_uuid(uuid) == uuid


@pytest.mark.parametrize("uuid", ["", "a.b", "a/b", "a b", "ä", "mañana", "a\nb", "a\n", None, 1])
def test_uuid_with_other_characters_is_refused(uuid):
    with pytest.raises(InvalidInput, match="UUID contains illegal character"):
        check_uuid(uuid)


def test_fresh_ids_are_hexadecimal_and_differ():
    first, second = new_id(), new_id()
    assert first != second
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")


def test_of_many_names_the_first_are_listed():
    assert join_names(["b", "a"]) == "a, b"
    assert join_names(map(str, range(12))).count(",") == 11
    assert join_names(f"{i:05}" for i in range(12_345)).endswith("00010, 00011, … (12,345 in all)")


def test_a_close_name_is_meant_whatever_its_case():
    assert did_you_mean(["UNIT", "nothing"], ["UNITS", "BRAND"]) == " Did you mean 'UNITS'?"
    assert did_you_mean(["unit", "UNIT"], ["UNITS"]) == " Did you mean 'UNITS'?"
    assert did_you_mean(["BRADN", "unit"], ["UNITS", "BRAND"]) == " Did you mean 'BRAND', 'UNITS'?"
    assert did_you_mean([""], ["UNITS"]) == did_you_mean(["x"], []) == ""
