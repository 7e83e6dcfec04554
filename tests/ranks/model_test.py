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


if __name__ == "__main__":
    main()
