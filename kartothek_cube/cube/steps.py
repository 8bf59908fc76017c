"""What planning a query did, step by step, as values that `core.explain` shows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kartothek_cube.core.explain import Explanation, Step, StepRow, predicates_text
from kartothek_cube.cube.intention import DatasetRole, Intention
from kartothek_cube.cube.partitions import DatasetPartitions

__all__ = ["alignment_step", "conditions_step", "explanation", "join_step", "labels_step", "order_step", "partition_by_step", "regrouping_step"]


def explanation(intention: Intention, steps: Sequence[Step], files: Iterable[str]) -> Explanation:
    """Everything there is to say of a plan."""
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


def conditions_step(intention: Intention, partitions: Mapping[str, DatasetPartitions], indexed: Mapping[str, Collection[str]]) -> Step:
    """What partition values and secondary indices, given by column, drop."""
    rows = [StepRow(r.id, partitions[r.id].total, partitions[r.id].matched, _conditions_note(r, indexed.get(r.id, ()))) for r in intention.roles]
    return Step("Pre-conditions", "files", tuple(rows))


def _conditions_note(role: DatasetRole, indexed: Collection[str]) -> str:
    asked = {c.column for c in role.clauses}
    by_key, by_index = sorted(asked & set(role.partition_keys)), sorted(asked & set(indexed))
    by_rows = sorted(asked - set(by_key) - set(by_index))
    notes = [("partition index", by_key), ("secondary index", by_index), ("rows only", by_rows)]
    return "; ".join(f"{name}: {', '.join(columns)}" for name, columns in notes if columns)


def partition_by_step(partitions: Mapping[str, DatasetPartitions]) -> Step:
    """Files by the values that alignment and groups go by."""
    rows = [StepRow(i, p.matched, len(p), _values_note(p)) for i, p in partitions.items()]
    return Step("Partition by", "files → partitions", tuple(rows))


def _values_note(partitions: DatasetPartitions) -> str:
    lost = [f"; in no group: {n:,} file{'' if n == 1 else 's'} without a value of {column}" for column, n in partitions.without_value.items() if n]
    return f"by {', '.join(partitions.keys.column_names) or 'nothing'}{''.join(lost)}"


def alignment_step(roles: Sequence[DatasetRole], counts: Sequence[int]) -> Step:
    """The aligned partitions after each dataset has joined."""
    before = (None, *counts[:-1])
    rows = [StepRow(r.id, b, n, "seed" if r.is_seed else f"{_join(r)} join") for r, b, n in zip(roles, before, counts, strict=True)]
    return Step("Alignment", "partitions", tuple(rows))


def _join(role: DatasetRole) -> str:
    return "inner" if role.restricts else "left"


def regrouping_step(intention: Intention, aligned: int, groups: int) -> Step:
    """Aligned partitions by group; which rows are in no group."""
    by = intention.partition_by
    own = sorted(set(by) - set(intention.cube.dimension_columns) - set(intention.cube.partition_columns))
    note = f"by {', '.join(by)}" if by else "one group an aligned partition"
    lost = f"; cells without a value of {' or '.join(own)} are in no group" if own else ""
    return Step("Re-grouping", "partitions → groups", (StepRow("all", aligned, groups, note + lost),))


def join_step(intention: Intention, files: Mapping[str, int], cell_columns: Sequence[str]) -> Step:
    """The distinct files of each dataset, and how its rows meet those of the seed."""
    return Step("Join inside a partition", "files", tuple(StepRow(r.id, None, files[r.id], _join_note(r, cell_columns)) for r in intention.roles))


def _join_note(role: DatasetRole, cell_columns: Sequence[str]) -> str:
    if not role.is_seed:
        return f"{_join(role)} join on {', '.join(role.dimensions)}"
    dropped = set(role.dimensions) - set(cell_columns)
    return f"cells by {', '.join(role.dimensions)}" + (f", projected to {', '.join(cell_columns)}" if dropped else "")


def order_step(order: Sequence[str], files: int, reads: int) -> Step:
    """How often files would be read if every group were loaded alone."""
    amplification = reads / files if files else 1.0
    note = f"{amplification:.1f} reads per file if every group were loaded alone"
    return Step(f"Concatenation, ordered by {', '.join(order)}", "files → reads", (StepRow("all", files, reads, note),))
