"""The soak test can fail: programs that leave a process, a file or shared memory behind, hang, end with an unclear message or
with other weights are each reported.

  oracle_test.py LEVIN [unittest's arguments]
"""
import contextlib
import io
import os
import shutil
import sqlite3
import sys
import tempfile
import unittest
from pathlib import Path

from isolation import isolate

isolate()

import soak  # noqa: E402
from oracle import faults_of_files  # noqa: E402
from scenario import Scenario, make_scenario  # noqa: E402

from runs import flip_a_byte, levin, run_file  # noqa: E402


class Planted(unittest.TestCase):
    """A shell script instead of an example's loop. It is started twice."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin-planted-")
        self.addCleanup(folder.cleanup)
        self.programs = soak.PROGRAMS = Path(folder.name)

    def run_script(self, script):
        """Returns what the soak test prints about it."""
        program = self.programs / "planted"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        scenario = Scenario(1, "loop", "planted", [], {}, 1, [], False, [])
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            kept = soak.run_scenario(scenario, self.programs)
        if kept:
            self.assertIn("repeat: ./dev soak 0 1", output.getvalue())
            self.assertTrue((kept / "scenario.json").exists())
            shutil.rmtree(kept)
        else:
            self.assertNotIn("FAILED", output.getvalue())
        return output.getvalue() if kept else ""

    def test_a_good_program_passes(self):
        self.assertEqual(self.run_script("echo weights 1"), "")

    def test_a_process_that_stays_is_reported_with_its_command(self):
        self.assertRegex(self.run_script("sleep 61 & echo weights 1"), r"process \d+ is left over: sleep 61")

    def test_shared_memory_that_stays_is_reported(self):
        self.addCleanup(lambda: Path("/dev/shm/levin_planted").unlink(missing_ok=True))
        self.assertIn("/dev/shm/levin_planted is left over", self.run_script("echo x > /dev/shm/levin_planted; echo weights 1"))

    def test_a_file_in_tmpdir_that_stays_is_reported(self):
        self.assertIn("a file in TMPDIR is left over: part", self.run_script('echo x > "$TMPDIR/part"; echo weights 1'))

    def test_a_half_written_file_is_reported(self):
        self.assertIn("a temporary file is left over", self.run_script("echo x > last.ckpt.tmp-0123; echo weights 1"))

    @unittest.skipUnless(soak.ISOLATED in os.environ, "ports of all programs are in sight without root")
    def test_an_open_port_is_reported(self):
        listen = "import socket, time; s = socket.create_server(('127.0.0.1', 7777)); print(1, flush=True); time.sleep(17)"
        report = self.run_script(f'env -i {sys.executable} -c "{listen}" >out &\n'
                                 "while [ ! -s out ]; do sleep 0.05; done; echo weights 1")
        self.assertIn("port 7777 is still open", report)

    def test_unclear_errors_are_reported(self):
        for text, part in [("terminate called after throwing an instance of 'std::bad_alloc'", "an unclear message"),
                           ("error: failed", "does not say what it is about"),
                           ("error: cannot write /x/y.", "does not say how to fix it"),
                           ("", "no error message explains the exit status 1")]:
            with self.subTest(text):
                self.assertIn(part, self.run_script(f'echo "{text}"; exit 1'))

    def test_an_undocumented_status_is_reported(self):
        report = self.run_script('echo "error: /x: it is full. Use another."; exit 7')
        self.assertIn("the exit status is 7, expected one of [0]", report)

    def test_other_weights_are_reported(self):
        report = self.run_script("echo x >> ../count; echo weights $(wc -l < ../count)")
        self.assertIn("the loop ends with ['weights 2'] instead of ['weights 1']", report)

    def test_a_hang_is_reported_with_its_stacks(self):
        program = self.programs / "planted"
        program.write_text("#!/bin/sh\nexec sleep 61\n")
        program.chmod(0o755)
        base = Path(tempfile.mkdtemp(prefix="levin-planted-")).resolve()
        scenario = Scenario(1, "loop", "planted", [], {}, 1, [], False, [])
        place = soak.Place(base, self.programs, scenario)
        self.addCleanup(place.close)
        with self.assertRaisesRegex(soak.Failure, r"hangs: it has not ended after 1 s\nprocess \d+: sleep 61\n(#|Thread|thread)"):
            soak.Soak(scenario, place).run_to_end([], 1)


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="levin-planted-")
        cls.addClassCleanup(folder.cleanup)
        cls.base = Path(folder.name).resolve()
        config = cls.base / "run.yaml"
        loggers = ("[CSVLogger, JSONLinesLogger, TensorBoardLogger, "
                   "{class_path: SQLiteLogger, init_args: {path: %s/run/runs.sqlite}}]")
        config.write_text(run_file(cls.base / "run", epochs=1))
        levin("fit", "--config", config, "--trainer.limit_train_batches=12", f"--trainer.logger={loggers % cls.base}")

    def setUp(self):
        self.copy = self.base / "copy"
        shutil.copytree(self.base / "run", self.copy)
        self.addCleanup(shutil.rmtree, self.copy)
        self.log = self.copy / "levin_logs/version_0"

    def faults(self):
        return "\n".join(faults_of_files(self.base / "run", self.copy))

    def test_equal_runs_have_none(self):
        self.assertEqual(self.faults(), "")

    def test_a_changed_weight(self):
        flip_a_byte(self.log / "checkpoints/last.ckpt")
        self.assertRegex(self.faults(), r"last\.ckpt differs in \S+")

    def test_rows_of_each_logger(self):
        csv = self.log / "metrics.csv"
        csv.write_text("".join(csv.read_text().splitlines(keepends=True)[:-1]))
        lines = self.log / "metrics.jsonl"
        lines.write_text(lines.read_text().replace('"step":4', '"step":5', 1))
        (events,) = self.log.glob("events.out*")
        content = bytearray(events.read_bytes())
        content[content.index(b"train_loss") + 12] ^= 1
        events.write_bytes(content)
        with sqlite3.connect(self.copy / "runs.sqlite") as file:
            file.execute("UPDATE metrics SET value = value + 1 WHERE id = 3")
        for part in ("metrics.csv differs", "metrics.jsonl: item", "event files: item", "runs.sqlite: item"):
            self.assertIn(part, self.faults())

    def test_a_missing_checkpoint_and_one_too_many(self):
        (self.log / "checkpoints/last.ckpt").rename(self.log / "checkpoints/last-v1.ckpt")
        self.assertIn("missing: levin_logs/version_0/checkpoints/last.ckpt", self.faults())
        self.assertIn("left over: levin_logs/version_0/checkpoints/last-v1.ckpt", self.faults())


class Generator(unittest.TestCase):
    def test_a_seed_always_gives_the_same_scenario(self):
        for seed in range(1, 200):
            self.assertEqual(make_scenario(seed).text(), make_scenario(seed).text())

    def test_the_short_soak_uses_everything_that_is_required(self):
        chosen = soak.covering_seeds()
        self.assertLessEqual(soak.REQUIRED, {feature for seed in chosen for feature in make_scenario(seed).features})


if __name__ == "__main__":
    unittest.main(verbosity=2)
