#!/usr/bin/env python3
"""Builds docs/ as a site with an API reference: `./dev docs` calls it with the Python that has Sphinx.

  build_site.py ROOT OUTPUT

Doxygen makes OUTPUT/api of the public headers; Sphinx makes the rest of README.md, docs/ and the pages that order.txt
names. A source file that a page links to is shown on a page of its own. Exit status 1 with what is wrong otherwise.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).parent
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".py": "python", ".yaml": "yaml", ".cmake": "cmake", ".sh": "bash"}
MAIN_PAGE = """# Levin's API

Made from the comments in the public headers. Start with levin::LightningModule, levin::Trainer and levin::TrainerOptions; then
levin::DataModule, levin::DataLoader and levin::Callback. A file's page (Files, above) shows how its classes are used.
"""
PICTURES = {".svg", ".png"}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def parts_of(order):
    """(title, [page…]) for each part of the navigation."""
    parts = []
    for line in order.splitlines():
        if line.startswith("## "):
            parts.append((line[3:].strip(), []))
        elif line.strip() and not line.startswith("#"):
            parts[-1][1].append(line.strip())
    return parts


def outside_code(text, change):
    """The text with `change` applied to what is neither in a fenced block nor in `code`."""
    pieces = re.split(r"(^```.*?^```\s*?$|`[^`]*`)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(piece if at % 2 else change(piece) for at, piece in enumerate(pieces))


def public_headers(root):
    """levin.h, what it includes and what those need."""
    todo, found = [root / "levin.h", root / "cli/run_cli.h"], []
    while todo:
        header = todo.pop()
        if header in found or not header.is_file():
            continue
        found.append(header)
        todo += [root / name for name in re.findall(r'#include "levin/([^"]+)"', header.read_text(encoding="utf-8"))]
    return sorted(found)


def build_api(root, work, output):
    tags, include, main_page = work / "api.tag", work / "include", work / "main_page.md"
    include.mkdir()
    (include / "levin").symlink_to(root)  # headers are called what users include: levin/trainer/trainer.h
    main_page.write_text(MAIN_PAGE, encoding="utf-8")
    if shutil.which("doxygen") is None:
        sys.exit("doxygen is not installed. Install it (on Debian: apt-get install doxygen).")
    values = {"OUTPUT": output, "TAGFILE": tags, "INCLUDE": include, "PYTHON": sys.executable,
              "MAINPAGE": main_page,
              "HEADERS": " ".join(f"{include}/levin/{header.relative_to(root)}" for header in public_headers(root))}
    settings = re.sub(r"@(\w+)@", lambda match: str(values[match.group(1)]), (HERE / "Doxyfile").read_text(encoding="utf-8"))
    done = subprocess.run(["doxygen", "-"], input=settings, cwd=root, text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}The API reference has wrong references or comments (see above).")
    brief = '<div id="projectbrief">{}</div>'
    for page in (output / "api").glob("*.html"):  # a way back, which Doxygen has no setting for
        text = page.read_text(encoding="utf-8")
        link = '<a href="../index.html">Documentation</a>'
        page.write_text(text.replace(brief.format("Documentation"), brief.format(link)), encoding="utf-8")
    classes, files = {}, {}
    for compound in ElementTree.parse(tags).getroot().iter("compound"):
        name, page = compound.findtext("name"), compound.findtext("filename")
        if compound.get("kind") in ("class", "struct") and re.fullmatch(r"levin::\w+", name):
            classes[name.removeprefix("levin::")] = page
        elif compound.get("kind") == "file":
            path = compound.findtext("path", "").removeprefix(str(include)).strip("/").removeprefix("levin").strip("/")
            files[f"{path}/{name}".strip("/")] = [member.text for member in compound.findall("class")]
    return classes, files


class Pages:
    """The pages as Sphinx reads them, laid out like the repository, so that links between pages stay valid."""

    def __init__(self, root, folder):
        self.root, self.folder, self.sources = root, folder, set()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def add(self, page, extra=""):
        """README.md becomes the first page; `extra` is appended."""
        name = "index.md" if page == "README.md" else page
        text = (self.root / page).read_text(encoding="utf-8")
        self.write(name, outside_code(text, lambda piece: self.with_links(piece, page)) + extra)

    def with_links(self, piece, page):
        def moved(match):
            target, _, anchor = match.group(2).partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return match.group(0)
            path = (self.root / page).parent.joinpath(target).resolve().relative_to(self.root).as_posix()
            if Path(path).suffix in PICTURES:
                copy = self.folder / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / path, copy)
            elif path == "README.md":
                path = "index.md"
            elif not path.endswith(".md") or path.startswith("tests/"):
                self.sources.add(path)
                path = f"source/{path.rstrip('/')}.md"
            link = os.path.relpath(path, Path(page).parent)
            return f"{match.group(1)}{link}{'#' + anchor if anchor else ''}{match.group(3)}"

        return LINK.sub(moved, piece)

    def add_sources(self):
        for source in sorted(self.sources):
            path, page = self.root / source, f"source/{source}.md"
            if path.is_dir():
                inside = "\n".join(sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("__")))
                body = f"```\n{inside}\n```"
            else:
                fence = "`" * 6
                body = f"{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}\n{fence}"
            self.write(page, f"---\norphan: true\n---\n# {source}\n\n{body}\n")


def navigation(parts):
    trees = [f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```" for title, pages in parts]
    return "\n\n" + "\n\n".join(trees) + "\n"


def api_page(classes, files):
    """Which classes there are, by header; their names become links as they do everywhere."""
    text = "# API reference\n\nMade from the comments in the public headers. <a href=\"api/index.html\">All of it</a> is in Doxygen's pages.\n"
    folder = None
    for file, names in sorted(files.items()):
        known = sorted(name.removeprefix("levin::") for name in names if name.removeprefix("levin::") in classes)
        known = [name for name in known if not name.endswith("Options") or len(known) == 1]
        if not known:
            continue
        if folder != file.split("/")[0]:
            folder = file.split("/")[0]
            text += f"\n## {folder}/\n\n| header | classes |\n| --- | --- |\n"
        text += f"| {file} | {', '.join(f'`{name}`' for name in known)} |\n"
    return text


def main():
    root, output = (Path(word).resolve() for word in sys.argv[1:])
    work = output.with_name(output.name + ".work")
    for folder in (work, output):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    classes, files = build_api(root, work, output)
    pages = Pages(root, work / "pages")
    parts = parts_of((HERE / "order.txt").read_text(encoding="utf-8"))
    dict(parts)["Reference"].append("api_reference.md")
    pages.add("README.md", navigation(parts))
    for page in (page for _, listed in parts for page in listed if page != "api_reference.md"):
        pages.add(page)
    pages.write("api_reference.md", api_page(classes, files))
    pages.write("api_classes.json", json.dumps(classes))
    pages.add_sources()
    return subprocess.run([sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-c", HERE,
                           "-d", work / "doctrees", work / "pages", output], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
