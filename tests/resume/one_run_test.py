"""One live run per folder: a second one is refused before it writes anything, and names the process that holds it.

  one_run_test.py LEVIN [unittest's arguments]
"""
import os
import signal
import socket
import tempfile
import unittest
from pathlib import Path

from runs import Run, checkpoints_in, differences, files_below, levin, run_file, wait_until

SLOW = dict(arch="cnn", hidden=32, batch=64)  # some 15 ms a batch on one core


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="levin-one-run-")
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        self.folder = self.root / "run"  # the same for all, since checkpoints hold absolute paths
        self.log = self.folder / "levin_logs/version_0"
        self.config = self.root / "run.yaml"

    def write(self, **options):
        self.config.write_text(run_file(self.folder, **options))

    def start(self, *more):
        """Starts a run that trains; it ends with the test."""
        run = self.enterContext(Run("fit", "--config", self.config, *more))
        wait_until(lambda: checkpoints_in(self.log / "checkpoints"), "the first checkpoint", run)
        return run

    def freeze(self, run):
        """Stops the run: it keeps its locks and writes nothing, so any change comes from the second run."""
        run.send(signal.SIGSTOP)
        threads = Path(f"/proc/{run.process.pid}/task")  # one of which may finish a write first
        wait_until(lambda: all(path.read_text().rpartition(")")[2].split()[0] == "T" for path in threads.glob("*/stat")),
                   "all threads of the process to be stopped")

    def expect_refused(self, run, *arguments):
        """Checks that nothing below the folder changes, and that the message names the live run."""
        before = files_below(self.folder)
        output = levin(*arguments, status=1)
        self.assertRegex(output, rf"(?m)^error: (?:rank 0 on .* Its error: )?the folder {self.log} belongs to a run that "
                               rf"is still alive: process {run.process.pid} on {socket.gethostname()}, since \d{{4}}-\d\d-\d\d "
                               r"\d\d:\d\d:\d\d UTC\. "
                               r"Two runs in one folder would mix their metrics and checkpoints\. Stop that run or wait")
        self.assertEqual(files_below(self.folder), before)


class SecondRun(Case):
    # Reliability: second_run.
    def test_is_refused_while_the_first_one_lives_and_the_first_one_is_not_disturbed(self):
        self.write(epochs=1, **SLOW)
        levin("fit", "--config", self.config)
        undisturbed = self.root / "undisturbed"
        self.folder.rename(undisturbed)
        run = self.start()
        self.freeze(run)
        self.expect_refused(run, "fit", "--config", self.config)
        run.send(signal.SIGCONT)
        self.assertEqual(run.status(), 0, run.report())
        self.assertEqual(differences(undisturbed, self.folder), "")

    def test_of_another_command_is_refused_in_a_folder_that_was_named(self):
        """levin test would write its configuration over the fit's."""
        self.write(auto_resume="false", epochs=1, **SLOW)
        named = "--trainer.logger={class_path: CSVLogger, init_args: {version: version_0}}"
        run = self.start(named)
        self.freeze(run)
        self.expect_refused(run, "test", "--config", self.config, named)

    def test_continues_at_once_when_the_first_one_is_killed(self):
        self.write(epochs=1, **SLOW)
        levin("fit", "--config", self.config)
        undisturbed = self.root / "undisturbed"
        self.folder.rename(undisturbed)
        run = self.start()
        os.killpg(run.process.pid, signal.SIGKILL)  # and no wait for its end
        self.assertIn("continuing from", levin("fit", "--config", self.config))
        halves = [name for name in files_below(self.folder) if ".tmp-" in name]  # nobody has reaped the killed one yet
        self.assertEqual(differences(undisturbed, self.folder, halves), "")

    def test_waits_for_a_first_one_that_is_about_to_end(self):
        self.write(epochs=1, **SLOW)
        run = self.start()
        self.freeze(run)
        with Run("fit", "--config", self.config) as second:
            wait_until(lambda: "Waiting for the run in" in second.output(), "the second one to wait", second)
            self.assertIn(f"process {run.process.pid} on", second.output())
            run.send(signal.SIGKILL)
            self.assertEqual(second.status(), 0, second.report())
            self.assertIn("continuing from", second.output())

    def test_that_waits_can_be_stopped(self):
        self.write(epochs=1, **SLOW)
        run = self.start()
        self.freeze(run)
        before = files_below(self.folder)
        with Run("fit", "--config", self.config) as second:
            wait_until(lambda: "Waiting for the run in" in second.output(), "the second one to wait", second)
            second.send(signal.SIGTERM)
            self.assertEqual(second.status(), 143, second.report())
        self.assertEqual(files_below(self.folder), before)

    # Reliability: second_run.
    def test_of_several_ranks_is_refused_by_one_message(self):
        self.write(epochs=1, **SLOW)
        run = self.start()
        self.freeze(run)
        self.expect_refused(run, "fit", "--config", self.config, "--trainer.accelerator=cpu", "--trainer.devices=2",
                            "--trainer.strategy=ddp")

    def test_in_a_folder_of_checkpoints_is_refused_too(self):
        """Without a logger the checkpoints' folder is all that two runs have in common."""
        self.write(epochs=1, checkpoint=f"save_last: true, dirpath: {self.log}/checkpoints", **SLOW)
        lines = [line for line in self.config.read_text().splitlines(True) if "LearningRateMonitor" not in line]
        self.config.write_text("".join("  logger: false\n" if "logger:" in line else line for line in lines))
        run = self.start()
        self.freeze(run)
        before = files_below(self.folder)
        output = levin("fit", "--config", self.config, status=1)
        self.assertIn(f"the folder {self.log}/checkpoints belongs to a run that is still alive: process {run.process.pid}",
                      output)
        self.assertEqual(files_below(self.folder), before)


class ManyRuns(Case):
    def test_that_begin_at_once_have_a_folder_each(self):
        self.write(auto_resume="false", epochs=1)
        few = ["--trainer.max_steps=7", "--trainer.num_sanity_val_steps=0"]
        runs = [self.enterContext(Run("fit", "--config", self.config, *few)) for _ in range(4)]
        for run in runs:
            self.assertEqual(run.status(), 0, run.report())
        logs = sorted(self.folder.rglob("last.ckpt"))
        self.assertEqual([str(p.relative_to(self.folder / "levin_logs")) for p in logs],
                         [f"version_{k}/checkpoints/last.ckpt" for k in range(4)])

    def test_that_resume_at_once_are_one_run(self):
        """All but one are refused, or find the run ended; its result is bitwise identical to a run alone."""
        self.write(epochs=1, **SLOW)
        levin("fit", "--config", self.config)
        undisturbed = self.root / "undisturbed"
        self.folder.rename(undisturbed)
        runs = [self.enterContext(Run("fit", "--config", self.config)) for _ in range(3)]
        statuses = [run.status() for run in runs]
        self.assertIn(0, statuses)
        for run, status in zip(runs, statuses):
            if status != 0:
                self.assertEqual(status, 1, run.report())
                self.assertIn("belongs to a run that is still alive", run.output())
        self.assertEqual(differences(undisturbed, self.folder), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
