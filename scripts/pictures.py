"""The pictures of docs/concepts.md as SVG: `python scripts/pictures.py` draws them again.

They adapt to light and dark, and need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
# Narrow, so that the letters can be read on a telephone.
WIDTH = 560

# The colours of the drawings of plans: people tell them apart however they see colours; words say
# the same.
LIGHT = {
    "bg": "#ffffff",
    "fg": "#1f2933",
    "quiet": "#5b6875",
    "line": "#8d99a5",
    "box": "#f2f4f7",
    "seed": "#0072b2",
    "inner": "#b85400",
    "left": "#007a59",
    "on": "#ffffff",
}
DARK = {
    "bg": "#14181d",
    "fg": "#e6eaee",
    "quiet": "#9aa7b4",
    "line": "#6b7783",
    "box": "#20262d",
    "seed": "#56b4e9",
    "inner": "#e69f00",
    "left": "#2fc49a",
    "on": "#10151a",
}

Rows = Sequence[Sequence[str]]


def colours(palette: dict[str, str]) -> str:
    """Style rules of a palette: fills by name, strokes by name and ``-line``."""
    return "".join(
        f".{name}{{fill:{value}}}.{name}-line{{fill:none;stroke:{value}}}" for name, value in palette.items()
    )


STYLE = (
    f"{colours(LIGHT)}@media (prefers-color-scheme:dark){{{colours(DARK)}}}"
    ".b{font-weight:600}.d{stroke-dasharray:4 3}.faded{opacity:.3}"
)
HEAD_OF_ARROW = (
    '<marker id="head" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
    '<path class="line" d="M0,0 L8,4 L0,8 z"/></marker>'
)


def text(x: float, y: float, words: str, kind: str = "fg", size: float = 13, anchor: str = "start") -> str:
    """Words whose base line begins, or ends, or has its middle there."""
    place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words, quote=False)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str = "box", radius: float = 4) -> str:
    """A filled box, or with a kind that ends with ``-line`` its outline."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def label(x: float, y: float, width: float, height: float, words: str, kind: str) -> str:
    """A coloured box with words in its middle."""
    return box(x, y, width, height, kind) + text(x + width / 2, y + height / 2 + 4.5, words, "on", 12, "middle")


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """A straight arrow."""
    return f'<path class="line-line" stroke-width="1.5" marker-end="url(#head)" d="M{x:g},{y:g} L{to_x:g},{to_y:g}"/>'


def table(
    x: float,
    y: float,
    widths: Sequence[float],
    head: Sequence[str],
    rows: Rows,
    kind: str,
    quiet: Callable[[str], bool] = lambda _: False,
) -> str:
    """A small table with a coloured head."""
    parts = [box(x, y, sum(widths), 22, kind, 2), box(x, y + 22, sum(widths), 21 * len(rows), "box", 2)]
    for number, row in enumerate([head, *rows]):
        left = x
        for width, cell in zip(widths, row, strict=True):
            parts.append(
                text(
                    left + 6,
                    y + 15 + 21 * number + (1 if number else 0),
                    cell,
                    ("quiet" if quiet(cell) else "fg") if number else "on",
                    11.5,
                )
            )
            left += width
    return "".join(parts)


