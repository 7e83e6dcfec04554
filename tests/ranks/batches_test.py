"""How much each rank's batch counts, and batches in parts that fit the poorest rank."""

from ranks import FSDP_STAGES, RanksTest, fsdp, main


class LossWeights(RanksTest):
    """Samples with none, one or two tokens: unequal batches of unequal ranks are the big batch."""

    DATA = ["samples=96", "epochs=2", "weighted"]

    def test_ranks_and_windows_of_unequal_batches_equal_one_big_batch(self):
        whole = self.train(*self.DATA, "batch=32")[0]["weights"]
        parts = ["batch=2", "accumulate=8"]
        for arguments in (["batch=16"], parts, *([*parts, *fsdp(stage)] for stage in FSDP_STAGES)):
            reports = self.train(*self.DATA, *arguments, ranks=2)
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assert_close(whole, reports[0]["weights"])

    def test_without_weights_they_do_not(self):
        whole = self.train(*self.DATA, "batch=32")[0]["weights"]
        plain = self.train("samples=96", "epochs=2", "batch=16", ranks=2)[0]["weights"]
        self.assertGreater(max(abs(a - b) for a, b in zip(whole, plain)), 1e-4)

    def test_they_cost_one_message_a_window(self):
        arguments = [*self.DATA, "batch=4", "accumulate=4", "count"]
        report = self.train(*arguments, ranks=2)[0]
        self.assertEqual(report["reductions"][4:12], [0, 0, 0, 2] * 2)  # gradients, and the sum of the weights
        self.assertEqual(report["reductions"][:3], [0, 0, 0])

    def test_weights_that_only_one_rank_gives_are_reported(self):
        status, errors = self.run_with("samples=96", "epochs=1", "batch=8", "weighted=by_one", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("some of them say a loss weight and some do not", errors)

    def test_a_window_continues_from_a_checkpoint_within_it(self):
        arguments = [*self.DATA, "batch=4", "accumulate=3", "optimizer=adamw"]
        undisturbed = self.train(*arguments, "save_at=1", ranks=2)[0]
        resumed = self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=2)[0]
        self.assert_close(undisturbed["weights"], resumed["weights"])


class Streams(RanksTest):
    """Loaders that keep their place themselves."""

    def test_each_rank_continues_its_stream_from_its_own_state(self):
        arguments = ["stream=6", "epochs=2", "optimizer=adamw"]
        undisturbed = self.train(*arguments, "save_at=3", ranks=2)[0]
        resumed = self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=2)[0]
        self.assertEqual(undisturbed["weights"], resumed["weights"])


class BatchesByLength(RanksTest):
    """At most ten tokens a batch, whose samples have one to five."""

    DATA = ["samples=97", "epochs=2", "by_length=10", "optimizer=adamw"]

    def test_ranks_take_equally_many_batches_and_each_sample_once_an_epoch(self):
        one = self.train(*self.DATA)[0]
        self.assertEqual(sum(one["seen"]), 2 * 97)
        for ranks in (2, 3):
            reports = self.train(*self.DATA, ranks=ranks)
            self.assertEqual(len({len(report["seen"]) for report in reports}), 1)
            self.assertEqual(sum(sum(report["seen"]) for report in reports), 2 * 97)
            self.assertGreater(len(set(reports[0]["seen"])), 2)
            for report in reports[1:]:
                self.assertEqual(reports[0]["weights"], report["weights"])

    def test_ranks_continue_inside_an_epoch_bitwise_identically(self):
        undisturbed = self.train(*self.DATA, "save_at=5", ranks=2)[0]
        resumed = self.train(*self.DATA, f"ckpt={self.out}/mid.ckpt", ranks=2)[0]
        self.assertEqual(undisturbed["weights"], resumed["weights"])


