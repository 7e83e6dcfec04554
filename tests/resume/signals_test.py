"""A run that is asked to stop from outside: by a signal, or by a file in its folder. It saves, says where, ends with the
status that schedulers know, and the same command continues it, bitwise identical to an undisturbed run.

  signals_test.py LEVIN [unittest's arguments]
"""
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from runs import (ENVIRONMENT, KEEP_BEST, LEVIN, Run, checkpoints_in, differences, files_below, global_step, levin,
                  run_file)
from waiting import NEW_REQUEST, catches, is_pending, wait_until

SLOW = dict(arch="cnn", hidden=32, batch=64)  # some 15 ms a batch on one core
PROGRESS = {**ENVIRONMENT, "LEVIN_LOG": "trainer=debug"}  # prints when an epoch, a validation and a sanity check begin


class Case(unittest.TestCase):
    maxDiff = None
    undisturbed_runs = {}  # by options

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="levin-signals-")
        cls.addClassCleanup(temporary.cleanup)
        cls.root = Path(temporary.name).resolve()
        cls.undisturbed_runs = {}

    def setUp(self):
        self.folder = self.root / "run"  # the same for all, since checkpoints hold absolute paths
        self.log = self.folder / "levin_logs/version_0"
        self.interrupted = self.log / "checkpoints/interrupted.ckpt"
        self.config = self.root / "run.yaml"
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def fit(self, callback="", ranks=1, **options):
        """Writes the run file, with one more callback, and makes the undisturbed run of it, once."""
        text = run_file(self.folder, **options)
        if callback:
            text = text.replace("    - LearningRateMonitor\n", f"    - LearningRateMonitor\n    - {callback}\n")
        if ranks > 1:
            text = text.replace("trainer:\n", f"trainer:\n  accelerator: cpu\n  devices: {ranks}\n  oversubscribe: true\n")
        self.config.write_text(text)
        key = self.config.read_text()
        if key not in self.undisturbed_runs:
            levin("fit", "--config", self.config)
            kept = self.root / f"undisturbed-{len(self.undisturbed_runs)}"
            self.folder.rename(kept)
            self.undisturbed_runs[key] = kept
        self.undisturbed = self.undisturbed_runs[key]

    def start(self, **process):
        run = Run("fit", "--config", self.config, **process)
        self.enterContext(run)
        return run

    def wait_for_training(self, run):
        wait_until(lambda: (self.log / "checkpoints").is_dir() and checkpoints_in(self.log / "checkpoints"),
                   "the first checkpoint", run)

    def expect_stopped(self, run, status, who):
        """Checks the status, the message with signal, position and checkpoint, and the checkpoint; returns the step."""
        self.assertEqual(run.status(), status, run.report())
        found = re.search(r"error: fit was stopped by (.+) in epoch (\d+), step (\d+)\. Continue with trainer\.auto_resume: "
                          r"true or ckpt_path: (\S+)\.$", run.output(), re.MULTILINE)
        self.assertTrue(found, run.report())
        self.assertEqual((found[1], found[4]), (who, str(self.interrupted)), run.report())
        self.assertIn("good", levin("checkpoint", "verify", self.interrupted))
        inspected = levin("checkpoint", "inspect", self.interrupted)
        self.assertRegex(inspected, rf"(?m)^global_step: +{found[3]}$")
        self.assertFalse([name for name in files_below(self.folder) if ".tmp-" in name])
        return int(found[3])

    def expect_undisturbed(self, more=()):
        self.assertEqual(differences(self.undisturbed, self.folder, more), "")

    def continue_to_the_end(self):
        self.assertIn("auto_resume: continuing from", levin("fit", "--config", self.config))
        self.expect_undisturbed()


