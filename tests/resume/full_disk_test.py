"""A run whose disk is full from the start to the end: its message and its exit status report that nothing is saved.

  full_disk_test.py LEVIN [unittest's arguments]
"""
import resource
import subprocess
import tempfile
import unittest
from pathlib import Path

from runs import ENVIRONMENT, LEVIN, Run, checkpoints_in, levin, run_file, wait_until

KIB = 1024


def limited(*arguments, largest_file):
    """The tool with a limit on the size of files, as a full disk refuses large files."""
    def before_start():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # write() fails with EFBIG instead

    done = subprocess.run([LEVIN, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=ENVIRONMENT, preexec_fn=before_start, timeout=300)
    return done.returncode, done.stdout.decode()


class FullDisk(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="levin-full-")
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        self.folder = self.root / "run"
        self.checkpoints = self.folder / "levin_logs/version_0/checkpoints"
        self.config = self.root / "run.yaml"

    def write(self, **options):
        self.config.write_text(run_file(self.folder, epochs=1, save_every=20, **options))

    def test_all_run_long_is_a_failure(self):
        self.write()
        status, output = limited("fit", "--config", self.config, largest_file=64 * KIB)
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"(?m)^error: the fit has ended, but nothing of it is saved: all of its checkpoints failed "
                               r"\(\d+ of \d+\)\. The last failure: .*cannot write \d+ bytes to .*: File too large\.")
        self.assertIn("There is no checkpoint to continue from.", output)
        self.assertEqual(checkpoints_in(self.checkpoints), [])

    def test_of_a_run_that_continues_names_what_is_left(self):
        self.write()
        with Run("fit", "--config", self.config) as run:
            wait_until(lambda: any(self.checkpoints.glob("*step=20.ckpt")), "the first checkpoint", run)
            run.process.kill()
            run.status()
        before = checkpoints_in(self.checkpoints)
        newest = max(before, key=lambda path: (path.stat().st_mtime_ns, path.name))
        status, output = limited("fit", "--config", self.config, largest_file=64 * KIB)
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"It can be continued from \S+\.ckpt alone\.")
        self.assertTrue(newest.exists())
        self.assertIn("good", levin("checkpoint", "verify", newest))

    def test_of_some_saves_is_a_warning_that_counts_them(self):
        """A file of weights fits where a whole checkpoint does not."""
        self.write()
        more = ("--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {save_weights_only: true, every_n_epochs: 1, "
                "filename: small, monitor: val_loss}}")
        levin("fit", "--config", self.config, more)
        sizes = sorted({path.stat().st_size for path in checkpoints_in(self.checkpoints)})
        self.assertGreater(sizes[-1], 2 * sizes[0])
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        status, output = limited("fit", "--config", self.config, more, largest_file=(sizes[0] + sizes[-1]) // 2)
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"(?m)^warning: \d+ of \d+ checkpoints of this fit could not be saved\. The last failure: ")
        self.assertEqual([path.name for path in checkpoints_in(self.checkpoints)], ["small.ckpt"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
