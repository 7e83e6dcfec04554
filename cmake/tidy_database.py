#!/usr/bin/env python3
"""tidy_database.py BUILD OUT: writes OUT/compile_commands.json, BUILD's commands in a form that clang-tidy can use.

clang does not support gcc's flags for precompiled headers and some of its optimizations, and cannot read gcc's .gch
files: each such header is included as text instead, from a copy in another folder without a .gch file.
"""
import json
import re
import shlex
import sys
from pathlib import Path

GCC_ONLY = {"-fpch-preprocess", "-Winvalid-pch", "-findirect-inlining", "-fthread-jumps"}


def clang_command(command, out):
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if not kept and not re.search(r"(g\+\+|c\+\+|clang\+\+)(-\d+)?$", word):
            continue  # ccache and its settings, before the compiler
        if word in GCC_ONLY:
            continue
        if word == "-include":
            header = Path(next(words))
            copy = out / (re.sub(r"\W+", "_", str(header)) + ".h")
            if header.is_file():
                copy.write_text(header.read_text(encoding="utf-8"), encoding="utf-8")
                kept += ["-include", str(copy)]
            continue
        kept.append(word)
    return shlex.join(kept)


def main():
    build, out = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    # The generated precompiled headers are not sources of the project.
    commands = [dict(entry, command=clang_command(entry["command"], out)) for entry in commands
                if "cmake_pch" not in entry["file"]]
    (out / "compile_commands.json").write_text(json.dumps(commands, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
