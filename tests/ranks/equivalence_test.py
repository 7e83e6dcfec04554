"""N micro-batches = one batch = N ranks, and the article's eight weights."""

import json
import pathlib
import unittest

from ranks import FSDP_STAGES, ON_GPUS, RanksTest, fsdp, main

# Linear model of 8 weights set to 1, loss = sum, SGD lr 0.01 momentum 0.9, manual_seed(0); rand(8, 8), batch 4, 2 epochs.
ARTICLE = [0.9472, 0.9440, 0.9527, 0.9687, 0.9570, 0.9343, 0.9411, 0.9186]


class Article(RanksTest):
    def test_two_ranks_end_at_the_articles_weights(self):
        for report in self.train("model=article", ranks=2):
            self.assertEqual([round(w, 4) for w in report["weights"]], ARTICLE)
            self.assertEqual(report["global_step"], 2)

    def test_one_process_that_accumulates_two_batches_in_interleaved_order_ends_there_too(self):
        report = self.train("model=article", "accumulate=2", "interleave=2")[0]
        self.assertEqual([round(w, 4) for w in report["weights"]], ARTICLE)

    def test_both_are_equal_to_the_last_digit(self):
        ranks = self.train("model=article", ranks=2)[0]
        alone = self.train("model=article", "accumulate=2", "interleave=2")[0]
        self.assertEqual(ranks["weights"], alone["weights"])


class MetricsThatAccumulate(RanksTest):
    """Accuracy (sums) and AUROC (rows), over shards of different sizes."""
    ARGUMENTS = ["samples=96", "epochs=2", "metrics"]
    NAMES = ("train_accuracy", "val_accuracy", "val_auroc")

    def values(self, reports):
        for other in reports[1:]:
            self.assertEqual([reports[0]["metrics"][name] for name in self.NAMES],
                             [other["metrics"][name] for name in self.NAMES])
        return [reports[0]["metrics"][name] for name in self.NAMES]

    def test_equal_one_process_for_any_shards_of_the_ranks(self):
        for val in (31, 3):  # two ranks see 16 and 15 samples, or 2 and 1
            whole = self.values(self.train(*self.ARGUMENTS, f"val={val}", "batch=16"))
            ranks = self.values(self.train(*self.ARGUMENTS, f"val={val}", "batch=8", ranks=2))
            self.assert_close(whole, ranks, 1e-6)
        self.assertNotEqual(whole[0], 0)

    def test_continue_from_a_checkpoint_inside_an_epoch(self):
        arguments = [*self.ARGUMENTS, "val=31", "batch=8", "epochs=1"]
        undisturbed = self.values(self.train(*arguments, "save_at=2", ranks=2))
        resumed = self.values(self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=2))
        self.assertEqual(undisturbed, resumed)
        alone = self.values(self.train(*arguments, f"ckpt={self.out}/mid.ckpt", "batch=16"))
        self.assert_close(undisturbed, alone, 1e-6)


class Equivalence(RanksTest):
    """32 samples in one batch, in 4 of 8, by 2 ranks of 16, and by 2 ranks in 2 of 8."""

    def check(self, *arguments):
        arguments = ["samples=96", "epochs=3", *arguments]
        whole, parts = [reports[0]["weights"] for reports in self.train_each(
            [*arguments, "batch=32"], [*arguments, "batch=8", "accumulate=4"])]
        ranks, both = self.train_each([*arguments, "batch=16"], [*arguments, "batch=8", "accumulate=2"], ranks=2)
        self.assertEqual(ranks[0]["weights"], ranks[1]["weights"])
        self.assert_close(whole, parts)
        self.assert_close(whole, ranks[0]["weights"])
        self.assert_close(whole, both[0]["weights"])

    def test_sgd(self):
        self.check("optimizer=sgd")

    def test_adamw(self):
        self.check("optimizer=adamw")

    def test_a_layer_with_two_names_is_trained_once(self):
        self.check("model=tied", "optimizer=adamw", "clip")

    def test_shuffled_and_clipped(self):
        self.check("shuffle", "clip")

    def test_batch_normalization_over_all_ranks_equals_the_whole_batch(self):
        arguments = ["samples=48", "epochs=2", "model=batchnorm"]
        whole = self.train("batch=16", *arguments)[0]
        ranks = self.train("batch=8", "sync_batchnorm", *arguments, ranks=2)
        self.assertEqual(ranks[0]["weights"], ranks[1]["weights"])
        self.assert_close(whole["weights"], ranks[0]["weights"], 1e-5)
        for name, value in whole["buffers"].items():
            self.assertAlmostEqual(value, ranks[1]["buffers"][name], places=4, msg=name)
        apart = self.train("batch=8", *arguments, ranks=2)[0]
        self.assertGreater(max(abs(a - b) for a, b in zip(whole["weights"], apart["weights"])), 1e-3)

    def test_a_tail_that_does_not_divide(self):
        whole = self.train("samples=50", "batch=16", "epochs=2")[0]["weights"]
        ranks = self.train("samples=50", "batch=8", "epochs=2", ranks=2)
        self.assert_close(whole, ranks[0]["weights"])
        self.assertEqual(ranks[0]["seen"], [8, 8, 8, 1] * 2)

    def test_three_ranks_repeat_samples_from_the_front_until_they_have_as_many(self):
        for report in self.train("samples=10", "batch=2", "epochs=1", ranks=3):
            self.assertEqual(report["seen"], [2, 2])


