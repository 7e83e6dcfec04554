"""The tool with closed standard streams: what is printed lands in no file of the run.

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
    """Status and what was said on both streams, where they are open."""
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
    def test_leave_every_file_as_it_would_be(self):
        """In every combination; a checkpoint with a line of the console in it would not be the same."""
        levin("fit", "--config", self.config)
        wanted = files_below(self.folder)
        self.folder.rename(self.root / "wanted")
        for count in (1, 2, 3):
            for which in itertools.combinations(CLOSED, count):
                with self.subTest(closed=which):
                    closed = " ".join(CLOSED[name] for name in which)
                    status, _, said = shell(f"exec {LEVIN} fit --config {self.config} {closed}")
                    self.assertEqual(status, 0, said)
                    self.assertEqual(files_below(self.folder).keys(), wanted.keys())
                    for name, content in files_below(self.folder).items():
                        self.assertEqual(content == wanted[name], True, f"{name} differs")
                        if name.endswith(".ckpt"):
                            self.assertIn("good", levin("checkpoint", "verify", self.folder / name))
                self.folder.rename(self.root / f"closed-{'-'.join(which)}")

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
