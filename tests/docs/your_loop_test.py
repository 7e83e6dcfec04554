#!/usr/bin/env python3
"""your_loop_test.py BUILD/bin: what docs/your_loop.md says about its program after each edit. Its programs are in docs_programs.
With LEVIN_WRITE_PICTURES=1 it writes the page's picture."""
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402
from tutorial import CHROMIUM, PICTURES, kind_of, screenshot  # noqa: E402

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
LOOP, FABRIC, STEP, MIXED, DATA, RANKS = (f"docs/your_loop.md{edit}" for edit in ("", "#1", "#2", "#3", "#4", "#5"))
SECONDS = 120


class YourLoop(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_your_loop_")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def folder(self, name):
        folder = self.root / name.replace("/", "_")
        folder.mkdir(exist_ok=True)
        return folder

    def run_program(self, program, folder):
        """Returns what the program has printed. It says nothing on standard error."""
        done = subprocess.run([BIN / "docs_programs", program], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{program}:\n{done.stdout}")
        return done.stdout

    def kill_after_epoch(self, epoch, program, folder):
        with subprocess.Popen([BIN / "docs_programs", program], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout:
                if line.startswith(f"epoch {epoch}: "):
                    break
            running.kill()
            self.assertNotIn("accuracy", running.stdout.read(), "it had ended before it was killed")
        self.assertFalse((folder / "net.pt").exists())

    def assert_accurate(self, output):
        self.assertGreater(float(output.split("accuracy ")[1]), 0.97)

    def test_the_first_edits_keep_the_weights_bitwise(self):
        outputs = [self.run_program(program, self.folder(program)) for program in (LOOP, FABRIC, STEP)]
        weights = [(self.folder(program) / "net.pt").read_bytes() for program in (LOOP, FABRIC, STEP)]
        self.assertEqual(outputs[0].count("\n"), 21)
        self.assert_accurate(outputs[0])
        self.assertEqual(outputs[1:], outputs[:1] * 2)
        self.assertTrue(weights[0] == weights[1] == weights[2])

    def test_mixed_precision_and_accumulation_train_as_well(self):
        self.assert_accurate(self.run_program(MIXED, self.folder(MIXED)))
        self.assertNotEqual((self.folder(MIXED) / "net.pt").read_bytes(), b"")

    def test_a_program_that_was_killed_ends_with_the_same_weights(self):
        killed = self.folder("killed")
        self.kill_after_epoch(5, DATA, killed)
        rest = self.run_program(DATA, killed)
        whole = self.run_program(DATA, self.folder("whole"))
        self.assertGreaterEqual(int(rest.split(":")[0].removeprefix("epoch ")), 6)
        self.assertTrue(whole.endswith(rest), f"{whole}\n{rest}")
        self.assertEqual((killed / "net.pt").read_bytes(), (self.root / "whole/net.pt").read_bytes())

    def losses(self, folder):
        with open(folder / "levin_logs/version_0/metrics.csv", newline="", encoding="utf-8") as file:
            return [float(row["loss"]) for row in csv.DictReader(file)]

    def test_two_ranks_train_on_the_same_global_batches(self):
        folder = self.folder("ranks")
        self.assert_accurate(self.run_program(RANKS, folder))
        losses = self.losses(folder)
        alone = self.run_program(DATA, self.folder("alone"))
        first = float(alone.splitlines()[0].split("loss ")[1])
        self.assertEqual(len(losses), 20)
        self.assertLess(abs(losses[0] - first), 0.01 * first)
        self.assertRegex(run_levin([BIN / "levin", "runs"], cwd=folder).stdout, r"levin_logs/version_0 +success ")
        self.assertIn("success, epoch 20, step 500", run_levin([BIN / "levin", "top"], cwd=folder).stdout)
        report = run_levin([BIN / "levin", "report", "levin_logs/version_0", "--output", "report.html"], cwd=folder)
        self.assertEqual(report.returncode, 0, report.stdout)
        if CHROMIUM:
            made = folder / "your_loop.png"
            screenshot(folder / "report.html", made, (1000, 930))
            if "LEVIN_WRITE_PICTURES" in os.environ:
                shutil.copyfile(made, PICTURES / made.name)
            self.assertEqual(kind_of(made), kind_of(PICTURES / made.name))

    def test_a_checkpoint_of_one_process_continues_on_two(self):
        folder = self.folder("mixed")
        self.kill_after_epoch(5, DATA, folder)
        self.assert_accurate(self.run_program(RANKS, folder))
        self.assertLessEqual(len(self.losses(folder)), 14)


if __name__ == "__main__":
    unittest.main(verbosity=2)
