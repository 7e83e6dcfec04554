"""Files of an earlier version of Levin, which make_fixtures.py has made with it: the present version continues with them.

    upgrades_test.py LEVIN VERSION    `present`: files that the present version makes now, as its release will
"""
import csv
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import unittest

from make_fixtures import RUNS, Levin, make_folder

PROGRAM = sys.argv.pop(1)
VERSION = sys.argv.pop(1)
MADE = tempfile.TemporaryDirectory(prefix="levin_upgrades_")
FIXTURES = pathlib.Path(__file__).resolve().parent / VERSION
if VERSION == "present":
    FIXTURES = pathlib.Path(MADE.name) / VERSION
    make_folder(PROGRAM, FIXTURES)
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())

# The last digits depend on the processor and on LibTorch's version.
RELATIVE = 1e-5


class Upgrades(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_upgrades_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve() / "files"
        shutil.copytree(FIXTURES, self.folder, symlinks=True)
        self.levin = Levin(PROGRAM, self.folder)

    def expect_numbers(self, found, expected):
        self.assertEqual(set(found), set(expected))
        for name, number in expected.items():
            self.assertAlmostEqual(found[name], number, delta=RELATIVE * abs(number), msg=name)

    def test_checkpoints_measure_the_same_numbers(self):
        for name in RUNS:
            for checkpoint in ("last", "best"):
                with self.subTest(run=name, checkpoint=checkpoint):
                    self.expect_numbers(self.levin.measure(name, f"{checkpoint}.ckpt"), EXPECTED["runs"][name][checkpoint])

    def test_runs_continue_to_the_same_numbers(self):
        for name in RUNS:
            with self.subTest(run=name):
                rows = len((self.folder / name / "run/metrics.csv").read_text().splitlines())
                self.expect_numbers(self.levin.go_on(name), EXPECTED["runs"][name]["continued"])
                with open(self.folder / name / "run/metrics.csv", newline="") as file:
                    self.assertGreater(len(list(csv.DictReader(file))) + 1, rows)
        record = json.loads((self.folder / "single/run/run.json").read_text())
        self.assertEqual([session["status"] for session in record["sessions"]], ["success", "success"])
        lines = [json.loads(line) for line in (self.folder / "single/run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(max(line["step"] for line in lines if "train_loss" in line.get("metrics", {})), 11)  # of 12 steps
        self.assertGreaterEqual(len(list((self.folder / "single/run").glob("events.out.tfevents.*"))), 1)
        with sqlite3.connect(self.folder / "single/runs.sqlite") as database:
            self.assertEqual(database.execute("SELECT max(step) FROM curves WHERE metric = 'train_loss'").fetchall(), [(11,)])

    def test_a_run_continues_from_upgraded_checkpoints(self):
        self.levin("checkpoint", "upgrade", "--in-place", "single")
        self.assertIn("already; nothing was written", self.levin("checkpoint", "upgrade", "--in-place", "single"))
        self.levin("checkpoint", "verify", "single/run/checkpoints/last.ckpt", "single/run/checkpoints/best.ckpt")
        self.expect_numbers(self.levin.go_on("single"), EXPECTED["runs"]["single"]["continued"])

    def test_predictions_can_be_made(self):
        self.assertNotEqual(self.levin("predict", "--config", "run.yaml", "--trainer.logger=false",
                                       "--ckpt_path=single/run/checkpoints/last.ckpt"), "")

    def test_runs_and_reports_show_the_runs(self):
        table = self.levin("runs", ".")
        for name in RUNS:
            self.assertRegex(table, rf"{name}/run\b")
        self.levin("report", "single/run", "ddp/run", "--output", "report.html")
        page = (self.folder / "report.html").read_text()
        for part in ("val_loss", "single/run", "ddp/run"):
            self.assertIn(part, page)

    def test_the_configuration_of_a_run_is_a_run_file(self):
        self.levin("check", "single/run/config.yaml")

    def test_the_sweep_is_read_and_continues(self):
        state = json.loads(self.levin("sweep", "status", "sweep", "--json"))
        values = [trial["value"] for trial in EXPECTED["sweep"]["trials"]]
        self.assertEqual([trial["value"] for trial in state["trials"]], values)
        self.levin("sweep", "sweep.yaml", "--max_trials=3")
        state = json.loads(self.levin("sweep", "status", "sweep", "--json"))
        self.assertEqual([trial["value"] for trial in state["trials"]][:2], values)
        self.assertEqual(len(state["trials"]), 3)


if __name__ == "__main__":
    unittest.main()
