"""fsdp: weights, gradients and optimizer state shared out over ranks end where ddp does, in less memory."""

import unittest

from ranks import FSDP_STAGES, ON_GPUS, RanksTest, fsdp, main


class SameAsDdp(RanksTest):
    def check(self, *arguments, ranks=2, tolerance=2e-6):
        ddp, *stages = self.train_each(arguments, *[[*arguments, *fsdp(stage)] for stage in FSDP_STAGES], ranks=ranks)
        for report in ddp[1:]:
            self.assertEqual(ddp[0]["weights"], report["weights"])
        for stage, reports in zip(FSDP_STAGES, stages):
            with self.subTest(stage=stage):
                for report in reports[1:]:
                    self.assertEqual(reports[0]["weights"], report["weights"])
                self.assert_close(ddp[0]["weights"], reports[0]["weights"], tolerance)
                self.assertEqual(ddp[0]["global_step"], reports[0]["global_step"])
                for name in ("loss_epoch", "samples"):
                    self.assertAlmostEqual(ddp[0]["metrics"][name], reports[0]["metrics"][name], places=5, msg=name)

    def test_sgd_with_momentum_on_two_and_three_ranks(self):
        self.check("samples=48", "batch=4")
        self.check("samples=48", "batch=4", ranks=3)

    def test_adamw_with_parameter_groups_on_two_and_three_ranks(self):
        self.check("samples=48", "batch=4", "optimizer=adamw_groups", tolerance=2e-5)
        self.check("samples=48", "batch=4", "optimizer=adamw_groups", ranks=3, tolerance=2e-5)

    def test_adafactor_sums_its_factors_over_ranks(self):
        self.check("samples=48", "batch=4", "optimizer=adafactor", tolerance=2e-5)
        self.check("samples=48", "batch=4", "optimizer=adafactor", ranks=3, tolerance=2e-5)
        self.check("samples=48", "batch=4", "optimizer=lookahead_adafactor", ranks=3, tolerance=2e-5)

    def test_adafactor_with_a_parameter_that_no_loss_depends_on(self):
        self.check("samples=48", "batch=4", "model=unused", "find_unused", "optimizer=adafactor", tolerance=2e-5)

    def test_parameter_groups_matter(self):
        arguments = ["samples=48", "batch=4"]
        groups, plain = [reports[0]["weights"] for reports in self.train_each(
            [*arguments, "optimizer=adamw_groups", *fsdp(2)], [*arguments, "optimizer=adamw", *fsdp(2)], ranks=2)]
        self.assertGreater(max(abs(a - b) for a, b in zip(groups, plain)), 1e-3)

    def test_clipped_by_the_norm_of_all_ranks_parts(self):
        self.check("samples=48", "batch=4", "clip")

    def test_clipped_by_value(self):
        self.check("samples=48", "batch=4", "clip_value")

    def test_accumulated(self):
        self.check("samples=96", "batch=4", "accumulate=3")

    def test_accumulated_with_a_short_last_window(self):
        self.check("samples=40", "batch=4", "accumulate=3", "clip")

    def test_accumulated_with_gradients_that_are_zeroed_in_place(self):
        self.check("samples=96", "batch=4", "accumulate=3", "zero_in_place")

    def test_with_validation_between(self):
        self.check("samples=48", "batch=4", "val=7")

    def test_batch_normalization(self):
        self.check("samples=48", "batch=8", "model=batchnorm")

    def test_a_loss_that_is_not_finite_is_skipped_by_all(self):
        self.check("samples=48", "batch=4", "nan=1:2", "skip_nonfinite")

    def test_a_gradient_that_is_not_finite_is_skipped_by_all(self):
        # Sample 11 is in rank 1's batch 1, in each of the two epochs.
        self.check("samples=48", "batch=4", "nan_gradient_sample=11", "skip_nonfinite")
        self.check("samples=48", "batch=4", "nan_gradient_sample=11", "skip_nonfinite", "clip", "accumulate=2")
        for reports in self.train_each(*[["samples=48", "batch=4", "nan_gradient_sample=11", "skip_nonfinite",
                                          *fsdp(stage)] for stage in FSDP_STAGES], ranks=2):
            self.assertEqual(reports[0]["global_step"], 12 - 2)
            self.assertNotIn(None, reports[0]["weights"])
        status, errors = self.run_with("samples=48", "batch=4", "nan_gradient_sample=11", "devices=2", *fsdp(2))
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, "gradient .*in epoch 0, batch 1, global step 1, although the loss is finite")

    def test_a_loss_that_is_not_finite_takes_all_back_to_a_checkpoint(self):
        for kind in ("full", "sharded"):
            self.check("samples=48", "batch=4", "nan=1:4", "rollback", "checkpoint", f"state_dict_type={kind}",
                       "optimizer=adamw_groups", tolerance=2e-5)

    def test_a_callback_that_averages_weights_and_swaps_them_for_validation(self):
        self.check("samples=48", "batch=4", "ema", "val=7")

    def test_manual_optimization_with_two_backwards_before_an_update(self):
        arguments = ["samples=48", "batch=4", "model=manual"]
        ddp, *stages = self.train_each(arguments, *[[*arguments, *fsdp(stage)] for stage in FSDP_STAGES], ranks=2)
        for reports in stages:
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assert_close(ddp[0]["weights"], reports[0]["weights"])

    def test_a_batch_without_a_loss_on_one_rank(self):
        self.check("samples=48", "batch=4", "skip=1:2")

    def test_a_batch_without_a_loss_on_one_rank_of_a_deep_model(self):
        self.check("samples=48", "batch=4", "model=deep", "skip=1:2")

    def test_a_batch_without_a_forward_pass_on_one_rank(self):
        self.check("samples=48", "batch=4", "model=deep", "no_forward=1:2")

    def test_a_batch_that_one_rank_skips(self):
        self.check("samples=48", "batch=4", "model=deep", "skip_batch=1:2")
        self.check("samples=96", "batch=4", "model=deep", "skip_batch=1:4", "accumulate=3")

    def test_a_parameter_that_no_loss_depends_on_stays_unchanged(self):
        self.check("samples=48", "batch=4", "model=unused", "find_unused", "optimizer=adamw_groups", tolerance=2e-5)

    def test_whole_layers_in_one_unit_and_without_prefetch(self):
        ddp, *others = self.train_each(["samples=48"], ["samples=48", "strategy=fsdp", "unit_mb=25"],
                                       ["samples=48", "strategy=fsdp", "no_prefetch", "unit_mb=0.0001"], ranks=2)
        for reports in others:
            self.assert_close(ddp[0]["weights"], reports[0]["weights"])

    def test_one_rank_trains_as_a_single_device(self):
        alone, shared = self.train_each(["samples=48"], ["samples=48", *fsdp(3)])
        self.assertEqual(alone[0]["weights"], shared[0]["weights"])

    def test_float16_with_a_scaled_loss_skips_the_same_steps(self):
        arguments = ["samples=48", "batch=4", "scaled"]
        ddp, *stages = self.train_each(arguments, *[[*arguments, *fsdp(stage)] for stage in FSDP_STAGES], ranks=2)
        for report in stages:
            self.assertEqual(report[0]["weights"], report[1]["weights"])
            self.assertEqual(report[0]["global_step"], ddp[0]["global_step"])
            self.assert_close(ddp[0]["weights"], report[0]["weights"], 2e-3)


