"""The charts of a report as HTML and SVG, and its style sheet. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from kartothek_cube.core.arguments import pluralize, shortened
from kartothek_cube.core.display import (
    DARK_PAGE,
    LIGHT_PAGE,
    Markup,
    details,
    escape,
    show_bytes,
    show_count,
    table,
)
from kartothek_cube.core.metadata.statistics import ColumnRange
from kartothek_cube.cube.report.facts import BETWEEN, Growth, HeatMap, Histogram

__all__ = ["LEVELS", "STYLE", "bar", "heat_figure", "histogram_table", "ranges_details", "sparkline"]

# --- style sheet --------------------------------------------------------------------------------

# One hue from light to dark: the steps differ for colour-blind readers and in print, too.
_HEAT_LIGHT = ("#e9f1fa", "#c0d9f3", "#96bfe9", "#6da3da", "#2b76bb", "#0d5c9c", "#004174")
_HEAT_DARK = ("#1b2835", "#223b55", "#285077", "#2d659b", "#468cd0", "#72abe6", "#a5ccf4")
LEVELS = len(_HEAT_LIGHT)

# From this step on the text has the other colour. The shades between the two steps are left out of
# the scale: neither colour is legible on them.
_FLIP = 4

_LIGHT = (
    "--bg:#ffffff;--fg:#1c2530;--quiet:#586573;--line:#dde3e9;--soft:#f5f7f9;--mark:#1f67a5;"
    "--error:#b3261e;--warning:#8a5a00;--info:#586573;--insert:#1d7339;"
)
_DARK = (
    "--bg:#11161b;--fg:#e4e9ee;--quiet:#9aa7b4;--line:#2b343d;--soft:#181f26;--mark:#57a1d6;"
    "--error:#ff8f85;--warning:#e8b04a;--info:#9aa7b4;--insert:#63c985;"
)
_LIGHT_THEME = (_LIGHT, _HEAT_LIGHT, ("#1c2530", "#ffffff"))
_DARK_THEME = (_DARK, _HEAT_DARK, ("#e4e9ee", "#0b1015"))


def _theme(prefix: str, colours: str, heat: tuple[str, ...], inks: tuple[str, str]) -> str:
    levels = "".join(f"--h{i}:{colour};--i{i}:{inks[i >= _FLIP]};" for i, colour in enumerate(heat))
    return f"{prefix}.kartothek-report{{{colours}{levels}}}"


_RULES = """
.kartothek-report{background:var(--bg);color:var(--fg);
font:14px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;
font-variant-numeric:tabular-nums;box-sizing:border-box;max-width:1160px;margin:0 auto;padding:28px 24px 40px;
text-align:left;overflow-wrap:anywhere}
.kartothek-report *{box-sizing:border-box}
.kartothek-report h1{font-size:24px;line-height:1.25;margin:0;font-weight:650}
.kartothek-report h2{font-size:17px;margin:40px 0 4px;padding-top:16px;border-top:1px solid var(--line);font-weight:650}
.kartothek-report h3{font-size:14px;margin:20px 0 6px;font-weight:650}
.kartothek-report p{margin:2px 0 10px;max-width:72ch}
.kartothek-report .quiet,.kartothek-report figcaption{color:var(--quiet)}
.kartothek-report code{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:inherit;
background:var(--soft);
padding:1px 4px;border-radius:3px}
.kartothek-report .tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:1px;padding:1px;
margin:20px 0 0}
.kartothek-report .tiles div{box-shadow:0 0 0 1px var(--line);padding:10px 14px}
.kartothek-report .tiles :is(dt,dd){float:none;width:auto;margin:0;padding:0}
.kartothek-report .tiles dt{color:var(--quiet);font-size:12.5px;font-weight:400}
.kartothek-report .tiles dd{font-size:17px;line-height:1.35;font-weight:600}
.kartothek-report .scroll{overflow-x:auto;max-width:100%;
background:linear-gradient(to right,var(--bg) 30%,transparent) left/40px 100% no-repeat local,
linear-gradient(to left,var(--bg) 30%,transparent) right/40px 100% no-repeat local,
linear-gradient(to right,var(--line),transparent) left/12px 100% no-repeat,linear-gradient(to left,var(--line),
transparent) right/12px 100% no-repeat}
.kartothek-report table{border-collapse:collapse;table-layout:auto;width:100%;margin:6px 0 0;font-size:13px;
color:inherit;border:0}
.kartothek-report :is(th,td){text-align:left;vertical-align:top;padding:5px 14px 5px 0;border:0;
border-bottom:1px solid var(--line);background:none;
color:inherit;overflow-wrap:break-word;white-space:normal;max-width:none}
.kartothek-report :is(thead,tr,tbody tr){background:none;border:0}
.kartothek-report th{font-weight:600;color:var(--quiet);vertical-align:bottom;white-space:nowrap}
.kartothek-report tfoot td{font-weight:600}
.kartothek-report .n{text-align:right;white-space:nowrap}
.kartothek-report .n+:not(.n){padding-left:10px}
.kartothek-report td.w{overflow-wrap:anywhere;min-width:13em}
.kartothek-report .tag{font-size:11.5px;color:var(--quiet);border:1px solid var(--line);border-radius:3px;
padding:0 4px;margin-left:4px;white-space:nowrap}
.kartothek-report .advice{list-style:none;margin:10px 0 0;padding:0}
.kartothek-report .advice li{border-left:3px solid var(--line);padding:2px 0 4px 12px;margin:0 0 12px}
.kartothek-report .advice li.error{border-color:var(--error)}
.kartothek-report .advice li.warning{border-color:var(--warning)}
.kartothek-report .error>b:first-child{color:var(--error)}
.kartothek-report .warning>b:first-child{color:var(--warning)}
.kartothek-report .advice .call{display:block;margin-top:3px}
.kartothek-report .maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:8px 40px}
.kartothek-report .maps.wide{grid-template-columns:minmax(0,1fr)}
.kartothek-report figure{margin:8px 0 0;min-width:0}
.kartothek-report figcaption{font-size:12.5px;margin:6px 0}
.kartothek-report .heat table{border-collapse:separate;border-spacing:2px;width:auto}
.kartothek-report .heat :is(th,td){border:0;padding:3px 8px;white-space:nowrap;font-size:12.5px;vertical-align:middle}
.kartothek-report .heat th[scope=col]{white-space:normal;overflow-wrap:normal;vertical-align:bottom}
.kartothek-report .heat th[scope=row]{text-align:left;font-weight:400;color:var(--fg);padding-left:0;
white-space:normal;min-width:7em;
max-width:26em;overflow-wrap:anywhere;position:sticky;left:0;background:var(--bg)}
.kartothek-report .heat .edge{white-space:nowrap}
.kartothek-report .heat tbody td{text-align:right;border-radius:3px;min-width:78px}
.kartothek-report .heat .none{color:var(--quiet);outline:1px dashed var(--line);outline-offset:-1px}
.kartothek-report .scale{display:inline-flex;vertical-align:-1px;margin:0 6px;border-radius:2px;overflow:hidden}
.kartothek-report .scale i{width:16px;height:10px;display:block}
.kartothek-report .bar{display:flex;align-items:center;gap:10px;min-width:150px;min-height:1.5em}
.kartothek-report .bar span{flex:none;width:4.6em;text-align:right;white-space:nowrap}
.kartothek-report .bar b{flex:1;height:12px}
.kartothek-report .bar i{display:block;height:100%;border-radius:2px;background:var(--mark);min-width:1px}
.kartothek-report .sizes{margin-bottom:24px}
.kartothek-report .sizes :is(th,td){border:0;padding-top:2px;padding-bottom:2px}
.kartothek-report .sizes td:nth-child(-n+2){width:1%}
.kartothek-report .spark{min-width:160px;width:100%}
.kartothek-report svg{display:block;width:100%;height:36px;overflow:visible}
.kartothek-report svg .area{fill:var(--mark);opacity:.16}
.kartothek-report svg .step{fill:none;stroke:var(--mark);stroke-width:1.5;vector-effect:non-scaling-stroke}
.kartothek-report :is(.insert,ins){color:var(--insert)}
.kartothek-report :is(.delete,del){color:var(--error)}
.kartothek-report .update{color:var(--warning)}
.kartothek-report .q{color:var(--quiet)}
.kartothek-report ins{text-decoration:none;font-weight:600}
.kartothek-report td.before{border-bottom:0;padding-bottom:0}
.kartothek-report .scroll+.scroll{margin-top:20px}
.kartothek-report details{margin:8px 0}
.kartothek-report summary{cursor:pointer;color:var(--quiet)}
.kartothek-report td details{margin:0}
@media (max-width:900px){.kartothek-report .tiles{grid-template-columns:repeat(3,1fr)}}
@media (max-width:560px){.kartothek-report{padding:20px 14px 28px}.kartothek-report h1{font-size:20px}
.kartothek-report .tiles{grid-template-columns:1fr 1fr}
.kartothek-report .heat th[scope=row]{max-width:13em}}
@media print{.kartothek-report{max-width:none;padding:0}.kartothek-report .scroll{overflow:visible;background:none}
.kartothek-report :is(tr,li,figure h3,h2,h3){break-inside:avoid}.kartothek-report :is(h2,h3){break-after:avoid}
.kartothek-report :is(.heat td,.scale i,.bar i){print-color-adjust:exact;-webkit-print-color-adjust:exact}
.kartothek-report details::details-content{content-visibility:visible;block-size:auto}}
"""

STYLE = "\n".join(
    [
        _theme("", *_LIGHT_THEME),
        f"@media (prefers-color-scheme:dark){{{_theme('', *_DARK_THEME)}}}",
        _theme(f"{LIGHT_PAGE} ", *_LIGHT_THEME),
        _theme(f"{DARK_PAGE} ", *_DARK_THEME),
        # The doubled class makes these rules as specific as those of notebooks; later ones win.
        _RULES.strip().replace(".kartothek-report", ".kartothek-report.kartothek-report"),
        *(
            f".kartothek-report .heat .h{i},.kartothek-report .scale .h{i}{{background:var(--h{i});color:var(--i{i})}}"
            for i in range(LEVELS)
        ),
    ]
)

# --- heat maps ----------------------------------------------------------------------------------

_MAX_COLUMNS = 16

# Characters of a label, of each label at the edge of a band, and of the name of a dataset.
_LABEL, _EDGE, _TITLE = 60, 28, 20

# The scale spans this factor at least, so that small differences look small.
_MIN_RANGE = 30

Numbers = Sequence[Sequence[int | None]]


def heat_figure(title: str, heat: HeatMap, numbers: Numbers, show: Callable[[float | None], str]) -> Markup:
    """A heat map as an HTML table: each number with the colour of its level."""
    positive = [n for row in numbers for n in row if n]
    highest, columns = max(positive, default=1), heat.datasets[:_MAX_COLUMNS]
    lowest = min([*positive, highest / _MIN_RANGE])
    titles = []
    for dataset in columns:
        tip = f' title="{escape(dataset)}"' if len(dataset) > _TITLE else ""
        # A long name may wrap after its underscores.
        name = escape(shortened(dataset, _TITLE)).replace("_", "_<wbr/>")
        titles.append(f'<th scope="col" class="n"{tip}>{name}</th>')
    rows = []
    for label, n_partitions, values in zip(heat.labels, heat.partitions, numbers, strict=True):
        boxes = "".join(
            '<td class="none">–</td>' if v is None else f'<td class="h{level(v, lowest, highest)}">{show(v)}</td>'
            for v in values[:_MAX_COLUMNS]
        )
        tip, name = f' title="{escape(label)}"' if len(label) > _LABEL else "", escape(shortened(label, _LABEL))
        if n_partitions > 1:  # the values at both edges of a band; the tooltip has all
            tip = f' title="{escape(label)}: {pluralize(n_partitions, "partition")}"'
            edges = [f'<span class="edge">{escape(shortened(edge, _EDGE))}' for edge in label.split(BETWEEN)]
            name = Markup(f"{BETWEEN.rstrip()}</span> ".join(edges) + "</span>")
        rows.append(f'<tr><th scope="row"{tip}>{name}</th>{boxes}</tr>')
    scale = "".join(f'<i class="h{i}"></i>' for i in range(LEVELS))
    scale = f'{show(lowest) if lowest >= 1 else f"below {show(1)}"} <span class="scale">{scale}</span> {show(highest)}'
    more = len(heat.datasets) - len(columns)
    rest = f"; {pluralize(more, 'more dataset')} not shown" if more > 0 else ""
    head = f"<thead><tr><td></td>{''.join(titles)}</tr></thead>"
    return Markup(
        f'<figure class="heat"><h3>{escape(title)}</h3><div class="scroll"><table>{head}'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f"<figcaption>{scale}, logarithmic{rest}</figcaption></figure>"
    )


def level(value: float, lowest: float, highest: float) -> int:
    """The level of a number on a logarithmic scale.

    Examples
    --------
    >>> [level(n, 1, 1_000_000) for n in (0, 1, 1_000, 1_000_000)]
    [0, 0, 3, 6]
    """
    if value <= lowest or highest <= lowest:
        return 0 if value < highest else LEVELS - 1
    return min(LEVELS - 1, int(LEVELS * math.log(value / lowest) / math.log(highest / lowest)))


# --- bars and lines -----------------------------------------------------------------------------


def bar(share: float, text: str = "") -> Markup:
    """A bar over a share of the width, with a text before it."""
    label = f"<span>{escape(text)}</span>" if text else ""
    filled = f'<i style="width:{100 * min(share, 1):.1f}%"></i>' if share > 0 else ""
    return Markup(f'<div class="bar">{label}<b>{filled}</b></div>')


def histogram_table(sizes: Histogram) -> Markup:
    """A table with one bar for each range of sizes; empty without files."""
    if not sizes.counts:
        return Markup("")
    head = '<tr><th class="n">size of a file</th><th class="n">files</th><td></td></tr>'
    rows, largest = [], max(sizes.counts)
    for (low, high), n in zip(pairwise(sizes.edges), sizes.counts, strict=True):
        label = f"{_round_size(low)} – {_round_size(high)}" if low else f"below {_round_size(high)}"
        rows.append(f'<tr><td class="n">{label}</td><td class="n">{show_count(n)}</td><td>{bar(n / largest)}</td></tr>')
    body = f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody>"
    return Markup(f'<div class="scroll"><table class="sizes">{body}</table></div>')


def _round_size(size: int) -> str:
    return show_bytes(size).replace(".00", "").replace(".0", "")


_WIDTH = 300


def sparkline(growth: Growth, begin: datetime | None, end: datetime) -> Markup:
    """The number of files after each commit as a stepped line, between two moments.

    If a moment is unknown, the steps are equally wide.
    """
    points = growth.points
    if not points:
        return Markup("")
    largest = max(n for _, n in points) or 1
    xs, ys = [_WIDTH * i / len(points) for i in range(len(points))], [34 - 32 * n / largest for _, n in points]
    seconds = [moment.timestamp() for moment, _ in points if moment is not None]
    if begin is not None and len(seconds) == len(points):
        first, last = begin.timestamp(), end.timestamp()
        # The clocks of writers may differ: only ascending times make a time axis.
        if first < last and all(a <= b for a, b in pairwise([first, *seconds, last])):
            xs = [_WIDTH * (moment - first) / (last - first) for moment in seconds]
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in zip(xs[1:], ys[1:], strict=True))
    line = f"M{xs[0]:.1f} {ys[0]:.1f}{steps}H{_WIDTH}"
    files, commits = pluralize(points[-1][1], "file"), pluralize(growth.commits, "commit")
    title = escape(f"{growth.dataset}: from {points[0][1]:,} to {files} in {commits}")
    box = f'viewBox="0 0 {_WIDTH} 36" preserveAspectRatio="none" role="img" aria-label="{title}"'
    return Markup(
        f"<svg {box}><title>{title}</title>"
        f'<path class="area" d="{line}V36H{xs[0]:.1f}Z"/><path class="step" d="{line}"/></svg>'
    )


def ranges_details(dataset: str, ranges: Mapping[str, ColumnRange]) -> Markup:
    """Columns with their least and greatest values, behind a click; nothing if none are known."""
    rows = [(column, str(known.minimum), str(known.maximum)) for column, known in ranges.items()]
    return details(f"ranges of {dataset}", table(("column", "minimum", "maximum"), rows)) if rows else Markup("")
