"""Configures how Sphinx makes HTML of the pages that build_site.py has prepared. The working folder holds these pages."""
import json
from pathlib import Path

from docutils import nodes

project = "Levin"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["api_classes.json"]
myst_heading_anchors = 4  # anchors as code hosts make them
html_theme = "furo"
html_title = "Levin"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["levin.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_show_sphinx = False
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]  # shortened YAML and C++ with "…" in it


def link_classes(app, doctree, page):
    """`ClassName` in the text becomes a link into the API reference, once in each section."""
    classes = json.loads((Path(app.srcdir) / "api_classes.json").read_text(encoding="utf-8"))
    up = "../" * page.count("/")
    linked = set()
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().removeprefix("levin::")
        ancestor, section, inside = literal.parent, None, False
        while ancestor is not None:
            inside |= isinstance(ancestor, (nodes.reference, nodes.title))
            section = section or (ancestor if isinstance(ancestor, nodes.section) else None)
            ancestor = ancestor.parent
        if name not in classes or inside or (id(section), name) in linked:
            continue
        linked.add((id(section), name))
        link = nodes.reference("", "", internal=False, refuri=f"{up}api/{classes[name]}", classes=["levin-api"])
        literal.parent.replace(literal, link)
        link.append(literal)


def setup(app):
    app.connect("doctree-resolved", link_classes)
