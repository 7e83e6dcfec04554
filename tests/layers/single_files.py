#!/usr/bin/env python3
"""single_files.py BUILD: reports files that compile in their unit only.

Files that are compiled as one unit (LEVIN_UNITY) see what the files before them include. Without units, as in the preset
dev and for clang-tidy, each must include what it uses. Exit status 1 if one does not.
"""
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from unit_names import units


def checks(build):
    """(file, the command that checks it) of each file of a unit."""
    for unit, command in units(build):
        words = shlex.split(command)
        at = words.index("-o")
        del words[at:at + 2]
        words[words.index("-c")] = "-fsyntax-only"
        for file in re.findall(r'^#include "(.+\.cpp)"$', Path(unit).read_text(), re.M):
            yield file, [*(file if word == unit else word for word in words), "-w"]


def errors_of(check):
    file, command = check
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    return "" if done.returncode == 0 else f"{file} does not compile alone:\n" + "\n".join(errors[:3] or [done.stderr]) + "\n"


def main():
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = 0
        for text in pool.map(errors_of, list(checks(Path(sys.argv[1]).resolve()))):
            found += text != ""
            print(text, end="", flush=True)
    if not found:
        print("units: each file compiles alone")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
