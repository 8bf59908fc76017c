"""Damage: to bytes, to the structure of a document, to the schema and rows of a Parquet file.

A case is decided by its seed and number alone.
"""

from __future__ import annotations

import base64
import json
import math
import random
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from kartothek_cube.core.metadata.commit_log import COMMITS_KEY, SCHEMA_KEY
from tests.robustness.fuzz import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

Rng = random.Random
ABSURD_TEXTS = (
    *(
        "",
        " ",
        "..",
        "../x",
        "/etc/passwd",
        "a/../../b",
        "uuid//x",
        "uuid\\x",
        "a\nb",
        "a\0b",
        "ä",
        "x" * 300,
        "%",
        "%zz",
        "%ff",
        "=",
        "p",
        "p=",
        "p=x",
        "p=1/2",
    ),
    *(
        "other/table/x.parquet",
        "other.by-dataset-metadata.json",
        "uuid.by-dataset-metadata.json",
        "uuid/table/_common_metadata",
        "uuid/table/p=9/x.parquet",
    ),
    "x" * 20_000,
)
ABSURD_VALUES = (
    None,
    True,
    0,
    -1,
    3,
    5,
    4.0,
    2**63,
    10**30,
    1e308,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"files": {}},
    {"files": None},
    {"files": {"table": 5}},
    {"a": ["b"]},
)


@dataclass(frozen=True)
class Case:
    """A damaged store, what was done to it, and what may be asked of the answer.

    ``subset`` says that rows may be missing but none may be made up; ``exact`` that the answer is
    the true one or an error.
    """

    objects: dict[str, bytes]
    story: str
    subset: bool = False
    exact: bool = False


def make_case(seed: int, number: int) -> Case:
    rng = random.Random(seed * 1_000_003 + number)
    return rng.choices(KINDS, weights=WEIGHTS)[0](rng)


# --- bytes ----------------------------------------------------------------------------------------


