#!/usr/bin/env python3
"""unit_names.py BUILD: reports names in unnamed namespaces that a different file of the same unit uses.

Files that are compiled as one unit (LEVIN_UNITY) see each other's unnamed namespaces: `percent(double)` of one file is a
better match for a call in another than the `percent(float)` that its author meant, and the compiler says nothing. Needs
Debian's python3-clang-14; exit status 77 without it, 1 if something is found. 3 min on two cores.
"""
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCES / "tools/dev"))
from clang_tree import clang_arguments, load_cindex  # noqa: E402

DEBIANS_PYTHON = "/usr/bin/python3"
REFERENCES = ("DECL_REF_EXPR", "TYPE_REF", "TEMPLATE_REF")


def units(build):
    """The commands of units with several files of this tree."""
    for command in json.loads((build / "compile_commands.json").read_text()):
        file = Path(command["directory"], command["file"])
        if "/Unity/" in str(file) and not re.search("/(tests|bench|examples)/", str(file)) and file.exists() \
                and file.read_text().count(".cpp\"") > 1:
            yield str(file), command["command"]


def is_unnamed(cindex, declaration):
    parent = declaration.semantic_parent
    while parent is not None and parent.kind != cindex.CursorKind.TRANSLATION_UNIT:
        if parent.kind == cindex.CursorKind.NAMESPACE and parent.spelling in ("", "(anonymous namespace)"):
            return True
        parent = parent.semantic_parent
    return declaration.linkage == cindex.LinkageKind.INTERNAL


def crossings(unit):
    """Returns (lines that name what crosses files, what clang could not read)."""
    cindex = load_cindex()
    file, command = unit
    tree = cindex.Index.create().parse(file, args=clang_arguments(command))
    errors = [f"{file}: {each}" for each in tree.diagnostics if each.severity >= cindex.Diagnostic.Error]
    kinds = {getattr(cindex.CursorKind, name) for name in REFERENCES}
    found = set()

    def place(cursor):
        at = cursor.location
        return (at.file.name if at.file else "", at.line)

    def visit(cursor):
        for child in cursor.get_children():
            if child.kind in kinds and child.referenced is not None:
                (user, line), (owner, at) = place(child), place(child.referenced)
                if user.endswith(".cpp") and owner.endswith(".cpp") and user != owner and is_unnamed(cindex, child.referenced):
                    found.add(f"{user}:{line}: {child.referenced.spelling} is the one in the unnamed namespace of "
                              f"{owner}:{at}, which is compiled in the same unit. Rename one of the two.")
            visit(child)

    for child in tree.cursor.get_children():
        if place(child)[0].endswith(".cpp"):
            visit(child)
    return sorted(found), errors


def main():
    try:
        import clang.cindex
        clang.cindex.Index.create()
        subprocess.run(["clang-14", "--version"], check=True, stdout=subprocess.DEVNULL)
    except Exception as error:
        if os.path.realpath(sys.executable) != os.path.realpath(DEBIANS_PYTHON) and os.path.exists(DEBIANS_PYTHON):
            os.execv(DEBIANS_PYTHON, [DEBIANS_PYTHON, "-B", *sys.argv])
        print(f"skipped: Python's clang module cannot be used ({error}); Debian has it as python3-clang-14")
        return 77
    found = errors = 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for lines, failures in pool.map(crossings, list(units(Path(sys.argv[1]).resolve()))):
            found += len(lines)
            errors += len(failures)
            print(*[f"{line}\n" for line in [*lines, *failures[:3]]], sep="", end="", flush=True)
    if found == errors == 0:
        print("units: no file uses a name of another file's unnamed namespace")
    return int(found + errors > 0)


if __name__ == "__main__":
    sys.exit(main())
