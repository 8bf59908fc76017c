"""The directive ``reference``: public names with their docstrings, and links from the guides."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

# The guides call the names of these modules by their last part. The first module that has a name
# describes it.
MODULES = (
    "kartothek_cube",
    "kartothek_cube.api.cube",
    "kartothek_cube.api.dataset",
    "kartothek_cube.api.discover",
    "kartothek_cube.api.consistency",
    "kartothek_cube.api.serialization",
    "kartothek_cube.spark",
    "kartothek_cube.errors",
    "kartothek_cube.typing",
    "kartothek_cube.testing.stores",
    "kartothek_cube.testing.drivers",
    "kartothek_cube.testing.model",
)
# A word that is also a plain word, as `history`, is a name only if it is called.
NAME = re.compile(r"^(?P<name>[A-Za-z_]+)(?P<call>\(.*\))?$")
UNMISTAKABLE = re.compile(r"_|^[A-Z].")


def kind_of(value: Any) -> str:
    """Which directive of autodoc describes a value."""
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) and hasattr(value, "__name__") else "autodata"


def lines_for(module: str, names: list[str]) -> list[str]:
    """What describes the names: a table with their first lines, then each."""
    home = importlib.import_module(module)
    lines = [
        f".. currentmodule:: {module}",
        "",
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *(f"   {name}" for name in names),
        "",
    ]
    for name in names:
        kind = kind_of(getattr(home, name))
        members = ["   :members:"] if kind == "autoclass" else []
        bases = ["   :show-inheritance:"] if kind == "autoexception" else []
        lines += [f".. {kind}:: {name}", *members, *bases, ""]
    return lines


def targets() -> dict[str, str]:
    """Public name → where the reference describes it."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            found.setdefault(name, f"{module}.{name}")
    return found


class Reference(SphinxDirective):
    """Describes the names in its content, which are those of the module that is its argument."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Take the place of the block."""
        lines = lines_for(self.arguments[0], " ".join(self.content).split())
        source, line = self.get_source_info()
        return self.parse_text_to_nodes(
            StringList(lines, items=[(source, line)] * len(lines)), allow_section_headings=False
        )


class NamesToLinks(SphinxTransform):
    """Link the first mention of a public name in each section of a page to its description."""

    default_priority = 5  # before references are resolved

    def apply(self, **_: Any) -> None:
        """Replace the literals."""
        if self.env.docname.startswith("api/"):
            for link in self.document.findall(addnodes.pending_xref):
                link.attributes.pop("refspecific", None)  # else "store" in a docstring leads to any method of that name
            return
        known = targets()
        seen: set[tuple[int, str]] = set()
        for literal in list(self.document.findall(nodes.literal)):
            name = mentioned(literal.astext())
            section = next((id(parent) for parent in _parents(literal) if isinstance(parent, nodes.section)), 0)
            is_linked = any(
                isinstance(parent, nodes.reference | addnodes.pending_xref | nodes.title)
                for parent in _parents(literal)
            )
            if name in known and (section, name) not in seen and not is_linked:
                seen.add((section, name))
                literal.replace_self(self._link(literal, known[name]))

    def _link(self, literal: nodes.literal, target: str) -> addnodes.pending_xref:
        link = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=True, refdoc=self.env.docname
        )
        link.append(literal.deepcopy())
        return link


def mentioned(text: str) -> str:
    """The name that inline code mentions, or nothing."""
    found = NAME.match(text)
    return found["name"] if found and (found["call"] or UNMISTAKABLE.search(found["name"])) else ""


def _parents(node: nodes.Node) -> list[nodes.Node]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Resolve a name given by another path, or by its last part only, through `targets`."""
    target = targets().get(node.get("reftarget", "").rpartition(".")[2])
    if (
        node.get("refdomain") != "py"
        or target is None
        or target == node["reftarget"]
        or not mentioned(target.rpartition(".")[2])
    ):
        return None
    return env.domains["py"].resolve_xref(env, node.get("refdoc", env.docname), app.builder, "obj", target, node, text)


def keep_first_line(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Put ``What it is: in other words`` together again.

    In the first line of a property, napoleon takes the text for a type and a description.
    """
    kind = next((place for place, line in enumerate(lines) if line.startswith(":type: ")), None)
    if what in {"attribute", "data", "property"} and kind is not None:
        first = next(place for place, line in enumerate(lines) if line)
        lines[first] = f"{lines[kind].removeprefix(':type: ')}: {lines[first]}"
        del lines[kind]


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the directive and the transform known."""
    app.add_directive("reference", Reference)
    app.add_transform(NamesToLinks)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", keep_first_line, priority=600)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
