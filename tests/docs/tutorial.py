#!/usr/bin/env python3
"""Follows a page of docs/tutorials from its first line to its last, as a reader would, in a folder of its own.

  tutorial.py run BUILD/bin PAGE.md      exit status 1 and "PAGE.md:LINE: what is wrong" if the page does not hold
  tutorial.py write BUILD/bin PAGE.md    and copies the pictures that the run has made to docs/pictures/tutorials

A block whose first line is a comment with a file's name alone (`# run.yaml`, `// model.cpp`) is written to that file. A
```diff block changes the file that a comment names in its first line (`# run.yaml`). The ```sh blocks then run in order in
one bash, which ends at the first command that fails, with the programs of BUILD/bin first in PATH. Of a page that
enabled.txt names, the C++ program is compiled in docs_programs, also after each of its diffs; it is `build/NAME` for a block
that begins with `// NAME.cpp`. A ```text block after a ```sh block is what these commands print: the output holds each of its
lines, with the same words and numbers. "…" stands for a line, or for the rest of a line. $LEVIN is the source tree, and the
number after MASTER_PORT= any free port. Comments that readers do not see change this:

  <!-- not run: the reason -->                 before a ```sh block: for a reader, not for this program
  <!-- instead: FILE, … -->                    before a ```sh block that needs PyTorch for Python: it is not run, and what it
                                               writes, files of the repository, is copied to the run's folder
  <!-- needs: PACKAGE -->                      before a ```sh block that needs a package of `./dev check --peers` for Python:
                                               without it the page is skipped, with exit status 77
  <!-- output: tolerance 5 %; skip REGEX -->   before a ```text block, both optional: relative difference of numbers, and
                                               what is left out of the comparison
  <!-- picture: FILE [WIDTH x HEIGHT] -->      before an image: the file of the run from which it was made. A screenshot of an
                                               HTML file is made with Chromium, if it is installed

Times, rates and sizes of memory are never compared.
"""
import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from docs import blocks_of, edited, enabled, without_blocks
from figures import Wrong, find_line, split_line

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs/site"), str(ROOT / "tests/support")]
import peers  # noqa: E402
from ports import free_port  # noqa: E402
from pictures import CHROMIUM, screenshot  # noqa: E402

PYTHON_FOLDERS = [peers.PACKAGES, *sorted(peers.HOME.glob("peers-*"))]  # of ./dev check --peers
PICTURES = ROOT / "docs/pictures/tutorials"
FILE_NAME = re.compile(r"(?:#|//|--) ([\w./-]+\.\w+)\n")
NOTE = re.compile(r"<!-- (not run|instead|needs|output|picture): (.*?) -->\s*$")
IMAGE = re.compile(r"^!\[[^\]]+\]\(\.\./pictures/tutorials/([\w.-]+)\)")
MACHINE = [r"[\d.,]+ ?(?:(?:us|ms|s)/it|us|ms|s|min|h|it/s|samples/s|batches/s)\b", r"[\d.,]+ [KMG]iB\b"]
SECONDS = 240


def steps_of(page):
    """Yields (line, kind, content, note) in order: kind is a block's language, or "picture" with the image's name."""
    text = page.read_text(encoding="utf-8")
    blocks = {number - 1: (language, content) for number, language, content in blocks_of(text)}  # by the line of their fence
    note = None
    for number, line in enumerate(without_blocks(text).splitlines(), 1):
        found, image = NOTE.match(line), IMAGE.match(line)
        if number in blocks:
            yield number + 1, *blocks[number], note
            note = None
        elif found:
            note = found.groups()
        elif image:
            if not note or note[0] != "picture":
                raise Wrong(f"{page}:{number}: a comment <!-- picture: FILE --> before the image must name the file it was made from.")
            yield number, "picture", image.group(1), note
            note = None
        elif line.strip():
            note = None


class Skipped(Exception):
    """The page cannot be followed on this machine; the message says what is missing."""


