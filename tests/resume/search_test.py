"""Where a run starts from: the newest checkpoint that is whole, with auto_resume or ckpt_path, from a new process.

  search_test.py LEVIN [unittest's arguments]
"""
import fcntl
import os
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

from runs import (Run, checkpoints_in, cut_in_half, differences, files_below, finished, flip_a_byte, global_step, levin,
                  read_checkpoint, run_file, wait_until, weights)


class Case(unittest.TestCase):
    maxDiff = None
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="levin-search-")
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        self.folder = self.root / "run"  # the same for all, since checkpoints hold absolute paths
        self.log = self.folder / "levin_logs/version_0"
        self.checkpoints = self.log / "checkpoints"

    def write(self, name="run.yaml", **options):
        path = self.root / name
        path.write_text(run_file(self.folder, **options))
        return path

    def undisturbed(self, config):
        levin("fit", "--config", config)
        kept = self.root / "undisturbed"
        self.folder.rename(kept)
        return kept

    def newest_first(self):
        return sorted(checkpoints_in(self.checkpoints), key=global_step, reverse=True)

    def kill_after(self, config, step):
        """Starts a run and kills it when it has saved a checkpoint of that step."""
        with Run("fit", "--config", config) as run:
            wait_until(lambda: any(self.checkpoints.glob(f"*step={step}.ckpt")), f"the checkpoint of step {step}", run)
            run.send(signal.SIGKILL)
            self.assertEqual(run.status(), -signal.SIGKILL, run.report())


class DamagedCheckpoint(Case):
    """No last.ckpt here: the one before the newest is of an earlier step."""

    def survives(self, damage, how_many=1):
        config = self.write(checkpoint="save_top_k: -1")
        final = "levin_logs/version_0/checkpoints/epoch=2-step=175.ckpt"
        wanted = weights(self.undisturbed(config) / final)
        self.kill_after(config, 35)
        *damaged, good = self.newest_first()[:how_many + 1]
        self.assertLess(global_step(good), min(map(global_step, damaged)))
        for path in damaged:
            damage(path)
        output = levin("fit", "--config", config)
        for path in damaged:
            self.assertRegex(output, rf"(?m)^warning: .*{path}.*", "the damaged file is not named")
        self.assertIn(f"auto_resume: continuing from {good}.", output)
        self.assertEqual(weights(self.folder / final), wanted)

    def test_newest_has_a_flipped_byte(self):
        self.survives(flip_a_byte)

    def test_newest_is_cut_in_half(self):
        self.survives(cut_in_half)

    def test_newest_is_empty(self):
        self.survives(lambda path: path.write_bytes(b""))

    def test_two_newest_are_damaged(self):
        self.survives(flip_a_byte, how_many=2)

    def test_all_are_damaged(self):
        """Nothing is left to continue from: the run starts fresh, in the same folder."""
        config = self.write(checkpoint="save_top_k: 1, save_last: true", epochs=2)
        wanted = weights(self.undisturbed(config) / "levin_logs/version_0/checkpoints/last.ckpt")
        self.kill_after(config, 21)
        damaged = checkpoints_in(self.checkpoints)
        for path in damaged:
            cut_in_half(path)
        output = levin("fit", "--config", config)
        for path in damaged:
            self.assertIn(str(path), output)
        self.assertNotIn("continuing from", output)
        newest = self.newest_readable()
        self.assertEqual(weights(newest), wanted)

    def newest_readable(self):
        whole = [path for path in checkpoints_in(self.checkpoints) if finished("checkpoint", "verify", path).returncode == 0]
        return max(whole, key=global_step)

    def test_last_is_damaged_after_the_end(self):
        """What was trained after the previous file is trained again, with the same result."""
        config = self.write()
        undisturbed = self.undisturbed(config)
        shutil.copytree(undisturbed, self.folder)
        flip_a_byte(self.checkpoints / "last.ckpt")
        output = levin("fit", "--config", config)
        self.assertRegex(output, rf"(?m)^warning: .*{self.checkpoints}/last.ckpt.*")
        self.assertIn(f"continuing from {self.checkpoints}/epoch=2-step=175.ckpt.", output)
        self.assertEqual(weights(self.newest_readable()),
                         weights(undisturbed / "levin_logs/version_0/checkpoints/last.ckpt"))


