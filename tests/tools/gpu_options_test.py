"""Tests of tools/gpu_options.py: what its runs cover, and how runs that differ or fail are reported.

  gpu_options_test.py SOURCES BIN [unittest options]      as gpu_check_test.py
"""
import re
import subprocess
import threading
import time
import unittest

from gpu_check_test import BIN, Folders, gpu_runs

import gpu_options
from gpu_options import MLP, Alone, Pair
from gpu_runs import Failed, Run
from waiting import wait_until


def listed(kind):
    output = subprocess.run([BIN / "levin", "list", kind], capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"^  ([\w-]+)  ", output, re.M))


class Options(Folders):
    def setUp(self):
        super().setUp()
        self.run_ = Run(gpu_runs.Levin(self.tree(), "cpu"), self.folder, 100)

    def named(self, *names):
        return [one for one in gpu_options.everything("cpu") if one.name in names]

    def test_every_optimizer_takes_part_and_every_precision_of_lower_or_higher_accuracy(self):
        text = " ".join(" ".join(one.options) for one in gpu_options.everything("gpu"))
        for name in listed("optimizers"):
            self.assertIn(f"--optimizer.class_path={name} ", text + " ")
        for name in listed("precisions") - {"32-true", "32", "64", "bf16", "16", "MixedPrecision"}:
            self.assertIn(f"--trainer.precision={name} ", text)

    def test_names_are_unique_and_strategies_use_the_backend_of_the_accelerator(self):
        for accelerator, backend in (("gpu", "nccl"), ("cpu", "gloo")):
            names = [one.name for one in gpu_options.everything(accelerator)]
            self.assertEqual(len(names), len(set(names)))
            arguments = [word for one in gpu_options.everything(accelerator) for word in (*one.options, *getattr(one, "others", ()))]
            self.assertEqual({word for word in arguments if "process_group_backend" in word},
                             {f"--trainer.strategy.init_args.process_group_backend={backend}"})

    def test_runs_that_hold_are_reported(self):
        wanted = self.named("Muon, recorded", "blocks computed again, with dropout", "LoRA, weights in int8")
        self.assertEqual(gpu_options.carry_out(self.run_, wanted), [])
        self.assertEqual(self.run_.figures, {"Muon, recorded": "bitwise identical", "LoRA, weights in int8": "trained",
                                             "blocks computed again, with dropout": "bitwise identical"})

    def test_a_pair_that_differs_and_a_run_that_fails_are_reported_with_the_reason(self):
        wanted = [Pair("seed", MLP, 5, (), ("--seed_everything=2",)), Alone("wrong", MLP, 5, ("--trainer.precision=8",)),
                  Alone("LBFGS", MLP, 3, gpu_options.optimizer("LBFGS"))]
        seed, wrong = gpu_options.carry_out(self.run_, wanted)
        self.assertRegex(seed, r"^seed: \d+ tensors of the checkpoints differ, first: tensor model\.net")
        self.assertRegex(wrong, r"(?s)^wrong: exit status 2 of .*precision")
        self.assertEqual(self.run_.figures, {"seed": "failed", "wrong": "failed", "LBFGS": "trained"})

    def test_a_stopped_step_leaves_nothing_running(self):
        why = []

        def wait():
            try:
                self.run_.command(["sleep", "60"])
            except Failed as error:
                why.append(str(error))

        thread = threading.Thread(target=wait)
        began = time.monotonic()
        thread.start()
        wait_until(lambda: self.run_.processes, "the program")
        self.run_.stop()
        thread.join(timeout=30)
        self.assertEqual(why, ["exit status -9 of sleep 60"])
        with self.assertRaisesRegex(Failed, "the step was ended"):
            self.run_.command(["sleep", "60"])
        self.assertLess(time.monotonic() - began, 30)


if __name__ == "__main__":
    unittest.main(verbosity=2)
