"""A report as one page of HTML without scripts, that needs nothing else. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kartothek_cube.core.display.html import Markup, code, details, escape, or_dash, show_bytes, show_count, table
from kartothek_cube.core.maintenance.verify.report import SEVERITIES
from kartothek_cube.core.text import pluralize
from kartothek_cube.cube.report.charts import STYLE, bar, heat_figure, histogram_table, sparkline
from kartothek_cube.cube.report.facts import Advice, DatasetFacts, Growth, IndexFacts, ReportFacts

__all__ = ["article", "page"]

_SHOWN_COLUMNS = 8
# Of so many datasets two heat maps fit beside each other.
_SIDE_BY_SIDE = 4
_WORDS = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("remark", "remarks")}


def page(facts: ReportFacts) -> str:
    """The whole page."""
    title = escape(f"Cube {facts.uuid_prefix}")
    # Where the article ends, the page goes on in its colours.
    ground = "html{color-scheme:light dark;background:#fff}body{margin:0}@media (prefers-color-scheme:dark){html{background:#11161b}}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title><style>{ground}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{article(facts)}</body></html>\n'


def article(facts: ReportFacts) -> Markup:
    """What is on the page, with its style; notebooks show this."""
    parts = (
        _head(facts),
        _health(facts.advice),
        _structure(facts),
        _partitions(facts),
        _files(facts),
        _indices(facts.indices),
        _commits(facts),
    )
    return Markup(f'<article class="kartothek-report"><style>{STYLE}</style>{"".join(parts)}</article>')


def _scroll(inner: Markup) -> Markup:
    return Markup(f'<div class="scroll">{inner}</div>')


def _section(title: str, intro: str, *parts: Markup) -> Markup:
    lead = f'<p class="quiet">{escape(intro)}</p>' if intro else ""
    return Markup(f"<section><h2>{escape(title)}</h2>{lead}{''.join(parts)}</section>")


# --- head and health ------------------------------------------------------------------------------


def _head(facts: ReportFacts) -> Markup:
    where = f"{facts.store} · looked at {facts.made:%Y-%m-%d %H:%M} UTC"
    tiles = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in _totals(facts))
    return Markup(
        f'<h1>Cube {escape(facts.uuid_prefix)}</h1><p class="quiet">{escape(where)}</p><dl class="tiles">{tiles}</dl>'
    )


def _totals(facts: ReportFacts) -> Iterator[tuple[str, str]]:
    yield "datasets", show_count(len(facts.datasets))
    yield "files", show_count(sum(d.files for d in facts.datasets))
    yield "size", show_bytes(sum(d.bytes for d in facts.datasets))
    rows = [d.rows for d in facts.datasets]
    if None not in rows:
        yield "stored rows", show_count(sum(n or 0 for n in rows))
    seed = next((d for d in facts.datasets if d.is_seed), None)
    if seed is not None:
        yield "partitions of the seed", show_count(seed.partitions)
    yield "health", _verdict(facts.advice) or "sound"


def _verdict(advice: Iterable[Advice]) -> str:
    found: Counter[str] = Counter()
    for a in advice:
        found[a.severity] += a.count
    return ", ".join(f"{found[s]:,} {_WORDS[s][found[s] != 1]}" for s in SEVERITIES if found[s] and s != "info")


def _health(advice: tuple[Advice, ...]) -> Markup:
    urgent = [a for a in advice if a.severity != "info" or a.call]
    remarks = [a for a in advice if a.severity == "info" and not a.call]
    parts = (
        [Markup(f'<ul class="advice">{"".join(map(_advice, urgent))}</ul>')]
        if urgent
        else [Markup("<p>Nothing needs mending.</p>")]
    )
    if remarks:
        word = _WORDS["info"][len(remarks) != 1]
        parts.append(
            details(
                f"{len(remarks):,} {word}: nothing to do",
                Markup(f'<ul class="advice">{"".join(map(_advice, remarks))}</ul>'),
            )
        )
    return _section("Health", "", *parts)


def _advice(advice: Advice) -> str:
    lines = f'<span class="call">mend: {code(advice.call)}</span>' if advice.call else ""
    lines += f'<span class="call">or <code>{escape(advice.command)}</code></span>' if advice.command else ""
    times = f", {pluralize(advice.count, 'time')}" if advice.more else ""
    head = f'<b>{advice.severity}</b> {escape(advice.check)}{times} <span class="quiet">{escape(advice.subject)}</span>'
    more = (
        details(f"{len(advice.more):,} more of them", Markup("<br>".join(map(escape, advice.more))))
        if advice.more
        else ""
    )
    return f'<li class="{advice.severity}">{head}<br>{escape(advice.message)}{lines}{more}</li>'


# --- structure ------------------------------------------------------------------------------------


def _structure(facts: ReportFacts) -> Markup:
    lines = (
        f"Cells by {_typed(facts.dimensions)}; partitioned by {_typed(facts.partitions)}."
        if facts.dimensions
        else "The metadata describe no cube."
    )
    head = ("dataset", "cells by", "partitioned by", "secondary indices", "payload", "document")
    rows = [
        (
            _name(d),
            *(or_dash(", ".join(names)) for names in (d.dimensions, d.partition_keys, d.indices)),
            _payload(d.payload),
            d.encoding,
        )
        for d in facts.datasets
    ]
    return _section("Structure", lines, _scroll(table(head, rows)))


def _typed(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{column} ({kind})" for column, kind in columns.items())


def _name(dataset: DatasetFacts) -> str:
    return Markup(f'{escape(dataset.id)}<span class="tag">seed</span>') if dataset.is_seed else dataset.id


def _payload(payload: Mapping[str, str]) -> str:
    text = or_dash(_typed(payload))
    return text if len(payload) <= _SHOWN_COLUMNS else details(f"{len(payload):,} columns", escape(text))


# --- figures --------------------------------------------------------------------------------------


def _partitions(facts: ReportFacts) -> Markup:
    title, heat = "Partitions and datasets", facts.heat
    if not heat.labels:
        return _section(title, "There is no partition.")
    intro, maps = _rows_and_columns(facts), [heat_figure("Bytes", heat, heat.bytes, show_bytes)]
    if heat.rows:
        maps.append(heat_figure("Stored rows", heat, heat.rows, show_count))
    else:
        intro += " Rows were not counted: cube_report(..., rows=True) reads the footer of every file."
    wide = " wide" if len(heat.datasets) > _SIDE_BY_SIDE else ""
    return _section(title, intro, Markup(f'<div class="maps{wide}">{"".join(maps)}</div>'))


def _rows_and_columns(facts: ReportFacts) -> str:
    bands = [n for n in facts.heat.partitions if n]
    if not bands:
        return "Columns are datasets."
    text = f"Rows are partitions by {', '.join(facts.partitions)}, columns are datasets."
    last = f", the last one {bands[-1]:,}" if bands[-1] < bands[0] else ""
    return text if max(bands) == 1 else f"{text} Each row has {bands[0]:,} neighbouring partitions{last}."


def _files(facts: ReportFacts) -> Markup:
    rows = ("rows",) if any(d.rows is not None for d in facts.datasets) else ()
    head = ("dataset", "partitions", "files", *rows, "size", "smallest file", "median", "largest")
    by_dataset = _scroll(table(head, map(_sizes, facts.datasets), numbers=range(1, 8)))
    return _section("Files", "Sizes of data files.", histogram_table(facts.sizes), by_dataset)


def _sizes(d: DatasetFacts) -> tuple[str, ...]:
    counts = map(show_count, (d.partitions, d.files, *(() if d.rows is None else (d.rows,))))
    return _name(d), *counts, *map(show_bytes, (d.bytes, d.smallest, d.median, d.largest))


def _indices(indices: tuple[IndexFacts, ...]) -> Markup:
    if not indices:
        return _section("Indices", "There are none.")
    head = ("dataset", "column", "files left by one value", "of all", "at most", "values", "type", "index")
    intro = "The fewer files a value leaves, the more a condition on the column saves. The bar is their share of all files of the dataset."
    return _section("Indices", intro, _scroll(table(head, map(_index, indices), numbers=(3, 4, 5))))


def _index(i: IndexFacts) -> tuple[str, ...]:
    share = i.mean / i.files if i.files else 0.0
    return (
        i.dataset,
        i.column,
        bar(share, f"{i.mean:,.1f}"),
        f"{share:.1%}",
        show_count(i.most),
        show_count(i.values),
        i.type,
        i.kind,
    )


def _commits(facts: ReportFacts) -> Markup:
    known = [moment for g in facts.growth for moment, _ in g.points if moment is not None]
    begin = min(known, default=None)
    when = f", from {begin:%Y-%m-%d %H:%M} until now" if begin is not None else ""
    head = ("dataset", "files", "first", "now", "commits", "since")
    rows = [_growth(g, sparkline(g, begin, facts.made)) for g in facts.growth]
    return _section(
        "Commits",
        f"Files after each commit whose history is kept{when}.",
        _scroll(table(head, rows, numbers=(2, 3, 4, 5))),
    )


def _growth(g: Growth, line: Markup) -> tuple[str, ...]:
    if not g.points:
        return g.dataset, "another library wrote last" if g.foreign else "no history is kept", "", "", "", ""
    (since, first), (_, last) = g.points[0], g.points[-1]
    when = f"{since:%Y-%m-%d %H:%M}" if since is not None else ""
    return (
        g.dataset,
        Markup(f'<div class="spark">{line}</div>'),
        show_count(first),
        show_count(last),
        show_count(g.commits),
        when,
    )
