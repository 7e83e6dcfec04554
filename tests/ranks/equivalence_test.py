"""N micro-batches = one batch = N ranks, and the article's eight weights."""

from ranks import RanksTest, main

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


class Equivalence(RanksTest):
    """32 samples in one batch, in 4 of 8, by 2 ranks of 16, and by 2 ranks in 2 of 8."""

    def check(self, *words):
        whole = self.train("samples=96", "batch=32", "epochs=3", *words)[0]["weights"]
        parts = self.train("samples=96", "batch=8", "accumulate=4", "epochs=3", *words)[0]["weights"]
        ranks = self.train("samples=96", "batch=16", "epochs=3", *words, ranks=2)
        both = self.train("samples=96", "batch=8", "accumulate=2", "epochs=3", *words, ranks=2)
        self.assertEqual(ranks[0]["weights"], ranks[1]["weights"])
        self.assert_close(whole, parts)
        self.assert_close(whole, ranks[0]["weights"])
        self.assert_close(whole, both[0]["weights"])

    def test_sgd(self):
        self.check("optimizer=sgd")

    def test_adamw(self):
        self.check("optimizer=adamw")

    def test_shuffled_and_clipped(self):
        self.check("shuffle", "clip")

    def test_a_tail_that_does_not_divide(self):
        whole = self.train("samples=50", "batch=16", "epochs=2")[0]["weights"]
        ranks = self.train("samples=50", "batch=8", "epochs=2", ranks=2)
        self.assert_close(whole, ranks[0]["weights"])
        self.assertEqual(ranks[0]["seen"], [8, 8, 8, 1] * 2)

    def test_three_ranks_repeat_samples_from_the_front_until_they_have_as_many(self):
        for report in self.train("samples=10", "batch=2", "epochs=1", ranks=3):
            self.assertEqual(report["seen"], [2, 2])


class DdpOptions(RanksTest):
    def test_gradients_in_buckets_small_buckets_and_a_static_graph_change_nothing(self):
        plain = self.train("samples=32", ranks=2)
        for words in (["bucket_view"], ["small_buckets"], ["static_graph"], ["find_unused"],
                      ["bucket_view", "small_buckets"]):
            self.assertEqual(self.train("samples=32", *words, ranks=2)[0]["weights"], plain[0]["weights"], words)

    def test_compressed_gradients_end_near_the_others(self):
        plain = self.train("samples=32", ranks=2)
        for hook, tolerance in (("fp16", 1e-3), ("bf16", 1e-2)):
            small = self.train("samples=32", f"hook={hook}", ranks=2)
            self.assertEqual(small[0]["weights"], small[1]["weights"])
            self.assertNotEqual(small[0]["weights"], plain[0]["weights"])
            self.assert_close(small[0]["weights"], plain[0]["weights"], tolerance)

    def test_weights_begin_the_same_whatever_the_ranks_seeds(self):
        one, other = self.train("seed_by_rank", ranks=2)
        self.assertEqual(one["weights"], other["weights"])
        self.assertEqual(one["weights"], self.train("seed=1", ranks=2)[0]["weights"])

    def test_buffers_are_rank_0s(self):
        one, other = self.train("model=batchnorm", "samples=32", "epochs=1", ranks=2)
        self.assertEqual(one["weights"], other["weights"])

    def test_ranks_draw_different_random_numbers(self):
        one, other = self.train("model=dropout", ranks=2)
        self.assertNotEqual(one["random"], other["random"])
        self.assertEqual(one["weights"], other["weights"])

    def test_a_parameter_without_gradient_is_named(self):
        status, errors = self.run_words("model=unused", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("the loss does not depend on spare.weight, spare.bias", errors)
        self.assertIn("find_unused_parameters: true", errors)
        self.train("model=unused", "find_unused", ranks=2)


if __name__ == "__main__":
    main()
