"""The tool with closed standard streams: what is printed lands in no file of the run. And with streams that cannot be
written: a result that cannot be delivered is a failure.

  standard_streams_test.py LEVIN [unittest's arguments]
"""
import itertools
import subprocess
import tempfile
import unittest
from pathlib import Path

from runs import ENVIRONMENT, LEVIN, files_below, levin, run_file

CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}


def shell(command):
    """Returns the status and the text of both streams, if they are open."""
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=ENVIRONMENT, timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="levin-streams-")
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        self.folder = self.root / "run"
        self.config = self.root / "run.yaml"
        self.config.write_text(run_file(self.folder, epochs=1, auto_resume="false", save_every=20))


class ClosedStreams(Case):
    # Reliability: closed_streams.
    def test_leave_every_file_as_it_would_be(self):
        """In every combination; a checkpoint with a line of the console in it would not be the same."""
        levin("fit", "--config", self.config)
        wanted = files_below(self.folder)
        self.folder.rename(self.root / "wanted")
        for count in (1, 2, 3):
            for which in itertools.combinations(CLOSED, count):
                with self.subTest(closed=which):
                    closed = " ".join(CLOSED[name] for name in which)
                    status, _, output = shell(f"exec {LEVIN} fit --config {self.config} {closed}")
                    self.assertEqual(status, 0, output)
                    self.assertEqual(files_below(self.folder).keys(), wanted.keys())
                    for name, content in files_below(self.folder).items():
                        self.assertEqual(content == wanted[name], True, f"{name} differs")
                        if name.endswith(".ckpt"):
                            self.assertIn("good", levin("checkpoint", "verify", self.folder / name))
                self.folder.rename(self.root / f"closed-{'-'.join(which)}")

    # Reliability: closed_streams.
    def test_are_open_in_the_ranks_that_the_tool_starts(self):
        ranks = "--trainer.accelerator=cpu --trainer.devices=2 --trainer.strategy=ddp"
        status, _, _ = shell(f"exec {LEVIN} fit --config {self.config} {ranks} <&- >&- 2>&-")
        self.assertEqual(status, 0)
        checkpoints = list(self.folder.rglob("*.ckpt"))
        self.assertTrue(checkpoints)
        for path in checkpoints:
            self.assertIn("good", levin("checkpoint", "verify", path))

    def test_change_no_exit_status(self):
        self.assertEqual(shell(f"exec {LEVIN} fit --config {self.root}/none.yaml >&- 2>&-")[0], 2)
        self.assertEqual(shell(f"exec {LEVIN} list >&-")[0], 0)


class FullStandardOutput(Case):
    def fails(self, arguments):
        status, _, output = shell(f"exec {LEVIN} {arguments} > /dev/full")
        self.assertEqual(status, 1, output)
        self.assertIn("error: cannot write to standard output: No space left on device.", output)

    def test_is_a_failure_of_every_word_that_prints_results(self):
        for arguments in ("--version", "--help", "help", "help EarlyStopping", "list", "list models", "fit --help",
                          f"fit --config {self.config} --print_config", "checkpoint --help", "plan cluster --help",
                          "plan memory --help", "tune --help", "submit --help",
                          f"submit --config {self.config} --dry-run"):
            with self.subTest(arguments=arguments):
                self.fails(arguments)

    def test_is_a_failure_of_the_checkpoint_words_and_of_an_evaluation(self):
        levin("fit", "--config", self.config)
        (checkpoint,) = self.folder.rglob("last.ckpt")
        for arguments in (f"checkpoint inspect {checkpoint}", f"checkpoint verify {checkpoint}",
                          f"checkpoint diff {checkpoint} {checkpoint}",
                          f"test --config {self.config} --trainer.limit_test_batches=1",
                          f"validate --config {self.config}",
                          f"fit --config {self.config} --test_after_fit=true --trainer.limit_test_batches=1"):
            with self.subTest(arguments=arguments):
                self.fails(arguments)

    def test_is_reported_by_a_training_whose_results_are_files(self):
        status, _, output = shell(f"exec {LEVIN} fit --config {self.config} > /dev/full")
        self.assertEqual(status, 0, output)
        self.assertIn("warning: cannot write to standard output: No space left on device. The run's output is "
                      "incomplete; its files are not affected.", output)
        (checkpoint,) = self.folder.rglob("last.ckpt")
        self.assertIn("good", levin("checkpoint", "verify", checkpoint))


if __name__ == "__main__":
    unittest.main(verbosity=2)
