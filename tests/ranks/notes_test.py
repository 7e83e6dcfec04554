"""Ranks exchange flags in addition to their gradients: each flag arrives once, regardless of a batch's number of backward
passes; and requirements of optimizers and checkpoints are checked on all ranks."""

import os
import pathlib
import signal

from ranks import RanksTest, children, main

LONG = ("samples=400000", "batch=1", "slow=5", "checkpoint")


class NotesTest(RanksTest):
    def begin(self, *arguments):
        process = self.start(*LONG, *arguments, "devices=2", start_new_session=True)

        def clean():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()

        self.addCleanup(clean)
        self.wait_until(lambda: self.files("last.ckpt"), "a first checkpoint")
        return process

    def files(self, pattern):
        return list(pathlib.Path(self.out).glob(f"**/{pattern}"))

    def run_folder(self):
        return self.files("metrics.csv")[0].parent

    def test_a_signal_to_one_rank_reaches_all_although_each_batch_has_two_backwards(self):
        process = self.begin("model=manual")
        os.kill(children(process.pid)[1], signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertIn("fit was stopped by SIGTERM", errors)
        self.assertTrue(self.files("interrupted.ckpt"), errors)

    def test_and_although_the_optimizer_takes_a_closure(self):
        process = self.begin("optimizer=lbfgs")
        os.kill(children(process.pid)[1], signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertIn("fit was stopped by SIGTERM", errors)
        self.assertTrue(self.files("interrupted.ckpt"), errors)

    def test_one_file_called_save_saves_once_where_a_window_has_many_batches(self):
        process = self.begin("accumulate=8")
        (self.run_folder() / "save").touch()
        self.wait_until(lambda: self.files("saved-*.ckpt"), "the checkpoint that was asked for")
        (last,) = self.files("last.ckpt")
        for _ in range(3):  # several windows
            before = last.stat().st_mtime_ns
            self.wait_until(lambda: last.stat().st_mtime_ns != before, "the next checkpoint")
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(len(self.files("saved-*.ckpt")), 1, errors)

    def test_a_nan_in_the_first_of_two_losses_stops_before_the_update(self):
        status, errors = self.run_with("samples=32", "model=manual", "nan=1:1", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, r"the loss is (nan|not finite on another rank) in epoch 0, batch 1")

    def test_no_checkpoint_counts_an_update_that_a_nan_on_one_rank_has_stopped(self):
        status, errors = self.run_with("samples=64", "batch=4", "epochs=1", "checkpoint", "nan=1:5", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, "the loss is nan in epoch 0, batch 5")
        self.assertRegex(errors, "the loss is not finite on another rank in epoch 0, batch 5")
        self.assertEqual([path.name for path in self.files("epoch=*.ckpt")], ["epoch=0-step=5.ckpt"])

    def test_a_loss_that_is_not_finite_is_ignored_by_all_and_a_stop_is_not(self):
        plain = self.train("samples=64", "batch=4", "epochs=1", ranks=2)
        arguments = ("samples=64", "batch=4", "epochs=1", "ignore_nonfinite")
        self.assertEqual(self.train(*arguments, ranks=2)[0]["weights"], plain[0]["weights"])
        nonfinite = self.train(*arguments, "nan=1:5", ranks=2)
        self.assertEqual([r["global_step"] for r in nonfinite], [8, 8])
        self.assertEqual({w for r in nonfinite for w in r["weights"]}, {None})  # nan, in JSON
        stopped = self.train(*arguments, "stop_after=1:3", ranks=2)
        self.assertIn(stopped[0]["global_step"], (4, 5, 6))
        self.assertEqual(stopped[0]["global_step"], stopped[1]["global_step"])

    def test_a_fit_after_one_that_was_stopped_goes_to_its_end(self):
        arguments = ["samples=64", "batch=4", "epochs=2", "accumulate=2"]
        plain = self.train(*arguments, ranks=2)
        again = self.train(*arguments, "checkpoint", "signal_at=1:3", "again", ranks=2)
        self.assertEqual([r["epoch"] for r in again], [2, 2])
        self.assertEqual(again[0]["global_step"], plain[0]["global_step"] + again[0]["steps_before"])
        self.assertGreater(again[0]["steps_before"], 0)


class Losses(RanksTest):
    """The warning of an epoch without a loss is about all ranks."""

    ARGUMENTS = ("samples=8", "batch=4", "epochs=1", "devices=2")
    WARNING = "no batch of the epoch had a loss"

    def test_a_rank_without_a_loss_is_no_epoch_without_one(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                status, errors = self.run_with(*self.ARGUMENTS, f"skip={rank}:0")
                self.assertEqual(status, 0, errors)
                self.assertNotIn(self.WARNING, errors)

    def test_an_epoch_in_which_no_rank_has_a_loss_is_warned_of_once(self):
        status, errors = self.run_with(*self.ARGUMENTS, "no_loss")
        self.assertEqual(status, 0, errors)
        self.assertEqual(errors.count(self.WARNING), 1, errors)


class Closures(RanksTest):
    ARGUMENTS = ("samples=16", "epochs=2", "optimizer=lbfgs", "precision=64-true")

    def test_lbfgs_on_two_ranks_equals_one_process_on_the_whole_batch(self):
        one = self.train(*self.ARGUMENTS, "batch=8")[0]
        two = self.train(*self.ARGUMENTS, "batch=4", ranks=2)
        self.assertEqual(two[0]["weights"], two[1]["weights"])
        self.assertEqual(two[0]["global_step"], one["global_step"])
        self.assert_close(one["weights"], two[0]["weights"], 1e-9)

    def test_sam_on_two_ranks_equals_one_process_on_the_whole_batch(self):
        arguments = ("samples=16", "epochs=2", "optimizer=sam", "precision=64-true")
        one = self.train(*arguments, "batch=8")[0]
        two = self.train(*arguments, "batch=4", ranks=2)
        self.assertEqual(two[0]["weights"], two[1]["weights"])
        self.assertEqual(two[0]["global_step"], one["global_step"])
        self.assert_close(one["weights"], two[0]["weights"], 1e-9)

    def test_ranks_skip_a_loss_that_is_nan_on_one_of_them(self):
        two = self.train(*self.ARGUMENTS, "batch=4", "nan=1:1", "skip_nonfinite", ranks=2)
        self.assertEqual(two[0]["weights"], two[1]["weights"])
        self.assertEqual(two[0]["global_step"], 3)

    def test_a_rank_without_a_loss_searches_with_the_others(self):
        two = self.train(*self.ARGUMENTS, "batch=4", "skip=1:1", ranks=2)
        self.assertEqual(two[0]["weights"], two[1]["weights"])
        self.assertEqual(two[0]["global_step"], 4)


class OpenWindows(RanksTest):
    def test_a_checkpoint_in_a_window_holds_gradients_that_one_rank_alone_has(self):
        arguments = ["samples=32", "batch=4", "epochs=1", "accumulate=2", "model=sometimes", "strategy=ddp", "find_unused"]
        plain = self.train(*arguments, "save_at=0", ranks=2)
        resumed = self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=2)
        self.assert_close(plain[0]["weights"], resumed[0]["weights"])
        self.assertEqual(resumed[0]["weights"], resumed[1]["weights"])


if __name__ == "__main__":
    main()
