"""Every page of the documentation has its place, and every link of it leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.checklists import REPOSITORY
from tests.support.doc_blocks import number_of_words

DOCS = REPOSITORY / "docs"
SOURCES = sorted(path for path in [REPOSITORY / "README.md", *DOCS.rglob("*.md")] if "_build" not in path.parts)
TOCTREE = re.compile(r"^```\{toctree\}\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PICTURE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^(`{3,}).*?^\1$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# Where the documentation may send its readers.
HOSTS = {
    "github.com",
    "developmentseed.org",
    "delta.io",
    "iceberg.apache.org",
    "duckdb.org",
    "arrow.apache.org",
    "spark.apache.org",
}


def prose(path):
    """The text of a page without its code."""
    return CODE.sub("", path.read_text(encoding="utf-8"))


def entries(page):
    """The pages that the toctrees of a page list."""
    lines = [line for tree in TOCTREE.finditer(page.read_text(encoding="utf-8")) for line in tree["body"].splitlines()]
    return [
        (page.parent / line.strip()).relative_to(DOCS).as_posix()
        for line in lines
        if line.strip() and not line.startswith(":")
    ]


def test_every_page_is_in_one_list_of_contents():
    listed = Counter(entry for page in DOCS.rglob("*.md") if "_build" not in page.parts for entry in entries(page))
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for suffix in ("md", "rst", "ipynb")
        for path in DOCS.rglob(f"*.{suffix}")
        if "_build" not in path.parts
    }
    assert {name: count for name, count in listed.items() if count > 1} == {}
    assert pages - {"index"} == set(listed)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_to_files_that_exist_and_to_hosts_that_are_known(path):
    targets = [urlsplit(link["target"]) for link in LINK.finditer(prose(path))]
    assert {target.hostname for target in targets if target.scheme} <= HOSTS
    assert {target.scheme for target in targets} <= {"", "https"}
    files = {target.path for target in targets if not target.scheme and target.path}
    assert {file for file in files if not (path.parent / unquote(file)).exists()} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_a_picture_says_in_words_what_it_shows(path):
    assert [picture["target"] for picture in PICTURE.finditer(prose(path)) if len(picture["alt"].split()) < 3] == []


# Bounds for all pages, and for the page of differences from kartothek.
WORDS = 50_000
WORDS_OF_DIFFERENCES = 2_000


def test_the_documentation_stays_short():
    words = {path: number_of_words(path.read_text(encoding="utf-8")) for path in SOURCES if DOCS in path.parents}
    assert sum(words.values()) <= WORDS
    assert words[DOCS / "differences.md"] <= WORDS_OF_DIFFERENCES


class Anchors(HTMLParser):
    """The places of a page that can be linked to, its links, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.add(found.get("id"))
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag == "link" and found.get("rel") in {"stylesheet", "preload", "icon"}:
            self.loads.add(found["href"])
        elif tag in {"script", "img", "iframe", "source"} and "src" in found:
            self.loads.add(found["src"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Anchors(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_links_and_anchors_of_the_built_pages_resolve(pages, site):
    lost = []
    for path, page in pages.items():
        for link in page.links:
            target = urlsplit(link)
            if target.scheme or (not target.path and target.fragment in {"", "!"}):
                continue
            other = (path.parent / unquote(target.path)).resolve() if target.path else path
            if not other.exists() or (
                target.fragment and other in pages and unquote(target.fragment) not in pages[other].ids
            ):
                lost.append((path.relative_to(site).as_posix(), link))
    assert lost == []


def test_a_page_loads_nothing_from_elsewhere(pages):
    assert {load for page in pages.values() for load in page.loads if urlsplit(load).netloc} == set()


def test_anchors_of_the_readme_resolve(pages, site):
    for link in LINK.finditer(prose(REPOSITORY / "README.md")):
        target = urlsplit(link["target"])
        if target.path.startswith("docs/") and target.path.endswith(".md"):
            page = (site / target.path.removeprefix("docs/")).with_suffix(".html")
            assert page in pages
            assert not target.fragment or target.fragment in pages[page].ids
