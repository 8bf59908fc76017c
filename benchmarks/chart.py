"""Lines over a logarithmic axis as SVG, in the style of the pictures of the documentation. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from pictures import WIDTH, picture, text

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 64, 96, 52, 300, 344
# The first line is ours. Colours are told apart by everybody; names at the ends say the same.
KINDS = ("seed", "inner", "left", "quiet", "fg")


def curves(title: str, description: str, lines: Mapping[str, Sequence[float]], steps: str, unit: str) -> str:
    """One line for each name, with as many steps as it has values.

    Examples
    --------
    >>> curves("Growth", "It grows.", {"ours": [1.0, 2.0], "other": [1.0, 9.0]}, "rounds", "ms")[:4]
    '<svg'
    """
    values = [value for line in lines.values() for value in line]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    if low == high:
        high += 1

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (math.log10(value) - low) / (high - low)

    most = max(map(len, lines.values()))
    parts = [text(24, 28, title, "fg b", 13)]
    for tick in range(low, high + 1):
        parts += [_line("line", 0.5, [(LEFT, y(10.0**tick)), (WIDTH - RIGHT, y(10.0**tick))])]
        parts += [text(LEFT - 6, y(10.0**tick) + 4, f"{10.0**tick:g} {unit}", "quiet", 11, "end")]
    for step in (1, most):
        parts += [text(_x(step - 1, most), BOTTOM + 16, str(step), "quiet", 11, "middle")]
    parts += [text((LEFT + WIDTH - RIGHT) / 2, BOTTOM + 32, steps, "quiet", 11, "middle")]
    for kind, line in [*zip(KINDS, lines.values(), strict=False)][::-1]:
        points = [(_x(i, most), y(value)) for i, value in enumerate(line)]
        parts += [_line(kind, 2.5 if kind == KINDS[0] else 1.25, points)]
    return picture(HEIGHT, title, description, [*parts, *_names({name: y(line[-1]) for name, line in lines.items()})])


def _x(step: int, most: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, most - 1)


def _line(kind: str, width: float, points: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<path class="{kind}-line" stroke-width="{width:g}" stroke-linejoin="round" d="M{path}"/>'


def _names(ends: Mapping[str, float]) -> Iterator[str]:
    """Names beside the ends of their lines, with room between them."""
    kinds, lowest = dict(zip(ends, KINDS, strict=False)), -math.inf
    for name, end in sorted(ends.items(), key=lambda each: each[1]):
        lowest = max(end, lowest + 14)
        yield text(WIDTH - RIGHT + 8, lowest + 4, name, f"{kinds[name]} b" if name == "ours" else kinds[name], 12)
