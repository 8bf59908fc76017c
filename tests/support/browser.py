"""A headless browser that measures pages."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (480, 1280)
# The setting of a user who prefers dark pages.
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
# Each page is a frame as wide as a window. The measurements of all frames end as JSON in the page
# around them.
HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title>{frames}<pre id="found"></pre><script>
// Red, green, blue from 0 to 1, and how much covers what is below.
const parsed = text => {{
  const n = text.match(/[\\d.]+/g).map(Number), unit = text.startsWith("color") ? 1 : 255;
  return {{rgb: n.slice(0, 3).map(v => v / unit), alpha: n[3] ?? 1}};
}};
const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = rgb => rgb.map(linear).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const up = e => e ? [e, ...up(e.parentElement)] : [];
const contrast = (e, view) => {{
  const styles = up(e).map(p => view.getComputedStyle(p));
  const opaque = styles.map(s => parsed(s.backgroundColor)).filter(c => c.alpha > 0.99);
  const ground = [...opaque, parsed("rgb(255, 255, 255)")][0].rgb;
  const ink = parsed(styles[0].color), cover = styles.reduce((share, s) => share * Number(s.opacity), ink.alpha);
  const seen = ink.rgb.map((v, i) => v * cover + ground[i] * (1 - cover));
  const [low, high] = [luminance(ground), luminance(seen)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}};
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    const visible = selector => [...page.querySelectorAll(selector)].filter(e => e.checkVisibility());
    const boxes = visible("svg, img, .heat td, table").map(e => e.getBoundingClientRect());
    const heat = [...page.querySelectorAll(".heat td")];
    const clipped = heat.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent);
    const ours = visible(".kartothek-cube, .kartothek-report, .kartothek-plan");
    const wide = ours.filter(e => e.getBoundingClientRect().right > root.clientWidth + 1).length;
    // What a notebook says of all tables and lists must not reach the report.
    const data = [...page.querySelectorAll(".kartothek-report :is(td:not([class]), dt, dd)")];
    const cells = data.map(e => view.getComputedStyle(e));
    const words = ours.flatMap(e => [...e.querySelectorAll(":not(style, svg *)")]).filter(e => e.checkVisibility());
    const texts = words.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
    const pale = texts.filter(e => contrast(e, view) < 4.5);
    const dim = pale.map(e => `${{contrast(e, view).toFixed(2)}} ${{e.textContent}}`);
    const shown = page.querySelector("article") ?? page.querySelector(".bg") ?? page.body;
    const style = view.getComputedStyle(shown);
    return {{
      name: frame.name, over: root.scrollWidth - root.clientWidth, pictures: boxes.length,
      empty: boxes.filter(b => !b.width || !b.height).length,
      ours: ours.length, wide, clipped, dim, texts: texts.length,
      set: [...new Set(cells.map(s => `${{s.textAlign}} ${{s.float}}`))],
      ground: shown.matches(".bg") ? style.fill : style.backgroundColor, ink: style.color,
    }};
  }});
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>"""


def browse(command):
    """The output of the browser, within the time of a slow machine; then all its processes end."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as browser:
        try:
            stdout, stderr = browser.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(browser.pid, signal.SIGKILL)
    assert browser.returncode == 0, stderr[-2000:]
    return stdout, stderr


def opened(folder, pages):
    """The measurements of every page by name and width, and the complaints of the browser.

    ``pages`` maps names to HTML.
    """
    frames = "".join(
        f'<iframe name="{name}/{width}" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(text)}"></iframe>'
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
    return {tuple(one["name"].split("/")): one for one in found}, [
        line for line in stderr.splitlines() if "CONSOLE" in line
    ]