class Tutorial:
    def __init__(self, page, programs, folder):
        self.page, self.programs, self.folder = page, programs, folder
        self.script, self.outputs, self.pictures = [], [], []  # of the sh blocks; (line, sh block, text, note); (line, image, note)
        self.files, self.edits, self.needs_peers = {}, 0, False  # what the page has shown; edits of the C++ program
        for line, kind, content, note in steps_of(page):
            self.line = line
            self.take(line, kind, content, note)

    def take(self, line, kind, content, note):
        named = FILE_NAME.match(content)
        if kind == "picture":
            self.pictures.append((line, content, note[1]))
        elif kind == "sh":
            if note and note[0] == "needs":
                self.needs_peers = True
                if not any((folder / note[1]).is_dir() for folder in PYTHON_FOLDERS):
                    raise Skipped(f"skipped: {self.page}:{line} needs {note[1]} for Python. Run ./dev check --peers.")
            if note and note[0] == "instead":
                self.script.append((line, "".join(f"cp '{ROOT / name}' .\n" for name in note[1].split(", "))))
            elif not note or note[0] != "not run":
                self.script.append((line, content))
        elif kind == "text":
            if not self.script:
                raise Wrong(f"{self.page}:{line}: an output, and no ```sh block before it.")
            self.outputs.append((line, len(self.script) - 1, content, note[1] if note and note[0] == "output" else ""))
        elif named and kind == "diff":
            self.edit(named.group(1), content[named.end():])
        elif named:
            self.write(named.group(1), content)

    def write(self, name, content):
        # Files are written between the commands of the page: what is shown later is not there earlier.
        self.script.append((self.line, f"mkdir -p \"$(dirname '{name}')\"\ncat > '{name}' <<'END OF FILE'\n{content}END OF FILE\n"))
        if name.endswith(".cpp") and "int main" in content:
            program = f"build/{Path(name).stem}"
            edit = f"#{self.edits}" if self.edits else ""
            runs = f'#!/bin/sh\nexec "{self.programs}/docs_programs" "/{self.page.name}{edit}" "$@"\n'
            self.write(program, runs)
            self.script.append((self.line, f"chmod +x '{program}'\n"))
        self.files[name] = content

    def edit(self, name, diff):
        if name not in self.files:
            raise Wrong(f"{self.page}:{self.line}: the diff changes {name}, which the page has not shown.")
        self.edits += name.endswith(".cpp")
        self.write(name, edited(self.files[name], diff))

    def run(self):
        """Returns the output of each piece of the script."""
        mark = "levin-tutorial-mark"
        script = "".join(f"echo {mark} {number}\n{text}" for number, (_, text) in enumerate(self.script))
        script = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n" + script  # a command that fails ends the others too
        script = re.sub(r"\bMASTER_PORT=\d+", f"MASTER_PORT={free_port()}", script)
        python = [str(folder) for folder in PYTHON_FOLDERS if self.needs_peers]
        path = os.pathsep.join([str(self.programs), *python, os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(python), "LEVIN": str(ROOT),
               "HOME": os.environ.get("HOME", str(self.folder)), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, errors="replace") as process:
            try:
                output = process.communicate(timeout=SECONDS)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                output = process.communicate()[0]
                raise Wrong(f"{self.page}: its commands did not end within {SECONDS} s:\n{output}") from None
        pieces = re.split(rf"(?m)^{mark} \d+\n", output)[1:]
        if process.returncode != 0:
            line, text = self.script[len(pieces) - 1]
            raise Wrong(f"{self.page}:{line}: these commands ended with status {process.returncode}:\n{text}{pieces[-1]}")
        return pieces

    def compare(self, pieces):
        """Yields what the page says and the commands have not printed."""
        for line, piece, text, note in self.outputs:
            try:
                compare_lines(text, pieces[piece], note)
            except Wrong as wrong:
                yield f"{self.page}:{line}: {wrong}"

    def make(self, note, to):
        """Writes a picture from the file of the run that `note` names."""
        name, *size = note.split(maxsplit=1)
        source = self.folder / name
        found = source if source.is_file() else next(iter(sorted(self.folder.glob(name))), None)
        if found is None:
            raise Wrong(f"the commands of the page have not written {name}.")
        if found.suffix == ".html":
            width, height = map(int, size[0].split(" x "))
            return screenshot(found, to, (width, height)) if CHROMIUM else None
        return shutil.copyfile(found, to)

    def check_pictures(self, write):
        """Yields each picture that cannot be made again, or is not in docs/pictures as the run makes it."""
        for line, image, note in self.pictures:
            made = self.folder / ("made-" + image)
            try:
                self.make(note, made)
            except Wrong as wrong:
                yield f"{self.page}:{line}: {wrong}"
                continue
            if not made.exists():
                print(f"{self.page}:{line}: {image} was not made again, because Chromium is not installed.")
            elif write:
                PICTURES.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(made, PICTURES / image)
            elif kind_of(made) != kind_of(PICTURES / image):
                yield f"{self.page}:{line}: {image} is {kind_of(PICTURES / image)}, and the run makes {kind_of(made)}."


def kind_of(picture):
    """Returns the format and, of a PNG file, its size."""
    data = picture.read_bytes() if picture.exists() else b""
    if data.startswith(b"\x89PNG"):
        return "a PNG of {} x {}".format(*struct.unpack(">II", data[16:24]))
    return "an SVG" if b"<svg" in data[:300] else "no picture"


def compare_lines(text, output, note):
    """Throws Wrong for the first line of `text` that `output` does not have."""
    words = dict(part.strip().split(" ", 1) for part in note.split("; ") if part.strip())
    tolerance = float(words.get("tolerance", "0 %").rstrip(" %")) / 100
    skip = MACHINE + ([words["skip"]] if "skip" in words else [])
    printed = [split_line(line, skip) for line in re.split(r"[\r\n]+", output)]
    for line in text.splitlines():
        shown, dots, _ = line.partition("…")
        try:
            if shown.strip():
                find_line(shown, printed, skip, tolerance, is_start=bool(dots))
        except Wrong as wrong:
            raise Wrong(f"the commands have not printed {wrong}:\n{output}") from None


def follow(page, programs, write=False):
    """Returns what is wrong with a page."""
    with tempfile.TemporaryDirectory(prefix="levin_tutorial_") as folder:
        try:
            tutorial = Tutorial(page, programs, Path(folder))
            if not tutorial.pictures:
                raise Wrong(f"{page}: a picture of its result is missing.")
            if str(page.resolve().relative_to(ROOT)) not in enabled(ROOT, "program") and any("docs_programs" in text for _, text in tutorial.script):
                raise Wrong(f"{page}: tests/docs/enabled.txt does not name it, and so its program is not compiled.")
            pieces = tutorial.run()
            return [*tutorial.compare(pieces), *tutorial.check_pictures(write)]
        except Wrong as wrong:
            return [str(wrong)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("programs", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    try:
        wrong = follow(options.page, options.programs.resolve(), options.what == "write")
    except Skipped as skipped:
        print(skipped)
        return peers.SKIPPED
    print("\n".join(wrong) if wrong else f"{options.page.name}: the commands, their output and the pictures agree with the page")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