class OtherWorldSizes(RanksTest):
    """A run that two ranks began and a different number of ranks resume: same global batches, so the same final weights."""

    def check(self, *arguments, save_at=2):
        two = ["samples=48", "batch=4", "epochs=2", "shuffle", *arguments]
        undisturbed = self.train(*two, f"save_at={save_at}", ranks=2)[0]
        path = pathlib.Path(self.out) / "mid.ckpt"
        for ranks in (1, 2, 4):
            resumed = self.train(*two, f"ckpt={path}", ranks=ranks)
            self.assertEqual(resumed[0]["global_step"], undisturbed["global_step"])
            self.assertEqual(set(resumed[-1]["seen"]), {8 // ranks})
            self.assert_close(undisturbed["weights"], resumed[0]["weights"])

    def test_in_the_middle_of_an_epoch(self):
        self.check("optimizer=adamw")

    def test_inside_an_accumulation_window(self):
        self.check("accumulate=3", save_at=1)

    def test_global_batches_that_cannot_be_divided_are_reported(self):
        arguments = ["samples=48", "batch=4", "epochs=2"]
        self.train(*arguments, "save_at=2", ranks=2)
        path = pathlib.Path(self.out) / "mid.ckpt"
        status, errors = self.run_with(*arguments, f"ckpt={path}", "devices=3")
        self.assertNotEqual(status, 0)
        self.assertIn("trained by 2 ranks with batches of 4, and continues with 3, among which its global batches of 8 "
                      "cannot be divided. Use a number of ranks that divides 8.", errors)


def values_of(checkpoint):
    """Returns what a checkpoint holds besides tensors, and the tensors' names."""
    data = checkpoint.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return json.loads(header["__metadata__"]["levin.values"]), set(header)


class ImmediateSaves(RanksTest):
    """save_checkpoint, which every rank calls, and OnExceptionCheckpoint, which calls it on each rank that fails."""

    ARGUMENTS = ["samples=48", "batch=4", "epochs=1", "model=dropout"]

    def test_a_save_after_a_resume_and_before_a_step_has_what_the_ranks_had_agreed_on(self):
        arguments = ["samples=32", "batch=8", "epochs=1", "checkpoint_epochs"]  # two batches of each rank
        self.train(*arguments, "save_at=1", ranks=2)
        (saved,) = pathlib.Path(self.out).glob("**/epoch=*.ckpt")
        undisturbed, _ = values_of(saved)
        saved.unlink()
        self.train(*arguments, f"ckpt={self.out}/mid.ckpt", ranks=2)
        (saved,) = pathlib.Path(self.out).glob("**/epoch=*.ckpt")
        resumed, _ = values_of(saved)
        self.assertIs(undisturbed["progress"]["loss_weights"], False)
        self.assertEqual(resumed["progress"], undisturbed["progress"])

    def resumed(self, *arguments, ranks=2, name="mid.ckpt"):
        reports = self.train(*self.ARGUMENTS, *arguments, "draw", f"ckpt={self.out}/{name}", ranks=ranks)
        for key in ("random", "drawn_at_start"):
            self.assertEqual(len({report[key] for report in reports}), ranks, key)
        self.assertEqual({tuple(report["weights"]) for report in reports}, {tuple(reports[0]["weights"])})
        return reports

    def test_rank_0_writes_and_every_rank_continues_with_its_own_random_numbers(self):
        undisturbed = self.train(*self.ARGUMENTS, "save_at=2", ranks=2)
        self.assertEqual([report["immediate_saves"] for report in undisturbed], [1, 0])
        values, names = values_of(pathlib.Path(self.out) / "mid.ckpt")
        self.assertTrue(values["loggers.0"])
        self.assertIn("rng.cpu.rank1", names)
        for one, other in zip(undisturbed, self.resumed()):
            self.assertEqual(one["weights"], other["weights"])
            self.assertEqual(one["random"], other["random"])

    def test_ranks_that_the_checkpoint_does_not_know_draw_different_numbers(self):
        self.train(*self.ARGUMENTS, "save_at=2")
        self.resumed()

    def test_a_save_that_fails_is_an_error_on_every_rank(self):
        (pathlib.Path(self.out) / "mid.ckpt").mkdir()
        status, errors = self.run_with(*self.ARGUMENTS, "save_at=2", "devices=2", timeout=40)
        self.assertEqual(status, 1, errors)
        self.assertIn("mid.ckpt", errors)

    def test_after_a_failure_rank_0_saves(self):
        """After a failure of all ranks, and of one, which the other notices."""
        for fault in ["throw_everywhere=3"] + ([] if ON_GPUS else ["throw=1:3"]):
            with self.subTest(fault):
                status, errors = self.run_with(*self.ARGUMENTS, "on_exception", fault, "devices=2")
                self.assertEqual(status, 1, errors)
                path = pathlib.Path(self.out) / "on_exception.ckpt"
                values, names = values_of(path)
                self.assertTrue(values["loggers.0"])
                self.assertEqual(values["global_step"], 3)
                self.assertNotIn("rng.cpu.rank1", names)
                self.resumed(name=path.name)
                path.unlink(missing_ok=True)


class DdpOptions(RanksTest):
    def test_gradients_are_reduced_once_a_window_and_not_inside(self):
        report = self.train("samples=64", "batch=4", "accumulate=4", "epochs=2", "count", ranks=2)[0]
        # After the first update the buckets are laid out anew, for which ranks ask each other once.
        self.assertEqual(report["reductions"][4:], [0, 0, 0, 1] * 3)
        self.assertEqual(report["reductions"][:3], [0, 0, 0])
        every = self.train("samples=64", "batch=4", "epochs=1", "count", ranks=2)[0]
        self.assertEqual(every["reductions"][2:], [1] * 6)

    @unittest.skipIf(ON_GPUS, "about runs on the CPU")
    def test_a_backend_that_is_missing_is_reported(self):
        status, errors = self.run_with("backend=nccl", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("DDPOptions.process_group_backend: nccl requires GPUs, but this run is on the CPU", errors)

    @unittest.skipIf(ON_GPUS, "shared memory is for tensors on the CPU")
    def test_shared_memory_and_gloo_are_bitwise_identical(self):
        runs = [["model=dropout"], ["model=batchnorm", "sync_batchnorm"], ["hook=bf16"],
                *[fsdp(stage, "optimizer=adamw") for stage in FSDP_STAGES]]
        for arguments in runs:
            with self.subTest(arguments=arguments):
                memory, gloo, auto = self.train_each(*[["samples=32", *arguments, f"backend={name}"]
                                                       for name in ("shm", "gloo", "auto")], ranks=2)
                for rank in range(2):
                    self.assertEqual(memory[rank]["weights"], gloo[rank]["weights"])
                    self.assertEqual(memory[rank]["weights"], auto[rank]["weights"])

    def test_gradients_in_buckets_small_buckets_and_a_static_graph_change_nothing(self):
        variants = [[], ["bucket_view"], ["small_buckets"], ["static_graph"], ["find_unused"],
                    ["bucket_view", "small_buckets"]]
        plain, *others = self.train_each(*[["samples=32", *arguments] for arguments in variants], ranks=2)
        for arguments, reports in zip(variants[1:], others):
            self.assertEqual(reports[0]["weights"], plain[0]["weights"], arguments)

    def test_compressed_gradients_end_near_the_others(self):
        plain, *others = self.train_each(["samples=32"], ["samples=32", "hook=fp16"], ["samples=32", "hook=bf16"], ranks=2)
        for small, tolerance in zip(others, (1e-3, 1e-2)):
            self.assertEqual(small[0]["weights"], small[1]["weights"])
            self.assertNotEqual(small[0]["weights"], plain[0]["weights"])
            self.assert_close(small[0]["weights"], plain[0]["weights"], tolerance)

    def test_weights_start_the_same_for_any_seeds_of_the_ranks(self):
        one, other = self.train("seed_by_rank", ranks=2)
        self.assertEqual(one["weights"], other["weights"])
        self.assertEqual(one["weights"], self.train("seed=1", ranks=2)[0]["weights"])

    def test_layers_frozen_during_the_run_are_not_waited_for(self):
        for when in ("epoch", "step"):
            arguments = ["samples=32", "epochs=3", f"freeze_layer={when}"]
            whole = self.train("batch=8", *arguments)[0]
            one = self.train("batch=8", "strategy=ddp", *arguments)[0]
            self.assertEqual(whole["weights"], one["weights"])
            ranks = self.train(*arguments, ranks=2)
            self.assertEqual(ranks[0]["weights"], ranks[1]["weights"])
            self.assert_close(whole["weights"], ranks[0]["weights"])

    def test_one_rank_has_no_others_that_wait_for_an_unused_parameter(self):
        self.assertEqual(self.train("model=unused", "strategy=ddp")[0]["weights"], self.train("model=unused")[0]["weights"])

    def test_a_layer_that_is_not_registered_is_named_by_one_rank(self):
        for arguments in ([], *(fsdp(stage) for stage in FSDP_STAGES)):
            status, errors = self.run_with("forgotten", "devices=2", *arguments)
            self.assertEqual(status, 0, errors)
            self.assertEqual(errors.count("the loss depends on 2 tensors that require gradients"), 1, errors)
            self.assertIn("(3, 3) Float in addmm, (3) Float in addmm. They are in no checkpoint and never trained, and "
                          "ranks have different values of them", errors)

    def test_buffers_are_rank_0s(self):
        one, other = self.train("model=batchnorm", "samples=32", "epochs=1", ranks=2)
        self.assertEqual(one["weights"], other["weights"])

    def test_ranks_draw_different_random_numbers(self):
        one, other = self.train("model=dropout", ranks=2)
        self.assertNotEqual(one["random"], other["random"])
        self.assertEqual(one["weights"], other["weights"])

    def test_a_parameter_without_gradient_is_named(self):
        status, errors = self.run_with("model=unused", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("the loss does not depend on spare.weight, spare.bias", errors)
        self.assertIn("find_unused_parameters: true", errors)
        self.train("model=unused", "find_unused", ranks=2)


class AveragedStatistics(RanksTest):
    def test_of_an_average_of_weights_come_from_all_ranks_batches(self):
        # The weights are equal on all ranks, and each rank sees other samples.
        one, other = self.train("model=batchnorm", "swa", "samples=32", "epochs=3", ranks=2)
        self.assertEqual(one["weights"], other["weights"])
        self.assertEqual(one["buffers"], other["buffers"])


class ValidatedModel(RanksTest):
    """A validation inside fit measures the model that a checkpoint holds: rank 0's buffers, on every rank."""

    def validated(self, *arguments):
        """The validation loss in the name of the best checkpoint, and the loss that the checkpoint gives."""
        self.train("model=batchnorm", "samples=32", "val=7", "epochs=2", "best_of=val_loss", *arguments, ranks=2)
        (best,) = sorted(pathlib.Path(self.out).rglob("*val_loss=*.ckpt"), key=self.loss_of)[:1]
        reports = self.reports(2)
        self.assertEqual(reports[0]["metrics"]["val_loss"], reports[1]["metrics"]["val_loss"])
        for file in pathlib.Path(self.out).rglob("*.ckpt"):
            file.unlink()
        return self.loss_of(best), reports[0]["metrics"]["val_loss"]

    @staticmethod
    def loss_of(path):
        return float(path.name.split("val_loss=")[1].removesuffix(".ckpt"))

    def test_fit_logs_what_a_validation_of_the_checkpoint_gives(self):
        for arguments in ([], ["ema"], *(fsdp(stage) for stage in FSDP_STAGES)):
            with self.subTest(arguments=arguments):
                logged, of_checkpoint = self.validated(*arguments)
                self.assertAlmostEqual(logged, of_checkpoint, delta=1e-6)

    def test_each_buffer_is_rank_0s_in_a_validation_and_the_ranks_own_afterwards(self):
        for arguments in ([], fsdp(2)):
            reports = self.train("rank_buffer", "val=5", *arguments, ranks=3)
            self.assertEqual([report["metrics"]["val_offset"] for report in reports], [0, 0, 0])
            self.assertEqual([report["buffers"]["offset"] for report in reports], [0, 1, 2])


if __name__ == "__main__":
    main()
