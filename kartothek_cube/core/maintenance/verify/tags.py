"""Checks of tags: each can be read, and the files of its state are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.maintenance.verify.inspection import Inspection
from kartothek_cube.core.maintenance.verify.report import Finding
from kartothek_cube.core.metadata.document import Document
from kartothek_cube.core.metadata.tag import Tag, TaggedState, name_of_key
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.snapshots.time_travel import read_state, stored_tags
from kartothek_cube.core.stores.contract import Store
from kartothek_cube.errors import CorruptDocument, HistoryUnavailable

__all__ = ["TaggedFiles", "tag_findings", "tagged_files"]


@dataclass(frozen=True, slots=True)
class TaggedFiles:
    """The files of tagged states by tag, and findings about the tags that cannot be read."""

    data: dict[str, frozenset[str]]
    indices: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Keys of all data and index files that tags keep."""
        return self.indices.union(*self.data.values())


def tagged_files(store: Store, subject: Inspection) -> TaggedFiles:
    """Read the tags of a dataset, and their states."""
    uuid, states, findings = subject.uuid, list[TaggedState](), list[Finding]()
    for key, tag in stored_tags(store, subject.entries).items():
        if isinstance(tag, Tag):
            states.append(tag.state)
        elif tag is not None:
            text = f"What this tag names is unknown, so garbage collection keeps every tagged state. {tag}"
            mend = f"drop_dataset_tag({uuid!r}, store, {name_of_key(key)!r})"
            findings.append(Finding("error", "tag-unreadable", uuid, text, key=key, mend=mend))

    def read(state: TaggedState) -> Document | Finding:
        try:
            return read_state(store, state)
        except (HistoryUnavailable, CorruptDocument) as error:
            text = f"Tag {state.name!r} cannot be read. {error}"
            return Finding("error", "tag-state", uuid, text, key=state.key, mend=_mend(uuid, state.name))

    read_states = dict(zip((state.name for state in states), map_in_threads(read, states, store=store), strict=True))
    documents = {name: found for name, found in read_states.items() if isinstance(found, Document)}
    findings += [found for found in read_states.values() if isinstance(found, Finding)]
    data = {name: frozenset(document.files) for name, document in documents.items()}
    indices = frozenset[str]().union(*(document.index_files for document in documents.values()))
    return TaggedFiles(data, indices, tuple(findings))


def tag_findings(subject: Inspection, tags: TaggedFiles) -> Iterator[Finding]:
    """Tags that cannot be read, as a whole or in part."""
    yield from tags.findings
    # Not those of index files: without them a tagged state is only slower.
    for name, files in sorted(tags.data.items()):
        gone = sorted(key for key in files if key.startswith(f"{subject.uuid}/") and key not in subject.entries)
        if gone:
            text = (
                f"The state of tag {name!r} lacks {pluralize(len(gone), 'file')} of {len(files):,}; reading it fails. "
                "A garbage collection by another library (kartothek, plateau) does not know tags."
            )
            mend = f"restore the files, or {_mend(subject.uuid, name)}"
            yield Finding("error", "tag-file", subject.uuid, text, key=gone[0], mend=mend, count=len(gone))


def _mend(uuid: str, name: str) -> str:
    return f"drop_dataset_tag({uuid!r}, store, {name!r}), or drop_cube_tag if it is of the cube"