class Signals(Case):
    def stops_and_continues(self, number, status, who, **options):
        self.fit(**options)
        run = self.start()
        self.wait_for_training(run)
        run.send(number)
        self.expect_stopped(run, status, who)
        self.continue_to_the_end()

    def test_ctrl_c(self):
        self.stops_and_continues(signal.SIGINT, 130, "Ctrl-C")

    def test_sigterm(self):
        self.stops_and_continues(signal.SIGTERM, 143, "SIGTERM")

    def test_sighup(self):
        self.stops_and_continues(signal.SIGHUP, 129, "SIGHUP")

    def test_sigusr1(self):
        self.stops_and_continues(signal.SIGUSR1, 138, "SIGUSR1", checkpoint=KEEP_BEST, val_every=20)

    def test_where_callbacks_save_in_several_folders(self):
        """Each continues to replace its own files, no matter in whose folder the newest file is."""
        elsewhere = f"dirpath: {self.folder}/elsewhere"
        # Of several ranks it has rank 0's state alone.
        on_exception = f"{{class_path: OnExceptionCheckpoint, init_args: {{{elsewhere}}}}}"
        second = (f"{{class_path: ModelCheckpoint, init_args: {{{elsewhere}, every_n_train_steps: 5, save_top_k: 2, "
                  "monitor: train_loss}}")
        for callback, ranks in ((on_exception, 1), (second, 1), (on_exception, 2)):
            with self.subTest(callback=callback, ranks=ranks):
                shutil.rmtree(self.folder, ignore_errors=True)
                self.fit(callback, ranks, checkpoint=KEEP_BEST, val_every=20)
                run = self.start()
                self.wait_for_training(run)
                run.send(signal.SIGTERM)
                self.assertEqual(run.status(), 143, run.report())
                output = levin("fit", "--config", self.config)
                self.assertIn("auto_resume: continuing from", output)
                self.assertNotIn("warning", output)
                self.expect_undisturbed()

    def test_a_run_that_is_stopped_in_every_part_of_it(self):
        """Stops the run repeatedly, each time after some more steps."""
        self.fit(checkpoint=KEEP_BEST, val_every=20)
        steps = [0]
        for number, status, who in [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGUSR1, 138, "SIGUSR1"),
                                    (signal.SIGINT, 130, "Ctrl-C")]:
            with Run("fit", "--config", self.config) as run:
                before = set(self.folder.rglob("epoch=*.ckpt"))
                wait_until(lambda: set(self.folder.rglob("epoch=*.ckpt")) - before, "a new checkpoint", run)
                run.send(number)
                steps.append(self.expect_stopped(run, status, who))
        self.assertEqual(steps, sorted(set(steps)))
        self.continue_to_the_end()

    def test_a_kill_just_before_the_checkpoint_of_the_stop_is_removed(self):
        """It goes after the last file is on the disk; here the run was killed between the two."""
        self.fit(epochs=1)
        run = self.start()
        self.wait_for_training(run)
        run.send(signal.SIGTERM)
        self.expect_stopped(run, 143, "SIGTERM")
        kept = self.interrupted.read_bytes()
        self.continue_to_the_end()
        self.interrupted.write_bytes(kept)
        self.continue_to_the_end()

    def test_during_validation(self):
        """It does not wait for the end of a long validation, which begins anew when the run continues."""
        options = dict(epochs=1, save_every=20, val_every=20, val_batches=30, **SLOW)
        self.fit(**options)
        run = self.start(env=PROGRESS)
        wait_until(lambda: run.output().count("validate begins") == 2, "the validation after the sanity check", run)
        run.send(signal.SIGTERM)
        self.assertEqual(self.expect_stopped(run, 143, "SIGTERM"), 20)
        self.assertNotIn("val_loss", (self.log / "metrics.csv").read_text())
        self.continue_to_the_end()

    def test_during_the_sanity_check(self):
        self.fit(epochs=1, sanity=40, val_batches=40, save_every=20, **SLOW)
        run = self.start(env=PROGRESS)
        wait_until(lambda: "validate begins" in run.output(), "the sanity check", run)
        run.send(signal.SIGTERM)
        self.assertEqual(run.status(), 143, run.report())
        self.assertIn("stopped by SIGTERM in epoch 0, step 0. Nothing was trained yet, so nothing was saved.", run.output())
        self.assertFalse([name for name in files_below(self.folder) if "ckpt" in name])
        levin("fit", "--config", self.config)
        self.expect_undisturbed()

    def test_ignored_ctrl_c_stays_ignored(self):
        """As under nohup, or in the background of a shell script."""
        self.fit()
        run = self.start(ignore_ctrl_c=True)
        self.wait_for_training(run)
        run.send(signal.SIGINT)
        self.assertEqual(run.status(), 0, run.report())
        self.expect_undisturbed()


class SecondCtrlC(Case):
    def test_ends_the_process_in_the_middle_of_a_step(self):
        self.config.write_text(run_file(self.folder, hidden=4096, batch=8192, sanity=0))  # seconds a step
        for _ in range(5):  # the first signal may meet the end of a step
            with Run("fit", "--config", self.config, env=PROGRESS) as run:
                wait_until(lambda: "epoch 0 begins" in run.output(), "the first epoch", run)
                run.send(signal.SIGINT)
                wait_until(lambda: not is_pending(run.process.pid, signal.SIGINT), "the handling of the first signal", run)
                time.sleep(NEW_REQUEST)
                before = time.monotonic()
                run.send(signal.SIGINT)
                status = run.status()
                if status == -signal.SIGINT:
                    self.assertLess(time.monotonic() - before, 5.0)
                    return
                self.assertEqual(status, 130, run.report())
                shutil.rmtree(self.folder)
        self.fail("the second signal never ended it")

    def test_many_at_once(self):
        """Whichever comes first: the end of the step, with a checkpoint, or the second signal."""
        self.fit(checkpoint=KEEP_BEST, val_every=20)
        run = self.start()
        self.wait_for_training(run)
        end = time.monotonic() + 20
        while not run.ended() and time.monotonic() < end:
            run.send(signal.SIGINT)
        self.assertIn(run.status(1), (130, -signal.SIGINT), run.report())
        levin("fit", "--config", self.config)
        self.expect_undisturbed()


