"""examples/loops: loops of other programs, before and after. Both end with the same weights, a program over Fabric that is
killed continues bitwise identically, and docs/own_loops.md has their numbers of lines.

  loops_test.py BUILD/bin ROOT [unittest's arguments]
"""
import csv
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
PROGRAMS = ("splat", "surrogate", "self_play")


def start(name, folder):
    return subprocess.Popen([BIN / name], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def lines_of_code(path):
    """Lines that are neither empty nor comments."""
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"\s*(?!//)\S", line))


class Loops(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def output(self, name, folder):
        folder.mkdir(exist_ok=True)
        with start(name, folder) as process:
            text, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, text)
        return text.splitlines()

    def kill_after(self, name, folder, lines):
        """Starts the program, and kills it once it has said this many lines: a checkpoint is on the disk then."""
        folder.mkdir()
        with start(name, folder) as process:
            said = [process.stdout.readline() for _ in range(lines)]
            process.kill()
        self.assertEqual(process.returncode, -9, said)

    def check_continues(self, name):
        whole = self.output(name, self.folder / "whole")
        self.kill_after(name, self.folder / "killed", 3)
        continued = self.output(name, self.folder / "killed")
        self.assertLess(len(continued), len(whole))
        self.assertEqual(continued, whole[-len(continued):])
        with open(self.folder / "whole/levin_logs/version_0/metrics.csv", encoding="utf-8") as rows:
            losses = [float(row["loss"]) for row in csv.DictReader(rows) if row["loss"]]
        self.assertLess(losses[-1], losses[0])
        return whole

    def check_same_as_before(self, name, after):
        self.assertEqual(self.output(name + "_before", self.folder / "before"), after)

    def test_splat(self):
        self.check_same_as_before("splat", self.check_continues("splat"))

    def test_surrogate(self):
        self.check_same_as_before("surrogate", self.check_continues("surrogate"))

    def test_self_play(self):
        # The buffers of the two programs draw different positions.
        for lines in (self.check_continues("self_play"), self.output("self_play_before", self.folder / "before")):
            self.assertGreater(float(re.search(r"games not lost to a random player: (.*)", "\n".join(lines)).group(1)), 0.8)

    def test_the_page_has_their_lines(self):
        page = (SOURCE / "docs/own_loops.md").read_text(encoding="utf-8")
        for name in PROGRAMS:
            before, after = (lines_of_code(SOURCE / f"examples/loops/{name}{end}.cpp") for end in ("_before", ""))
            self.assertRegex(page, rf"(?m)^\| `{name}` .*\| {before} \| {after} \|", f"{name}: {before} lines before, {after} after")


if __name__ == "__main__":
    unittest.main()
