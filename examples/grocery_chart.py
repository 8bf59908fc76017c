"""The chart of the demonstration: how promotion lifts departments, and how much they promote."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MEASURED = 20
"""A department is shown if the uplift of at least so many of its products is known."""

INK, SOFT, ACCENT, PALE = "#334e68", "#7b8794", "#d1495b", "#d9e2ec"
SPOKEN = {"drug gm": "drugstore goods"}


def summarise(by_product: pd.DataFrame) -> pd.DataFrame:
    """One row per department, the most responsive last: uplift quartiles, sales, promoted share.

    Parameters
    ----------
    by_product
        One row a product: DEPARTMENT, SALES_VALUE, PROMOTED_SALES, PROMO_UPLIFT (NaN: unknown).
    """
    departments = by_product.groupby("DEPARTMENT")
    uplift = departments["PROMO_UPLIFT"]
    summary = pd.DataFrame(
        {
            "low": uplift.quantile(0.25),
            "uplift": uplift.median(),
            "high": uplift.quantile(0.75),
            "measured": uplift.count(),
            "sales": departments["SALES_VALUE"].sum(),
            "share": departments["PROMOTED_SALES"].sum() / departments["SALES_VALUE"].sum(),
        }
    )
    return summary[summary["measured"] >= MEASURED].sort_values("uplift")


def best_and_rare(summary: pd.DataFrame) -> tuple[str, str]:
    """The most responsive department, and the least promoted one of the more responsive half."""
    responsive = summary[summary["uplift"] >= summary["uplift"].median()]
    return str(summary["uplift"].idxmax()), str(responsive["share"].idxmin())


def finding(summary: pd.DataFrame) -> str:
    """The chart in a sentence."""
    best, rare = best_and_rare(summary)
    lift, share = summary["uplift"] - 1, summary["share"]
    if rare == best:
        return f"Promotion lifts {name(best)} most: {_percent(lift[best])} more units"
    return (
        f"{name(rare).capitalize()} responds to promotion almost like {name(best)},\n"
        f"but only {_percent(share[rare])} of its sales are on promotion, against {_percent(share[best])}"
    )


def save_chart(summary: pd.DataFrame, path: Path) -> str:
    """Draw the chart, save it as PNG and return its title."""
    title = finding(summary)
    with mpl.rc_context(
        {
            "font.family": "sans-serif",
            "font.size": 10,
            "text.color": INK,
            "axes.labelcolor": SOFT,
            "xtick.color": SOFT,
            "ytick.color": INK,
        }
    ):
        figure = Figure(figsize=(10, 2.1 + 0.42 * len(summary)), dpi=160, layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        _draw_uplift(left, summary)
        _draw_sales(right, summary)
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold", color="#102a43")
        figure.supxlabel(
            "Dot: the median product of a department; bar: the middle half. "
            "Products that sold in at least 50 store weeks. "
            "Data: Complete Journey, 84.51°; simulated.",
            x=0.01,
            ha="left",
            fontsize=8,
            color=SOFT,
        )
        figure.savefig(path)
    return title


def _draw_uplift(axes: Axes, summary: pd.DataFrame) -> None:
    rows, lift = range(len(summary)), 100 * (summary["uplift"] - 1)
    axes.hlines(rows, 100 * (summary["low"] - 1), 100 * (summary["high"] - 1), color=PALE, linewidth=7)
    axes.scatter(lift, rows, s=52, color=_colours(summary), zorder=3)
    for row, value in zip(rows, lift, strict=True):
        axes.annotate(
            f"{value:+.0f} %",
            (value, row),
            (0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            fontweight="bold",
        )
    axes.axvline(0, color=SOFT, linewidth=0.8, zorder=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %" if value else "0")
    axes.set_yticks(rows, [name(department).capitalize() for department in summary.index])
    axes.set_xlabel("More units a store and week when promoted")
    _strip(axes)


def _draw_sales(axes: Axes, summary: pd.DataFrame) -> None:
    rows, share = range(len(summary)), 100 * summary["share"]
    axes.barh(rows, share, height=0.45, color=_colours(summary))
    for row, value, sales in zip(rows, share, summary["sales"], strict=True):
        axes.annotate(
            f"{value:.0f} % of ${sales / 1000:,.0f}k",
            (value, row),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_xlim(0, 1.4 * share.max())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f} %" if value else "0")
    axes.set_xlabel("Share of sales on promotion")
    _strip(axes)


def _colours(summary: pd.DataFrame) -> list[str]:
    return [ACCENT if department in best_and_rare(summary) else INK for department in summary.index]


def _strip(axes: Axes) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.tick_params(length=0)
    axes.set_ylim(-0.6, len(axes.get_yticks()) - 0.3)


def name(department: object) -> str:
    """How one says it: the data abbreviates."""
    text = str(department).lower()
    return f"packaged {text.removesuffix('-pckgd')}" if text.endswith("-pckgd") else SPOKEN.get(text, text)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
