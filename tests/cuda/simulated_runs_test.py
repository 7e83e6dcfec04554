"""Runs of the tool on simulated GPUs (docs/simulated_gpu.md): on two, each strategy gives what one gives; and the
steps of gpu_check.py that need neither a real GPU's time nor its traces.

  simulated_runs_test.py LEVIN SIMULATED_GPU SIMULATED_OPERATORS [unittest's arguments]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LEVIN, GPU, OPERATORS = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
METRIC = re.compile(r"^ +(test_\w+) +([\d.]+)$", re.M)


def on_simulated_gpus(arguments, gpus=1, **settings):
    env = {**os.environ, "LD_PRELOAD": str(GPU), "LD_LIBRARY_PATH": str(GPU.parent), "NO_COLOR": "1",
           "OMP_NUM_THREADS": "1", "SIMULATED_GPUS": str(gpus), "SIMULATED_GPU_OPERATORS": str(OPERATORS), **settings}
    done = subprocess.run([str(argument) for argument in arguments], env=env, text=True, timeout=400, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_simulated_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def metrics_of(self, *options, gpus=2, **settings):
        status, output = on_simulated_gpus(
            [LEVIN, "fit", "--config", SOURCE / "configs/fashion_mnist.yaml", "--trainer.accelerator=gpu",
             f"--trainer.default_root_dir={self.folder}", "--trainer.max_epochs=1", "--trainer.limit_train_batches=40",
             "--trainer.limit_val_batches=2", "--trainer.limit_test_batches=10", "--model.dropout=0",
             "--trainer.enable_progress_bar=false", *options], gpus, **settings)
        self.assertEqual(status, 0, output)
        metrics = {name: float(value) for name, value in METRIC.findall(output)}
        self.assertEqual(set(metrics), {"test_acc", "test_loss"}, output)
        return metrics

    def expect_the_same(self, metrics, of_one):
        self.assertAlmostEqual(metrics["test_loss"], of_one["test_loss"], delta=2e-4)
        self.assertAlmostEqual(metrics["test_acc"], of_one["test_acc"], delta=2e-3)

    def test_two_gpus_give_what_one_gives(self):
        one = self.metrics_of("--trainer.devices=1")
        self.assertGreater(one["test_acc"], 0.7)
        for strategy in ("dp", "dp_balanced"):
            with self.subTest(strategy):
                self.expect_the_same(self.metrics_of("--trainer.devices=2", f"--trainer.strategy={strategy}"), one)
        for strategy in ("ddp", "fsdp"):
            with self.subTest(strategy):
                self.expect_the_same(self.metrics_of(
                    "--trainer.devices=2", f"--trainer.strategy.class_path={strategy}", "--data.batch_size=32",
                    "--trainer.strategy.init_args.process_group_backend=gloo"), one)

    def test_streams_that_work_later_on_their_own_give_the_same(self):
        slowly = {"SIMULATED_GPU_THREADS": "1", "SIMULATED_GPU_KERNEL_US": "50"}
        one = self.metrics_of("--trainer.devices=1")
        for options in (["--trainer.devices=1"], ["--trainer.devices=1", "--trainer.record_steps=true"],
                        ["--trainer.devices=2", "--trainer.strategy=dp"]):
            with self.subTest(options):
                self.expect_the_same(self.metrics_of(*options, **slowly), one)

    def check(self, *steps, **settings):
        figures = self.folder / "gpu.json"
        status, output = on_simulated_gpus(
            [sys.executable, "-B", SOURCE / "tools/gpu_check.py", "--json", figures, "--only", *steps], **settings)
        done = {step["name"]: step for step in json.loads(figures.read_text())["steps"]}
        self.assertEqual({name: step["outcome"] for name, step in done.items()},
                         {name: "passed" for name in steps}, output)
        self.assertEqual(status, 0, output)
        return done

    def test_the_check_of_a_gpu_passes_where_results_must_be_bitwise_identical(self):
        self.check("device", "cuda_graph", "resume", "nccl", "fsdp", "dp")

    def test_the_check_of_a_gpu_passes_where_memory_is_measured(self):
        done = self.check("device", "out_of_memory", "planner", SIMULATED_GPU_ONLY_SMALL="1")
        for plan in ("no recomputation", "each block"):  # without cuBLAS's workspace the second were off by more
            self.assertLess(abs(done["planner"]["figures"][f"{plan}: off by"]), 0.02)


if __name__ == "__main__":
    unittest.main(verbosity=2)
