"""Doxygen's input filter: the plain comments of a header as it reads them. Lines stay lines, so that its numbers hold.

The comment at a header's top describes the file; a comment of full lines belongs to what follows, one at a line's end to
the member before it. Code within a comment (indented by two more) is shown as code.
"""
import re
import sys
from pathlib import Path


def escaped(text):
    """Text that means itself: no commands, tags or references."""
    return re.sub(r"([\\@<>#&%])", r"\\\1", text)


def shown(comment):
    indented = re.match(r" {3,}", comment)
    return "    " + comment if indented else " " + escaped(comment.strip())


def first_paragraph(lines):
    """Of the comment at the file's top."""
    words = []
    for line in lines:
        if not line.startswith("// ") or line.startswith("//  "):
            break
        words.append(escaped(line[3:].strip()))
    return " ".join(words)


def filtered(lines, stem):
    described = False  # the file, by the comment at its top
    of_the_file = re.compile(rf"(?:class|struct) (?:{stem.replace('_', '')})(?: final)?(?: :.*)? {{", re.IGNORECASE)
    for number, line in enumerate(lines):
        full = re.match(r"(\s*)///?(?!/)(.*)$", line)
        if full and not re.match(r"\s*-{3,}|\s*NOLINT|\s*clang-format", full.group(2)):
            yield f"{full.group(1)}///{shown(full.group(2))}"
            continue
        if line.startswith("#pragma once") and number > 0 and not described:
            described = True
            yield "/// \\file"
            continue
        if of_the_file.match(line) and not lines[number - 1].startswith("//"):
            yield f"/** {first_paragraph(lines)} */ {line}"  # the class that the file is named after
            continue
        after = re.match(r"(.*[;,}]\s+)//(?!/)(.*)$", line)
        if after and not re.search(r"NOLINT|namespace|\"", after.group(2)):
            yield f"{after.group(1)}///<{shown(after.group(2))}"
        else:
            yield line


if __name__ == "__main__":
    path = Path(sys.argv[1])
    print("\n".join(filtered(path.read_text(encoding="utf-8").splitlines(), path.stem)))
