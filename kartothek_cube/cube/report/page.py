"""A report as one self-contained HTML page without scripts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kartothek_cube.core.arguments import pluralize, shortened
from kartothek_cube.core.display import (
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
from kartothek_cube.core.maintenance.inspection import SEVERITIES
from kartothek_cube.cube.report.charts import STYLE, bar, heat_figure, histogram_table, ranges_details, sparkline
from kartothek_cube.cube.report.facts import Advice, DatasetFacts, IndexFacts, ReportFacts

__all__ = ["article", "page"]

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
