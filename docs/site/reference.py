#!/usr/bin/env python3
"""Writes docs/options from what `levin help` prints: every option of the Trainer and of every class of Levin's.

  reference.py write LEVIN [FOLDER]   writes the pages; FOLDER: docs/options unless it is given
  reference.py check LEVIN [FOLDER]   compares the pages with what levin prints; exit status 1 if they differ

LEVIN is the program `levin`, built with all parts.
"""
import difflib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "options"
WIDE = 8000  # columns of the terminal, so that no line is broken
NOTE = "<!-- Written by docs/site/reference.py from the output of `levin help`. Change the texts in the code instead. -->\n"
# What `levin list` calls a kind of classes, the title of its page, and the page that shows how they are used.
KINDS = {
    "models": ("Models", "Your own models come with your program ([extending](../extending.md#a-module)); the examples have some "
                         "more ([examples](../examples.md))."),
    "data": ("Data modules", "[Data](../data.md) and [images, arrays and text](../data_files.md) describe them."),
    "callbacks": ("Callbacks", "[Callbacks](../callbacks.md) describes them."),
    "loggers": ("Loggers", "[Logging](../logging.md#loggers) has a page about each."),
    "optimizers": ("Optimizers", "[Recipes](../recipes.md) has measured effects; "
                                 "[configuration](../configuration.md#parameter-groups) describes parameter groups."),
    "lr_schedulers": ("Learning rate schedulers", "[Configuration](../configuration.md#a-run-file) has the keys next to the class."),
    "strategies": ("Strategies", "[One process](../data_parallel.md), [several ranks](../distributed.md), [fsdp](../fsdp.md)."),
    "precisions": ("Precisions", "[Precision](../precision.md) describes them."),
    "profilers": ("Profilers", "[Profiling](../profiling.md) describes them."),
}


def output_of(levin, *arguments):
    """The lines that levin prints in a very wide terminal. Raises RuntimeError with its output if it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDE, 0, 0))
    output = b""
    with subprocess.Popen([levin, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            try:
                while data := terminal.read(1 << 16):
                    output += data
            except OSError:  # how Linux reports that the program has closed its end
                pass
    text = output.decode(errors="replace").replace("\r\n", "\n")
    if process.returncode != 0:
        raise RuntimeError(f"levin {' '.join(arguments)} ended with status {process.returncode}:\n{text}")
    return text.splitlines()


def cell(text):
    return re.sub(r"([|<*\[\]])", r"\\\1", text)


def code(text):
    return f"`{text}`".replace("|", r"\|") if text else ""


def table(rows):
    lines = [f"| {code(name)} | {cell(kind)} | {code(default)} | {cell(meaning)} |" for name, kind, default, meaning in rows]
    return "\n".join(["| option | type | default | meaning |", "| --- | --- | --- | --- |", *lines]) + "\n"


def option_rows(lines):
    """[(name, type, default, meaning)…] of the table that `levin help CLASS` prints; [] if the class has no options."""
    head = next((at for at, line in enumerate(lines) if re.match(r"  option +type +default +meaning$", line)), None)
    if head is None:
        return []
    starts = [lines[head].index(word) for word in ("option", "type", "default", "meaning")] + [None]
    return [[line[start:end].strip() for start, end in zip(starts, starts[1:])] for line in lines[head + 1:] if line.strip()]


def class_names(lines):
    """{kind: [name…]} of `levin list`: Levin's own classes."""
    found, kind, is_own = {}, None, True
    for line in lines:
        if match := re.match(r"(\w+) \(\S+\)$", line):
            kind, is_own = match.group(1), True
            found[kind] = []
        elif match := re.match(r" (\S.*)$", line):
            is_own = match.group(1) == "Levin's"
        elif (match := re.match(r"  (\S+) ", line)) and is_own:
            found[kind].append(match.group(1))
    return found


def trainer_page(levin, call):
    """Every option of the Trainer, grouped as `levin help trainer` groups them."""
    groups = []
    for line in output_of(levin, "help", "trainer")[2:]:
        if match := re.match(r"  (\w+) ", line):
            groups[-1][1].append(match.group(1))
        elif line and not line.startswith(("levin ", "Strategies")):
            groups.append((line, []))

    def row(name):
        lines = output_of(levin, "help", f"trainer.{name}")
        kind, default = (next(line.split(": ", 1)[1] for line in lines if line.startswith(f"  {key}: ")) for key in ("type", "default"))
        return name, kind, default.removeprefix("class_path: "), lines[1].strip().removesuffix(".")

    rows = iter(list(call(row, [name for _, names in groups for name in names])))
    text = ("# Options of the Trainer\n\n" + NOTE + "\nFields of `TrainerOptions`; in a run file `trainer: {NAME: VALUE}`, on the "
            "command line `--trainer.NAME=VALUE`.\n`levin help trainer.NAME` explains one of them.\n")
    return text + "".join(f"\n## {title}\n\n{table([next(rows) for _ in names])}" for title, names in groups)


def kind_page(levin, kind, names, call):
    """What each class is, and a section about each class that has options."""
    def described(name):
        lines = output_of(levin, "help", name)
        at = next(at for at, line in enumerate(lines) if line.startswith(f"{name}: "))
        key = re.match(r"In a run file at (\S+):", lines[at + 1]).group(1)
        return key, lines[at].split(": ", 1)[1], option_rows(lines[at:])

    title, uses = KINDS[kind]
    classes = dict(zip(names, call(described, names)))
    key = next(iter(classes.values()))[0]
    text = f"# {title}\n\n{NOTE}\nIn a run file at `{key}`: `{{class_path: NAME, init_args: {{…}}}}`. {uses}\n\n| class | |\n| --- | --- |\n"
    for name, (_, doc, rows) in classes.items():
        text += f"| {f'[{name}](#{name.lower()})' if rows else name} | {cell(doc)} |\n"
    return text + "".join(f"\n## {name}\n\n{table(rows)}" for name, (_, _, rows) in classes.items() if rows)


def pages_of(levin):
    """{file name: text}"""
    names = class_names(output_of(levin, "list"))
    if missing := set(KINDS) ^ set(names):
        sys.exit(f"levin list and KINDS of docs/site/reference.py differ: {', '.join(sorted(missing))}")
    with ThreadPoolExecutor(2) as pool:
        pages = {"trainer.md": trainer_page(levin, pool.map)}
        pages |= {f"{kind}.md": kind_page(levin, kind, names[kind], pool.map) for kind in KINDS}
    return pages


def main():
    word, levin, *rest = sys.argv[1:]
    pages = pages_of(str(Path(levin).resolve()))
    folder = Path(rest[0]) if rest else FOLDER
    if word == "write":
        folder.mkdir(exist_ok=True)
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    old = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    changes = [line for name in sorted(old.keys() | pages.keys())
               for line in difflib.unified_diff(old.get(name, "").splitlines(), pages.get(name, "").splitlines(),
                                                f"docs/options/{name}", "what levin prints", lineterm="", n=0)]
    if changes:
        print("\n".join(changes) + "\n\nRun docs/site/reference.py write BUILD/bin/levin.")
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
