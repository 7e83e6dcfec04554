"""Models that are difficult for ranks: several ranks train what one process trains with the whole batch, in float64."""

from ranks import FSDP_STAGES, RanksTest, free_port, main

EXACT = 1e-12


class ModelTest(RanksTest):
    def assert_like_one_process(self, *arguments, ranks=2, more=()):
        """`more`: arguments that only the ranks get."""
        whole = self.train(f"batch={8 * ranks}", *arguments)[0]
        parts = self.train("batch=8", *arguments, *more, ranks=ranks)
        for report in parts[1:]:
            self.assertEqual(parts[0]["weights"], report["weights"])
        self.assert_close(whole["weights"], parts[0]["weights"], EXACT)
        return whole, parts


class Gan(ModelTest):
    """Each backward pass reaches different parameters than the one before."""

    def test_with_find_unused_parameters_it_ends_where_one_process_ends(self):
        for arguments in ([], ["toggle"]):
            with self.subTest(arguments=arguments):
                self.assert_like_one_process("model=gan", *arguments, more=["find_unused"])

    def test_three_ranks(self):
        self.assert_like_one_process("model=gan", ranks=3, more=["find_unused"])

    def test_with_toggle_optimizer_it_needs_no_option(self):
        self.assert_like_one_process("model=gan", "toggle")
        self.assert_like_one_process("model=gan", "toggle", ranks=3)

    def test_with_neither_the_error_names_the_parameters_and_both_remedies(self):
        status, errors = self.run_with("model=gan", "batch=8", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("the loss does not depend on generator.0.weight", errors)
        self.assertIn("toggle_optimizer", errors)
        self.assertIn("find_unused_parameters: true", errors)

    def test_every_stage_of_fsdp_trains_it(self):
        for stage in FSDP_STAGES:
            with self.subTest(stage=stage):
                self.assert_like_one_process("model=gan", "toggle", more=["strategy=fsdp", f"stage={stage}"])


class SyncBatchNorm(ModelTest):
    def check(self, norm, more_arguments=(), **more):
        return self.assert_like_one_process("model=norm", f"norm={norm}", *more_arguments, more=["sync_batchnorm"], **more)

    def assert_same_buffers(self, whole, parts):
        for name, values in whole["buffers"].items():
            for report in parts:
                self.assert_close(values, report["buffers"][name], EXACT)

    def test_it_normalizes_by_the_whole_batch(self):
        self.assert_same_buffers(*self.check("batch"))
        self.assert_same_buffers(*self.check("batch", ranks=3))

    def test_without_weight_and_bias(self):
        self.assert_same_buffers(*self.check("batch_plain"))

    def test_without_running_statistics(self):
        self.check("batch_untracked")
        self.check("batch_plain_untracked")

    def test_ranks_with_different_numbers_of_validation_batches_do_not_wait_for_each_other(self):
        for norm in ("batch_untracked", "batch_plain_untracked", "both"):  # which normalize by the batch in eval mode too
            with self.subTest(norm=norm):
                self.check(norm, more_arguments=["val=5"])

    def test_instance_normalization_stays_each_samples_own(self):
        for norm in ("instance", "instance_plain", "instance_untracked", "instance_plain_untracked"):
            with self.subTest(norm=norm):
                self.check(norm)

    def test_one_after_the_other(self):
        self.check("both")

    def test_it_matters(self):
        whole = self.train("batch=16", "model=norm", "norm=batch")[0]["weights"]
        apart = self.train("batch=8", "model=norm", "norm=batch", ranks=2)[0]["weights"]
        self.assertGreater(max(abs(a - b) for a, b in zip(whole, apart)), 1e-3)


class ReadingOrder(ModelTest):
    """Stage 3, where each reading of weights is a message to all. Without a check startup_timeout, 30 minutes, counts."""

    def errors_of(self, *arguments):
        status, errors = self.run_with("model=crossed", "strategy=fsdp", "batch=8", "devices=2", *arguments)
        self.assertEqual(status, 1, errors)
        return errors

    def test_ranks_that_read_other_weights_first_are_named_with_what_they_read(self):
        for second in (8, 5):  # units of one size, whose weights would be mixed up, and of several
            with self.subTest(second=second):
                errors = self.errors_of("early=1:0", f"second={second}")
                self.assertIn("rank 0 is about to read unit 0 (first.weight, first.bias), rank 1 unit 1 (second.weight, "
                              "second.bias). Run the same layers in the same order on every rank", errors)

    def test_a_rank_that_leaves_the_order_of_the_last_step_is_named_within_the_timeout(self):
        for second in (8, 5):
            with self.subTest(second=second):
                errors = self.errors_of("early=1:3", f"second={second}", "timeout=3")
                self.assertIn("rank 1 of 2: agreeing to gather unit 1 (second.weight, second.bias) failed", errors)
                self.assertIn("Another rank ended, hangs, or reads other weights", errors)
                self.assertRegex(errors, r"rank 0 of 2: (agreeing to gather|gathering) unit \d")

    def test_an_order_that_changes_on_all_ranks_alike_is_no_error(self):
        self.assert_like_one_process("model=crossed", "early=all:2", more=["strategy=fsdp", "timeout=20"])


class RollCall(ModelTest):
    def start_rank(self, rank, size, port):
        return self.start("model=crossed", "batch=8", "strategy=fsdp", env={
            "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port)})

    def test_a_rank_that_is_given_to_two_processes_ends_all_at_once(self):
        port = free_port()
        ranks = [self.start_rank(rank, 3, port) for rank in (0, 1, 1)]  # rank 2 is missing
        for rank in ranks:
            _, errors = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 1, errors)
        self.assertRegex(errors, r"rank 1 of 3 was given to two processes: process \d+ on \S+, and process \d+ on ")
        self.assertIn("Give every process its own rank", errors)

    def test_a_second_rank_0_on_one_machine_ends_at_once(self):
        port = free_port()
        ranks = [self.start_rank(0, 2, port) for _ in range(2)]
        try:
            self.wait_until(lambda: any(rank.poll() is not None for rank in ranks), "the second rank 0 ends")
            second = next(rank for rank in ranks if rank.poll() is not None)
            self.assertIn("Another program listens there: another run, or a second process with rank 0",
                          second.communicate()[1])
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()


class Messages(ModelTest):
    def test_a_static_graph_with_accumulation_is_refused(self):
        status, errors = self.run_with("model=norm", "norm=none", "accumulate=3", "static_graph", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("DDPOptions.static_graph: a static graph is reduced in every backward pass, but "
                      "accumulate_grad_batches and micro_batch_size skip reductions. Remove static_graph.", errors)

    def test_a_static_graph_that_changes_is_named(self):
        status, errors = self.run_with("model=gan", "batch=8", "static_graph", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("ddp: static_graph: this step's backward pass differs from the first step's: no gradient of ", errors)
        self.assertIn("Remove static_graph", errors)

    def test_a_sparse_gradient_is_named_with_what_to_do(self):
        for arguments in ([], *(["strategy=fsdp", f"stage={stage}"] for stage in FSDP_STAGES)):
            with self.subTest(arguments=arguments):
                status, errors = self.run_with("model=embedding", "sparse", "batch=8", "devices=2", *arguments)
                self.assertEqual(status, 1)
                self.assertIn("the gradient of embedding.weight is sparse, as with an Embedding with sparse(true), but "
                              "only dense gradients can be reduced. Make the layer with sparse(false)", errors)
        self.assert_like_one_process("model=embedding")

    def test_what_is_the_same_on_all_ranks_is_compared_without_sending_it_to_all(self):
        for report in self.train("model=norm", "norm=none", ranks=3):
            # What is left is of a few bytes a rank: which machine it is on, its shared memory (two), the number of batches,
            # and an epoch's metrics.
            self.assertLessEqual(report["messages"].get("gloo:all_gather", 0), 5, report["messages"])

    def test_a_full_checkpoint_is_gathered_on_rank_0_alone(self):
        arguments = ["model=norm", "norm=none", "epochs=1", "strategy=fsdp", "stage=2"]
        without = self.train(*arguments, ranks=3)
        saved = self.train(*arguments, "checkpoint", ranks=3)
        for before, after in zip(without, saved):
            self.assertGreaterEqual(after["messages"].get("gloo:gather", 0), 8, after["messages"])  # weights and momenta
            # Of the eight tensors none: what is left are random numbers, of which every rank keeps all, and the like.
            self.assertLessEqual(after["messages"].get("gloo:all_gather", 0),
                                 before["messages"].get("gloo:all_gather", 0) + 4, after["messages"])


class SpilledWhileMade(ModelTest):
    """Stage 3 with layers in configure_model: each rank has them on a disk until it has its part of them."""
    SHARDED = ["strategy=fsdp", "stage=3"]

    def check(self, *arguments, spills=True, **more):
        """The ranks' reports of a model whose weights, a buffer and a tensor that it does not register are spilled."""
        whole, parts = self.assert_like_one_process("model=late", *arguments, more=[*self.SHARDED, *more.pop("more", [])],
                                                    **more)
        for report in parts:
            self.assertEqual(report["files"]["made"] >= 4, spills, report["files"])
            self.assertEqual(report["files"]["training"], 0)
            self.assert_close(report["buffers"]["scale"], whole["buffers"]["scale"], 0)
        mean = [sum(losses) / len(parts) for losses in zip(*(report["losses"] for report in parts))]
        self.assert_close(mean, whole["losses"], EXACT)
        return parts

    def test_two_and_three_ranks_train_as_one_process(self):
        self.check()
        self.check(ranks=3)

    def test_weights_of_another_type_and_layout(self):
        self.check("precision=64-true")
        self.check("conv")

    def test_turned_off_it_trains_the_same(self):
        self.check(more=["spill=off"], spills=False)

    def test_without_a_folder_it_trains_the_same_and_reports_why_it_spills_nothing(self):
        status, errors = self.run_with("model=late", "batch=8", *self.SHARDED, "devices=2", "spill=/no/such/folder")
        self.assertEqual(status, 0, errors)
        self.assertIn("fsdp: cannot reserve", errors)
        self.assertIn("in /no/such/folder for the model while it is made: No such file or directory", errors)
        self.assertIn('or set spill_dir: "off"', errors)

    def test_other_strategies_and_one_rank_spill_nothing(self):
        for arguments in ([], ["devices=2"], ["devices=2", "strategy=fsdp", "stage=2"], self.SHARDED):
            with self.subTest(arguments=arguments):
                status, errors = self.run_with("model=late", "batch=8", *arguments)
                self.assertEqual(status, 0, errors)
                self.assertEqual(self.report(0)["files"]["made"], 0)

    def test_no_rank_has_the_whole_model_in_memory_before_the_first_step(self):
        # 168 MB of weights, a part of 84 MB; and LibTorch's own.
        arguments = ["model=late", "layers=20", "width=1024", "memory", "batch=2", "samples=4", "epochs=1"]
        for report in self.train(*arguments, *self.SHARDED, "spill=off", ranks=2):
            self.assertGreater(report["set_up"]["resident"], 165e6)
        for report in self.train(*arguments, *self.SHARDED, ranks=2):
            self.assertLess(report["set_up"]["resident"], 140e6)


class Memory(ModelTest):
    def test_what_stage_3_gives_back_leaves_resident_memory_too(self):
        arguments = ["model=wide", "memory", "batch=2", "samples=16"]
        ddp = self.train(*arguments, ranks=2)
        sharded = self.train(*arguments, "strategy=fsdp", "stage=3", ranks=2)
        for whole, part in zip(ddp, sharded):
            self.assertGreater(whole["held"], 190e6)
            self.assertLess(part["held"], 105e6)
            # In addition to what is held: LibTorch's own, a few blocks of a layer's size.
            self.assertLess(part["resident"] - part["held"], 60e6, part["resident"])


if __name__ == "__main__":
    main()
