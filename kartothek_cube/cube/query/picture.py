"""The chart of a query plan as SVG: datasets are columns, partitions are rows. Pure.

In order:

- the chart as a value, of bounded size
- SVG
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kartothek_cube.core.arguments import pluralize, shortened
from kartothek_cube.core.arrow.keys import IntArray
from kartothek_cube.core.display import DARK_PAGE, LIGHT_PAGE, escape, predicates_text, spelled
from kartothek_cube.core.expressions.predicates import Predicates
from kartothek_cube.cube.query.intention import Intention
from kartothek_cube.cube.query.partitions import Aligned, DatasetPartitions

# Limits of a page. More partitions are drawn as bands of neighbours, more datasets as a number.
MOST_ROWS = 24
BANDS = 14
MOST_DATASETS = 10


class Column(Struct, frozen=True):
    """One dataset: its join, and its files in total, matched by the conditions, and read.

    ``join`` is ``"seed"``, ``"inner"`` or ``"left"``.
    """

    dataset: str
    join: str
    total: int
    matched: int
    read: int


class Box(Struct, frozen=True):
    """A dataset in a row: the number of its files, and of partitions where it has any."""

    files: int
    present: int


class Row(Struct, frozen=True):
    """An aligned partition, or a band of neighbouring ones.

    ``label`` has the values of the first partition, ``last`` those of the last one of a band, else
    nothing. ``short`` and ``short_last`` are the same without column names.
    """

    label: str
    last: str
    short: str
    short_last: str
    partitions: int
    boxes: tuple[Box, ...]


class PlanPicture(Struct, frozen=True):
    """The content of a plan's chart.

    Attributes
    ----------
    title : str
        The cube.
    notes : tuple of str
        The conditions and the outcome, a line each.
    by : tuple of str
        The partition columns, whose values label the rows.
    columns : tuple of Column
        The datasets, seed first.
    rows : tuple of Row
        The partitions that are read, in their order.
    more : int
        Number of datasets that are not drawn.
    """

    title: str
    notes: tuple[str, ...]
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    more: int


def picture_of(
    intention: Intention,
    aligned: Aligned,
    slice_order: IntArray,
    slice_offsets: IntArray,
    partitions: Mapping[str, DatasetPartitions],
    read: Mapping[str, int],
    groups: int,
) -> PlanPicture:
    """The chart of a plan, from its columns; ``read`` has the number of files read by dataset."""
    roles = intention.roles[:MOST_DATASETS]
    columns = []
    for role in roles:
        join = "seed" if role.is_seed else "inner" if role.restricts else "left"
        files = partitions[role.id]
        columns.append(Column(role.id, join, files.total, files.matched, read[role.id]))
    n_slices = len(slice_offsets) - 1
    starts = bands(n_slices, n_slices if n_slices <= MOST_ROWS else BANDS)
    widths = np.diff(starts)
    slice_of = np.repeat(np.arange(n_slices), np.diff(slice_offsets))
    band_of_slice = np.repeat(np.arange(len(widths)), widths)
    boxes = [
        _boxes(partitions[r.id], aligned.parts[r.id][slice_order], slice_of, band_of_slice, read[r.id]) for r in roles
    ]
    labels = _labels(aligned.keys, slice_order[slice_offsets[:-1]], starts, intention.cube.partition_columns)
    in_rows = zip(*boxes, strict=True)
    rows = [Row(*texts, int(n), row) for texts, n, row in zip(labels, widths, in_rows, strict=True)]
    total = pluralize(sum(p.total for p in partitions.values()), "file")
    by_group = f" in {groups:,} groups by {', '.join(intention.partition_by)}" if intention.partition_by else ""
    outcome = f"reads {sum(read.values()):,} of {total}: {pluralize(n_slices, 'aligned partition')}{by_group}"
    if len(widths) and widths[0] > 1:
        outcome = f"{outcome}; {int(widths[0]):,} partitions a row"
    clauses: Predicates | None = (tuple(intention.conjunction.clauses),) if intention.conjunction.clauses else None
    conditions = f"where {predicates_text(clauses)}" if clauses else "without conditions"
    title, by = f"Query of cube {intention.cube.uuid_prefix!r}", tuple(intention.cube.partition_columns)
    more = len(intention.roles) - len(roles)
    return PlanPicture(title, (conditions, outcome), by, tuple(columns), tuple(rows), more)


def bands(n: int, limit: int) -> IntArray:
    """The starts of at most ``limit`` equal bands of ``n`` items, and the end.

    Equal bands can be compared with each other; only the last one may be shorter.

    Examples
    --------
    >>> bands(7, 3).tolist(), bands(2, 3).tolist()
    ([0, 3, 6, 7], [0, 1, 2])
    """
    width = -(-n // max(limit, 1)) or 1
    return np.append(np.arange(0, n, width, dtype=np.int64), n)


def show_value(value: object) -> str:
    """A partition value in a label; the empty text is quoted, or it would be invisible.

    Examples
    --------
    >>> show_value("DE"), show_value("")
    ('DE', "''")
    """
    return str(value) or "''"


def _boxes(
    dataset: DatasetPartitions, parts: IntArray, slice_of: IntArray, band_of_slice: IntArray, n_files: int
) -> list[Box]:
    """The boxes of one dataset, one for each band."""
    has_part = parts >= 0
    n_bands, width = int(band_of_slice[-1]) + 1 if len(band_of_slice) else 0, max(n_files, 1)
    counts = dataset.offsets[parts[has_part] + 1] - dataset.offsets[parts[has_part]]
    # A file may be in several partitions of a band: count each pair of band and file once.
    band = np.repeat(band_of_slice[slice_of[has_part]], counts)
    files = np.bincount(np.unique(band * width + dataset.files_of(parts[has_part])) // width, minlength=n_bands)
    present = np.bincount(band_of_slice[np.unique(slice_of[has_part])], minlength=n_bands)
    return [Box(int(n), int(m)) for n, m in zip(files, present, strict=True)]


def _labels(
    keys: pa.Table, firsts: IntArray, starts: IntArray, columns: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """Label, last, short and short_last of each row; see `Row`."""
    edges = np.stack([starts[:-1], starts[1:] - 1], axis=1).ravel()
    values = keys.select(list(columns)).take(pa.array(firsts[edges])).to_pylist()
    full = [", ".join(f"{column}={show_value(value)}" for column, value in row.items()) for row in values]
    short = [", ".join(map(show_value, row.values())) for row in values]
    several = (np.diff(starts) > 1).tolist()
    return [(full[2 * i], full[2 * i + 1] * two, short[2 * i], short[2 * i + 1] * two) for i, two in enumerate(several)]


# --- SVG ------------------------------------------------------------------------------------------


_LABELS, _COLUMN, _GAP, _MARGIN = 216, 124, 12, 24
_HEAD, _ROW, _BAND = 132, 26, 38
_BAR = _COLUMN - _GAP
_LABEL = _LABELS - 8
# No text of more characters fits into a heading: spares the search in long ones.
_MAX_LENGTH = 240

# The colours of Okabe and Ito, made for colour-blind readers; shapes and words say the same.
_LIGHT = {
    "bg": "#ffffff",
    "fg": "#1f2933",
    "quiet": "#5b6875",
    "line": "#c3cad2",
    "seed": "#0072b2",
    "inner": "#b85400",
    "left": "#007a59",
    "on": "#ffffff",
}
_DARK = {
    "bg": "#14181d",
    "fg": "#e6eaee",
    "quiet": "#9aa7b4",
    "line": "#46505b",
    "seed": "#56b4e9",
    "inner": "#e69f00",
    "left": "#2fc49a",
    "on": "#10151a",
}
_JOINS = {
    "seed": "seed: says which cells exist",
    "inner": "joined inner: has a condition",
    "left": "joined left: may be lacking",
}


def draw(picture: PlanPicture) -> str:
    """The chart as an SVG document, which can also be embedded in a page.

    Its size does not grow with the number of partitions. It has no scripts, and equal plans give
    equal documents.
    """
    rows, height = _rows(picture)
    width = max(2 * _MARGIN + _LABELS + len(picture.columns) * _COLUMN, 640)
    body = [*_headers(picture, width), *rows, *_legend(picture, height)]
    height += 56 + (20 if _has_gaps(picture) else 0)
    columns = (f"{c.dataset} ({c.join}): {c.read:,} of {pluralize(c.total, 'file')}" for c in picture.columns)
    description = escape(f"{'; '.join(picture.notes)}. {'; '.join(columns)}.")
    title = escape(picture.title)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kartothek-plan" role="img" aria-label="{title}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="13">'
    )
    ground = f'<rect class="bg" width="{width}" height="{height}" rx="6" fill="{_LIGHT["bg"]}"/>'
    parts = f"<title>{title}</title><desc>{description}</desc><style>{_STYLE}</style>{ground}{''.join(body)}"
    return f"{head}{parts}</svg>\n"


# --- style and shapes ---------------------------------------------------------------------------


def _theme(page: str, colours: dict[str, str]) -> str:
    return f"{page}.kartothek-plan{{{''.join(f'--{name}:{value};' for name, value in colours.items())}}}"


# Every shape also has its colour as an attribute, for viewers that do not support variables.
_STYLE = (
    ".kartothek-plan{max-width:100%;height:auto;font-variant-numeric:tabular-nums}"
    f"{''.join(f'.kartothek-plan .{name}{{fill:var(--{name})}}' for name in _LIGHT if name != 'line')}"
    f"{''.join(f'.kartothek-plan .{name}-line{{fill:none;stroke:var(--{name})}}' for name in ('line', *_JOINS))}"
    f"{_theme('', _LIGHT)}"
    f"@media (prefers-color-scheme:dark){{{_theme('', _DARK)}}}"
    f"{_theme(f'{LIGHT_PAGE} ', _LIGHT)}{_theme(f'{DARK_PAGE} ', _DARK)}"
)


def _text(x: float, y: float, text: str, colour: str = "fg", extra: str = "") -> str:
    return f'<text class="{colour}" x="{x:g}" y="{y:g}" fill="{_LIGHT[colour]}"{extra}>{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, colour: str, extra: str = "") -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{colour}" {place} rx="3" fill="{_LIGHT[colour]}"{extra}/>'


def _outline(x: float, y: float, height: float, colour: str, extra: str = "", width: float = _BAR) -> str:
    place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{width - 1:g}" height="{height - 1:g}"'
    return f'<rect class="{colour}-line" {place} rx="3" fill="none" stroke="{_LIGHT[colour]}"{extra}/>'


def _fitted(text: str, width: float, size: float) -> str:
    """Text shortened to a width, with an ellipsis in the middle.

    Examples
    --------
    >>> _fitted("prices", 80, 10), _fitted("PRICES_OF_COMPETITORS", 80, 10)
    ('prices', 'PRICE…ITORS')
    """
    shown = spelled(text)
    candidates = (shortened(shown, length) for length in range(min(len(shown), _MAX_LENGTH), 0, -1))
    return next((short for short in candidates if size * sum(map(_ems, short)) <= width), "")


def _ems(letter: str) -> float:
    # The widths of a wide font: a drawing cannot measure the font that the viewer has.
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    return 1.0 if letter in "WMmw@%…" else 0.84 if letter in "=+<>~#" else 0.7 if letter.isupper() else 0.6


_MIDDLE = ' text-anchor="middle"'
_SMALL = ' font-size="11.5"'
_BOLD = ' font-weight="600"'
_DASHED = ' stroke-dasharray="3 3"'


# --- parts ----------------------------------------------------------------------------------------


def _headers(picture: PlanPicture, width: int) -> Iterator[str]:
    """The title, the notes, and the headers of the columns."""
    yield _text(_MARGIN, 34, _fitted(picture.title, width - 2 * _MARGIN, 16), "fg", ' font-size="16" font-weight="600"')
    for i, note in enumerate(picture.notes):
        yield _text(_MARGIN, 55 + 18 * i, _fitted(note, width - 2 * _MARGIN, 13), "quiet")
    by = f"by {', '.join(picture.by)}"
    shown = f"{_text(_MARGIN, 104, 'partitions')}{_text(_MARGIN, 121, _fitted(by, _LABEL, 11.5), 'quiet', _SMALL)}"
    yield f"<g><title>{escape(by)}</title>{shown}</g>"
    for x, column in zip(_lefts(picture), picture.columns, strict=True):
        join = "seed" if column.join == "seed" else f"{column.join} join"
        shown = _text(x, 104, _fitted(column.dataset, _BAR, 14.5), column.join, _BOLD)
        yield f"<g><title>{escape(column.dataset)}</title>{shown}{_text(x, 121, join, 'quiet', _SMALL)}</g>"


def _lefts(picture: PlanPicture) -> list[int]:
    return [_MARGIN + _LABELS + i * _COLUMN for i in range(len(picture.columns))]


def _rows(picture: PlanPicture) -> tuple[list[str], int]:
    """Everything below the headers, and the height where it ends."""
    y, parts = _HEAD, []
    for row in picture.rows:
        pitch = _BAND if row.last else _ROW
        label = _text(_MARGIN, y + 15, _label(row.label, row.short), "fg", _SMALL)
        if row.last:
            label += _text(_MARGIN, y + 29, _label(f"to {row.last}", f"to {row.short_last}"), "fg", _SMALL)
        places = zip(_lefts(picture), row.boxes, picture.columns, strict=True)
        boxes = "".join(_box(row, box, column, x, y, pitch - 4) for x, box, column in places)
        full = f"{row.label} … {row.last}: {pluralize(row.partitions, 'partition')}" if row.last else row.label
        parts.append(f"<g><title>{escape(full)}</title>{label}{boxes}</g>")
        y += pitch
    if not picture.rows:
        parts.append(_text(_MARGIN, y + 16, "no partition is read", "quiet"))
        y += _ROW
    # Files that are not read, by the step that drops them.
    unmatched = [c.matched - c.read for c in picture.columns]
    pruned = [c.total - c.matched for c in picture.columns]
    for step, counts, reason in (
        ("no partner in the join", unmatched, "have no partner in the join, or no value to group by"),
        ("dropped by conditions", pruned, "are dropped by partition values and indices"),
    ):
        if any(counts):
            parts += _dropped_files(picture, y + 8, step, counts, reason)
            y += _ROW + 8
    return parts, y


def _label(full: str, short: str) -> str:
    """The label of a row; without column names if it is too long."""
    fitted = _fitted(full, _LABEL, 11.5)
    return fitted if fitted == spelled(full) else _fitted(short, _LABEL, 11.5)


def _box(row: Row, box: Box, column: Column, x: int, y: int, height: int) -> str:
    """A full bar for a dataset with files in all partitions of the row, else a part or outline."""
    centre, middle = x + _BAR / 2, y + height / 2 + 4
    outline = _outline(x, y, height, column.join, _DASHED)
    if not box.present:
        return outline + _text(centre, middle, "lacking", "quiet", _MIDDLE + _SMALL)
    files, share = pluralize(box.files, "file"), box.present / row.partitions
    if share == 1:
        return _bar(x, y, _BAR, height, column.join) + _text(centre, middle, files, "on", _MIDDLE + _SMALL)
    filled = _bar(x, y + height - 7, max(_BAR * share, 2), 7, column.join)
    text = f"{files}, {share:.0%}" if share >= 0.005 else files
    return outline + filled + _text(centre, y + height / 2 + 0.5, text, "fg", _MIDDLE + _SMALL)


def _dropped_files(picture: PlanPicture, y: int, label: str, counts: Sequence[int], reason: str) -> Iterator[str]:
    yield _text(_MARGIN, y + 15, label, "quiet", _SMALL)
    struck = f'{_MIDDLE}{_SMALL} text-decoration="line-through"'
    for x, n, column in zip(_lefts(picture), counts, picture.columns, strict=True):
        if n:
            faded = _bar(x, y, _BAR, _ROW - 4, column.join, ' opacity=".16"')
            text = _text(x + _BAR / 2, y + 15, pluralize(n, "file"), "quiet", struck)
            title = f"{n:,} of {pluralize(column.total, 'file')} of {column.dataset} {reason}"
            yield f"<g><title>{escape(title)}</title>{faded}{text}</g>"


def _legend(picture: PlanPicture, y: int) -> Iterator[str]:
    right = _MARGIN + _LABELS + len(picture.columns) * _COLUMN - _GAP
    yield f'<path class="line-line" d="M{_MARGIN} {y + 14.5:g}H{right}" stroke="{_LIGHT["line"]}"/>'
    joins = dict.fromkeys(column.join for column in picture.columns)
    x = float(_MARGIN)
    for join in joins:
        yield _bar(x, y + 27, 12, 12, join)
        yield _text(x + 18, y + 37, _JOINS[join], "quiet", _SMALL)
        x += 30 + 6.1 * len(_JOINS[join])
    if picture.more:
        yield _text(x, y + 37, f"and {pluralize(picture.more, 'more dataset')}", "quiet", _SMALL)
    if _has_gaps(picture):
        yield _outline(_MARGIN, y + 47, 12, "left", _DASHED, 12)
        text = "lacking in some partitions of the row; % says in how many it is"
        yield _text(_MARGIN + 18, y + 57, text, "quiet", _SMALL)


def _has_gaps(picture: PlanPicture) -> bool:
    return any(0 < box.present < row.partitions for row in picture.rows for box in row.boxes)
