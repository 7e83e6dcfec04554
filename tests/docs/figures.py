#!/usr/bin/env python3
"""Compares the numbers in README.md and docs/ with what the programs print.

  figures.py --bin BUILD/bin --source ROOT FILE.md…   runs the commands that these pages name
  figures.py --source ROOT list                       pages with such figures

A page names them in a comment, which no reader sees, before the figures:

  <!-- figures
  run: levin fit --config configs/dp.yaml        a program of BUILD/bin; several lines run one after another
  find: val_acc ([\\d.]+)                         optional, several: what of the output is quoted
  last: 1                                        optional: only the last so many matches of each `find` count
  tolerance: 0.5 %                               of each number; 0 % unless it is given
  skip: [\\d.]+ (ms|s)\\b                          optional, several: what differs from machine to machine
  drop: ^best                                    optional, several: lines that do
  -->

Without `find`, each line of the next fenced block must be in the output: the same words in the same order, and numbers
within the tolerance. With `find`, each number that it captures must be in the text up to the next heading. Numbers with a
unit of bytes (46.1 MiB) are compared as bytes, and numbers may always differ by half of the last digit that the page
has. Prints "file:line: what is wrong"; exit status 1 if anything is.
"""
import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

COMMENT = re.compile(r"<!-- figures\n(.*?)-->", re.S)
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?:\s(?:bytes|[KMG]iB)\b)?")
KEYS = {"run", "find", "last", "tolerance", "skip", "drop"}


class Wrong(Exception):
    pass


def read_comment(text):
    """{key: [values]}"""
    wanted = {}
    for line in filter(str.strip, text.splitlines()):
        key, colon, value = line.strip().partition(": ")
        if not colon or key not in KEYS:
            raise Wrong(f"unknown line {line.strip()!r}. Use {', '.join(sorted(KEYS))}.")
        wanted.setdefault(key, []).append(value.strip())
    if "run" not in wanted:
        raise Wrong("a command is missing: run: PROGRAM ARGUMENTS")
    return wanted


def number_of(text):
    """Returns the value and half of its last digit, both in bytes if the number has a unit of bytes."""
    digits, _, unit = text.partition(" ")
    digits = digits.replace(",", "")
    mantissa, _, exponent = digits.partition("e")
    last = 10.0 ** ((int(exponent) if exponent else 0) - len(mantissa.partition(".")[2]))
    scale = UNITS.get(unit, 1)
    whole = "." not in mantissa and not exponent and unit in ("", "bytes")
    return float(digits) * scale, 0.0 if whole else last / 2 * scale * 1.0001


def agrees(page, seen, tolerance):
    (wanted, half), (found, other) = number_of(page), number_of(seen)
    return abs(wanted - found) <= max(half, other) + tolerance * abs(found)


def split_line(line, skip):
    """Returns (the line's words, its numbers)."""
    for pattern in skip:
        line = re.sub(pattern, " ", line)
    return " ".join(NUMBER.sub("#", line).split()), NUMBER.findall(line)


def find_line(line, printed, skip, tolerance, is_start=False):
    """Throws Wrong unless one of the lines `printed` (results of split_line) has the words and numbers of `line`, or begins with
    them if it `is_start`. Returns how many numbers were compared."""
    words, numbers = split_line(line, skip)
    alike = [found for text, found in printed
             if (text.startswith(words) if is_start else text == words and len(found) == len(numbers))]
    if not any(all(agrees(a, b, tolerance) for a, b in zip(numbers, found)) for found in alike):
        raise Wrong(f"{line.strip()!r}" + (f", but {', '.join(alike[-1])}" if alike else ""))
    return len(numbers)


def compare_block(block, output, wanted, tolerance):
    skip, drop = wanted.get("skip", []), wanted.get("drop", [])
    output_lines = [split_line(line, skip) for line in output.splitlines()]
    compared = 0
    for line in block.splitlines():
        if not line.strip() or line.strip() == "…" or any(re.search(pattern, line) for pattern in drop):
            continue
        try:
            compared += find_line(line, output_lines, skip, tolerance)
        except Wrong as wrong:
            raise Wrong(f"the output does not have {wrong}.\n{output}") from None
    if compared == 0:
        raise Wrong("the block has no number to compare.")


def compare_found(text, output, wanted, tolerance):
    page = NUMBER.findall(re.sub(r"[|*`]", " ", text))
    for pattern in wanted["find"]:
        matches = list(re.finditer(pattern, output, re.M))
        if "last" in wanted:
            matches = matches[-int(wanted["last"][0]):]
        if not matches:
            raise Wrong(f"the output has no {pattern}.\n{output}")
        for match in matches:
            for value in match.groups():
                if not any(agrees(number, value, tolerance) for number in page):
                    raise Wrong(f"the program says {match.group(0).strip()!r}, and the page has no {value}.")


def output_of(commands, programs, source):
    output = ""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "configs").symlink_to(source / "configs")
        for command in commands:
            program, *arguments = shlex.split(command)
            if program == "levin":
                done = run_levin([programs / program, *arguments], cwd=folder, timeout=240)
            else:
                done = subprocess.run([programs / program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
            output += done.stdout
            if done.returncode != 0:
                raise Wrong(f"{command} ended with status {done.returncode}:\n{done.stdout}")
    return output


def check_page(path, run):
    """Yields what is wrong. `run`: a function from commands to their output."""
    text = path.read_text(encoding="utf-8")
    for match in COMMENT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        try:
            wanted = read_comment(match.group(1))
            tolerance = float(wanted.get("tolerance", ["0 %"])[0].rstrip(" %")) / 100
            rest = text[match.end():]
            output = run(wanted["run"])
            if "find" in wanted:
                compare_found(re.split(r"^#", rest, maxsplit=1, flags=re.M)[0], output, wanted, tolerance)
                continue
            block = re.search(r"^```\w*\n(.*?)^```", rest, re.S | re.M)
            if not block:
                raise Wrong("no block follows.")
            compare_block(block.group(1), output, wanted, tolerance)
        except Wrong as wrong:
            yield f"{path}:{line}: {wrong}"


def pages_of(root):
    """Returns the pages with numbers to compare, as paths below the root."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [str(page.relative_to(root)) for page in pages
            if page.exists() and COMMENT.search(page.read_text(encoding="utf-8"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("words", nargs="+")
    options = parser.parse_args()
    if options.words == ["list"]:
        print("\n".join(pages_of(options.source)))
        return 0
    source, programs = options.source.resolve(), options.bin.resolve()
    wrong = [line for page in options.words
             for line in check_page(source / page, lambda commands: output_of(commands, programs, source))]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