class AutoResume(Case):
    def test_in_an_empty_folder_starts_fresh(self):
        config = self.write(epochs=1)
        output = levin("fit", "--config", config)
        self.assertNotIn("continuing from", output)
        self.assertNotIn("warning", output)
        self.assertEqual(global_step(self.checkpoints / "last.ckpt"), 60)
        self.assertEqual([p.name for p in (self.folder / "levin_logs").iterdir()], ["version_0"])

    def test_of_a_finished_run_does_nothing(self):
        config = self.write(epochs=2)
        levin("fit", "--config", config)
        kept = self.root / "finished"
        shutil.copytree(self.folder, kept)
        for _ in range(2):
            output = levin("fit", "--config", config)
            self.assertIn("Nothing to train: max_epochs (2) is reached.", output)
            self.assertEqual(differences(kept, self.folder), "")

    def test_of_a_finished_run_tests_to_the_same_files(self):
        config = self.write(epochs=1)
        fit = ["fit", "--config", config, "--test_after_fit=true", "--trainer.limit_test_batches=5"]
        levin(*fit)
        kept = self.root / "finished"
        shutil.copytree(self.folder, kept)
        self.assertIn("test_acc", levin(*fit))
        self.assertEqual(differences(kept, self.folder), "")

    def test_of_a_run_that_was_evaluated_meanwhile(self):
        """An evaluation has a newer folder, with its metrics."""
        config = self.write()
        wanted = self.undisturbed(config)
        self.kill_after(config, 35)
        for command in ("validate", "test", "predict"):
            levin(command, "--config", config, "--ckpt_path=last")
        self.assertIn("test_acc", (self.folder / "levin_logs/version_2/metrics.csv").read_text())
        kept = self.root / "evaluated"
        shutil.copytree(self.folder / "levin_logs", kept, ignore=lambda folder, names: {"version_0"} & set(names))
        self.assertRegex(levin("fit", "--config", config), rf"continuing from {self.checkpoints}/")
        self.assertEqual(differences(wanted / "levin_logs/version_0", self.log), "")
        for folder in kept.iterdir():
            self.assertEqual(differences(folder, self.folder / "levin_logs" / folder.name), "")

    def test_of_a_run_that_was_killed_before_its_first_checkpoint(self):
        """It begins again in the same folder, and metrics.csv holds every row once."""
        config = self.write(save_every=50, flush=1, arch="cnn", hidden=32, batch=64, epochs=1)
        undisturbed = self.undisturbed(config)
        table = self.log / "metrics.csv"
        for _ in range(2):
            table.unlink(missing_ok=True)
            with Run("fit", "--config", config) as run:
                wait_until(lambda: table.is_file() and table.read_text().count("\n") > 4, "rows of metrics", run)
                run.send(signal.SIGKILL)
                self.assertEqual(run.status(), -signal.SIGKILL, run.report())
            self.assertGreater(table.read_text().count("\n"), 4)
            self.assertFalse(checkpoints_in(self.checkpoints), "the kill came too late for this test")
        output = levin("fit", "--config", config)
        self.assertNotIn("continuing from", output)
        self.assertEqual(differences(undisturbed, self.folder), "")

    def test_removes_what_a_killed_process_left_half_written(self):
        """Not the file that a running process writes: it holds a lock. Covers today's and earlier names."""
        config = self.write(epochs=1)
        undisturbed = self.undisturbed(config)
        self.kill_after(config, 14)
        alive = self.checkpoints / "last.ckpt.tmp-0123456789abcdef"
        for path in (self.checkpoints / "last.ckpt.tmp-00000000000000ff", alive, self.checkpoints / "last.ckpt.tmp-1-3",
                     self.log / f"metrics.csv.tmp-{os.getpid()}-1", self.log / "config.yaml.tmp-fedcba9876543210"):
            path.write_bytes(b"half")
        (self.checkpoints / "last.ckpt.tmp-1111111111111111").symlink_to("epoch=0-step=7.ckpt")
        with open(alive, "ab") as writing:
            fcntl.flock(writing, fcntl.LOCK_EX)
            levin("fit", "--config", config)
            self.assertTrue(alive.is_file())
        alive.unlink()
        self.assertEqual(differences(undisturbed, self.folder), "")

    def test_without_it_every_run_has_a_folder_of_its_own(self):
        config = self.write(auto_resume="false", epochs=1)
        levin("fit", "--config", config)
        before = files_below(self.log)
        levin("fit", "--config", config)
        self.assertEqual(files_below(self.log), before)
        self.assertTrue((self.folder / "levin_logs/version_1/checkpoints/last.ckpt").is_file())


class CheckpointOfAnEarlierProcess(Case):
    """Without auto_resume: values of ckpt_path that mean the newest earlier run."""

    def test_fit_from_last(self):
        whole = self.undisturbed(self.write(auto_resume="false", epochs=2))
        levin("fit", "--config", self.write(auto_resume="false", epochs=1))
        before = files_below(self.log)
        levin("fit", "--config", self.write(auto_resume="false", epochs=2), "--ckpt_path", "last")
        later = self.folder / "levin_logs/version_1/checkpoints/last.ckpt"
        self.assertEqual(files_below(self.log), before)
        self.assertEqual(global_step(later), 120)
        self.assertEqual(weights(later), weights(whole / "levin_logs/version_0/checkpoints/last.ckpt"))

    def test_fit_from_last_without_any(self):
        output = levin("fit", "--config", self.write(auto_resume="false", epochs=1), "--ckpt_path", "last")
        self.assertRegex(output, r"(?m)^warning: .*last was asked for, but there is no checkpoint yet")

    def test_test_of_best(self):
        config = self.write(auto_resume="false", val_every=20, checkpoint="monitor: val_loss, mode: max, save_top_k: 2, "
                            "save_last: true")  # mode max: the best is not the newest
        levin("fit", "--config", config)
        levin("fit", "--config", config, "--seed_everything=8")  # version_1: the newest
        checkpoints = self.folder / "levin_logs/version_1/checkpoints"
        test = ["test", "--config", config, "--trainer.limit_test_batches=20", "--ckpt_path"]

        def metrics(ckpt_path):
            return [line for line in levin(*test, ckpt_path).splitlines() if line.startswith("  test_")]

        by_word = metrics("best")
        by_path = {path.name: metrics(path) for path in checkpoints_in(checkpoints)}
        same = [name for name, found in by_path.items() if found == by_word]
        self.assertEqual(len(same), 1, f"{by_word} {by_path}")
        values = read_checkpoint(checkpoints / "last.ckpt")[0]
        (callback,) = [v for name, v in values.items() if name.startswith("callbacks.ModelCheckpoint")]
        self.assertEqual(callback["best_model_path"], str(checkpoints / same[0]))
        by_last = metrics("last")
        self.assertEqual(by_last, by_path["last.ckpt"])
        self.assertNotEqual(by_last, by_word)

    def test_test_of_best_without_any(self):
        output = levin("test", "--config", self.write(auto_resume="false"), "--ckpt_path", "best", status=1)
        self.assertIn('"best" was asked for, but there is no checkpoint', output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
