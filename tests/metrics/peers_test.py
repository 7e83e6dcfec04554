"""Metrics compared with torchmetrics over inputs made in the test: other seeds than the recorded one. Needs the PyTorch for
Python that benchmarks compare with (`./dev check --peers` installs it), or that of LEVIN_PYTHON; skipped where there is none.

  peers_test.py PROGRAM RECORDER [unittest's arguments]

RECORDER is record_cases, for metrics of classes, or record_other_cases, for metrics of numbers, text, images and masks.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
RECORDER = sys.argv.pop(1)
SKIPPED = 77
HERE = pathlib.Path(__file__).parent
HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")
SEEDS = (1, 2)

FEWEST_CASES = {"record_cases": 900, "record_other_cases": 250}[RECORDER]
RECORD = (f"import pathlib, sys, {RECORDER} as record; "
          "record.save(record.document(int(sys.argv[1])), pathlib.Path(sys.argv[2]))")


def find_torchmetrics():
    """(Python, environment); nothing where there is none."""
    folders = sorted(HOME.glob("peers-*"))
    for python, path in [(os.environ.get("LEVIN_PYTHON"), ""), *((folder / "python3", folder) for folder in folders)]:
        if not python or not pathlib.Path(python).exists():
            continue
        env = {**os.environ, "PYTHONPATH": f"{path}:{HERE}"}
        if subprocess.run([python, "-B", "-c", "import torchmetrics"], env=env, capture_output=True).returncode == 0:
            return str(python), env
    return None


FOUND = find_torchmetrics()


def same(one, other):
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        # Values of classes are between 0 and 1.
        return math.isclose(one, other, rel_tol=0 if RECORDER == "record_cases" else 1e-6, abs_tol=1e-6)
    return one == other  # null for nan, or an infinity's name


class Peers(unittest.TestCase):
    def compare(self, seed):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cases.json"
            python, env = FOUND
            subprocess.run([python, "-B", "-c", RECORD, str(seed), str(path)], env=env, check=True)
            done = subprocess.run([PROGRAM, path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            cases = json.loads(path.read_text())["cases"]
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        self.assertGreater(len(cases), FEWEST_CASES)
        for line, case in zip(lines, cases):
            expected = case["value"]["values"]
            for ranks, values in enumerate(json.loads(line), start=1):
                with self.subTest(ranks=ranks, **case):
                    self.assertEqual(len(values), len(expected))
                    for value, number in zip(values, expected):
                        self.assertTrue(same(value, number), f"{values} instead of {expected}")

    def test_random_cases_give_the_numbers_of_torchmetrics_on_one_rank_and_two(self):
        for seed in SEEDS:
            self.compare(seed)


if __name__ == "__main__":
    if not FOUND:
        print("skipped: torchmetrics is not installed. ./dev check --peers installs PyTorch for Python (2.5 GB to download)")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
