"""A rank that gets no validation batch: the values equal the values of one process, and monitors see them on every rank."""

import pathlib

from ranks import RanksTest, fsdp, main

ARGUMENTS = ["samples=32", "epochs=2"]
EXTRA = ["metrics", "val_own"]
ONE = [*ARGUMENTS, *EXTRA, "batch=16"]  # the same global batches as of two ranks
TWO = [*ARGUMENTS, *EXTRA, "batch=8"]


class IdleRank(RanksTest):
    def values(self, report):
        return {name: value for name, value in report["metrics"].items() if name.startswith("val_")}

    def check(self, *arguments, ranks=2, like=(), extra=EXTRA):
        """Every rank's validation metrics equal the metrics of one process that ran with `like`, or with the same arguments."""
        whole = self.values(self.train(*ARGUMENTS, *extra, "batch=16", *(like or arguments))[0])
        for report in self.train(*ARGUMENTS, *extra, f"batch={16 // ranks}", *arguments, ranks=ranks, timeout=120):
            own = self.values(report)
            self.assertEqual(own.keys(), whole.keys())
            for name, value in whole.items():
                both_nan = value is None and own[name] is None  # as a report writes it
                self.assertTrue(both_nan or abs(own[name] - value) < 1e-6, f"{name}: {own[name]}, alone {value}")
        return whole

    def test_one_sample_for_two_ranks(self):
        whole = self.check("val=1")
        self.assertEqual(whole["val_samples"], 1)

    def test_all_batches_on_one_rank_whichever_it_is_and_with_lengths_unknown(self):
        for arguments in (["val_of=0"], ["val_of=1"], ["val_of=1", "val_unsized"]):
            with self.subTest(arguments=arguments):
                whole = self.check("val=7", *arguments, like=["val=7"])
                self.assertEqual(whole["val_samples"], 7)
                self.assertNotIn(None, whole.values())

    def test_numbers_that_one_rank_draws_in_a_validation_do_not_change_the_weights(self):
        arguments = [*ARGUMENTS, "batch=8", "model=dropout"]
        without, drawing = self.train_each(arguments, [*arguments, "val=7", "val_of=1", "val_draws"], ranks=2)
        for one, other in zip(without, drawing):
            self.assertEqual(one["weights"], other["weights"])
            self.assertEqual(one["random"], other["random"])

    def test_two_of_four_ranks(self):
        self.check("val=7", "val_of=3", like=["val=7"], ranks=4)

    def test_one_of_two_loaders(self):
        whole = self.check("val=7", "val2=6", "val_of=1", like=["val=7", "val2=6"], extra=())
        self.assertEqual([whole[f"val_samples/dataloader_idx_{k}"] for k in (0, 1)], [7, 6])

    def test_sharded_weights(self):
        self.check(*fsdp(3, "val=7", "val_of=1"), like=["val=7"])

    def test_what_is_not_reduced_is_the_first_rank_s_that_has_it(self):
        one, other = self.train(*TWO, "val=7", "val_of=1", ranks=2)
        self.assertEqual(self.values(one), self.values(other))

    def test_early_stopping_and_checkpoints_follow_a_value_that_one_rank_alone_could_compute(self):
        arguments = ["val=7", "epochs=6"]
        for monitor in ("val_loss", "val_auroc"):
            alone = self.train(*ONE, *arguments, f"monitor={monitor}", f"root={self.out}/alone")[0]
            for owner in (0, 1):
                root = pathlib.Path(self.out) / f"{monitor}{owner}"
                reports = self.train(*TWO, *arguments, f"val_of={owner}", f"monitor={monitor}", f"root={root}", ranks=2)
                self.assertEqual([r["global_step"] for r in reports], [alone["global_step"]] * 2)
                self.assertLess(alone["global_step"], 12)  # of six epochs
                best = [path.name for path in root.rglob("best-*.ckpt")]
                self.assertEqual(best, [path.name for path in (pathlib.Path(self.out) / "alone").rglob(best[0])])

    def test_a_metric_that_a_rank_with_batches_has_not_logged_is_still_named(self):
        status, errors = self.run_with(*TWO, "val=7", "odd_val=0:2", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("the ranks have logged different metrics in this epoch (rank 0: ", errors)
        self.assertIn("odd", errors)
        self.assertIn("Log the same names on every rank that has a batch.", errors)

    def test_a_metric_that_cannot_be_computed_ends_the_rank_that_lacks_it_too(self):
        status, errors = self.run_with(*TWO, "val=7", "val_of=1", "per_class", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn('log("val_per_class") in validation_step: Accuracy gives 3 values, and a logged metric is one', errors)
        self.assertIn("log: rank 1 cannot compute a metric of this epoch that this rank has had no batch for. See that "
                      "rank's error.", errors)

    def test_without_a_batch_on_any_rank_only_what_the_epoch_s_end_logs_is_there(self):
        for report in self.train(*TWO, "val=7", "val_of=2", ranks=2):
            self.assertEqual(self.values(report), {"val_at_end": None})


if __name__ == "__main__":
    main()
