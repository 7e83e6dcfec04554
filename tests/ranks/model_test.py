"""Models that are hard on ranks: what several ranks train is what one process trains with the whole batch, in float64."""

from ranks import FSDP_STAGES, RanksTest, main

EXACT = 1e-12


class ModelTest(RanksTest):
    def assert_like_one_process(self, *words, ranks=2, more=()):
        """`more`: words for the ranks alone."""
        whole = self.train(f"batch={8 * ranks}", *words)[0]
        parts = self.train("batch=8", *words, *more, ranks=ranks)
        for report in parts[1:]:
            self.assertEqual(parts[0]["weights"], report["weights"])
        self.assert_close(whole["weights"], parts[0]["weights"], EXACT)
        return whole, parts


class Gan(ModelTest):
    """Each backward reaches other parameters than the one before."""

    def test_with_find_unused_parameters_it_ends_where_one_process_ends(self):
        for words in ([], ["toggle"]):
            with self.subTest(words=words):
                self.assert_like_one_process("model=gan", *words, more=["find_unused"])

    def test_three_ranks(self):
        self.assert_like_one_process("model=gan", ranks=3, more=["find_unused"])

    def test_without_the_flag_the_error_names_the_parameters_and_the_flag(self):
        status, errors = self.run_words("model=gan", "toggle", "batch=8", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("the loss does not depend on discriminator.0.weight", errors)
        self.assertIn("find_unused_parameters: true", errors)

    def test_every_stage_of_fsdp_trains_it(self):
        for stage in FSDP_STAGES:
            with self.subTest(stage=stage):
                self.assert_like_one_process("model=gan", more=["strategy=fsdp", f"stage={stage}"])


class SyncBatchNorm(ModelTest):
    def check(self, norm, **more):
        return self.assert_like_one_process("model=norm", f"norm={norm}", more=["sync_batchnorm"], **more)

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


if __name__ == "__main__":
    main()
