"""A report as one self-contained HTML page without scripts. Pure.

In order:

- advice, with the call and command that mend it
- charts as HTML and SVG, style sheet
- the page
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from kartothek_cube.core.arguments import pluralize, shortened
from kartothek_cube.core.display import (
    DARK_PAGE,
    LIGHT_PAGE,
    Markup,
    changes_table,
    code,
    counts_table,
    details,
    escape,
    or_dash,
    show_bytes,
    show_count,
    table,
)
from kartothek_cube.core.maintenance.compaction_plan import TARGET_ROWS, cell_order, neighbours
from kartothek_cube.core.maintenance.inspection import SEVERITIES, Finding, Severity, alike
from kartothek_cube.core.maintenance.verify_checks import rebuild
from kartothek_cube.core.metadata.statistics import ColumnRange
from kartothek_cube.cube.cube import KTK_CUBE_UUID_SEPERATOR, Cube
from kartothek_cube.cube.report.facts import (
    BETWEEN,
    Advice,
    CubeStatistics,
    DatasetFacts,
    Growth,
    HeatMap,
    Histogram,
    IndexFacts,
    ReportFacts,
)

# Bytes: below this size, opening a file costs more than reading it.
_SMALL_FILE = 8_000_000
# A dataset with as many files, tiny on average, has too many partitions.
_TINY_FILE, _MANY_FILES = 64_000, 1_000
# A partition of this size, so many times the median, takes longer than all others together.
_HUGE_PARTITION, _SKEW_FACTOR = 256_000_000, 8
# Share of files beyond one for each physical partition. Every append leaves a few.
_SURPLUS_SHARE = 0.1

_GRACE = " They stay until they are older than the option grace, a day by default."

# The command line takes such names for several names, or for an option.
_PATTERN = re.compile(r"[,*?\[]|^-|^\s|\s$")


class _Context(Struct, frozen=True):
    """The cube as calls and commands name it.

    ``cube`` is None if the metadata describe none. ``command_start`` is empty if there are no
    commands. ``is_loadable``: the cube can be loaded as a whole.
    """

    prefix: str
    cube: Cube | None
    command_start: str
    is_loadable: bool

    def uuid(self, name: str) -> str:
        return f"{self.prefix}{KTK_CUBE_UUID_SEPERATOR}{name}"

    def command(self, *words: str) -> str:
        return " ".join([self.command_start, *map(shlex.quote, words)]) if self.command_start and words else ""


def advice_of(
    prefix: str,
    cube: Cube | None,
    store: str,
    findings: Sequence[Finding],
    statistics: Mapping[str, CubeStatistics],
    *,
    readable: bool = True,
) -> tuple[Advice, ...]:
    """All advice on a cube, errors first.

    There are no commands if no URL names the store. A cube cannot be loaded unless all of its
    datasets are ``readable`` and fit together; then every call concerns a single dataset.
    """
    is_loadable = readable and not any(f.severity == "error" and f.check.startswith("cube-") for f in findings)
    start = f"kartothek_cube --url {shlex.quote(store)} {shlex.quote(prefix)}" if "://" in store else ""
    context = _Context(prefix, cube, start if is_loadable else "", is_loadable)
    advice = []
    for group in alike(findings):
        first = group[0]
        name = first.dataset.removeprefix(context.uuid(""))
        call, words = _mend(name, first) if is_loadable else (first.mend, ())
        message = f"{first.message}{_GRACE}" if first.check == "garbage" else first.message
        subject, *more = [", ".join(part for part in (name, f.column, f.key or f.label) if part) for f in group]
        count, command = sum(f.count for f in group) if more else 1, context.command(*words)
        advice.append(Advice(first.severity, first.check, subject, message, call, command, tuple(more), count))
    for name, dataset in statistics.items():
        advice += _size_advice(context, name, dataset)
    return tuple(sorted(advice, key=lambda a: (SEVERITIES.index(a.severity), not a.call)))


def _mend(name: str, finding: Finding) -> tuple[str, tuple[str, ...]]:
    """The call for the cube instead of its dataset, and the words of an equal command if any."""
    if finding.check == "garbage":
        return "cleanup_cube(cube, store)", ("cleanup",)
    if finding.check == "overridden-cells":
        return f"compact_cube(cube, store, ktk_cube_dataset_ids=[{name!r}])", ("compact", "--include", name)
    if finding.check == "missing-file":
        removal = f"remove_partitions(cube, store, conditions, ktk_cube_dataset_ids=[{name!r}])"
        text = "restore the file from a backup of the store, go back with undo, or give its partition up"
        return f"{text}: {removal}", ()
    column = finding.column
    if column is not None and finding.mend == rebuild(finding.dataset, column):
        call = f"build_cube_index(cube, store, [{column!r}], {name!r})"
        return call, () if _PATTERN.search(column) else ("index", name, column)
    return finding.mend, ()


# --- sizes ----------------------------------------------------------------------------------------


def _size_advice(context: _Context, name: str, statistics: CubeStatistics) -> Iterator[Advice]:
    sizes, physical = statistics.sizes, statistics.snapshot.physical_partitions()
    has_size = sizes > 0
    if not has_size.any():
        return
    small = _mergeable(statistics, context.cube)
    if small.any() and sizes[small].mean() < _SMALL_FILE:
        n_files, n_partitions = int(small.sum()), len(np.unique(physical[small]))
        severity: Severity = "warning" if n_files - n_partitions > _SURPLUS_SHARE * len(sizes) else "info"
        text = (
            f"{n_files:,} files of {show_bytes(sizes[small].mean())} on average are in "
            f"{pluralize(n_partitions, 'physical partition')}. A query that needs a partition opens each of its files."
        )
        single = f"compact_dataset({context.uuid(name)!r}, store)"
        call = "compact_cube(cube, store)" if context.is_loadable else single
        yield Advice(severity, "small-files", name, text, call, context.command("compact"))
    elif len(sizes) >= _MANY_FILES and (mean := sizes[has_size].mean()) < _TINY_FILE:
        # A compaction merges no partitions: only other partition columns help.
        text = (
            f"{len(sizes):,} partitions of one file each have {show_bytes(mean)} on average. "
            "Fewer or coarser partition columns read faster."
        )
        yield Advice("info", "small-partitions", name, text)
    # A partition is the smallest unit of work of a group, and of a task in Spark.
    partitions = np.bincount(physical, weights=sizes)
    largest, median = float(partitions.max()), float(np.median(partitions))
    if largest >= _HUGE_PARTITION and largest > _SKEW_FACTOR * median:
        text = (
            f"The largest of {len(partitions):,} physical partitions has {show_bytes(largest)}, "
            f"half of them have no more than {show_bytes(median)}. "
            "A task on it needs as much memory and time; another partition column divides it."
        )
        yield Advice("info", "skew", name, text)


def _mergeable(statistics: CubeStatistics, cube: Cube | None) -> npt.NDArray[np.bool_]:
    """The files that a compaction would merge: small neighbours; any size if rows are unknown."""
    snapshot, rows = statistics.snapshot, statistics.rows
    small = statistics.sizes > 0 if rows is None else (statistics.sizes > 0) & (2 * rows < TARGET_ROWS)
    order = None if cube is None else cell_order(snapshot, cube.dimension_columns, cube.partition_columns)
    merged = np.zeros(len(small), dtype=bool)
    if not {*snapshot.partition_keys} <= {*snapshot.values.column_names}:
        return merged
    runs = neighbours(snapshot, ~merged, order)
    if runs:
        files, run = np.concatenate(runs), np.repeat(np.arange(len(runs)), [len(r) for r in runs])
        pairs = np.flatnonzero((run[1:] == run[:-1]) & small[files[1:]] & small[files[:-1]])
        merged[files[pairs]] = merged[files[pairs + 1]] = True
    return merged


# --- charts as HTML and SVG -----------------------------------------------------------------------


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
_CHART_LABEL, _EDGE, _TITLE = 60, 28, 20

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
        tip, name = (
            f' title="{escape(label)}"' if len(label) > _CHART_LABEL else "",
            escape(shortened(label, _CHART_LABEL)),
        )
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


# --- the page -------------------------------------------------------------------------------------


_SHOWN_COLUMNS = 8
_LABEL = 40
# Two heat maps fit side by side up to this number of datasets.
_SIDE_BY_SIDE = 4
_WORDS = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("remark", "remarks")}


def page(facts: ReportFacts) -> str:
    """The whole page."""
    title = escape(f"Cube {facts.uuid_prefix}")
    # The page around the article has the same background.
    style = (
        "html{color-scheme:light dark;background:#fff}body{margin:0}"
        "@media (prefers-color-scheme:dark){html{background:#11161b}}"
    )
    viewport = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    head = f'<meta charset="utf-8">{viewport}<title>{title}</title><style>{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{article(facts)}</body></html>\n'


def article(facts: ReportFacts) -> Markup:
    """The content of the page with its style, for notebooks."""
    parts = (
        _head(facts),
        _health(facts.advice),
        _changes(facts),
        _structure(facts),
        _partitions(facts),
        _files(facts),
        _indices(facts.indices),
        _commits(facts),
        _tags(facts),
        _delta(facts),
    )
    return Markup(f'<article class="kartothek-report"><style>{STYLE}</style>{"".join(parts)}</article>')


def _scroll(inner: Markup) -> Markup:
    return Markup(f'<div class="scroll">{inner}</div>')


def _section(title: str, intro: str, *parts: Markup) -> Markup:
    lead = f'<p class="quiet">{escape(intro)}</p>' if intro else ""
    return Markup(f"<section><h2>{escape(title)}</h2>{lead}{''.join(parts)}</section>")


# --- head and health ------------------------------------------------------------------------------


def _head(facts: ReportFacts) -> Markup:
    datasets, total = facts.datasets, Counter[str]()
    for a in facts.advice:
        total[a.severity] += a.count
    verdict = ", ".join(f"{total[s]:,} {_WORDS[s][total[s] != 1]}" for s in SEVERITIES if total[s] and s != "info")
    figures = {
        "datasets": show_count(len(datasets)),
        "files": show_count(sum(d.files for d in datasets)),
        "size": show_bytes(sum(d.bytes for d in datasets)),
    }
    if all(d.rows is not None for d in datasets):
        figures["stored rows"] = show_count(sum(d.rows or 0 for d in datasets))
    seed = next((d for d in datasets if d.is_seed), None)
    if seed is not None:
        figures["partitions of the seed"] = show_count(seed.partitions)
    figures["health"] = verdict or "sound"
    tiles = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in figures.items())
    place = escape(f"{facts.store} · looked at {facts.made:%Y-%m-%d %H:%M} UTC")
    return Markup(
        f'<h1>Cube {escape(facts.uuid_prefix)}</h1><p class="quiet">{place}</p><dl class="tiles">{tiles}</dl>'
    )


def _health(advice: tuple[Advice, ...]) -> Markup:
    urgent = [a for a in advice if a.severity != "info" or a.call]
    remarks = [a for a in advice if a.severity == "info" and not a.call]
    parts = [_advice_list(urgent) if urgent else Markup("<p>Nothing needs mending.</p>")]
    if remarks:
        word = _WORDS["info"][len(remarks) != 1]
        parts.append(details(f"{len(remarks):,} {word}: nothing to do", _advice_list(remarks)))
    return _section("Health", "", *parts)


def _advice_list(advice: Iterable[Advice]) -> Markup:
    items = []
    for a in advice:
        lines = f'<span class="call">mend: {code(a.call)}</span>' if a.call else ""
        lines += f'<span class="call">or <code>{escape(a.command)}</code></span>' if a.command else ""
        times = f", {pluralize(a.count, 'time')}" if a.more else ""
        head = f'<b>{a.severity}</b> {escape(a.check)}{times} <span class="quiet">{escape(a.subject)}</span>'
        subjects = Markup("<br>".join(map(escape, a.more)))
        more = details(f"{len(a.more):,} more of them", subjects) if a.more else ""
        items.append(f'<li class="{a.severity}">{head}<br>{escape(a.message)}{lines}{more}</li>')
    return Markup(f'<ul class="advice">{"".join(items)}</ul>')


# --- what changed ---------------------------------------------------------------------------------


def _changes(facts: ReportFacts) -> Markup:
    changes, title = facts.changes, "What changed"
    if changes is None:
        return Markup("")
    if changes.note:
        return _section(title, f"Since {changes.since}: {changes.note}")
    total, rows = sum(n for _, n, _ in changes.partitions) or 1, []
    for kind, n, labels in changes.partitions:
        names = " · ".join(shortened(label, _LABEL) for label in labels) + " · …" * (n > len(labels) > 0)
        rows.append((kind, bar(n / total, f"{n:,}"), names))
    keys = (*facts.dimensions, *facts.partitions)
    return _section(
        title,
        f"Since {changes.since}. Cells by dataset, and partitions of the cube by their files.",
        _scroll(counts_table(changes.counts)),
        _scroll(table(("partitions", "", "the first ones"), rows)),
        _scroll(changes_table(changes.columns, changes.first, keys)),
    )


# --- structure ----------------------------------------------------------------------------------


def _structure(facts: ReportFacts) -> Markup:
    intro = "The metadata describe no cube."
    if facts.dimensions:
        intro = f"Cells by {_with_types(facts.dimensions)}; partitioned by {_with_types(facts.partitions)}."
    head = ("dataset", "cells by", "partitioned by", "secondary indices", "payload", "document")
    rows = []
    for d in facts.datasets:
        payload: str = or_dash(_with_types(d.payload))
        if len(d.payload) > _SHOWN_COLUMNS:
            payload = details(f"{len(d.payload):,} columns", escape(payload))
        columns = (or_dash(", ".join(names)) for names in (d.dimensions, d.partition_keys, d.indices))
        rows.append((_name(d), *columns, payload, d.encoding))
    ranges = (_scroll(ranges_details(d.id, d.ranges)) for d in facts.datasets if d.ranges)
    return _section("Structure", intro, _scroll(table(head, rows)), *ranges)


def _with_types(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{column} ({data_type})" for column, data_type in columns.items())


def _name(dataset: DatasetFacts) -> str:
    return Markup(f'{escape(dataset.id)}<span class="tag">seed</span>') if dataset.is_seed else dataset.id


# --- figures --------------------------------------------------------------------------------------


def _partitions(facts: ReportFacts) -> Markup:
    title, heat = "Partitions and datasets", facts.heat
    if not heat.labels:
        return _section(title, "There is no partition.")
    intro, bands = "Columns are datasets.", [n for n in heat.partitions if n]
    if bands:
        intro = f"Rows are partitions by {', '.join(facts.partitions)}, columns are datasets."
    if bands and max(bands) > 1:
        last = f", the last one {bands[-1]:,}" if bands[-1] < bands[0] else ""
        intro += f" Each row has {bands[0]:,} neighbouring partitions{last}."
    maps = [heat_figure("Bytes", heat, heat.bytes, show_bytes)]
    if heat.rows:
        maps.append(heat_figure("Stored rows", heat, heat.rows, show_count))
    else:
        intro += " Rows were not counted: cube_report(..., rows=True) reads the footers of files without statistics."
    wide = " wide" if len(heat.datasets) > _SIDE_BY_SIDE else ""
    return _section(title, intro, Markup(f'<div class="maps{wide}">{"".join(maps)}</div>'))


def _files(facts: ReportFacts) -> Markup:
    rows = ("rows",) if any(d.rows is not None for d in facts.datasets) else ()
    head = ("dataset", "partitions", "files", *rows, "size", "smallest file", "median", "largest")
    lines = []
    for d in facts.datasets:
        counts = map(show_count, (d.partitions, d.files, *(() if d.rows is None else (d.rows,))))
        lines.append((_name(d), *counts, *map(show_bytes, (d.bytes, d.smallest, d.median, d.largest))))
    by_dataset = _scroll(table(head, lines, numbers=range(1, 8)))
    return _section("Files", "Sizes of data files.", histogram_table(facts.sizes), by_dataset)


def _indices(indices: tuple[IndexFacts, ...]) -> Markup:
    if not indices:
        return _section("Indices", "There are none.")
    head = ("dataset", "column", "files left by one value", "of all", "at most", "values", "type", "index")
    intro = (
        "The fewer files a value leaves, the more a condition on the column saves. "
        "The bar is their share of all files of the dataset."
    )
    rows = []
    for i in indices:
        share = i.mean / i.files if i.files else 0.0
        counts = (bar(share, f"{i.mean:,.1f}"), f"{share:.1%}", show_count(i.most), show_count(i.values))
        rows.append((i.dataset, i.column, *counts, i.type, i.kind))
    return _section("Indices", intro, _scroll(table(head, rows, numbers=(3, 4, 5))))


def _commits(facts: ReportFacts) -> Markup:
    begin = min((moment for g in facts.growth for moment, _ in g.points if moment is not None), default=None)
    period = f", from {begin:%Y-%m-%d %H:%M} until now" if begin is not None else ""
    head = ("dataset", "files", "first", "now", "commits", "since")
    rows = []
    for g in facts.growth:
        if not g.points:
            note = "another library wrote last" if g.foreign else "no history is kept"
            rows.append((g.dataset, note, "", "", "", ""))
            continue
        (since, first), (_, last) = g.points[0], g.points[-1]
        line = Markup(f'<div class="spark">{sparkline(g, begin, facts.made)}</div>')
        since_text = f"{since:%Y-%m-%d %H:%M}" if since is not None else ""
        rows.append((g.dataset, line, show_count(first), show_count(last), show_count(g.commits), since_text))
    intro = f"Files after each commit whose history is kept{period}."
    return _section("Commits", intro, _scroll(table(head, rows, numbers=(2, 3, 4, 5))))


def _tags(facts: ReportFacts) -> Markup:
    if not facts.tags:
        return Markup("")
    rows = [
        (t.name, or_dash(t.commit or ""), f"{t.time:%Y-%m-%d %H:%M}" if t.time else or_dash(""), show_count(t.datasets))
        for t in facts.tags
    ]
    intro = "States that have a name. Garbage collection keeps their files."
    return _section("Tags", intro, _scroll(table(("tag", "last commit", "at (UTC)", "datasets"), rows, numbers=(3,))))


def _delta(facts: ReportFacts) -> Markup:
    if not facts.delta:
        return Markup("")
    intro = "Other engines read these datasets in place."
    return _section("Delta tables", intro, _scroll(table(("dataset", "published"), list(facts.delta.items()))))
