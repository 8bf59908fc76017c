from __future__ import annotations

import re

from kartothek_cube import collect_stats
from tests.support.cli_cubes import CUBE

INFO = """\
Infos
UUID Prefix:        my_cube
Dimension Columns:
  - x: int64
  - y: int64
Partition Columns:
  - p: int64
  - q: string
Index Columns:
  - i1: int64
Seed Dataset:      seed

Dataset: enrich
Partition Keys:
  - p: int64
  - q: string
Partitions: 4
Metadata:
  {
    "creation_time": "…",
    "foo": {
      "a": "\\u00fc",
      "b": [
        1,
        2
      ]
    },
    "ktk_cube_dimension_columns": [
      "x",
      "y"
    ],
    "ktk_cube_is_seed": false,
    "ktk_cube_partition_columns": [
      "p",
      "q"
    ],
    "ktk_cube_suppress_index_on": []
  }
Dimension Columns:
  - x: int64
Payload Columns:
  - v2: string
  - v3: int64

Dataset: seed
Partition Keys:
  - p: int64
  - q: string
Partitions: 4
Metadata:
  {
    "creation_time": "…",
    "ktk_cube_dimension_columns": [
      "x",
      "y"
    ],
    "ktk_cube_is_seed": true,
    "ktk_cube_partition_columns": [
      "p",
      "q"
    ],
    "ktk_cube_suppress_index_on": []
  }
Dimension Columns:
  - x: int64
  - y: int64
Payload Columns:
  - i1: int64
  - v1: double

Dataset: un
Partition Keys:
Partitions: 1
Metadata:
  {
    "creation_time": "…",
    "ktk_cube_dimension_columns": [
      "x",
      "y"
    ],
    "ktk_cube_is_seed": false,
    "ktk_cube_partition_columns": [
      "p",
      "q"
    ],
    "ktk_cube_suppress_index_on": []
  }
Dimension Columns:
  - y: int64
Payload Columns:
  - v4: int64
"""


def test_info_is_what_it_was(run):  # cube 255
    ran = run("my_cube", "info")
    assert ran.code == 0
    assert re.sub(r'"creation_time": "[^"]*"', '"creation_time": "…"', ran.out) == INFO


def test_info_without_index_columns_has_an_empty_line(run):  # cube 255
    lines = run("other", "info").out.splitlines()
    assert lines[lines.index("Index Columns:") :][:3] == ["Index Columns:", "", "Seed Dataset:      seed"]


def test_info_as_json(run):
    found = run("my_cube", "info", "--format", "json").json
    assert list(found) == ["uuid_prefix", "seed_dataset", "dimension_columns", "partition_columns", "index_columns", "datasets"]
    assert found["index_columns"] == [{"name": "i1", "type": "int64"}]
    assert [(d["id"], d["partitions"], [c["name"] for c in d["payload_columns"]]) for d in found["datasets"]] == [
        ("enrich", 4, ["v2", "v3"]),
        ("seed", 4, ["i1", "v1"]),
        ("un", 1, ["v4"]),
    ]


def expected_stats(names, folder):
    stats = collect_stats(CUBE, str(folder / "store"), names)
    parts = [f"{name}\n" + "".join(f"{key}:  {stats[name][key]:,}\n" for key in ("blobsize", "files", "partitions", "rows")) for name in sorted(stats)]
    total = "".join(f"{key}:  {sum(s[key] for s in stats.values()):,}\n" for key in ("blobsize", "files"))
    return "\n".join([*parts, f"__total__\n{total}"]) if parts else f"\n__total__\n{total}"


def test_stats_are_what_they_were(run, folder):  # cube 255
    assert run("my_cube", "stats").out == expected_stats(["enrich", "seed", "un"], folder)
    assert ",." not in run("my_cube", "stats").out
    assert run("my_cube", "stats").out.splitlines()[1].startswith("blobsize:  ")


def test_stats_of_some_datasets(run, folder):  # cube 248, 250
    assert run("my_cube", "stats", "--include", "[e-s]*", "--exclude", "s?ed").out == expected_stats(["enrich"], folder)
    assert run("my_cube", "stats", "--exclude", "*").out == expected_stats([], folder)


def test_stats_as_json(run, folder):
    stats = collect_stats(CUBE, str(folder / "store"))
    total = {key: sum(s[key] for s in stats.values()) for key in ("blobsize", "files")}
    assert run("--format", "json", "my_cube", "stats").json == {"datasets": stats, "total": total}
