"""The figures of a report as HTML and SVG: heat maps, bars, lines. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from kartothek_cube.core.markup import Markup, counted, escape, shortened, show_bytes, show_count
from kartothek_cube.cube.report.facts import BETWEEN, Growth, HeatMap, Histogram
from kartothek_cube.cube.report.style import LEVELS

__all__ = ["bar", "heat_figure", "histogram_table", "sparkline"]

_MOST_COLUMNS = 16
_LABEL, _EDGE, _TITLE = 60, 28, 20
# Where all numbers are about equal, small differences shall not look like large ones.
_LEAST_RANGE = 30

Numbers = Sequence[Sequence[int | None]]


def heat_figure(title: str, heat: HeatMap, numbers: Numbers, show: Callable[[float | None], str]) -> Markup:
    """One heat map as a table: a step of colour for every number, and the number itself."""
    found = [n for row in numbers for n in row if n]
    most, columns = max(found, default=1), heat.datasets[:_MOST_COLUMNS]
    least = min([*found, most / _LEAST_RANGE])
    head = "".join(_column_title(dataset) for dataset in columns)
    rows = "".join(
        f"<tr>{_row_title(label, n)}{''.join(_cell(v, show, least, most) for v in values[:_MOST_COLUMNS])}</tr>"
        for label, n, values in zip(heat.labels, heat.partitions, numbers, strict=True)
    )
    scale = "".join(f'<i class="h{i}"></i>' for i in range(LEVELS))
    more = len(heat.datasets) - len(columns)
    rest = f"; {counted(more, 'more dataset')} not shown" if more > 0 else ""
    lowest = show(least) if least >= 1 else f"below {show(1)}"
    legend = f'<figcaption>{lowest} <span class="scale">{scale}</span> {show(most)}, logarithmic{rest}</figcaption>'
    return Markup(
        f'<figure class="heat"><h3>{escape(title)}</h3><div class="scroll"><table><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{legend}</figure>"
    )


def _column_title(dataset: str) -> str:
    """The name of a dataset, which may break behind its underscores."""
    tip = f' title="{escape(dataset)}"' if len(dataset) > _TITLE else ""
    return f'<th scope="col" class="n"{tip}>{escape(shortened(dataset, _TITLE)).replace("_", "_<wbr/>")}</th>'


def _row_title(label: str, partitions: int) -> str:
    """The values of a partition, or those of the first and the last of a band; pointing at them shows the whole."""
    if partitions > 1:
        edges = f"{BETWEEN.rstrip()}</span> ".join(f'<span class="edge">{escape(shortened(edge, _EDGE))}' for edge in label.split(BETWEEN)) + "</span>"
        return f'<th scope="row" title="{escape(label)}: {counted(partitions, "partition")}">{edges}</th>'
    tip = f' title="{escape(label)}"' if len(label) > _LABEL else ""
    return f'<th scope="row"{tip}>{escape(shortened(label, _LABEL))}</th>'


def _cell(value: int | None, show: Callable[[float | None], str], least: float, most: float) -> str:
    if value is None:
        return '<td class="none">–</td>'
    return f'<td class="h{level(value, least, most)}">{show(value)}</td>'


def level(value: float, least: float, most: float) -> int:
    """The step of a logarithmic scale that a number falls on.

    Examples
    --------
    >>> [level(n, 1, 1_000_000) for n in (0, 1, 1_000, 1_000_000)]
    [0, 0, 3, 6]
    """
    if value <= least or most <= least:
        return 0 if value < most else LEVELS - 1
    return min(LEVELS - 1, int(LEVELS * math.log(value / least) / math.log(most / least)))


def bar(share: float, text: str = "") -> Markup:
    """A bar of some share of the width, behind a text."""
    label = f"<span>{escape(text)}</span>" if text else ""
    filled = f'<i style="width:{100 * min(share, 1):.1f}%"></i>' if share > 0 else ""
    return Markup(f'<div class="bar">{label}<b>{filled}</b></div>')


def histogram_table(sizes: Histogram) -> Markup:
    """One bar for each range of sizes; nothing without files."""
    if not sizes.counts:
        return Markup("")
    head = '<tr><th class="n">size of a file</th><th class="n">files</th><td></td></tr>'
    body = "".join(_bars(sizes, max(sizes.counts)))
    return Markup(f'<div class="scroll"><table class="sizes"><thead>{head}</thead><tbody>{body}</tbody></table></div>')


def _bars(sizes: Histogram, most: int) -> Iterator[str]:
    for (low, high), n in zip(pairwise(sizes.edges), sizes.counts, strict=True):
        label = f"{_round(low)} – {_round(high)}" if low else f"below {_round(high)}"
        yield f'<tr><td class="n">{label}</td><td class="n">{show_count(n)}</td><td>{bar(n / most)}</td></tr>'


def _round(size: int) -> str:
    text = show_bytes(size)
    return text.replace(".00", "").replace(".0", "")


def sparkline(growth: Growth, begin: datetime | None, end: datetime) -> Markup:
    """The number of files over the commits, as a line with steps, from one moment to another one; without moments the steps are equally wide."""
    points = growth.points
    if not points:
        return Markup("")
    most = max(n for _, n in points) or 1
    xs, ys = _positions([moment for moment, _ in points], begin, end), [34 - 32 * n / most for _, n in points]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    line = f"M{xs[0]:.1f} {ys[0]:.1f}{steps}H300"
    title = escape(f"{growth.dataset}: from {points[0][1]:,} to {counted(points[-1][1], 'file')} in {counted(growth.commits, 'commit')}")
    return Markup(
        f'<svg viewBox="0 0 300 36" preserveAspectRatio="none" role="img" aria-label="{title}"><title>{title}</title>'
        f'<path class="area" d="{line}V36H{xs[0]:.1f}Z"/><path class="step" d="{line}"/></svg>'
    )


def _positions(moments: Sequence[datetime | None], begin: datetime | None, end: datetime) -> list[float]:
    """Where the commits stand on a line of 300."""
    known = [m.timestamp() for m in moments if m is not None]
    if begin is not None and len(known) == len(moments):
        first, last = begin.timestamp(), end.timestamp()
        # The clocks of writers may differ.
        if first < last and all(a <= b for a, b in pairwise([first, *known, last])):
            return [300 * (moment - first) / (last - first) for moment in known]
    return [300 * i / len(moments) for i in range(len(moments))]
