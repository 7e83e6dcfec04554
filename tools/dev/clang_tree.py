"""clang's syntax tree of a file that GCC compiles in this build, by Debian's python3-clang-14."""
import re
import shlex
import subprocess
from pathlib import Path


def load_cindex():
    """Returns the module clang.cindex; clang 14's lacks some kinds of cursors that its library has."""
    import clang.cindex as cindex
    cindex.Index.create()
    known = cindex.CursorKind.from_id

    def from_id(number):
        try:
            return known(number)
        except ValueError:
            return cindex.CursorKind.UNEXPOSED_EXPR

    cindex.CursorKind.from_id = staticmethod(from_id)
    return cindex


def clang_arguments(command):
    """The command's include folders, definitions and standard; the headers that GCC has precompiled are read as text."""
    words, kept = iter(shlex.split(command)[1:]), []
    for word in words:
        if word in ("-isystem", "-I", "-D"):
            kept += [word, next(words)]
        elif word == "-include":
            header = next(words)
            found = re.search(r'^#include "(.+)"$', Path(header).read_text(), re.M)
            kept += [word, found[1] if found else header]
        elif re.match("-[ID]|-std=", word):
            kept.append(word)
    resources = subprocess.run(["clang-14", "-print-resource-dir"], stdout=subprocess.PIPE, text=True).stdout.strip()
    return [*kept, "-w", "-resource-dir", resources]
