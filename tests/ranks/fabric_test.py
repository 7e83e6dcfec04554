"""Fabric on two ranks ends with the Trainer's weights, bitwise."""

from ranks import RanksTest, fsdp, main

DATA = ["samples=40", "batch=4", "shuffle"]


class FabricOnTwoRanks(RanksTest):
    def weights(self, *arguments):
        reports = self.train(*DATA, *arguments, ranks=2)
        self.assertEqual(reports[0]["weights"], reports[1]["weights"])
        return reports[0]["weights"]

    def check(self, *arguments):
        trainer, steps, hand = (self.weights(f"fabric={kind}", *arguments) for kind in ("trainer", "steps", "hand"))
        self.assertEqual(trainer, steps)
        self.assertEqual(trainer, hand)

    def test_ddp(self):
        for backend in ("shm", "gloo"):
            with self.subTest(backend):
                self.check(f"backend={backend}")

    def test_gradients_that_are_accumulated_are_reduced_once(self):
        self.check("accumulate=5")

    def test_fsdp(self):
        for stage in (1, 2, 3):
            with self.subTest(stage):
                self.check(*fsdp(stage))

    def test_mistakes_that_would_only_show_in_the_weights_are_errors(self):
        for report in self.train(*DATA, "fabric=mistakes", ranks=2):
            errors = report["errors"]
            self.assertRegex(errors["plain"], r"^FabricOptimizer\.step: .*reduce them over ranks.*fabric\.backward\(loss\)")
            self.assertRegex(errors["outside"], r"^Fabric\.backward: the forward pass began outside .*before fabric\.autocast\(\)")
            self.assertRegex(errors["inside"], r"^Fabric\.backward: the forward pass began inside .*after backward")
            self.assertRegex(errors["unreduced"], r"^FabricOptimizer\.step: the gradients are not reduced .*End the scope")
            self.assertEqual(report["steps"], 1)

    def test_buffers_are_predicted_with_loaded_and_rolled_back(self):
        for strategy in ([], fsdp(2), fsdp(3)):
            with self.subTest(strategy):
                first, second = self.train(*DATA, "fabric=buffers", *strategy, ranks=2)
                self.assertNotEqual(first["own"], second["own"])
                self.assertEqual(first["predicted"], second["predicted"])  # with rank 0's
                for report in (first, second):
                    self.assertEqual(report["after_predict"], report["own"])
                    self.assertEqual(report["loaded"], first["own"])
                    self.assertEqual(report["rolled_back"], first["own"])
                for report in self.train(*DATA, "fabric=buffers", "misfit", *strategy, ranks=2):
                    self.assertRegex(report["error"], r"^Fabric\.load: .*model\.last\.weight is \(1, 8\) in the file and \(2, 8\)")

    def test_continues_inside_an_epoch(self):
        whole = self.weights("fabric=steps", "accumulate=2")
        self.weights("fabric=steps", "accumulate=2", "save=7")
        self.assertEqual(whole, self.weights("fabric=steps", "accumulate=2", "resume"))

    def test_parameters_whose_rows_are_selected_are_reduced(self):
        steps = self.weights("fabric=steps", "rows=3")
        self.assertEqual(len(steps), 8 * 6 + 6 + 6 * 3 + 3)
        self.assertEqual(steps, self.weights("fabric=hand", "rows=3"))
        self.weights("fabric=steps", "rows=3", "save=4")
        self.assertEqual(steps, self.weights("fabric=steps", "resume"))

    def test_rows_that_differ_between_ranks_are_an_error_of_all_ranks_that_changes_nothing(self):
        expected = {"values": "the ranks select different rows",
                    "count": r"rank 0 selects 2 rows of \S+weight, \S+bias, of which 2 are kept, and rank 1 3 rows",
                    "kept": "of which 0 are kept, and rank 1 .* of which 1 are kept",
                    "tensors": "rank 0 selects 2 rows of .*weight.* and rank 1 2 rows of .*bias",
                    "one_rank": "on rank 1: AdamW: tensor 0, .* has no row 9"}
        clean = self.train(*DATA, "fabric=other_rows", "clean", ranks=2)[0]["weights"]
        for report in self.train(*DATA, "fabric=other_rows", ranks=2):
            for name, pattern in expected.items():
                self.assertRegex(report["errors"][name], "^FabricOptimizer.select_rows: .*" + pattern)
            self.assertEqual(report["weights"], clean)

    def test_rows_of_sharded_parameters_are_an_error(self):
        with self.assertRaisesRegex(Exception, "FabricOptimizer.select_rows: .*whose number of rows cannot change"):
            self.weights("fabric=steps", "rows=3", *fsdp(2))


if __name__ == "__main__":
    main()
