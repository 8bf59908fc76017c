"""Everything that is drawn can be read: contrast of text in light and dark, and colours that people
tell apart however they see colours.
"""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import numpy as np
import pytest

from kartothek_cube.core.display import Markup, in_notebook
from kartothek_cube.cube.query import picture as plan_svg
from kartothek_cube.cube.report import page as charts

# WCAG 2, level AA, for text.
LEAST = 4.5
# Text and ground of notebooks, light and dark: JupyterLab, VS Code.
NOTEBOOKS = {
    "lab light": ("#212121", "#ffffff"),
    "lab dark": ("#e0e0e0", "#111111"),
    "code dark": ("#cccccc", "#1e1e1e"),
    "code light": ("#616161", "#ffffff"),
}
# What somebody without one kind of cones sees (Viénot, Brettel and Mollon 1999), in linear light.
BLIND = {
    "protanopia": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deuteranopia": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


def channels(colour):
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def linear(colour):
    c = channels(colour) if isinstance(colour, str) else colour
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    bright, dim = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def mixed(colour, other, share):
    """`share` of a colour, the rest of another one."""
    return channels(colour) * share + channels(other) * (1 - share)


def lightness(light):
    """CIE L*, a*, b* of linear light."""
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ np.clip(light, 0, 1)
        / [0.9505, 1, 1.089]
    )
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("theme", [charts._LIGHT_THEME, charts._DARK_THEME], ids=["light", "dark"])
def test_reports(theme):
    colours, heat, inks = theme
    named = dict(re.findall(r"--(\w+):(#\w{6})", colours))
    assert {
        (text, ground)
        for text in ("fg", "quiet", "error", "warning")
        for ground in ("bg", "soft")
        if contrast(named[text], named[ground]) < LEAST
    } == set()
    assert [i for i, ground in enumerate(heat) if contrast(ground, inks[i >= charts._FLIP]) < LEAST] == []
    steps = [float(lightness(linear(colour))[0]) for colour in heat]
    differences = [abs(a - b) for a, b in pairwise(steps)]
    assert steps in (sorted(steps), sorted(steps, reverse=True))
    assert min(differences) > 6


@pytest.mark.parametrize("colours", [plan_svg._LIGHT, plan_svg._DARK], ids=["light", "dark"])
def test_drawings(colours):
    joins = ("seed", "inner", "left")
    assert {name for name in ("fg", "quiet", *joins) if contrast(colours[name], colours["bg"]) < LEAST} == set()
    assert {name for name in joins if contrast(colours["on"], colours[name]) < LEAST} == set()
    assert {
        name for name in joins if contrast(colours["quiet"], mixed(colours[name], colours["bg"], 0.16)) < LEAST
    } == set()


@pytest.mark.parametrize("eyes", BLIND)
@pytest.mark.parametrize("colours", [plan_svg._LIGHT, plan_svg._DARK], ids=["light", "dark"])
def test_joins_are_told_apart_by_everybody(colours, eyes):
    seen = {name: lightness(np.array(BLIND[eyes]) @ linear(colours[name])) for name in ("seed", "inner", "left")}
    assert {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]]))
        for pair in combinations(seen, 2)
        if np.linalg.norm(seen[pair[0]] - seen[pair[1]]) < 20
    } == {}


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_marks_in_notebooks(notebook):
    text, ground = NOTEBOOKS[notebook]
    marks = re.findall(r"color-mix\(in srgb,currentColor (\d+)%,(#\w{6})\)", in_notebook(Markup("")))
    assert len(marks) == 3
    assert [colour for share, colour in marks if contrast(mixed(text, colour, int(share) / 100), ground) < LEAST] == []
