"""Recorded steps of several ranks are bitwise identical to eager steps, regardless of which ranks replay; on GPUs all of
them replay, or none."""

import os
import pathlib
import signal
import unittest

from ranks import ON_NCCL, RanksTest, children, main

BACKENDS = ("backend=nccl",) if ON_NCCL else ("backend=shm", "backend=gloo")
# Calls of training_step in 24 windows of two epochs: 3 before the recording, 1 that is recorded, and on CPUs instead of
# the 1st, 2nd, 4th, 8th and 16th of 20 replays, of batches 8 and 16, and of the second epoch's first replay.
WINDOWS, CALLED = 24, 4 if ON_NCCL else 12
on_cpus = unittest.skipIf(ON_NCCL, "about ranks that decide each for itself, on CPUs")
on_gpus = unittest.skipUnless(ON_NCCL, "about ranks that replay together, on GPUs")


class ComparedRuns(RanksTest):
    def assert_same(self, one, other):
        """Expects bitwise identical runs. On a GPU a recorded update reads the learning rate as a float32."""
        self.assertEqual(one["random"], other["random"])
        self.assertEqual(one["global_step"], other["global_step"])
        if not ON_NCCL:
            self.assertEqual(one["weights"], other["weights"])
            self.assertEqual(one["metrics"], other["metrics"])
            return
        self.assert_close(one["weights"], other["weights"])
        for name, value in one["metrics"].items():
            if value is None:  # not finite
                self.assertIsNone(other["metrics"][name], name)
            else:
                self.assertAlmostEqual(value, other["metrics"][name], delta=1e-5 * max(1, abs(value)), msg=name)

    def check(self, *arguments, ranks=2, windows=WINDOWS, accumulate=1, backends=BACKENDS):
        """Returns a report of the recorded run."""
        arguments = ["batch=4", f"samples={4 * ranks * windows * accumulate // 2}", "epochs=2", *arguments]
        if accumulate > 1:
            arguments.append(f"accumulate={accumulate}")
        for backend in backends:
            plain, recorded = self.train_each([backend, *arguments], [backend, *arguments, "record"], ranks=ranks, timeout=120)
            for one, other in zip(plain, recorded):
                self.assert_same(one, other)
            self.assertEqual(recorded[0]["weights"], recorded[-1]["weights"], backend)
        return recorded[0]


