#!/usr/bin/env python3
"""Checks what the documentation promises against the tree.

  docs.py check ROOT               links, pictures and anchors of every *.md, ./dev words, the site's list of pages, numbers
                                   that several pages quote (same_numbers.py), and the YAML blocks that enabled.txt names
  docs.py programs OUT.cpp FILE.md…  writes one program of the first C++ block of each FILE.md that holds `int main`, and of
                                   the same block after each of the page's diffs
  docs.py run PROGRAM FILE.md      runs the program of FILE.md in a fresh folder, which is removed afterwards
  docs.py classes FILE.md OUT.h    writes all C++ blocks of FILE.md that open with #include <levin/levin.h> and hold no
                                   `int main`, for a test to include

Prints "file:line: what is wrong" for each finding; exit status 1 if there are any.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from same_numbers import check_same

FENCE = re.compile(r"^```(\w*)\s*$")
# [text](target "title") and images, [name]: target, <a href="target">, <img src="target">
LINK = re.compile(r"""(?:\[[^\[\]]*)?\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|^\[[^\]]+\]:\s+(\S+)|<(?:a|img)\s[^>]*?(?:href|src)="([^"]+)\"""", re.M)


def blocks_of(text):
    """(first line's number, language, content) of every fenced block."""
    language, start, lines = None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if language is None and fence:
            language, start, lines = fence.group(1), number + 1, []
        elif language is not None and line.strip() == "```":
            yield start, language, "\n".join(lines) + "\n"
            language = None
        elif language is not None:
            lines.append(line)


def without_blocks(text):
    """Returns the text without fenced blocks and `code`, with its lines kept."""
    kept, inside = [], False
    for line in text.splitlines():
        is_fence = line.startswith("```")
        kept.append("" if inside or is_fence else re.sub(r"`[^`]*`", "", line))
        inside ^= is_fence
    return "\n".join(kept)


def anchors_of(path):
    """The anchors that headings make, as code hosts make them."""
    found = set()
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        inside ^= line.startswith("```")
        if not inside and line.startswith("#"):
            heading = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            anchor, copies = heading.replace(" ", "-"), 0
            while anchor in found:  # headings of the same words are numbered
                copies += 1
                anchor = f"{heading.replace(' ', '-')}-{copies}"
            found.add(anchor)
    return found


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_links(root, path):
    # Links may break over a line's end: search the text, not lines.
    text = without_blocks(path.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target = next(group for group in match.groups() if group)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        where = f"{path.relative_to(root)}:{line_of(text, match.start())}"
        pointed = (path.parent / file).resolve() if file else path
        if not pointed.exists():
            yield f"{where}: the link to {target} leads nowhere."
        elif anchor and pointed.suffix == ".md" and anchor not in anchors_of(pointed):
            yield f"{where}: {file or path.name} has no heading for #{anchor}."


def words_of_dev(root):
    help_text = subprocess.run([root / "dev", "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?m)^  (\w+)\b", help_text))


def check_dev_words(root, path, known):
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(r"\./dev +([a-z]\w*)", text):
        if match.group(1) not in known:
            yield f"{path.relative_to(root)}:{line_of(text, match.start())}: ./dev has no word \"{match.group(1)}\"."


def meaning(yaml):
    """The lines that count: no comments, no blank lines, no spaces at the end or doubled within."""
    lines = (re.sub(r"(^|\s)#.*", "", line).rstrip() for line in yaml.splitlines())
    return [re.sub(r"(?<=\S) +", " ", line) for line in lines if line]


def check_yaml(root, path):
    """A block that opens with "# configs/x.yaml" is that file."""
    for number, language, content in blocks_of(path.read_text(encoding="utf-8")):
        named = re.match(r"# (\S+\.yaml)\b", content)
        if language != "yaml" or not named:
            continue
        file = root / named.group(1)
        if not file.is_file():
            yield f"{path.relative_to(root)}:{number}: {named.group(1)} does not exist."
        elif meaning(file.read_text(encoding="utf-8")) != meaning(content):
            yield f"{path.relative_to(root)}:{number}: the block differs from {named.group(1)}, which it names."


def loop_ranges(text):
    """The position of each range-based for in `text`, and the expression it iterates over."""
    for match in re.finditer(r"\bfor \(", text):
        end = depth = 0
        for end in range(match.end() - 1, len(text)):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            if depth == 0:
                break
        head = text[match.end():end]
        if ";" not in head and " : " in head:
            yield match.start(), head.split(" : ", 1)[1].strip()


def check_loops(root, path):
    """No loop over an element of what a function returns: before C++23 the rest of the result is destroyed first."""
    text = path.read_text(encoding="utf-8")
    of_result = r"\(.*\)\s*(\[[^\[\]]*\]|\.(at|front|back|value)\([^()]*\))"
    for start, over in loop_ranges(text):
        if re.fullmatch(r"[\w:.>-]+" + of_result, over, re.DOTALL):
            yield (f"{path.relative_to(root)}:{line_of(text, start)}: the loop iterates over an element of a temporary "
                   f"({' '.join(over.split())}). Keep the result in a variable.")


def enabled(root, what):
    """The files that tests/docs/enabled.txt names for a kind of check."""
    file = root / "tests/docs/enabled.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = [line.split()[:2] for line in lines if line.strip() and not line.startswith("#")]
    return {name for kind, name in pairs if kind == what}


def check_index(root, pages):
    """The first page of a group of the site links to all others of the group."""
    index = root / pages[0]
    if not index.is_file():
        return
    links = LINK.finditer(without_blocks(index.read_text(encoding="utf-8")))
    targets = [next(group for group in match.groups() if group) for match in links]
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in targets}
    for page in pages[1:]:
        if (root / page).is_file() and (root / page).resolve() not in linked:
            yield f"{pages[0]}: a link to {page}, a page of its group in docs/site/order.txt, is missing."


def check_order(root):
    """The site lists every page of docs/ once, and no page that does not exist; each group begins with its index page."""
    order = root / "docs/site/order.txt"
    if not order.is_file():
        return
    lines = order.read_text(encoding="utf-8").splitlines()
    listed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    pages = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")}
    for page in sorted(pages - set(listed)):
        yield f"docs/site/order.txt: {page} is not listed, so the site does not show it."
    for page in listed:
        if not (root / page).is_file():
            yield f"docs/site/order.txt: {page} does not exist."
        elif listed.count(page) > 1:
            yield f"docs/site/order.txt: {page} is listed {listed.count(page)} times."
    for group in re.split(r"(?m)^## .*$", "\n".join(lines))[1:]:
        yield from check_index(root, [line.strip() for line in group.splitlines() if line.strip() and not line.startswith("#")])


def findings_of(root):
    known = words_of_dev(root)
    pages = sorted(p for p in root.rglob("*.md") if not {"build", ".git"} & set(p.relative_to(root).parts))
    yield from check_order(root)
    yield from check_same({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in pages})
    for path in pages:
        yield from check_links(root, path)
        yield from check_dev_words(root, path, known)
        yield from check_loops(root, path)
        if path.relative_to(root).as_posix() in enabled(root, "yaml"):
            yield from check_yaml(root, path)
    for path in sorted((root / "examples").rglob("*.cpp")) + sorted((root / "examples").rglob("*.h")):
        yield from check_loops(root, path)


def edited(program, diff):
    """Returns the program after a diff, whose hunks are separated by lines of @@. Exits unless each hunk has one place."""
    for hunk in re.split(r"(?m)^@@.*\n", diff):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if not line.startswith(sign)) for sign in "+-")
        found = list(re.finditer("(?m)^" + re.escape(before), program))
        if len(found) != 1 or not before:
            sys.exit(f"these lines are not exactly once in the program that is edited:\n{before}")
        program = program[:found[0].start()] + after + program[found[0].end():]
    return program


