"""Tags: names of states, the keys of their objects, and these objects as bytes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import zstandard
from msgspec import Struct
from msgspec.structs import replace

from kartothek_cube.core.arguments import did_you_mean, join_names
from kartothek_cube.core.metadata.commit_log import SCHEMA_KEY
from kartothek_cube.core.metadata.document import STATE_KEYS, Document, decompress, parse_document, render_document
from kartothek_cube.core.metadata.naming import new_id, quote, unquote
from kartothek_cube.core.metadata.snapshot import Snapshot, embedded_schemas
from kartothek_cube.errors import CorruptDocument, InvalidInput, InvalidType

TAGS_FOLDER = "_tags"
_TAG = re.compile(rf"[^/]+/{TAGS_FOLDER}/[^/]+\.json")
_STATE = re.compile(rf"[^/]+/{TAGS_FOLDER}/states/[^/]+\.json\.zst")
_VERSION = 1

_LONGEST_NAME = 200
# In a key a character has up to 12 bytes, and a segment of a key at most 255.
_LONGEST_QUOTED = 240
# An id of a commit, or its beginning as the command line takes it.
_HEX = re.compile(r"[0-9a-fA-F]{6,}")


class TaggedState(Struct, frozen=True):
    """The state of one dataset that a tag names.

    Attributes
    ----------
    uuid : str
        The dataset.
    name : str
        The tag.
    commit : str | None
        The last commit; None if it was of a foreign writer.
    time : datetime | None
        The time of the commit (UTC).
    key : str
        The object that has the state.
    """

    uuid: str
    name: str
    commit: str | None
    time: datetime | None
    key: str


class Tag(Struct, frozen=True):
    """A tag of a dataset, or the share of a dataset in a tag of its cube.

    Attributes
    ----------
    id : str
        New for each tagging, so that a tag of the same name made later is another one.
    state : TaggedState
        The state.
    made : datetime
        When it was tagged, by that machine's clock (UTC).
    seed : str | None
        In a tag of a cube, the uuid of the seed, whose object of the same id is the tag.
    members : tuple of TaggedState
        In the object of the seed, the states of all datasets.
    """

    id: str
    state: TaggedState
    made: datetime
    seed: str | None = None
    members: tuple[TaggedState, ...] = ()

    @property
    def name(self) -> str:
        """The name."""
        return self.state.name

    @property
    def is_share(self) -> bool:
        """Whether the tag counts only if the seed has one of the same id."""
        return self.seed not in (None, self.state.uuid)


# --- names and keys -------------------------------------------------------------------------------


def may_be_tag(text: object) -> bool:
    """Whether ``as_of=`` means a tag: the text is no moment and no id of a commit.

    Examples
    --------
    >>> [may_be_tag(text) for text in ("2024-audit", "2024-05-01", "0f1e2d")]
    [True, False, False]
    """
    return isinstance(text, str) and not _HEX.fullmatch(text) and not _is_moment(text)


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def check_tag_name(name: object) -> str:
    """Return the name of a tag that is to be made.

    Raises
    ------
    InvalidType
        If it is no text.
    InvalidInput
        If it is empty, too long, has a slash or control characters, or reads as something else.
    """
    if not isinstance(name, str):
        raise InvalidType(f"The name of a tag is text, not {type(name).__name__}: {name!r}.")
    if not 0 < len(name) <= _LONGEST_NAME or "/" in name or not name.isprintable() or name != name.strip():
        raise InvalidInput(
            f"{name!r} is no name for a tag: it has 1 to {_LONGEST_NAME} printable characters, none of them '/', "
            "and no space at its ends."
        )
    if len(quote(name)) > _LONGEST_QUOTED:
        raise InvalidInput(f"The name {name!r} of a tag is too long: its key would exceed what stores allow.")
    if not may_be_tag(name):
        what = "a moment" if _is_moment(name) else "the id of a commit"
        raise InvalidInput(f"{name!r} is no name for a tag: as_of={name!r} would be {what}. Try {'v-' + name!r}.")
    return name


def tag_key(uuid: str, name: str) -> str:
    """Key of the object of a tag."""
    return f"{uuid}/{TAGS_FOLDER}/{quote(name)}.json"


def new_state_key(uuid: str, commit: str | None) -> str:
    """A new key for the state of a tag."""
    # No two tags share a state: a state that has lost its tags may be about to be collected as
    # garbage, and grace protects only what is new.
    return f"{uuid}/{TAGS_FOLDER}/states/{commit or 'foreign'}-{new_id()}.json.zst"


def moved_state_key(key: str, uuid: str) -> str:
    """Key of a state in a dataset that is renamed."""
    return f"{uuid}/{key.partition('/')[2]}"


def is_tag_key(key: str) -> bool:
    """Whether a key is that of a tag of some dataset."""
    return _TAG.fullmatch(key) is not None


def is_state_key(key: str) -> bool:
    """Whether a key is that of the state of a tag of some dataset."""
    return _STATE.fullmatch(key) is not None


def is_tag_object(key: str) -> bool:
    """Whether a key is that of a tag, or of its state."""
    return is_tag_key(key) or is_state_key(key)


def name_of_key(key: str) -> str:
    """The name of the tag with this key."""
    return unquote(key.rpartition("/")[2].removesuffix(".json"))


def names_text(name: str, existing: Sequence[str]) -> str:
    """The tags that exist, and the one that was meant, for errors."""
    return f"its tags are {join_names(existing)}.{did_you_mean([name], existing)}" if existing else "it has no tags."


# --- bytes ----------------------------------------------------------------------------------------


class _State(Struct):
    commit: str | None
    time: str | None
    state: str


class _Cube(Struct):
    seed: str
    members: dict[str, _State] = {}


class _Tag(Struct):
    version: int
    name: str
    id: str
    commit: str | None
    time: str | None
    state: str
    made: str
    cube: _Cube | None = None


def encode_tag(tag: Tag) -> bytes:
    """The bytes of a tag: JSON."""
    own, cube = _plain(tag.state), None
    if tag.seed is not None:
        cube = _Cube(tag.seed, {member.uuid: _plain(member) for member in tag.members})
    made = tag.made.astimezone(UTC).isoformat()
    return msgspec.json.encode(_Tag(_VERSION, tag.name, tag.id, own.commit, own.time, own.state, made, cube))


def _plain(state: TaggedState) -> _State:
    time = None if state.time is None else state.time.astimezone(UTC).isoformat()
    return _State(state.commit, time, state.key)


def decode_tag(data: bytes, key: str) -> Tag:
    """The reverse of `encode_tag`.

    Raises
    ------
    CorruptDocument
        If the bytes are no tag of this key.
    """
    uuid = key.partition("/")[0]
    try:
        plain = msgspec.json.decode(data, type=_Tag)
        own = _tagged(uuid, plain.name, _State(plain.commit, plain.time, plain.state))
        members = plain.cube.members if plain.cube is not None else {}
        states = tuple(_tagged(member, plain.name, state) for member, state in members.items())
        made = datetime.fromisoformat(plain.made).astimezone(UTC)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise CorruptDocument(f"The tag {key} cannot be read: {error}") from error
    # A file system without upper case would also give the object of another tag.
    if plain.version != _VERSION or tag_key(uuid, plain.name) != key:
        raise CorruptDocument(f"The tag {key} is of another version, or of the name {plain.name!r}.")
    return Tag(plain.id, own, made, None if plain.cube is None else plain.cube.seed, states)


def _tagged(uuid: str, name: str, plain: _State) -> TaggedState:
    if not is_state_key(plain.state) or not plain.state.startswith(f"{uuid}/"):
        raise ValueError(f"{plain.state!r} is no state of dataset {uuid!r}")
    time = None if plain.time is None else datetime.fromisoformat(plain.time).astimezone(UTC)
    return TaggedState(uuid, name, plain.commit, time, plain.state)


def state_document(snapshot: Snapshot) -> Document:
    """The whole state of a dataset as one document that needs no other object to be read."""
    document = snapshot.document
    # The chain of commits and other records of ours tell about the newest state only.
    records = {k: document.metadata[k] for k in STATE_KEYS if k in document.metadata}
    metadata = {**document.user_metadata, **records, SCHEMA_KEY: embedded_schemas(snapshot.schemas)}
    indices = {column: None if column in snapshot.lost else key for column, key in document.indices.items()}
    return replace(
        document,
        metadata=metadata,
        partition_keys=snapshot.partition_keys,
        indices=indices,
        partitions=snapshot.partitions,
    )


def encode_state(document: Document) -> bytes:
    """The bytes of a state: a document in JSON, compressed."""
    return zstandard.compress(render_document(document))


def decode_state(data: bytes, key: str) -> Document:
    """The reverse of `encode_state`.

    Raises
    ------
    CorruptDocument
        If the bytes are no state of the dataset of this key.
    """
    try:
        # Named without suffix: the content is JSON.
        document = parse_document(decompress(data), key.removesuffix(".zst"))
    except ValueError as error:
        raise CorruptDocument(f"The state {key} of a tag cannot be read: {error}") from error
    metadata: Mapping[str, object] = document.metadata
    if document.uuid != key.partition("/")[0] or SCHEMA_KEY not in metadata or document.partitions is None:
        raise CorruptDocument(f"The state {key} of a tag is of dataset {document.uuid!r}, or not whole.")
    return document