class MicroBatches(RanksTest):
    DATA = ["samples=96", "epochs=2", "batch=16", "wide=256"]

    def test_parts_equal_the_whole_batch_with_every_strategy(self):
        whole = self.train(*self.DATA, ranks=2)[0]["weights"]
        for arguments in ([], *(fsdp(stage) for stage in FSDP_STAGES)):
            reports = self.train(*self.DATA, "micro=5", *arguments, ranks=2)
            self.assert_close(whole, reports[0]["weights"])
            self.assertEqual(reports[0]["seen"][:4], [5, 5, 5, 1])
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])

    def test_parts_count_by_their_tokens(self):
        whole = self.train(*self.DATA, "weighted", ranks=2)[0]["weights"]
        self.assert_close(whole, self.train(*self.DATA, "weighted", "micro=5", ranks=2)[0]["weights"])

    def test_gradients_are_reduced_once_a_batch(self):
        report = self.train(*self.DATA, "micro=5", "count", ranks=2)[0]
        self.assertEqual(report["reductions"][2:], [1] * 4)

    # Whole batches take half a megabyte more than rank 1 has; halves leave as much free.
    POOR = ["samples=256", "epochs=2", "batch=64", "wide=2048", "micro=auto"]

    def test_one_rank_that_runs_out_of_memory_makes_all_take_smaller_parts_bitwise_identically(self):
        poor = self.train(*self.POOR, "limit=1:1400000", ranks=2)
        self.assertEqual([r["micro_batch_size"] for r in poor], [32, 32])
        self.assertEqual([r["seen"] for r in poor], [[64] + [32] * 8] * 2)
        given = self.train(*self.POOR[:-1], "micro=32", ranks=2)
        self.assertEqual(poor[0]["weights"], poor[1]["weights"])
        self.assertEqual(poor[0]["weights"], given[0]["weights"])
        self.assertEqual(poor[0]["metrics"], given[0]["metrics"])
        self.assertEqual([r["random"] for r in poor], [r["random"] for r in given])

    def test_where_memory_is_enough_batches_stay_whole(self):
        whole = self.train(*self.DATA, "micro=auto", ranks=2)
        self.assertEqual([r["micro_batch_size"] for r in whole], [0, 0])
        self.assertEqual(whole[0]["seen"], [16] * 6)
        self.assertEqual(whole[0]["weights"], self.train(*self.DATA, ranks=2)[0]["weights"])

    def test_parts_that_fit_count_by_their_tokens(self):
        arguments = [*self.POOR, "weighted", "accumulate=2"]
        rich = self.train(*arguments, ranks=2)[0]
        poor = self.train(*arguments, "limit=1:1400000", ranks=2)
        self.assertEqual((rich["micro_batch_size"], poor[0]["micro_batch_size"]), (0, 32))
        self.assert_close(rich["weights"], poor[0]["weights"])

    def test_one_sample_that_does_not_fit_one_rank_ends_all(self):
        status, errors = self.run_with(*self.DATA, "micro=auto", "limit=1:30000", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("out of memory with micro-batches of 1 sample", errors)

    def test_auto_is_refused_where_ranks_wait_inside_their_passes(self):
        status, errors = self.run_with(*self.DATA, "micro=auto", *fsdp(3), "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("TrainerOptions.micro_batch_size: auto is not possible with fsdp", errors)
        status, errors = self.run_with(*self.DATA, "micro=auto", "model=batchnorm", "sync_batchnorm", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("auto is not possible with sync_batchnorm", errors)


class EffectiveBatchSize(RanksTest):
    def test_counts_the_samples_of_all_ranks(self):
        one = self.train("samples=96", "batch=8", "effective=32")[0]
        two = self.train("samples=96", "batch=8", "effective=32", ranks=2)[0]
        self.assertEqual((one["accumulate"], two["accumulate"]), (4, 2))
        self.assert_close(one["weights"], two["weights"])

    def test_that_cannot_be_shared_out_names_all_three_numbers(self):
        status, errors = self.run_with("samples=96", "batch=8", "effective=24", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("24 samples are not a whole number of batches of 8 samples on 2 ranks. Use a multiple of 16", errors)

    def test_stays_when_a_run_continues_with_other_ranks(self):
        arguments = ["samples=96", "batch=8", "effective=32", "epochs=2"]
        undisturbed = self.train(*arguments, "save_at=1", ranks=2)[0]
        resumed = self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=1)[0]
        self.assertEqual(resumed["accumulate"], 2)  # of global batches that stay 16
        self.assert_close(undisturbed["weights"], resumed["weights"])


class Finders(RanksTest):
    def test_are_refused_with_several_ranks_and_say_what_to_do(self):
        for word, name in (("batch_size_finder", "BatchSizeFinder"), ("learning_rate_finder", "LearningRateFinder")):
            status, errors = self.run_with("samples=64", word, "devices=2")
            self.assertNotEqual(status, 0)
            self.assertIn(f"{name}: this run has 2 ranks, and one that runs out of memory would leave the others waiting",
                          errors)
            self.assertIn("use micro_batch_size: auto, on which ranks agree", errors)
            self.train("samples=64", word)


if __name__ == "__main__":
    main()
