"""Names: dataset uuids, labels, storage keys, the quoting of partition values in them, and what an error says of names."""

from __future__ import annotations

import re
import uuid as uuid_module
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote as _percent_quote
from urllib.parse import unquote as _percent_unquote

from kartothek_cube.errors import InvalidInput

__all__ = [
    "SINGLE_TABLE",
    "check_uuid",
    "column_name",
    "data_key",
    "document_format",
    "document_key",
    "file_suffix",
    "fresh_id",
    "index_key",
    "is_data_key",
    "label_of",
    "listed",
    "meant",
    "quote",
    "schema_key",
    "unquote",
]

SINGLE_TABLE = "table"
DOCUMENT_SUFFIX = ".by-dataset-metadata"
JSON_SUFFIX = f"{DOCUMENT_SUFFIX}.json"
MSGPACK_SUFFIX = f"{DOCUMENT_SUFFIX}.msgpack.zstd"
INDEX_SUFFIX = ".by-dataset-index.parquet"
DATA_SUFFIX = ".parquet"
CSV_SUFFIX = ".csv"
CSV_GZIP_SUFFIX = ".csv.gz"
SCHEMA_FILE = "_common_metadata"

_MOST_LISTED = 12

_UUID = re.compile(r"[a-zA-Z0-9+\-_]+")


def check_uuid(uuid: str) -> str:
    """Return the dataset uuid, or raise `InvalidInput` if it is not made of ASCII letters, digits, ``+``, ``-`` and ``_``."""
    if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):  # type: ignore[redundant-expr]
        raise InvalidInput(f"UUID contains illegal character: {uuid!r}. A dataset uuid consists of ASCII letters, digits, '+', '-' and '_'.")
    return uuid


def column_name(name: Any) -> str:
    """The name of a column as text, of bytes in UTF-8 or anything else that has a text.

    Raises
    ------
    InvalidInput
        If the bytes are no text.

    Examples
    --------
    >>> column_name(b"UNITS"), column_name(2024)
    ('UNITS', '2024')
    """
    try:
        return name.decode("utf-8") if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError:
        raise InvalidInput(f"The name of a column is text, in bytes as UTF-8, not {name!r}.") from None


def fresh_id() -> str:
    """A new random identifier of 32 lower-case hexadecimal digits."""
    return uuid_module.uuid4().hex


def file_suffix(key: str) -> str:
    """The suffix of an index file or a data file; empty for any other key.

    Examples
    --------
    >>> file_suffix("sales++seed/table/week-18.csv.gz")
    '.csv.gz'
    """
    return next((s for s in (INDEX_SUFFIX, DATA_SUFFIX, CSV_GZIP_SUFFIX, CSV_SUFFIX) if key.endswith(s)), "")


def quote(value: object) -> str:
    """Percent-encode a column name or partition value for a key.

    Examples
    --------
    >>> quote("a b/c=d&ä%")
    'a%20b%2Fc%3Dd%26%C3%A4%25'
    """
    return _percent_quote(value if isinstance(value, (str, bytes)) else str(value), safe="")


def unquote(text: str) -> str:
    """The text that `quote` encoded."""
    return _percent_unquote(text, errors="strict")


@dataclass(frozen=True, slots=True)
class DecodedKey:
    """The parts of a data key: ``<uuid>/<table>/<k1>=<v1>/…/<file>``."""

    uuid: str
    table: str | None
    pairs: tuple[tuple[str, str], ...]
    file: str | None


def decode_key(key: str) -> DecodedKey:
    """Split a data key; components between table and file that hold no single ``=`` are passed over.

    Examples
    --------
    >>> decode_key("sales/table/COUNTRY_CODE=DE/x.parquet").pairs
    (('COUNTRY_CODE', 'DE'),)
    """
    parts = key.split("/")
    if len(parts) < 3:
        return DecodedKey(key, None, (), None)
    pairs = tuple((unquote(a), unquote(b)) for a, _, b in (p.partition("=") for p in parts[2:-1] if p.count("=") == 1))
    return DecodedKey(parts[0], parts[1], pairs, parts[-1])


