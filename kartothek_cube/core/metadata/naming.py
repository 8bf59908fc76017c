"""Names: dataset uuids, labels, storage keys, and the quoting of partition values in them."""

from __future__ import annotations

import re
import uuid as uuid_module
from collections.abc import Iterable, Sequence
from datetime import datetime
from urllib.parse import quote as _percent_quote
from urllib.parse import unquote as _percent_unquote

from msgspec import Struct

from kartothek_cube.core.io.formats import DATA_SUFFIX, INDEX_SUFFIX
from kartothek_cube.errors import InvalidInput

SINGLE_TABLE = "table"
DOCUMENT_SUFFIX = ".by-dataset-metadata"
JSON_SUFFIX = f"{DOCUMENT_SUFFIX}.json"
MSGPACK_SUFFIX = f"{DOCUMENT_SUFFIX}.msgpack.zstd"
SCHEMA_FILE = "_common_metadata"
STATISTICS_FOLDER = "_statistics"
# Folders of a dataset that are no tables.
OWN_FOLDERS = frozenset({"indices", STATISTICS_FOLDER, "_history"})
# Inside the folder of a table: the log that makes a Delta table of its files.
DELTA_FOLDER = "_delta_log"

_UUID = re.compile(r"[a-zA-Z0-9+\-_]+")


def check_uuid(uuid: str) -> str:
    """Return the dataset uuid; `InvalidInput` if it has characters that are not allowed."""
    if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):  # type: ignore[redundant-expr]
        raise InvalidInput(
            f"UUID contains illegal character: {uuid!r}. "
            "A dataset uuid consists of ASCII letters, digits, '+', '-' and '_'."
        )
    return uuid


def new_id() -> str:
    """A new random identifier of 32 lower-case hexadecimal digits."""
    return uuid_module.uuid4().hex


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


class DecodedKey(Struct, frozen=True):
    """The parts of a data key: ``<uuid>/<table>/<k1>=<v1>/…/<file>``."""

    uuid: str
    table: str | None
    pairs: tuple[tuple[str, str], ...]
    file: str | None


def decode_key(key: str) -> DecodedKey:
    """Split a data key; folders without exactly one ``=`` are skipped.

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
    """Whether a key below ``<uuid>/`` is that of a data file.

    In a dataset whose document lists no partitions, these files are the partitions.

    Examples
    --------
    >>> is_data_key("sales/table/COUNTRY_CODE=DE/x.parquet")
    True
    >>> is_data_key("sales/table/_common_metadata")
    False
    """
    parts = key.split("/")
    is_data = len(parts) > 2 and parts[1] not in ("indices", STATISTICS_FOLDER) and parts[2] != DELTA_FOLDER
    is_data = is_data and key.endswith(DATA_SUFFIX)
    return is_data and not key.endswith(INDEX_SUFFIX)


def is_log_key(key: str) -> bool:
    """Whether a key belongs to the log of a table of some dataset.

    Examples
    --------
    >>> is_log_key("sales/table/_delta_log/00000000000000000000.json")
    True
    """
    parts = key.split("/")
    return len(parts) == 4 and parts[2] == DELTA_FOLDER


def folders_of_logs(keys: Iterable[str]) -> list[str]:
    """The folders of the logs to which some keys belong."""
    return sorted({key.rpartition("/")[0] + "/" for key in keys if is_log_key(key)})


def schema_key(uuid: str, table: str = SINGLE_TABLE) -> str:
    """Key of the schema file of one table."""
    return f"{uuid}/{table}/{SCHEMA_FILE}"


def document_key(uuid: str, *, msgpack: bool = False) -> str:
    """Key of the metadata document."""
    return f"{uuid}{MSGPACK_SUFFIX if msgpack else JSON_SUFFIX}"


def document_format(value: str) -> str:
    """The encoding of a document, ``"json"`` or ``"msgpack"``, from a verb's argument.

    Raises
    ------
    InvalidInput
        If ``metadata_storage_format`` is neither, in any case.

    Examples
    --------
    >>> document_format("MsgPack")
    'msgpack'
    """
    name = value.lower() if isinstance(value, str) else ""  # type: ignore[redundant-expr]
    if name not in ("json", "msgpack"):
        raise InvalidInput(f"Unknown metadata storage format encountered: {value!r}. It is 'json' or 'msgpack'.")
    return name


def index_key(uuid: str, column: str, when: datetime) -> str:
    """Key of a secondary index file that is written at ``when`` (UTC, without zone)."""
    stamp = when.isoformat(timespec="microseconds")
    return f"{uuid}/indices/{_percent_quote(column, safe='/')}/{quote(stamp)}{INDEX_SUFFIX}"
