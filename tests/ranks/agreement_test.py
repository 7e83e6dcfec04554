"""What ranks decide together: metrics, stops, and refusing to begin where they differ."""

import csv
import pathlib

from ranks import RanksTest, free_port, main


class Metrics(RanksTest):
    def test_epoch_metrics_with_sync_dist_cover_all_samples(self):
        alone = self.train("samples=20", "batch=4", "epochs=1", "val=5")[0]["metrics"]
        for report in self.train("samples=20", "batch=2", "epochs=1", "val=5", ranks=2):
            metrics = report["metrics"]
            self.assertEqual(metrics["val_samples"], 5)  # 3 on one rank, 2 on the other, none twice
            for name in ("val_loss", "loss_epoch", "samples", "largest"):
                self.assertAlmostEqual(metrics[name], alone[name], places=5, msg=name)

    def test_without_sync_dist_every_rank_has_rank_0s_value(self):
        one, other = self.train("samples=20", "batch=2", "epochs=1", ranks=2)
        self.assertEqual(one["metrics"]["own"], other["metrics"]["own"])
        self.assertLess(one["metrics"]["own"], one["metrics"]["samples"])

    def test_a_metric_whose_values_differ_without_sync_dist_is_named_once(self):
        status, output = self.run_with("samples=20", "batch=2", "epochs=3", "val=5", "devices=2")
        self.assertEqual(status, 0, output)
        warned = [line for line in output.splitlines() if "rank 0's samples" in line]
        self.assertEqual(len(warned), 1, output)
        self.assertIn('warning: log("own"): the value of the epoch counts only rank 0\'s samples', warned[0])
        self.assertIn(".sync_dist = true", warned[0])

    def test_step_metrics_are_written_once_reduced_over_ranks(self):
        def losses():
            file = next(pathlib.Path(self.out).glob("**/metrics.csv"))
            with file.open() as lines:
                rows = [float(row["loss_step"]) for row in csv.DictReader(lines) if row["loss_step"]]
            file.unlink()
            return rows

        self.train("samples=16", "batch=4", "epochs=1")
        alone = losses()
        self.train("samples=16", "batch=2", "epochs=1", ranks=2)
        together = losses()
        self.assertEqual(len(together), 4)
        self.assert_close(alone, together, 1e-5)

    def test_checkpoints_by_a_step_metric_that_differs_between_ranks_are_chosen_by_rank_0s(self):
        self.train("samples=32", "batch=2", "epochs=1", "val=4", "best_of=own_step", ranks=2)  # validates "best"
        files = list(pathlib.Path(self.out).glob("**/*.ckpt"))
        self.assertEqual(len(files), 2, files)

    def test_a_metric_that_one_rank_lacks_is_named(self):
        status, errors = self.run_with("samples=8", "odd_metric=1:0", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("different metrics", errors)
        self.assertIn("odd", errors)


class Differences(RanksTest):
    def test_shapes_that_differ_are_reported_before_anything_is_sent(self):
        status, errors = self.run_with("shape_by_rank", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("rank 0 has net.0.weight (8, 8)", errors)
        self.assertIn("rank 1 has net.0.weight (9, 8)", errors)

    def run_ranks(self, *arguments):
        """(exit statuses, standard errors) of two ranks, each with its own arguments."""
        port = str(free_port())
        ranks = [self.start("strategy=ddp", *own,
                            env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_PORT": port})
                 for rank, own in enumerate(arguments)]
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
        return [rank.returncode for rank in ranks], errors

    def expect_named(self, zero, one, arguments_of_zero, arguments_of_one):
        statuses, errors = self.run_ranks(arguments_of_zero, arguments_of_one)
        self.assertEqual(statuses, [1, 1], errors)
        for text in errors:
            self.assertIn(f"ranks differ in their options: rank 0 has {zero}, rank 1 has {one}.", text)

    def test_options_that_differ_are_reported_by_name(self):
        self.expect_named('"trainer.max_epochs: 2"', '"trainer.max_epochs: 3"', ["epochs=2"], ["epochs=3"])

    def test_an_option_of_the_optimizer_is_reported_by_name(self):
        self.expect_named('"optimizer[0].init_args.momentum: 0.9"', '"optimizer[0].init_args.momentum: 0.5"',
                          ["momentum=0.9"], ["momentum=0.5"])
        self.expect_named('"optimizer[0].class_path: SGD"', '"optimizer[0].class_path: AdamW"', [], ["optimizer=adamw"])

    def test_an_option_of_libtorchs_optimizer_is_reported_by_name(self):
        self.expect_named('"optimizer[0].init_args.dampening: 0.5"', '"optimizer[0].init_args.dampening: 0.0"',
                          ["optimizer=torch", "momentum=0.5"], ["optimizer=torch", "momentum=1"])

    def test_an_option_of_the_scheduler_is_reported_by_name(self):
        self.expect_named('"lr_scheduler[0].init_args.gamma: 0.5"', '"lr_scheduler[0].init_args.gamma: 0.25"',
                          ["gamma=0.5"], ["gamma=0.25"])
        self.expect_named('"lr_scheduler[0].class_path: StepLR"', "no such option", ["gamma=0.5"], ["momentum=0"])

    def test_what_the_module_was_made_with_is_reported_by_name(self):
        self.expect_named('"model.hparams.temperature: 1.5"', '"model.hparams.temperature: 2"', ["hparam=1.5"], ["hparam=2"])

    def test_an_option_of_the_loader_is_reported_by_name(self):
        self.expect_named('"train_dataloader[0].shuffle: false"', '"train_dataloader[0].shuffle: true"', [], ["shuffle"])

    def test_a_checkpoint_that_only_one_rank_starts_from_is_reported(self):
        self.expect_named('"ckpt_path: \"\""', "\"ckpt_path: last\"", [], ["ckpt=last"])


class Ends(RanksTest):
    def test_one_rank_that_asks_to_stop_stops_all_in_the_same_step(self):
        one, other = self.train("samples=64", "batch=2", "epochs=1", "stop_after=1:4", ranks=2)
        self.assertEqual(one["seen"], other["seen"])
        self.assertLess(len(one["seen"]), 16)
        self.assertEqual(one["weights"], other["weights"])

    def test_streams_of_different_length_end_together(self):
        one, other = self.train("stream=3", "epochs=2", ranks=2)
        self.assertEqual(one["seen"], [2, 2, 2] * 2)  # the second rank has four in its first pass
        self.assertEqual(other["seen"], one["seen"])
        self.assertEqual(one["weights"], other["weights"])

    def test_a_rank_without_a_loss_gives_zero_gradients(self):
        one, other = self.train("samples=32", "skip=1:2", ranks=2)
        self.assertEqual(one["weights"], other["weights"])
        self.assertEqual(one["global_step"], other["global_step"])

    # Reliability: nonfinite_loss
    def test_a_loss_that_is_nan_on_one_rank_stops_all_before_the_update(self):
        status, errors = self.run_with("samples=32", "nan=1:2", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn("not finite on another rank", errors)
        one, other = self.train("samples=32", "nan=1:2", "skip_nonfinite", "epochs=1", ranks=2)
        self.assertEqual(one["weights"], other["weights"])
        self.assertEqual(one["global_step"], 3)


if __name__ == "__main__":
    main()