class Types(RanksTest):
    def test_weights_computed_in_bfloat16_are_kept_in_float32(self):
        arguments = ["samples=48", "precision=bf16-mixed", "param_dtype=bfloat16"]
        plain, *stages = self.train_each(["samples=48"], *[[*arguments, *fsdp(stage)] for stage in FSDP_STAGES], ranks=2)
        for reports in stages:
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assertEqual(reports[0]["dtype"], "float")
            self.assertNotEqual(reports[0]["weights"], plain[0]["weights"])
            self.assert_close(reports[0]["weights"], plain[0]["weights"], 3e-2)

    def test_normalizations_keep_their_type_with_weights_in_bfloat16(self):
        # A LayerNorm of float32 inputs, and a BatchNorm with statistics in float32.
        arguments = ["samples=48", "batch=4", "val=7", "model=norms", "precision=bf16-mixed"]
        plain, *stages = self.train_each(arguments, *[[*arguments, "param_dtype=bfloat16", "unit_mb=0.0001", *fsdp(stage)]
                                                      for stage in FSDP_STAGES], ranks=2)
        for reports in stages:
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assertEqual(reports[0]["dtype"], "float")
            self.assert_close(reports[0]["weights"], plain[0]["weights"], 3e-2)
            for name, value in plain[0]["buffers"].items():
                self.assertAlmostEqual(reports[0]["buffers"][name], value, delta=0.05, msg=name)

    def test_gradients_sent_in_bfloat16_end_near_the_others(self):
        arguments = ["samples=48", "reduce_dtype=bfloat16"]
        plain, *stages = self.train_each(["samples=48"], *[[*arguments, *fsdp(stage)] for stage in FSDP_STAGES], ranks=2)
        for reports in stages:
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assertNotEqual(reports[0]["weights"], plain[0]["weights"])
            self.assert_close(reports[0]["weights"], plain[0]["weights"], 1e-2)

    @unittest.skipUnless(ON_GPUS, "a run on the CPU has nothing to offload")
    def test_what_is_offloaded_and_updated_on_the_cpu_ends_where_the_others_do(self):
        plain, *stages = self.train_each(["samples=48"], *[["samples=48", "cpu_offload", *fsdp(stage)]
                                                           for stage in FSDP_STAGES], ranks=2)
        for reports in stages:
            self.assertEqual(reports[0]["weights"], reports[1]["weights"])
            self.assert_close(reports[0]["weights"], plain[0]["weights"])

    @unittest.skipIf(ON_GPUS, "a GPU's run has something to offload")
    def test_offloading_on_a_cpu_reports_that_there_is_nothing_to_move(self):
        status, errors = self.run_with("samples=16", "cpu_offload", *fsdp(2), "devices=2")
        self.assertEqual(status, 0, errors)
        self.assertIn("FSDPOptions.cpu_offload: this run is on the CPU", errors)