def damaged(rng: Rng, data: bytes, start: int = 0, stop: int | None = None) -> bytes:
    """A few changes between two positions."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4, 16))):
        limit = min(stop if stop is not None else len(found), len(found))
        if limit <= start:
            break
        rng.choice(BYTE_CHANGES)(rng, found, rng.randrange(start, limit))
    return bytes(found)


def _flip(rng: Rng, data: bytearray, at: int) -> None:
    data[at] ^= 1 << rng.randrange(8)


def _set(rng: Rng, data: bytearray, at: int) -> None:
    data[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _insert(rng: Rng, data: bytearray, at: int) -> None:
    data[at:at] = rng.choice((b"\0", b"\xff", b'"', b"{", b"[", b"\xff" * 8, bytes(data[at : at + 16])))


def _remove(rng: Rng, data: bytearray, at: int) -> None:
    del data[at : at + rng.choice((1, 1, 4, 100))]


def _overwrite(rng: Rng, data: bytearray, at: int) -> None:
    width = rng.choice((2, 4, 8))
    data[at : at + width] = rng.choice(
        (b"\xff" * width, b"\0" * width, b"\x7f" + b"\xff" * (width - 1), b"\x80" * width)
    )[: max(0, len(data) - at)]


BYTE_CHANGES: tuple[Callable[[Rng, bytearray, int], None], ...] = (
    _flip,
    _flip,
    _flip,
    _set,
    _insert,
    _remove,
    _overwrite,
)


def _cut(rng: Rng, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


# --- documents ------------------------------------------------------------------------------------


def _document_bytes(rng: Rng) -> Case:
    spelling = rng.choice(("json", "ours", "msgpack"))
    objects = seeds.store_of(spelling)
    key = seeds.MSGPACK_KEY if spelling == "msgpack" else seeds.JSON_KEY
    data = objects[key]
    if spelling == "msgpack" and rng.random() < 0.7:
        data = zstandard.compress((_cut if rng.random() < 0.2 else damaged)(rng, zstandard.decompress(data)))
    else:
        data = (_cut if rng.random() < 0.2 else damaged)(rng, data)
    return Case({**objects, key: data}, f"bytes of the {spelling} document")


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = inner if len(path) < 8 else ()
    return [path, *(place for key, child in inner for place in _places(child, (*path, key)))]


def _absurd(rng: Rng) -> Any:
    choice = rng.random()
    if choice < 0.5:
        return rng.choice(ABSURD_TEXTS)
    if choice < 0.9:
        return deepcopy(rng.choice(ABSURD_VALUES))  # further damage changes it
    deep: Any = rng.choice((None, "x"))
    for _ in range(rng.choice((10, 90, 150, 400, 900))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return deep


def _replace(rng: Rng, members: Any, *, msgpack: bool) -> None:
    path = rng.choice(_places(members)[1:] or [()])
    if not path:
        return
    holder = members
    for step in path[:-1]:
        holder = holder[step]
    choice = rng.random()
    if choice < 0.6:
        holder[path[-1]] = _absurd(rng)
    elif choice < 0.75:
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder[rng.choice(ABSURD_TEXTS) if not msgpack or rng.random() < 0.8 else rng.choice((5, b"x"))] = holder.pop(
            path[-1]
        )


def _document_structure(rng: Rng) -> Case:
    spelling = rng.choice(("json", "ours", "msgpack"))
    members = seeds.document(ours=spelling == "ours")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _replace(rng, members, msgpack=spelling == "msgpack")
    try:
        key, data = (
            (seeds.MSGPACK_KEY, seeds.packed(members))
            if spelling == "msgpack"
            else (seeds.JSON_KEY, json.dumps(members).encode())
        )
    except (RecursionError, OverflowError, ValueError, TypeError):  # more than a writer can write
        key, data = seeds.JSON_KEY, b"[" * 100_000
    objects = {k: v for k, v in seeds.store_of(spelling).items() if k not in (seeds.MSGPACK_KEY, seeds.JSON_KEY)}
    return Case({**objects, key: data}, f"structure of the {spelling} document")


def _own_entries(rng: Rng) -> Case:
    members: Any = seeds.document(ours=True)
    metadata = members["metadata"]
    key = rng.choice((COMMITS_KEY, SCHEMA_KEY, SCHEMA_KEY))
    if rng.random() < 0.4:
        metadata[key] = rng.choice(
            (
                _absurd(rng),
                "[" * 100_000,
                '{"a":' * 100_000,
                '{"table": "AAAA"}',
                "{}",
                '{"table": 5}',
                '[["a"]]',
                "null",
            )
        )
    elif key == SCHEMA_KEY:
        plain = zstandard.decompress(base64.b64decode(json.loads(metadata[key])["table"]))
        metadata[key] = json.dumps({"table": base64.b64encode(zstandard.compress(damaged(rng, plain))).decode()})
    else:
        metadata[key] = damaged(rng, metadata[key].encode()).decode("latin-1")
    try:
        data = json.dumps(members).encode()
    except RecursionError:
        data = b"[" * 100_000
    return Case({**seeds.store_of("ours"), seeds.JSON_KEY: data}, f"{key} of the document")


def _schema_file(rng: Rng) -> Case:
    objects = seeds.store_of("json")
    data = objects[seeds.SCHEMA_FILE]
    if rng.random() < 0.2:
        return Case(
            {**objects, seeds.SCHEMA_FILE: encode(_other_table(rng, seeds.rows()).slice(0, 0))},
            "another schema in the schema file",
        )
    return Case(
        {**objects, seeds.SCHEMA_FILE: (_cut if rng.random() < 0.2 else damaged)(rng, data)}, "bytes of the schema file"
    )


# --- Parquet files --------------------------------------------------------------------------------


def encode(table: pa.Table, **settings: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **settings)
    return sink.getvalue().to_pybytes()


def _parquet_bytes(rng: Rng, data: bytes) -> bytes:
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    choice = rng.random()
    if choice < 0.1:
        return _cut(rng, data)
    return damaged(rng, data, footer) if choice < 0.6 else damaged(rng, data, 0, footer)


OTHER_COLUMNS: tuple[Callable[[Rng, int], pa.Array], ...] = (
    lambda rng, n: pa.array([rng.choice(ABSURD_TEXTS) for _ in range(n)]),
    lambda rng, n: pa.array([rng.choice((None, -1, 2**62)) for _ in range(n)], type=pa.int64()),
    lambda rng, n: pa.array([rng.choice((None, math.nan, math.inf, 1e300)) for _ in range(n)], type=pa.float64()),
    lambda rng, n: pa.nulls(n),
    lambda rng, n: pa.nulls(n, pa.int64()),
    lambda rng, n: pa.array([[rng.choice(ABSURD_TEXTS), None] for _ in range(n)]),
    lambda rng, n: pa.array([[[1]] for _ in range(n)]),
    lambda rng, n: pa.array([{"a": 1, "b": None} for _ in range(n)]),
    lambda rng, n: pa.array([[("k", 1)] for _ in range(n)], type=pa.map_(pa.string(), pa.int64())),
    lambda rng, n: pa.array([b"\xff\xfe"] * n, type=pa.binary()),
    lambda rng, n: (
        pa.array([rng.randrange(-(2**40), 2**40) for _ in range(n)]).cast(pa.timestamp("us", "Europe/Berlin"))
    ),
    lambda rng, n: pa.array(["a"] * n).dictionary_encode(),
    lambda rng, n: pa.array([1] * n, type=pa.decimal128(30, 2)),
    lambda rng, n: pa.array([b"abcd"] * n, type=pa.binary(4)),
)  # fmt: skip


def _other_table(rng: Rng, table: pa.Table) -> pa.Table:
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(table.num_columns) if table.num_columns else 0
        choice = rng.random()
        if choice < 0.6 and table.num_columns:
            table = table.set_column(at, table.column_names[at], rng.choice(OTHER_COLUMNS)(rng, table.num_rows))
        elif choice < 0.7 and table.num_columns:
            table = table.remove_column(at)
        elif choice < 0.8:
            table = table.append_column(
                rng.choice((*ABSURD_TEXTS[:20], "x", "partition")), rng.choice(OTHER_COLUMNS)(rng, table.num_rows)
            )
        else:
            table = table.take(
                pa.array(
                    [rng.randrange(table.num_rows) for _ in range(rng.choice((0, table.num_rows, 3 * table.num_rows)))],
                    type=pa.int64(),
                )
            )
    return table


def _data_bytes(rng: Rng) -> Case:
    objects = seeds.store_of("json")
    key = seeds.data_key(rng.choice(seeds.LABELS))
    return Case({**objects, key: _parquet_bytes(rng, objects[key])}, f"bytes of {key}")


def _data_page(rng: Rng) -> Case:
    """Inside the content of a page, which a checksum covers."""
    objects = seeds.store_of("json")
    key = seeds.data_key(rng.choice(seeds.LABELS))
    data = objects[key]
    metadata = pq.read_metadata(pa.BufferReader(data))
    chunk = metadata.row_group(rng.randrange(metadata.num_row_groups)).column(rng.randrange(metadata.num_columns))
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    changed = bytearray(data)
    # The last bytes of a chunk are those of a page's content, whatever its header takes.
    _flip(rng, changed, start + chunk.total_compressed_size - 1 - rng.randrange(2))
    return Case({**objects, key: bytes(changed)}, f"a page of {key}", exact=True)


def _data_table(rng: Rng) -> Case:
    objects = seeds.store_of("json")
    key = seeds.data_key(rng.choice(seeds.LABELS))
    table = pq.read_table(pa.BufferReader(objects[key]))
    return Case(
        {**objects, key: encode(_other_table(rng, table), row_group_size=rng.choice((1, 3, None)))},
        f"other columns in {key}",
    )


def _csv_bytes(rng: Rng) -> Case:
    objects = seeds.store_of("csv")
    key = seeds.data_key(rng.choice(seeds.LABELS), ".csv")
    return Case({**objects, key: (_cut if rng.random() < 0.2 else damaged)(rng, objects[key])}, f"bytes of {key}")


def _index_bytes(rng: Rng) -> Case:
    objects = seeds.store_of("json")
    key = rng.choice((seeds.INDEX_KEY, seeds.TEXT_INDEX_KEY))
    return Case({**objects, key: _parquet_bytes(rng, objects[key])}, f"bytes of {key}", subset=True)


def _index_table(rng: Rng) -> Case:
    objects = seeds.store_of("json")
    key = rng.choice((seeds.INDEX_KEY, seeds.TEXT_INDEX_KEY))
    table = pq.read_table(pa.BufferReader(objects[key]))
    if rng.random() < 0.5:
        lists = pa.array(
            [
                [rng.choice((*seeds.LABELS, *ABSURD_TEXTS, None)) for _ in range(rng.choice((0, 1, 3)))]
                for _ in range(table.num_rows)
            ],
            type=pa.list_(pa.string()),
        )
        table = table.set_column(1, "partition", lists)
    else:
        table = _other_table(rng, table)
    return Case({**objects, key: encode(table)}, f"other entries in {key}", subset=True)


def _missing(rng: Rng) -> Case:
    objects = seeds.store_of(rng.choice(seeds.SPELLINGS))
    key = rng.choice(sorted(k for k in objects if k.startswith(seeds.UUID)))
    gone = rng.random() < 0.5
    return Case(
        {k: v for k, v in objects.items() if k != key or not gone} | ({} if gone else {key: b""}),
        f"{key} is {'gone' if gone else 'empty'}",
    )


def _swapped(rng: Rng) -> Case:
    objects = seeds.store_of(rng.choice(seeds.SPELLINGS))
    first, second = rng.sample(sorted(k for k in objects if k.startswith(seeds.UUID)), 2)
    return Case({**objects, first: objects[second]}, f"{second} in the place of {first}")


_WEIGHTED: dict[Callable[[Rng], Case], int] = {
    _document_bytes: 20,
    _document_structure: 20,
    _own_entries: 8,
    _schema_file: 8,
    _data_bytes: 16,
    _data_page: 4,
    _data_table: 8,
    _csv_bytes: 4,
    _index_bytes: 14,
    _index_table: 8,
    _missing: 1,
    _swapped: 1,
}
KINDS, WEIGHTS = list(_WEIGHTED), list(_WEIGHTED.values())


def objects_to_json(objects: dict[str, bytes]) -> bytes:
    """A store as a small file."""
    return msgspec.json.encode({key: base64.b64encode(data).decode() for key, data in objects.items()})


def objects_from_json(text: bytes) -> dict[str, bytes]:
    return {key: base64.b64decode(data) for key, data in msgspec.json.decode(text).items()}
