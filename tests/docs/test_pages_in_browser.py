"""Pages of the documentation in a real browser: nothing sticks out, nothing complains, the pictures
are there.
"""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest

from tests.support.browser import CHROMIUM, FLAGS, WIDTHS, browse

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make system-deps)")

# How many pictures each page has at least.
PAGES = {
    "index.html": 1,
    "start.html": 0,
    "notebook.html": 0,
    "feature-tables.html": 0,
    "concepts.html": 7,
    "command-line.html": 0,
    "api/cubes.html": 0,
    "format.html": 0,
}

HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title>{frames}<pre id="found"></pre><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, root = page.documentElement, terminal = page.querySelector(".terminal pre");
    const pictures = [...page.querySelectorAll("article img")].map(one => one.complete ? one.naturalWidth : 0);
    const ground = element => frame.contentWindow.getComputedStyle(element).backgroundColor;
    return {{
      name: frame.name, over: root.scrollWidth - root.clientWidth, pictures,
      ground: ground(page.body), terminal: terminal && ground(terminal),
    }};
  }});
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>"""


def opened(site, folder):
    """What the browser says of every page at every width; and what it complains of."""
    frames = "".join(
        f'<iframe name="{page}@{width}" style="width:{width}px;height:900px;border:0" '
        f'src="{(site / page).as_uri()}"></iframe>'
        for page in PAGES
        for width in WIDTHS
    )
    harness = folder / "harness.html"
    harness.write_text(HARNESS.format(frames=frames), encoding="utf-8")
    command = [
        CHROMIUM,
        *FLAGS,
        "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        harness.as_uri(),
    ]
    stdout, stderr = browse(command)
    shutil.rmtree(folder / "profile", ignore_errors=True)
    dumped = re.search(r'<pre id="found">(.*?)</pre>', stdout, re.DOTALL)
    return {one["name"]: one for one in json.loads(html.unescape(dumped[1]))}, [
        line for line in stderr.splitlines() if "CONSOLE" in line
    ]


def test_pages_fit_and_have_their_pictures(site, tmp_path):
    found, complaints = opened(site, tmp_path)
    assert complaints == []
    assert len(found) == len(PAGES) * len(WIDTHS)
    assert {name: one["over"] for name, one in found.items() if one["over"] > 0} == {}
    assert {name for name, one in found.items() if not all(width > 0 for width in one["pictures"])} == set()
    assert {name for name, one in found.items() if len(one["pictures"]) < PAGES[name.partition("@")[0]]} == set()
    # The browser prefers dark pages, and gets them.
    assert {one["ground"] for one in found.values()} != {"rgb(255, 255, 255)"}
    assert {one["terminal"] for name, one in found.items() if name.startswith(("start", "command-line"))} == {
        "rgb(16, 21, 26)"
    }
