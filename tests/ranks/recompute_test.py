"""trainer.recompute on several ranks: bitwise identical to runs without it, and each parameter's gradient is sent once."""

import re

from ranks import RanksTest, fsdp, main

RUN = ["samples=24", "batch=4", "epochs=2"]
EACH, RANGE, KEEP = ["recompute=net.*"], ["recompute=net.0..net.2"], ["recompute=net.*", "keep_matmul"]


class Recompute(RanksTest):
    def check(self, *arguments, forms):
        plain = self.train(*arguments, ranks=2)
        self.assertEqual(plain[0]["weights"], plain[1]["weights"])
        for form in forms:
            with self.subTest(form=form):
                for report in self.train(*arguments, *form, ranks=2):
                    self.assertEqual(report["weights"], plain[0]["weights"])
                    self.assertEqual(report["reductions"], plain[0]["reductions"])
        return plain[0]

    def test_ddp_sends_each_gradient_once(self):
        report = self.check("model=deep", *RUN, "count", forms=(EACH, RANGE, KEEP))
        self.assertEqual(report["reductions"][2:], [1] * 4)

    def test_ddp_with_accumulation_sends_once_a_window(self):
        report = self.check("model=deep", *RUN, "count", "accumulate=3", "epochs=4", forms=(EACH,))
        self.assertEqual(report["reductions"][6:], [0, 0, 1] * 2)

    def test_ddp_looks_for_unused_parameters(self):
        self.check("model=deep", *RUN, "find_unused", "small_buckets", forms=(EACH,))

    def test_ddp_with_dropout_and_with_batch_normalization_of_all_ranks(self):
        self.check("model=dropout", *RUN, forms=(RANGE,))
        self.check("model=batchnorm", "sync_batchnorm", *RUN, forms=(EACH,))

    def test_ddp_in_manual_optimization(self):
        self.check("model=manual", *RUN, forms=(EACH,))

    def test_a_budget_is_planned_by_rank_0_for_all(self):
        run = ["model=deep", "wide=64", "samples=256", "batch=64", "epochs=2", "count"]
        status, errors = self.run_with(*run, "budget=1KiB", "devices=2")
        self.assertNotEqual(status, 0)
        least = float(re.search(r"blocks, is ([0-9.]+) KiB", errors)[1])
        plain = self.train(*run, ranks=2)
        process = self.start(*run, f"budget={least + 0.1:.1f}KiB", "devices=2")
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(output.count("recompute: net."), 1, output)  # rank 0 prints it, for all
        for report in self.reports(2):
            self.assertEqual(report["weights"], plain[0]["weights"])
            self.assertEqual(report["metrics"]["loss_epoch"], plain[0]["metrics"]["loss_epoch"])
            self.assertEqual(report["reductions"], plain[0]["reductions"])

    def test_fsdp(self):
        self.check("model=deep", *RUN, *fsdp(2), forms=(EACH,))
        self.check("model=deep", *RUN, *fsdp(3), forms=(EACH, KEEP))

    def test_fsdp_with_accumulation_clipping_and_dropout(self):
        self.check("model=dropout", *RUN, "accumulate=3", "clip", *fsdp(3), forms=(RANGE,))


if __name__ == "__main__":
    main()