class SameBits(ComparedRuns):
    def test_a_perceptron(self):
        self.assertEqual(len(self.check()["seen"]), CALLED)

    def test_many_buckets_are_reduced_during_the_backward_pass(self):
        self.assertEqual(len(self.check("model=deep", "small_buckets")["seen"]), CALLED)

    def test_gradients_that_are_views_of_buckets(self):
        self.assertEqual(len(self.check("bucket_view")["seen"]), CALLED)

    def test_buffers_that_are_rank_zeros_in_every_step(self):
        self.assertEqual(len(self.check("model=batchnorm")["seen"]), CALLED)

    def test_random_numbers_that_differ_between_ranks(self):
        self.assertEqual(len(self.check("model=dropout", "optimizer=adamw")["seen"]), CALLED)

    def test_an_accumulation_window_is_reduced_once(self):
        report = self.check("clip", accumulate=3)
        self.assertLess(len(report["seen"]), WINDOWS * 3 // 2)

    def test_gradients_that_are_zeroed_in_place(self):
        self.assertEqual(len(self.check("zero_in_place")["seen"]), CALLED)

    def test_three_ranks_in_bfloat16(self):
        self.assertEqual(len(self.check("precision=bf16-mixed", ranks=3)["seen"]), CALLED)

    def test_an_optimizer_that_updates_on_the_host(self):
        self.assertEqual(len(self.check("optimizer=rmsprop", "clip")["seen"]), CALLED)

    def test_scaled_losses_of_which_the_first_overflow(self):
        self.check("scaled", windows=60)


class RanksDiffer(ComparedRuns):
    """One rank replays a step that another one runs eagerly."""

    @on_cpus
    def test_a_rank_that_finds_a_difference_continues_alone(self):
        arguments = ["batch=4", "samples=192", "epochs=1", "skip_nonfinite", "nan=1:7"]
        for backend in BACKENDS:
            plain, recorded = self.train_each([backend, *arguments], [backend, *arguments, "record"], ranks=2)
            for one, other in zip(plain, recorded):
                self.assertEqual(one["weights"], other["weights"])
                self.assertEqual(one["global_step"], 23)
                self.assertEqual(other["global_step"], 23)
            # Rank 1 ran its step eagerly instead of the 4th replay, which differed, and all steps after it.
            self.assertEqual([len(report["seen"]) for report in recorded], [CALLED - 1, 4 + 3 + 16])

    def test_a_loss_that_is_not_finite_on_one_rank_skips_the_update_on_all(self):
        # Sample 75 is in rank 1's batch 9, which both ranks replay.
        report = self.check("nan_sample=75", "skip_nonfinite")
        self.assertEqual(report["global_step"], WINDOWS - 2)
        self.assertEqual(len(report["seen"]), CALLED)

    def test_and_an_update_on_the_host(self):
        report = self.check("nan_sample=75", "skip_nonfinite", "optimizer=rmsprop", backends=BACKENDS[:1])
        self.assertEqual(report["global_step"], WINDOWS - 2)

    def test_and_within_an_accumulation_window(self):
        self.assertEqual(self.check("nan_sample=75", "skip_nonfinite", accumulate=2)["global_step"], WINDOWS - 2)

    def test_a_gradient_that_is_not_finite_skips_the_update_on_all(self):
        for arguments in (("clip",), ("precision=bf16-mixed",)):
            report = self.check("nan_gradient_sample=75", "skip_nonfinite", *arguments, backends=BACKENDS[:1])
            self.assertEqual(report["global_step"], WINDOWS - 2)
        self.assertEqual(self.check("nan_gradient_sample=75", "skip_nonfinite", accumulate=2, backends=BACKENDS[:1])["global_step"],
                         WINDOWS - 2)
        status, errors = self.run_with("batch=4", "samples=192", "nan_gradient_sample=75", "record", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, r"the gradient of net.0.\w+ is nan in epoch 0, batch 9|"
                                 r"a gradient is nan or inf in epoch 0, batch 9")

    def test_and_ends_the_run_if_the_policy_requires_it(self):
        status, errors = self.run_with("batch=4", "samples=192", "nan_sample=75", "record", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, r"the loss is (nan|not finite on another rank) in epoch 0, batch 9")

    def test_a_stop_that_one_rank_asks_for_ends_both_after_the_same_step(self):
        steps = [report["global_step"] for report in
                 self.train("batch=4", "samples=400", "record", "signal_at=1:14", "checkpoint", "again", ranks=2)]
        self.assertEqual(steps[0], steps[1])
        arguments = ["batch=4", "samples=400", "epochs=1", "stop_after=1:3"]
        plain, recorded = ([r["global_step"] for r in reports]
                           for reports in self.train_each(arguments, [*arguments, "record"], ranks=2))
        self.assertEqual(recorded[0], recorded[1])
        # On GPUs it is received one window later where it travels with the gradients.
        self.assertEqual(recorded[0], plain[0] - (1 if ON_NCCL else 0))


@on_gpus
class RanksReplayTogether(ComparedRuns):
    def check_shapes(self, *arguments, **more):
        plain, recorded = self.train_each(arguments, [*arguments, "record"], ranks=2, **more)
        for one, other in zip(plain, recorded):
            self.assert_same(one, other)
        self.assertEqual(recorded[0]["weights"], recorded[1]["weights"])
        return [len(report["seen"]) for report in recorded], [len(report["seen"]) for report in plain]

    def test_batches_whose_sizes_differ_between_ranks(self):
        recorded, plain = self.check_shapes("samples=240", "by_length=10", "epochs=4", timeout=120)
        self.assertEqual(recorded[0], recorded[1])  # they have run and replayed the same batches
        self.assertLess(recorded[0], plain[0])
        self.assertGreater(recorded[0], CALLED)

    def test_and_within_accumulation_windows(self):
        recorded, plain = self.check_shapes("samples=240", "by_length=10", "epochs=4", "accumulate=2", timeout=120)
        self.assertLess(recorded[0], plain[0])

    def test_a_rank_that_leaves_out_a_batch(self):
        recorded, _ = self.check_shapes("samples=192", "batch=4", "epochs=1", "skip_batch=1:9")
        self.assertEqual(recorded, [CALLED + 1, CALLED])

    def test_auto_leaves_steps_as_they_are(self):
        arguments = ["samples=192", "batch=4", "epochs=1"]
        plain, recorded = self.train_each(arguments, [*arguments, "record=auto"], ranks=2)
        self.assertEqual(plain[0]["weights"], recorded[0]["weights"])
        self.assertEqual(len(recorded[0]["seen"]), WINDOWS)

    def test_batch_norm_over_all_ranks(self):
        self.assertEqual(len(self.check("model=batchnorm", "sync_batchnorm")["seen"]), CALLED)

    def test_gloo_is_refused(self):
        status, errors = self.run_with("samples=96", "record", "backend=gloo", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("with DDPOptions.process_group_backend: gloo, gradients of a GPU are reduced on the host, which a "
                      "captured step cannot wait for. Use nccl or auto.", errors)

    # Reliability: frozen.
    def test_a_rank_that_hangs_in_a_replay_is_found_within_the_timeout(self):
        status, errors = self.run_with("samples=192", "batch=4", "epochs=1", "record", "timeout=2", "freeze_replay=1:9",
                                       "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("rank 0 of 2: a recorded step did not end within 2.0 s: it waits for the others' gradients. Another "
                      "rank ended or hangs; see its output.", errors)


class Faults(RanksTest):
    def begin(self, *arguments):
        saved = pathlib.Path(self.out) / "mid.ckpt"
        saved.unlink(missing_ok=True)  # another run's
        process = self.start("samples=4000000", "batch=1", "record", "save_at=40", *arguments, "devices=2",
                             start_new_session=True)

        def clean():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()

        self.addCleanup(clean)
        self.wait_until(saved.exists, "its 40th step, which is replayed")
        return process

    def test_a_killed_rank_ends_the_job_and_is_named(self):
        for backend in BACKENDS:
            process = self.begin(backend)
            os.kill(children(process.pid)[1], signal.SIGKILL)
            _, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 128 + signal.SIGKILL)
            self.assertRegex(errors, r"rank 1 on \S+ \(process \d+\) was killed by signal 9 \(Killed\) in train")

    def test_a_frozen_rank_is_found_within_the_timeout(self):
        for backend in BACKENDS:
            process = self.begin("timeout=2", backend)
            os.kill(children(process.pid)[1], signal.SIGSTOP)
            _, errors = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            self.assertRegex(errors, "rank 0 of 2: .* failed: ")
            self.assertIn("Another rank ended or hangs; see its output.", errors)

    def test_a_signal_to_one_rank_stops_both(self):
        process = self.begin()
        os.kill(children(process.pid)[1], signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        self.assertIn("fit was stopped by SIGTERM", errors)


class Refused(RanksTest):
    def check(self, *arguments, text):
        status, errors = self.run_with("samples=96", "record", *arguments, "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn(text, errors)

    def test_parameters_that_a_step_does_not_use(self):
        for word, option in (("find_unused", "find_unused_parameters"), ("static_graph", "static_graph")):
            self.check(word, text=f"TrainerOptions.record_steps: DDPOptions.{option} finds on the host which parameters "
                                  "a step uses, which a recording does not repeat. Remove one.")

    def test_compressed_gradients(self):
        self.check("hook=fp16", text="TrainerOptions.record_steps: DDPOptions.comm_hook runs on c10d's thread, where a "
                                     "recording does not see it. Remove one.")

    def test_weighted_losses(self):
        self.check("weighted", text="set_loss_weight: the sum of a window's weights is read by the host")

    def test_fsdp(self):
        device = "cuda:0" if ON_NCCL else "cpu"
        self.check("strategy=fsdp", text=f"TrainerOptions.record_steps: steps of fsdp on {device} cannot be recorded; steps "
                                         "of single_device can, and of ddp on CPUs and over NCCL.")

    @on_cpus
    def test_messages_that_are_not_repeated_are_named_and_steps_run_as_they_are(self):
        arguments = ["samples=96", "batch=4", "model=batchnorm", "sync_batchnorm"]
        plain = self.train(*arguments, ranks=2)
        status, errors = self.run_with(*arguments, "record", "devices=2")
        self.assertEqual(status, 0, errors)
        self.assertIn("c10d::allgather_ sends tensors to other ranks in a way that a recording does not repeat", errors)
        self.assertIn("The steps are not recorded, and run eagerly.", errors)
        self.assertEqual([r["weights"] for r in plain], [r["weights"] for r in self.reports(2)])


if __name__ == "__main__":
    main()
