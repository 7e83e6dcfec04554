#!/usr/bin/env python3
"""Makes the pictures of the README from a real run: the progress bar and `levin top` as animated SVG, a report as PNG.

  pictures.py LEVIN FOLDER [--epochs N]

LEVIN is the program `levin` with the models of examples/; FOLDER is docs/pictures. Needs tmux, and Chromium for the report:
without it, report.png is not written. tests/docs/pictures_test.py makes them again.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS, FIT_ROWS, TOP_ROWS = 100, 14, 28
REPORT_SIZE = (1000, 1090)
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character, of a line, around all
STEP, HOLD = 0.2, 4.0  # seconds of a frame, of the last frame
COLORS = {"30": "#21262d", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea",
          "37": "#c9d1d9"}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tmux:
    """A tmux server of its own, which ends with the block."""

    def __enter__(self):
        self.socket = f"levin-pictures-{os.getpid()}"
        return self

    def __exit__(self, *_):
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], stderr=subprocess.DEVNULL, check=False)

    def run(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], check=True, text=True, stdout=subprocess.PIPE,
                              env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout

    def start(self, name, rows, folder, shown, command):
        """Starts a command in a terminal that shows it as typed."""
        self.run("-f", "/dev/null", "new-session", "-d", "-s", name, "-x", str(COLUMNS), "-y", str(rows), "-c", str(folder),
                 f"printf '$ %s\\n' {shlex.quote(shown)}; {command}; sleep 600")

    def screen(self, name):
        return self.run("capture-pane", "-p", "-e", "-t", name).splitlines()


def record(levin, folder, epochs):
    """(screens of `levin fit`, screens of `levin top`) during a run in `folder`."""
    (folder / "configs").symlink_to(ROOT / "configs")
    fit = f"fit --config configs/fashion_mnist.yaml --trainer.max_epochs={epochs}"
    fits, tops, deadline = [], [], time.monotonic() + 120
    with Tmux() as tmux:
        tmux.start("fit", FIT_ROWS, folder, f"levin {fit}", f"{levin} {fit}")
        while time.monotonic() < deadline:
            begin = time.monotonic()
            fits.append(tmux.screen("fit"))
            if not tops and (folder / "levin_logs/version_0/run.json").exists():
                tmux.start("top", TOP_ROWS, folder, "levin top levin_logs", f"{levin} top levin_logs --every {STEP}")
                tops.append([])
            if tops:
                tops.append(tmux.screen("top"))
                if any(line.startswith("  test_loss") for line in fits[-1]) and any("has ended" in line for line in tops[-1]):
                    return fits, [screen for screen in tops if any("epoch" in line for line in screen)]
            time.sleep(max(0.0, STEP - (time.monotonic() - begin)))
    sys.exit("the run has not ended after two minutes:\n" + "\n".join(fits[-1]))


def pieces_of(screen, rows):
    """For each row the (column, text, CSS) of its pieces between changes of the style."""
    found, styles = [], {}  # a style lasts until it is changed, also over lines
    for line in screen[:rows]:
        pieces, column = [], 0
        for change, text in re.findall(r"(\x1b\[[\d;]*m)?([^\x1b]*)", line):
            for code in change[2:-1].split(";") if change else []:
                if code in ("", "0"):
                    styles = {}
                elif code in ("1", "2"):
                    styles["weight"] = "font-weight:bold" if code == "1" else "opacity:.6"
                elif code in COLORS or code == "39":
                    styles["color"] = f"fill:{COLORS.get(code, COLORS['37'])}"
            words = text.strip(" ")
            if words:
                pieces.append((column + text.index(words[0]), words, ";".join(styles.values())))
            column += len(text)
        found.append(pieces)
    return found + [[]] * (rows - len(found))


def row_svg(row, pieces):
    text = ""
    for column, words, css in pieces:
        style = f' style="{css}"' if css else ""
        text += (f'<text x="{MARGIN + column * WIDTH:.1f}" y="{MARGIN + (row + 0.75) * HEIGHT:.1f}" '
                 f'textLength="{len(words) * WIDTH:.1f}"{style}>{escape(words)}</text>')
    return text


def animation(screens, rows):
    """An SVG of the screens one after another. A line that stays is written once; the last screen is what a viewer without
    animations shows."""
    screens = [screen for screen, before in zip(screens, [None, *screens]) if screen != before]
    screens = [pieces_of(screen, rows) for screen in screens]
    count, total = len(screens), (len(screens) - 1) * STEP + HOLD
    spans, body = {}, []
    for row in range(rows):
        begin = 0
        for end in range(1, count + 1):
            if end < count and screens[end][row] == screens[begin][row]:
                continue
            drawn = row_svg(row, screens[begin][row])
            if drawn:
                name = spans.setdefault((begin, end), f"f{len(spans)}")
                body.append(f'<g class="{name}">{drawn}</g>')
            begin = end
    css = ""
    for (begin, end), name in spans.items():
        if (begin, end) != (0, count):
            stops = {begin * STEP / total: 1, **({} if end == count else {end * STEP / total: 0})}
            keys = "".join(f"{at:.2%}{{opacity:{value}}}" for at, value in ({0: 0} | stops).items())
            css += f"@keyframes {name}{{{keys}}}.{name}{{opacity:{int(end == count)};animation:{name} {total:.1f}s step-end infinite}}\n"
    width, height = COLUMNS * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            f'data-frames="{count}" xml:space="preserve">\n<style>text{{font:14px "DejaVu Sans Mono",Menlo,Consolas,monospace;'
            f'fill:{COLORS["37"]};white-space:pre}}\n{css}</style>\n<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
            + "\n".join(body) + "\n</svg>\n")


def screenshot(html, picture, size):
    """Writes the first screen of a page, `size` pixels wide and high, as a PNG."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run([CHROMIUM, "--headless", *(["--no-sandbox"] if os.geteuid() == 0 else []), "--disable-gpu", "--hide-scrollbars",
                        f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--screenshot={picture.resolve()}",
                        html.resolve().as_uri()],
                       check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def report(levin, folder, picture):
    """Writes a screenshot of the first screen of the run's report."""
    subprocess.run([levin, "report", "levin_logs/version_0", "--output", "report.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    screenshot(folder / "report.html", picture, REPORT_SIZE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("levin", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    levin = options.levin.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        fits, tops = record(levin, folder, options.epochs)
        hidden = re.compile(re.escape(f"{folder}/"))  # where the run was is of no interest
        for name, screens, rows in (("progress.svg", fits, FIT_ROWS), ("top.svg", tops, TOP_ROWS)):
            screens = [[hidden.sub("", line) for line in screen] for screen in screens]
            (options.folder / name).write_text(animation(screens, rows), encoding="utf-8")
        if CHROMIUM:
            report(levin, folder, options.folder / "report.png")


if __name__ == "__main__":
    main()
