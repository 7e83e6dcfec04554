"""Ranks that the real torchrun starts: from the PyTorch for Python that benchmarks compare with (`./dev check --peers`
installs it), or from the Python that LEVIN_PYTHON names. Skipped without it: torchrun needs all of the wheel, CUDA
libraries included, and Debian's python3-torch 1.13 has one that fails with Debian's Python.
"""

import os
import pathlib
import subprocess

from tool_runs import ToolTest, main

from ranks import PROGRAM, free_port

HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")


def find_torchrun():
    """Returns (the command of torchrun, PYTHONPATH), or nothing if it is not installed."""
    folders = sorted(HOME.glob("peers-*"))
    for python, path in [(os.environ.get("LEVIN_PYTHON"), ""), *((folder / "python3", folder) for folder in folders)]:
        if not python or not pathlib.Path(python).exists():
            continue
        done = subprocess.run([python, "-c", "import torch.distributed.run"], env={**os.environ, "PYTHONPATH": str(path)},
                              capture_output=True)
        if done.returncode == 0:
            return [str(python), "-m", "torch.distributed.run"], str(path)
    return None


FOUND = find_torchrun()


class Torchrun(ToolTest):
    def setUp(self):
        super().setUp()
        self.torchrun, path = FOUND
        self.env = {"PYTHONPATH": path} if path else {}
        self.arguments = self.call()

    def call(self, *more):
        where = [] if "--standalone" in more else [f"--master_port={free_port()}"]
        return [*self.torchrun, *where, *more, "--no-python", "--nproc_per_node=2"]

    def test_the_tool_trains_as_on_two_local_ranks(self):
        self.expect_as_two_local_ranks(*self.arguments, env=self.env)

    def test_so_it_does_where_the_ranks_keep_the_store(self):
        self.expect_as_two_local_ranks(*self.call("--standalone"),
                                       env={**self.env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})

    def test_nothing_is_printed_about_ports(self):
        status, output = self.run_tool(*self.arguments, *self.fit, env=self.env)
        self.assertEqual(status, 0, output)
        self.assertNotIn("bind", output)

    def test_devices_that_contradict_it_are_an_error_that_shows_both(self):
        status, output = self.run_tool(*self.arguments, *self.fit, "--trainer.devices=3", env=self.env)
        self.assertNotEqual(status, 0, output)
        self.assertIn("3 devices x 1 node are 3 ranks, but torchrun has started 2 (2 on this node)", output)

    def test_it_reports_what_the_first_rank_that_failed_has_written(self):
        status, output = self.run_tool(*self.arguments, PROGRAM, f"out={self.out}", "samples=64", "throw=1:3", "strategy=ddp",
                                       env=self.env)
        self.assertNotEqual(status, 0, output)
        report = output[output.index("Root Cause"):]  # torchrun's own, made from the ranks' error files
        self.assertRegex(report, r"rank +: 1 ")
        self.assertIn("a fault in the model", report)

    def test_a_restart_is_bitwise_identical_to_the_undisturbed_run(self):
        arguments = ["samples=40", "batch=2", "epochs=2", "model=dropout", "checkpoint"]
        undisturbed = self.train(*arguments, ranks=2)
        for file in sorted(pathlib.Path(self.out).glob("levin_logs/**/*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        status, output = self.run_tool(*self.arguments[:-2], "--max_restarts=1", *self.arguments[-2:], PROGRAM, f"out={self.out}",
                                       *arguments, "kill=1:13", "strategy=ddp", env=self.env)
        self.assertEqual(status, 0, output)
        self.assertIn("auto_resume: continuing from", output)
        for one, other in zip(undisturbed, self.reports(2)):
            self.assertEqual(one["weights"], other["weights"])
            self.assertEqual(one["random"], other["random"])


if __name__ == "__main__":
    main("" if FOUND else "torchrun is missing. ./dev check --peers installs PyTorch for Python (2.5 GB to download)")