def label_of(partition: Sequence[tuple[str, str]], base: str) -> str:
    """Label of a partition: quoted ``column=value`` pairs, then the base label.

    Examples
    --------
    >>> label_of([("LOCATION", "München")], "data")
    'LOCATION=M%C3%BCnchen/data'
    """
    return "/".join([*(f"{quote(column)}={quote(value)}" for column, value in partition), base])


def data_key(uuid: str, table: str, label: str, suffix: str = DATA_SUFFIX) -> str:
    """Key of the data file of one partition."""
    return f"{uuid}/{table}/{label}{suffix}"


def is_data_key(key: str) -> bool:
    """Whether a key below ``<uuid>/`` is that of a data file of some table; of a dataset whose document lists no partitions these are the partitions.

    Examples
    --------
    >>> is_data_key("sales/table/COUNTRY_CODE=DE/x.parquet"), is_data_key("sales/table/_common_metadata")
    (True, False)
    """
    parts = key.split("/")
    return len(parts) > 2 and parts[1] != "indices" and key.endswith(DATA_SUFFIX) and not key.endswith(INDEX_SUFFIX)


def schema_key(uuid: str, table: str = SINGLE_TABLE) -> str:
    """Key of the schema file of one table."""
    return f"{uuid}/{table}/{SCHEMA_FILE}"


def document_key(uuid: str, *, msgpack: bool = False) -> str:
    """Key of the metadata document."""
    return f"{uuid}{MSGPACK_SUFFIX if msgpack else JSON_SUFFIX}"


def document_format(value: str) -> str:
    """The encoding of a document, ``"json"`` or ``"msgpack"``, from a user's argument ``metadata_storage_format``.

    Raises
    ------
    InvalidInput
        If it is neither, in whatever case.

    Examples
    --------
    >>> document_format("MsgPack")
    'msgpack'
    """
    found = value.lower() if isinstance(value, str) else ""  # type: ignore[redundant-expr]
    if found not in ("json", "msgpack"):
        raise InvalidInput(f"Unknown metadata storage format encountered: {value!r}. It is 'json' or 'msgpack'.")
    return found


def index_key(uuid: str, column: str, when: datetime) -> str:
    """Key of a secondary index file written at ``when`` (UTC, without zone)."""
    stamp = when.isoformat(timespec="microseconds")
    return f"{uuid}/indices/{_percent_quote(column, safe='/')}/{quote(stamp)}{INDEX_SUFFIX}"


# --- what an error says of names ----------------------------------------------------------------------------------------


def listed(names: Iterable[str]) -> str:
    """The names that there are, sorted; of many the first ones.

    Examples
    --------
    >>> listed(["UNITS", "PRICE"]), listed([])
    ('PRICE, UNITS', 'none')
    >>> listed(f"FEATURE_{i:03}" for i in range(300)).removeprefix("FEATURE_000, FEATURE_001, FEATURE_002, FEATURE_003, ")
    'FEATURE_004, FEATURE_005, FEATURE_006, FEATURE_007, FEATURE_008, FEATURE_009, FEATURE_010, FEATURE_011, … (300 in all)'
    """
    found = sorted(names)
    more = f", … ({len(found):,} in all)" if len(found) > _MOST_LISTED else ""
    return f"{', '.join(found[:_MOST_LISTED]) or 'none'}{more}"


def meant(unknown: Iterable[str], known: Iterable[str]) -> str:
    """The end of an error that a name is unknown: the names that are close to it, whatever their case; nothing if there are none.

    Examples
    --------
    >>> meant(["BRADN"], ["BRAND", "PRICE"]), meant(["brand"], ["BRAND", "PRICE"]), meant(["WEEK"], ["BRAND"])
    (" Did you mean 'BRAND'?", " Did you mean 'BRAND'?", '')
    """
    names = {name.casefold(): name for name in known}
    close = dict.fromkeys(repr(names[found[0]]) for name in unknown if (found := get_close_matches(name.casefold(), names, n=1)))
    return f" Did you mean {', '.join(close)}?" if close else ""