def programs_of(path):
    """Returns the first C++ program of a page, and the program after each of the ```diff blocks that follow it."""
    programs = []
    for _, language, content in blocks_of(path.read_text(encoding="utf-8")):
        if language == "cpp" and "int main" in content and not programs:
            programs.append(content)
        elif language == "diff" and programs and not re.match(r"(?:#|--) [\w./-]+\n", content):  # of another file
            programs.append(edited(programs[-1], re.sub(r"^// [\w./-]+\n", "", content)))
    return programs or sys.exit(f"{path}: no C++ block holds int main")


def check_registered(pages):
    """Exits if two pages register a class of the same name, which one program cannot."""
    found = {}
    for page in pages:
        for name in set(re.findall(r"LEVIN_REGISTER_\w+\((\w+)", programs_of(page)[0])):
            if name in found:
                sys.exit(f"{page}: {found[name]} registers a class {name} too, and all pages are one program. Rename one of them.")
            found[name] = page


def one_program(pages):
    """Returns one program with the programs of all pages, each in its own namespace. Its argument selects the page, and
    FILE.md#N the program after the N-th edit."""
    includes, bodies, calls = [], [], []
    selected = [(page.name + (f"#{edit}" if edit else ""), program)
                for page in pages for edit, program in enumerate(programs_of(page))]
    for number, (name, program) in enumerate(selected):
        lines = program.splitlines()
        includes += [line for line in lines if line.startswith("#include") and line not in includes]
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        body = re.sub(r"\n}\s*$", "\n  return 0;\n}", body)  # main ends with it in a program, but not in a namespace
        bodies.append(f"namespace page_{number} {{\n{body}\n}}  // namespace page_{number}\n")
        arguments = "argc - 1, argv + 1" if re.search(r"\bint main\(int argc", program) else ""
        calls.append(f'  if (page.ends_with("/{name}")) return page_{number}::main({arguments});\n')
    return ("\n".join(includes) + "\n#include <string>\n\n" + "\n".join(bodies) + "\nint main(int argc, char** argv) {\n"
            "  const std::string page = argc > 1 ? argv[1] : \"\";\n" + "".join(calls) + "  return 2;\n}\n")


def classes_of(path):
    blocks = [content for _, language, content in blocks_of(path.read_text(encoding="utf-8"))
              if language == "cpp" and content.startswith("#include <levin/levin.h>") and "int main" not in content]
    return "\n".join(blocks) or sys.exit(f"{path}: no C++ block opens with #include <levin/levin.h>")


def main():
    if sys.argv[1] == "classes":
        Path(sys.argv[3]).write_text(classes_of(Path(sys.argv[2])), encoding="utf-8")
        return 0
    if sys.argv[1] == "programs":
        check_registered([Path(page) for page in sys.argv[3:]])
        Path(sys.argv[2]).write_text(one_program([Path(page) for page in sys.argv[3:]]), encoding="utf-8")
        return 0
    if sys.argv[1] == "run":
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([Path(sys.argv[2]).resolve(), sys.argv[3]], cwd=folder, check=False).returncode
    findings = list(findings_of(Path(sys.argv[2]).resolve()))
    print("\n".join(findings) if findings else "docs: links, words and blocks agree with the tree")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
