"""The steps of planning a query as values that `core.display` renders. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import Explanation, Step, StepRow, predicates_text
from kartothek_cube.cube.cube import get_payload_subset
from kartothek_cube.cube.query.intention import DatasetRole, Intention
from kartothek_cube.cube.query.partitions import DatasetPartitions

__all__ = [
    "alignment_step",
    "changed_step",
    "conditions_step",
    "explanation",
    "join_step",
    "labels_step",
    "order_step",
    "partition_by_step",
    "regrouping_step",
]


def explanation(intention: Intention, steps: Sequence[Step], files: Iterable[str]) -> Explanation:
    """The whole explanation of a plan."""
    clauses = intention.conjunction.clauses
    facts = (
        ("columns", ", ".join(intention.output_columns)),
        ("conditions", predicates_text((tuple(clauses),) if clauses else None)),
        ("partition by", ", ".join(intention.partition_by) or "none"),
    )
    return Explanation(f"Query of cube {intention.cube.uuid_prefix!r}", facts, tuple(steps), tuple(files))


def labels_step(intention: Intention, partitions: Mapping[str, DatasetPartitions]) -> Step:
    """All files of each dataset."""
    rows = []
    for role in intention.roles:
        note = f"partitioned by {', '.join(role.partition_keys)}" if role.partition_keys else "not partitioned"
        rows.append(StepRow(role.id, None, partitions[role.id].total, note))
    rows += [StepRow(i, None, None, "gives nothing to this query") for i in intention.left_out]
    return Step("Labels", "files", tuple(rows))


def conditions_step(
    intention: Intention,
    partitions: Mapping[str, DatasetPartitions],
    matched: Mapping[str, int],
    indexed: Mapping[str, Collection[str]],
) -> Step:
    """The files that partition values and indices drop; ``indexed``: columns by dataset."""
    rows = []
    for role in intention.roles:
        columns = {c.column for c in role.clauses}
        by_key, by_index = columns & set(role.partition_keys), columns & set(indexed.get(role.id, ()))
        by_rows = columns - by_key - by_index
        notes = [("partition index", by_key), ("secondary index", by_index), ("rows only", by_rows)]
        note = "; ".join(f"{name}: {', '.join(sorted(by))}" for name, by in notes if by)
        rows.append(StepRow(role.id, partitions[role.id].total, matched[role.id], note))
    return Step("Pre-conditions", "files", tuple(rows))


def statistics_steps(
    intention: Intention,
    partitions: Mapping[str, DatasetPartitions],
    matched: Mapping[str, int],
    columns: Mapping[str, Collection[str]],
) -> tuple[Step, ...]:
    """The files that statistics drop, if any were read; ``columns``: those read, by dataset."""
    read = [(r.id, f"bounds of {', '.join(sorted(columns[r.id]))}") for r in intention.roles if columns.get(r.id)]
    rows = [StepRow(i, matched[i], partitions[i].matched, note) for i, note in read]
    return (Step("Statistics", "files", tuple(rows)),) if rows else ()


def partition_by_step(partitions: Mapping[str, DatasetPartitions]) -> Step:
    """Files by the values of partition columns and ``partition_by`` columns."""
    rows = []
    for name, matching in partitions.items():
        lost = [
            f"; in no group: {pluralize(n, 'file')} without a value of {column}"
            for column, n in matching.without_value.items()
            if n
        ]
        note = f"by {', '.join(matching.keys.column_names) or 'nothing'}{''.join(lost)}"
        rows.append(StepRow(name, matching.matched, len(matching), note))
    return Step("Partition by", "files → partitions", tuple(rows))


def alignment_step(roles: Sequence[DatasetRole], counts: Sequence[int]) -> Step:
    """The aligned partitions after each dataset has joined."""
    before = (None, *counts[:-1])
    rows = [
        StepRow(r.id, b, n, "seed" if r.is_seed else f"{_join(r)} join")
        for r, b, n in zip(roles, before, counts, strict=True)
    ]
    return Step("Alignment", "partitions", tuple(rows))


def _join(role: DatasetRole) -> str:
    return "inner" if role.restricts else "left"


def regrouping_step(intention: Intention, aligned: int, groups: int) -> Step:
    """Aligned partitions by group, and the rows that are in no group."""
    by = intention.partition_by
    payload = sorted(get_payload_subset(by, intention.cube))
    note = f"by {', '.join(by)}" if by else "one group an aligned partition"
    lost = f"; cells without a value of {' or '.join(payload)} are in no group" if payload else ""
    return Step("Re-grouping", "partitions → groups", (StepRow("all", aligned, groups, note + lost),))


def changed_step(since: str, groups: int, changed: int, removed: int) -> Step:
    """The groups that read a file which came or went since."""
    note = f"{pluralize(removed, 'group')} removed since" if removed else ""
    return Step(f"Changed since {since}", "groups", (StepRow("all", groups, changed, note),))


def join_step(intention: Intention, files: Mapping[str, int], cell_columns: Sequence[str]) -> Step:
    """The distinct files of each dataset, and how its rows are joined to those of the seed."""
    rows = []
    for role in intention.roles:
        note = f"{'cells by' if role.is_seed else f'{_join(role)} join on'} {', '.join(role.dimensions)}"
        if role.is_seed and set(role.dimensions) - set(cell_columns):
            note += f", projected to {', '.join(cell_columns)}"
        rows.append(StepRow(role.id, None, files[role.id], note))
    return Step("Join inside a partition", "files", tuple(rows))


def order_step(order: Sequence[str], files: int, reads: int) -> Step:
    """The number of reads of each file if every group were loaded alone."""
    amplification = reads / files if files else 1.0
    note = f"{amplification:.1f} reads per file if every group were loaded alone"
    return Step(f"Concatenation, ordered by {', '.join(order)}", "files → reads", (StepRow("all", files, reads, note),))