class Memory(RanksTest):
    """Bytes held by the tensors of a model of 1.2 MB with AdamW, which keeps two numbers for each weight."""

    def shares(self, stage, ranks):
        arguments = ["samples=32", "batch=4", "wide=256", "model=deep", "optimizer=adamw", "memory"]
        whole = self.train(*arguments)[0]["memory"]
        report = self.train(*arguments, "strategy=fsdp", f"stage={stage}", "unit_mb=0.1", ranks=ranks)[0]
        return [report["memory"][k] / whole[k] for k in ("parameters", "gradients", "optimizer_state")], report

    def test_each_stage_shares_out_one_thing_more(self):
        for ranks in (2, 4):
            part = 1 / ranks
            for stage, expected in ((1, [1, 1, part]), (2, [1, part, part]), (3, [part, part, part])):
                with self.subTest(stage=stage, ranks=ranks):
                    shares, _ = self.shares(stage, ranks)
                    for share, wanted in zip(shares, expected):
                        self.assertAlmostEqual(share, wanted, delta=0.02 * wanted)

    def test_stage_3_never_holds_more_than_a_few_units_while_it_computes(self):
        shares, report = self.shares(3, 2)
        self.assertLess(report["memory"]["most_parameters"] / report["memory"]["parameters"] * shares[0], 0.95)
        self.assertGreater(report["memory"]["most_parameters"], report["memory"]["parameters"])

    def test_it_is_reported_when_training_begins(self):
        process = self.start("samples=16", "wide=64", *fsdp(2), "devices=2")
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertRegex(output + errors, r"fsdp stage 2 in \d+ units: rank 0 of 2 holds parameters [\d.]+ KiB, "
                                          r"gradients [\d.]+ (KiB|B), optimizer state [\d.]+ (KiB|B)")


class Refused(RanksTest):
    def test_an_optimizer_that_needs_all_weights_at_once(self):
        status, errors = self.run_with("optimizer=lbfgs", *fsdp(2), "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("fsdp gives each rank a part of the weights, and LBFGS needs all of them", errors)

    def test_an_optimizer_that_needs_whole_tensors_or_keeps_an_average(self):
        for optimizer, name in (("lamb", "LAMB"), ("schedule_free", "ScheduleFreeAdamW"), ("sam", "SAM")):
            status, errors = self.run_with(f"optimizer={optimizer}", *fsdp(2), "devices=2")
            self.assertEqual(status, 1)
            self.assertIn(f"fsdp gives each rank a part of the weights, and {name} needs all of them", errors)

    def test_an_optimizer_whose_state_contradicts_its_layout(self):
        status, errors = self.run_with("samples=48", "batch=4", "optimizer=undeclared", *fsdp(2), "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, r'ShrinkingSGD: .*"\d+\.k" has shape \(\).*layout\("k"\)')

    def test_a_stage_that_there_is_not(self):
        status, errors = self.run_with("strategy=fsdp", "stage=4", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("FSDPOptions.stage: must be 1, 2 or 3, got 4", errors)


if __name__ == "__main__":
    main()
