"""Reports, what notebooks show, and drawings in a real browser: nothing sticks out, nothing complains."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from kartothek_cube import C, collect_stats, cube_report, describe_cube, plan_cube_query, verify_cube
from tests.report.world import CUBE, full_store

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make system-deps)")

WIDTHS = (480, 1280)
# Somebody who prefers dark pages.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-gpu",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
    "--blink-settings=preferredColorScheme=0",
)

# Each page is a frame of its own, as wide as a window; what a browser makes of it ends as JSON in the page around them.
HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title>{frames}<pre id="found"></pre><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    const boxes = [...page.querySelectorAll("svg, img, .heat td, table")].filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect());
    const clipped = [...page.querySelectorAll(".heat td")].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent);
    const ours = [...page.querySelectorAll(".kartothek-cube, .kartothek-report, .kartothek-plan")].filter(e => e.checkVisibility());
    const wide = ours.filter(e => e.getBoundingClientRect().right > root.clientWidth + 1).length;
    // What a notebook says of all tables and lists must not reach the report.
    const cells = [...page.querySelectorAll(".kartothek-report :is(td:not([class]), dt, dd)")].map(e => view.getComputedStyle(e));
    const shown = page.querySelector("article") ?? page.querySelector(".bg") ?? page.body;
    const style = view.getComputedStyle(shown);
    return {{name: frame.name, over: root.scrollWidth - root.clientWidth, empty: boxes.filter(b => !b.width || !b.height).length, pictures: boxes.length,
             ours: ours.length, wide, clipped, set: [...new Set(cells.map(s => `${{s.textAlign}} ${{s.float}}`))],
             ground: shown.matches(".bg") ? style.fill : style.backgroundColor, ink: style.color}};
  }});
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>"""


def notebook(*shown):
    """A page with output cells, as notebooks have them."""
    cells = "".join(f"<div style='margin:0 0 12px'>{value._repr_html_()}</div>" for value in shown)
    body = cells.replace("<details>", "<details open>")
    return f"<!doctype html><html><meta charset='utf-8'><body style='margin:8px;font:14px sans-serif'>{body}</body></html>"


def pages():
    """The pages by name."""
    store = full_store()
    plan = plan_cube_query(CUBE, store, C("q") == 2, partition_by="i1")
    report = cube_report(CUBE, store)
    return {
        "report": report.replace("<details>", "<details open>"),
        "notebook": notebook(describe_cube("cube", store), plan, collect_stats(CUBE, store), verify_cube(CUBE, store)),
        "drawing": f"<!doctype html><html><body style='margin:0'>{plan.to_svg()}</body></html>",
        "cell": notebook(report),
        "dark cell": notebook(report).replace("<body", "<body data-jp-theme-light=false"),
        "light cell": notebook(report).replace("<body", "<body data-jp-theme-light=true"),
    }


def browse(command):
    """What the browser prints; it has some time, as machines may be slow, and none of its processes outlives that."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as browser:
        try:
            stdout, stderr = browser.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(browser.pid, signal.SIGKILL)
    assert browser.returncode == 0, stderr[-2000:]
    return stdout, stderr


def opened(folder, pages):
    """What the browser says of every page at every width, by name and width; and what it complains of. ``pages``: their HTML by name."""
    frames = "".join(
        f'<iframe name="{name}/{width}" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in WIDTHS
    )
    page = folder / "harness.html"
    page.write_text(HARNESS.format(frames=frames), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", page.as_uri()]
    stdout, stderr = browse(command)
    shutil.rmtree(folder / "profile", ignore_errors=True)
    dumped = re.search(r'<pre id="found">(.*?)</pre>', stdout, re.DOTALL)
    found = json.loads(html.unescape(dumped[1]))
    return {tuple(one["name"].split("/")): one for one in found}, [line for line in stderr.splitlines() if "CONSOLE" in line]


def test_pages_fit_and_have_their_pictures_and_colours(tmp_path):
    found, complaints = opened(tmp_path, pages())
    assert complaints == []
    assert {name: one["over"] for name, one in found.items() if one["over"] > 0} == {}
    assert {name: one["empty"] for name, one in found.items() if one["empty"]} == {}
    assert {name: one["clipped"] for name, one in found.items() if one["clipped"]} == {}
    assert all(one["pictures"] >= (1 if name == "drawing" else 5) for (name, _), one in found.items())
    light, dark = "rgb(255, 255, 255)", "rgb(17, 22, 27)"
    grounds = {name: one["ground"] for (name, width), one in found.items() if width == "1280"}
    assert [grounds[name] for name in ("report", "cell", "dark cell", "light cell")] == [dark, dark, dark, light]
    assert grounds["drawing"] == "rgb(20, 24, 29)"
    assert len({found[name, "1280"]["ink"] for name in ("dark cell", "light cell")}) == 2