class Files(Case):
    def ask(self, run, name):
        """Puts the file there while the run stands still, for longer than the run's polling interval."""
        self.wait_for_training(run)
        run.send(signal.SIGSTOP)
        (self.log / name).touch()
        time.sleep(1.1)  # the interval
        run.send(signal.SIGCONT)

    def test_stop(self):
        self.fit()
        run = self.start()
        self.ask(run, "stop")
        self.expect_stopped(run, 3, "the file called stop")
        self.assertFalse((self.log / "stop").exists())
        self.continue_to_the_end()

    def expect_saved(self, output):
        """The run is the undisturbed one and has one file more, from which it can be continued."""
        self.assertFalse((self.log / "save").exists())
        (saved,) = (self.log / "checkpoints").glob("saved-*.ckpt")
        self.assertIn(f"Saved as asked for: {saved}.", output)
        self.assertIn("good", levin("checkpoint", "verify", saved))
        more = [str(saved.relative_to(self.folder))]
        self.expect_undisturbed(more)
        for path in checkpoints_in(self.log / "checkpoints"):
            if path != saved and global_step(path) >= global_step(saved):
                path.unlink()
        self.assertIn(f"auto_resume: continuing from {saved}.", levin("fit", "--config", self.config))
        self.expect_undisturbed(more)
        return saved.name

    def test_save(self):
        self.fit()
        run = self.start()
        self.ask(run, "save")
        self.assertEqual(run.status(), 0, run.report())
        self.assertRegex(self.expect_saved(run.output()), r"^saved-epoch=\d+-step=\d+\.ckpt$")

    def test_save_before_the_first_step(self):
        self.fit()
        self.log.mkdir(parents=True)
        (self.log / "save").touch()
        self.assertEqual(self.expect_saved(levin("fit", "--config", self.config)), "saved-epoch=0-step=0.ckpt")

    def test_save_during_validation(self):
        self.fit(epochs=1, save_every=20, val_every=20, val_batches=30, **SLOW)
        run = self.start()
        self.ask(run, "save")
        self.assertEqual(run.status(), 0, run.report())
        self.assertEqual(self.expect_saved(run.output()), "saved-epoch=0-step=20.ckpt")

    def test_stop_that_was_there_before(self):
        """It is for the run that finds it: the next one is not stopped again."""
        self.fit(sanity=0)
        self.log.mkdir(parents=True)
        (self.log / "stop").touch()
        run = self.start()
        self.assertEqual(self.expect_stopped(run, 3, "the file called stop"), 1)
        self.continue_to_the_end()


class Writes(Case):
    """A write that fails is an error of that write, and does not end the run by a signal."""

    def run_with(self, stdout, **process):
        with tempfile.TemporaryFile() as errors:
            done = subprocess.run([LEVIN, "fit", "--config", str(self.config)], stdin=subprocess.DEVNULL, stdout=stdout,
                                  stderr=errors, env=ENVIRONMENT, timeout=120, **process)
            errors.seek(0)
            return done.returncode, errors.read().decode()

    def test_nobody_reads_the_output_of_a_fit(self):
        """levin fit | head -1"""
        self.fit()
        reading, writing = os.pipe()
        os.close(reading)
        try:
            status, output = self.run_with(writing)
        finally:
            os.close(writing)
        self.assertGreaterEqual(status, 0, output)  # below: a signal
        self.expect_undisturbed()

    def test_the_limit_of_a_files_size(self):
        self.config.write_text(run_file(self.folder, epochs=1))
        status, output = self.run_with(subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (50000, 50000)))
        self.assertGreaterEqual(status, 0, output)
        self.assertIn("File too large", output)


class OtherCommands(Case):
    def interrupt(self, command, number, status):
        self.config.write_text(run_file(self.folder, arch="cnn", hidden=256, batch=1))  # 1000 batches
        with Run(command, "--config", self.config) as run:
            wait_until(lambda: (self.log / "config.yaml").is_file() and run.catches(number), "the loop", run)
            run.send(number)
            self.assertEqual(run.status(), status, run.report())
            self.assertNotIn(command + "_loss", run.output())
        self.assertEqual(sorted(files_below(self.folder)), [])

    def test_test(self):
        self.interrupt("test", signal.SIGINT, 130)

    def test_predict(self):
        self.interrupt("predict", signal.SIGTERM, 143)

    def test_an_evaluation_of_which_one_rank_is_asked(self):
        """The other rank names the signal too, and ends with its status."""
        self.config.write_text(run_file(self.folder, arch="cnn", hidden=256, batch=1))
        with Run("test", "--config", self.config, "--trainer.devices=2", "--trainer.strategy=ddp",
                 "--trainer.oversubscribe=true") as run:
            launcher = run.process.pid
            ranks = []

            def both_catch_it():
                ranks[:] = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
                return (self.log / "config.yaml").is_file() and len(ranks) == 2 and all(
                    catches(rank, signal.SIGTERM) for rank in ranks)

            wait_until(both_catch_it, "the loop", run)
            os.kill(int(ranks[1]), signal.SIGTERM)
            self.assertEqual(run.status(), 143, run.report())
            self.assertIn("interrupted by SIGTERM", run.output())
            self.assertNotIn("Unknown signal", run.output())


if __name__ == "__main__":
    unittest.main(verbosity=2)
