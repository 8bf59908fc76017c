"""Where Spark's reader finds files, and whether it reads folders as we do: without a session."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from kartothek_cube import open_store
from kartothek_cube.errors import Unsupported
from kartothek_cube.spark.native import reads_same, spark_uri

KEY = "sales/table/p=a%20b/0123.parquet"


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("hfs:///data/ä%20b", "file:/data/ä b/" + KEY),
        ("hfs:///data?readonly=true", "file:/data/" + KEY),
        ("s3://bucket", "s3a://bucket/" + KEY),
        ("s3a://bucket/some/prefix?endpoint=http://minio:9000", "s3a://bucket/some/prefix/" + KEY),
        ("hs3://key:secret@minio:9000/bucket?force_bucket_suffix=false", "s3a://bucket/" + KEY),
        ("s3://bucket/x?readonly=true", "s3a://bucket/x/" + KEY),
    ],
)
def test_directories_and_s3_have_a_place_for_spark(url, uri):
    pytest.importorskip("obstore", reason="not installed: obstore")
    assert spark_uri(open_store(url), KEY) == uri


@pytest.mark.parametrize("url", ["hmemory://", "gs://bucket", "az://container/prefix"])
def test_other_stores_have_none(url):
    pytest.importorskip("obstore", reason="not installed: obstore")
    with pytest.raises(Unsupported, match=r"local directories and S3 .* native=False"):
        spark_uri(open_store(url), KEY)


@pytest.mark.parametrize("key", ["d/table/_a.parquet", "d/table/.a.parquet", "d/table/a.csv", "d/table/a[1].parquet"])
def test_files_that_spark_passes_over_are_refused(key):
    with pytest.raises(Unsupported, match="reads no file of the key"):
        spark_uri(open_store("hfs:///data"), key)


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("a b", "a b", True),
        ("Ã¤", "ä", False),
        ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__", False),
        ("-5", -5, True),
        ("5.0", 5, False),
        ("05", 5, True),
        ("9" * 19, int("9" * 18), False),
        ("٣", 3, False),
        ("True", True, True),
        ("1", True, False),
        ("2024-01-01", dt.date(2024, 1, 1), True),
        ("2024-01-01 00:00:00", dt.date(2024, 1, 1), False),
        ("2024-03-10 02:30:00", dt.datetime(2024, 3, 10, 2, 30), True),
        ("2024-03-10T02:30:00", dt.datetime(2024, 3, 10, 2, 30), False),
        ("2024-03-10 02:30:00", dt.datetime(2024, 3, 10, 2, 30, tzinfo=dt.UTC), False),
        ("1.5", 1.5, False),
        ("None", None, False),
    ],
)
def test_only_certain_texts_of_folders_are_left_to_spark(text, value, same):
    scalar = pa.scalar(value) if value is not None else pa.scalar(None, pa.string())
    assert reads_same(text, scalar) is same