def picture(height: float, title: str, description: str, parts: Iterable[str]) -> str:
    """The whole document."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">"
    )
    words = f"<title>{escape(title, quote=False)}</title><desc>{escape(description, quote=False)}</desc>"
    ground = box(0, 0, WIDTH, height, "bg", 6)
    return f"{head}{words}<style>{STYLE}</style><defs>{HEAD_OF_ARROW}</defs>{ground}{''.join(parts)}</svg>\n"


def store() -> str:
    """A store with two datasets."""
    parts = [
        box(16, 34, 528, 260, "line-line"),
        text(16, 24, "store: a directory, or a bucket", "fg b"),
        *_dataset(32, 52, "sales++seed", "seed", ["COUNTRY_CODE=DE", "COUNTRY_CODE=FR"], ["2 files", "1 file"]),
        *_dataset(32, 186, "sales++products", "left", ["no partition columns"], ["1 file"]),
    ]
    return picture(
        310,
        "A store, its datasets, their partitions and files",
        "A dataset is one metadata document and the files that it names, in folders by partition.",
        parts,
    )


def _dataset(x: float, y: float, name: str, kind: str, folders: Sequence[str], counts: Sequence[str]) -> Iterable[str]:
    height = max(94, 30 + 46 * len(folders))
    yield box(x, y, 496, height, "box")
    yield text(x + 14, y + 22, f"dataset {name}", "fg b")
    yield label(x + 14, y + 34, 150, 26, "metadata document", "fg")
    yield text(x + 14, y + 80, "names every file", "quiet", 12)
    for number, (folder, count) in enumerate(zip(folders, counts, strict=True)):
        top = y + 34 + 46 * number
        yield arrow(x + 168, y + 47, x + 204, top + 13)
        yield text(x + 212, top + 17, folder, "fg", 12)
        files = int(count[0])
        for file in range(files):
            yield label(x + 352 + 66 * file, top, 60, 26, "Parquet", kind)


def cells() -> str:
    """The grid of cells, and enrichments beside it."""
    days = ["03-01", "03-02", "03-03", "03-04"]
    there = ["1101", "1110", "0011"]
    forecast = ["1100", "1111", "0001"]
    parts = [
        text(24, 28, "seed: which cells exist", "fg b"),
        text(24, 196, "forecast: same dimensions", "fg b"),
        text(370, 28, "products", "fg b"),
        text(370, 46, "by PRODUCT_ID alone", "quiet", 12),
    ]
    for top, grid, kind in ((44, there, "seed"), (212, forecast, "left")):
        parts += [text(112 + 58 * i, top + 12, day, "quiet", 11, "middle") for i, day in enumerate(days)]
        for row, line in enumerate(grid):
            y = top + 20 + 30 * row
            parts.append(text(24, y + 18, f"product {row + 1}", "quiet", 11))
            parts += [_cell(86 + 58 * i, y, mark == "1", there[row][i] == "1", kind) for i, mark in enumerate(line)]
    for row, brand in enumerate(("Acme", "Bolt", "Acme")):
        parts += [
            text(370, 82 + 30 * row, f"product {row + 1}", "quiet", 11),
            label(434, 64 + 30 * row, 90, 26, brand, "left"),
        ]
    parts += [
        text(334, 252, "null: the seed has the cell,", "quiet", 12),
        text(334, 268, "the forecast has not", "quiet", 12),
        text(334, 292, "dashed: the seed lacks the cell,", "quiet", 12),
        text(334, 308, "so that no query shows it", "quiet", 12),
    ]
    return picture(
        336,
        "Cells of a seed and its enrichments",
        "The seed has some combinations of product and day. "
        "A forecast lacks some of them and has others, which no query shows.",
        parts,
    )


def _cell(x: float, y: float, is_there: bool, in_seed: bool, kind: str) -> str:
    if is_there and in_seed:
        return box(x, y, 52, 26, kind)
    if in_seed:
        return box(x + 0.5, y + 0.5, 51, 25, f"{kind}-line") + text(x + 26, y + 17, "null", "quiet", 11, "middle")
    return box(x + 0.5, y + 0.5, 51, 25, f"{kind}-line d" if is_there else "line-line faded")


def joins() -> str:
    """The same two datasets, joined left and joined inner."""
    is_null = "null".__eq__
    parts = [
        text(24, 28, "seed", "fg b"),
        table(24, 38, (110, 70), ("PRODUCT_ID", "UNITS"), [("1", "3"), ("2", "5"), ("3", "4")], "seed"),
        text(300, 28, "promotions", "fg b"),
        table(300, 38, (110, 80), ("PRODUCT_ID", "MAILER"), [("1", "A"), ("3", "B")], "inner"),
        arrow(120, 136, 120, 168),
        arrow(400, 136, 400, 168),
        text(24, 190, "no condition on MAILER: left", "fg b"),
        table(
            24,
            202,
            (100, 60, 80),
            ("PRODUCT_ID", "UNITS", "MAILER"),
            [("1", "3", "A"), ("2", "5", "null"), ("3", "4", "B")],
            "seed",
            is_null,
        ),
        text(300, 190, 'C("MAILER") == "A": inner', "fg b"),
        table(300, 202, (100, 60, 80), ("PRODUCT_ID", "UNITS", "MAILER"), [("1", "3", "A")], "inner", is_null),
        text(24, 312, "every cell of the seed", "quiet", 12),
        text(300, 272, "cells whose promotion says so", "quiet", 12),
    ]
    return picture(
        330,
        "A left and an inner join",
        "Without a condition on it an enrichment is joined left; with one it is joined inner.",
        parts,
    )


def groups() -> str:
    """Files by partition, rows by group."""
    parts = [text(24, 28, "stored by COUNTRY_CODE", "fg b"), text(330, 28, 'partition_by="BRAND"', "fg b")]
    brands = {"DE": ("Acme", "Bolt"), "FR": ("Acme", "Cord"), "IT": ("Bolt", "Cord")}
    kinds = {"Acme": "seed", "Bolt": "inner", "Cord": "left"}
    for number, (country, held) in enumerate(brands.items()):
        y = 44 + 66 * number
        parts += [box(24, y, 196, 54), text(36, y + 32, country, "fg b")]
        parts += [label(70 + 72 * i, y + 12, 66, 30, brand, kinds[brand]) for i, brand in enumerate(held)]
    for number, (brand, kind) in enumerate(kinds.items()):
        y = 44 + 66 * number
        found = [country for country, held in brands.items() if brand in held]
        parts += [box(330, y, 206, 54), text(342, y + 32, brand, "fg b")]
        parts += [label(394 + 68 * i, y + 12, 62, 30, country, kind) for i, country in enumerate(found)]
    parts += [
        arrow(232, 137, 318, 137),
        text(24, 258, "An index on BRAND says which files have rows of each brand;", "quiet", 12),
        text(24, 276, "each group comes as one frame, table or Spark task.", "quiet", 12),
    ]
    return picture(
        292,
        "Groups of a result",
        "Rows that are stored by country come in groups of brands, because an index says where each brand is.",
        parts,
    )


def index() -> str:
    """An inverted index and what it saves."""
    parts = [text(24, 28, "index on BRAND", "fg b"), text(326, 28, "partitions", "fg b")]
    files = ["COUNTRY_CODE=AT", "COUNTRY_CODE=DE", "COUNTRY_CODE=FR", "COUNTRY_CODE=IT"]
    where = {"Acme": (1, 2), "Bolt": (0, 2), "Cord": (3,)}
    for number, file in enumerate(files):
        read = number in where["Acme"]
        parts.append(
            label(326, 44 + 44 * number, 210, 32, file, "seed")
            if read
            else box(326, 44 + 44 * number, 210, 32) + text(431, 64.5 + 44 * number, file, "quiet", 12, "middle")
        )
    for number, (brand, held) in enumerate(where.items()):
        y = 56 + 54 * number
        asked = brand == "Acme"
        parts.append(
            label(24, y, 110, 36, brand, "inner")
            if asked
            else box(24, y, 110, 36) + text(79, y + 22.5, brand, "quiet", 12, "middle")
        )
        parts += [
            f'<g class="{"" if asked else "faded"}">{arrow(140, y + 18, 318, 60 + 44 * place)}</g>' for place in held
        ]
    parts += [
        text(24, 248, 'C("BRAND") == "Acme" reads two partitions of four.', "fg", 13),
        text(24, 268, "The others are not opened.", "quiet", 12),
    ]
    return picture(
        284,
        "An inverted index",
        "An index goes from a value to the partitions that have it, so that a condition opens no other file.",
        parts,
    )


def commit() -> str:
    """Files first, then the document is swapped."""
    steps = (
        ("1", "write files under new keys", "nobody sees them"),
        ("2", "keep what is needed to go back", "a history entry"),
        ("3", "swap the metadata document", "only if nobody else did"),
    )
    parts = [text(24, 28, "a commit", "fg b"), text(24, 226, "what readers see", "fg b")]
    for number, (name, words, note) in enumerate(steps):
        x = 24 + 176 * number
        parts += [box(x, 42, 160, 118), label(x + 12, 54, 28, 28, name, "inner" if name == "3" else "seed")]
        first, _, rest = (
            words.partition(" ")
            if len(words) < 20
            else (words[: words.rindex(" ", 0, 18)], "", words[words.rindex(" ", 0, 18) + 1 :])
        )
        parts += [
            text(x + 12, 106, first, "fg", 12.5),
            text(x + 12, 123, rest, "fg", 12.5),
            text(x + 12, 146, note, "quiet", 11.5),
        ]
    parts += [arrow(186, 101, 198, 101), arrow(362, 101, 374, 101), arrow(456, 164, 456, 196)]
    parts += [
        label(24, 240, 160, 34, "commit 1", "left"),
        label(200, 240, 160, 34, "commit 2", "left"),
        label(376, 240, 160, 34, "commit 3: now", "inner"),
        arrow(376, 290, 208, 290),
        text(24, 316, "as_of= reads an older state, undo() makes it the newest again.", "quiet", 12),
        text(376, 212, "from here on", "quiet", 12),
    ]
    return picture(
        332,
        "A commit and the history",
        "A commit writes new files, keeps a history entry, and swaps the metadata document. "
        "Older states stay readable.",
        parts,
    )


def query_system() -> str:
    """From datasets to groups."""
    rows = {
        "sales (seed)": ("seed", "1110"),
        "promotions: inner": ("inner", "1011"),
        "products: left": ("left", "1110"),
    }
    parts = [
        text(24, 28, "1  Conditions drop files", "fg b"),
        text(24, 46, "by partition values and indices, before data are read", "quiet", 12),
    ]
    for number, (name, (kind, marks)) in enumerate(rows.items()):
        y = 60 + 40 * number
        parts.append(text(24, y + 21, name, "fg", 12.5))
        for place, mark in enumerate(marks):
            x = 168 + 94 * place
            parts.append(
                label(x, y, 86, 32, f"week {place + 1}", kind)
                if mark == "1"
                else box(x + 0.5, y + 0.5, 85, 31, f"{kind}-line d")
                + text(x + 43, y + 20.5, "none", "quiet", 11.5, "middle")
            )
    parts += [
        arrow(280, 186, 280, 208),
        text(24, 232, "2  Partitions are aligned and joined", "fg b"),
        text(24, 250, "without a partner in an inner join, or without a seed: gone", "quiet", 12),
    ]
    for place, (week, joined) in enumerate({"week 1": True, "week 2": False, "week 3": True, "week 4": False}.items()):
        x = 24 + 130 * place
        parts.append(box(x, 264, 122, 62) + text(x + 61, 283, week, "fg" if joined else "quiet", 12, "middle"))
        parts += [box(x + 10 + 35 * i, 292, 32, 24, kind) for i, kind in enumerate(("seed", "inner", "left")) if joined]
        parts += [] if joined else [text(x + 61, 308, "not read", "quiet", 11.5, "middle")]
    parts += [arrow(280, 334, 280, 356), text(24, 380, '3  The result in groups: partition_by="MAILER"', "fg b")]
    for place, mailer in enumerate(("front page", "back page", "leaflet")):
        x = 24 + 174 * place
        parts += [box(x, 394, 164, 62), text(x + 82, 412, mailer, "fg", 12, "middle")]
        parts += [
            box(x + 12 + 48 * i, 422 + 14 * j, 44, 10, kind, 1)
            for i, kind in enumerate(("seed", "inner", "left"))
            for j in range(2)
        ]
    title = "How a query is answered"
    return picture(
        472,
        title,
        "The seed decides which cells exist; enrichments are joined to it; "
        "a condition on one makes its join an inner one; the result comes in groups.",
        parts,
    )


PICTURES = {
    "query-system.svg": query_system,
    "pictures/store.svg": store,
    "pictures/cells.svg": cells,
    "pictures/joins.svg": joins,
    "pictures/groups.svg": groups,
    "pictures/index.svg": index,
    "pictures/commit.svg": commit,
}


def main() -> None:
    """Write all of them."""
    for name, draw in PICTURES.items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
