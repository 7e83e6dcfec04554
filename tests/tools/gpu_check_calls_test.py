"""Tests of tools/gpu_check.py over several calls, some of which are killed: nothing that is known is lost, and nothing
that hangs keeps the rest from running.

  gpu_check_calls_test.py SOURCES BIN [unittest options]      as gpu_check_test.py
"""
import json
import os
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

from gpu_check_test import TOOL, Folders, gpu_check, gpu_runs, gpu_steps
from waiting import alive, wait_until

# The device step passes; every other program writes its process id and hangs.
HANGS = """
case "$*" in *fast_dev_run*) echo Trained; exit ;; esac
echo $$ > "{pid}"; exec sleep 600
"""
PASSES = "echo Trained\n"


class Calls(Folders):
    def setUp(self):
        super().setUp()
        self.root, self.pid = self.tree(), self.folder / "pid"
        self.levin = gpu_runs.Levin(self.root, "cpu")
        self.program(self.root, "levin", PASSES)
        self.arguments = ["--root", self.root, "--accelerator", "cpu", "--json", self.json]

    def steps(self):
        return {step["name"]: step["outcome"] for step in self.written()["steps"]}

    def hang_in_the_step_after_the_device(self):
        """A call of two steps whose second hangs: (the call, the process that hangs)."""
        self.program(self.root, "levin", HANGS.format(pid=self.pid))
        call = subprocess.Popen([sys.executable, "-B", TOOL, *self.arguments, "--only", "device", "dp"], cwd=self.folder,
                                stdout=subprocess.DEVNULL)
        self.addCleanup(call.kill)
        wait_until(lambda: self.pid.exists() and self.pid.read_text().endswith("\n"), "the begin of the second step")
        return call, int(self.pid.read_text())

    def expect_ended(self, pid):
        try:
            wait_until(lambda: not alive(pid), "the end of the step's program", seconds=20)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise

    def test_only_steps_whose_limits_fit_into_the_time_are_started(self):
        limits = {step.name: step.limit for step in gpu_steps.STEPS}
        done = self.check(*self.arguments, "--within", str(limits["gpt"] - 1), "--only", "device", "gpt", "loader")
        self.assertEqual(self.steps(), {"device": "passed", "loader": "skipped"})
        self.assertEqual(self.written()["not_begun"], ["gpt"])
        self.assertIn("not begun, because --within leaves too little time: gpt. Call it again", done.stdout)
        self.check(*self.arguments, "--within", str(limits["gpt"] + 60), "--only", "device", "gpt", "loader", "--continue")
        self.assertEqual(list(self.steps()), ["device", "loader", "gpt"])
        self.assertEqual(self.written()["not_begun"], [])

    def test_a_killed_call_leaves_its_results_and_ends_its_programs(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.pid.unlink(missing_ok=True)
            call, pid = self.hang_in_the_step_after_the_device()
            call.send_signal(number)
            call.wait(timeout=20)
            self.expect_ended(pid)
            self.assertEqual(self.steps(), {"device": "passed", "dp": "cut short"})

    def test_an_interrupted_step_is_retried_last(self):
        call, pid = self.hang_in_the_step_after_the_device()
        call.kill()
        call.wait(timeout=20)
        self.program(self.root, "levin", PASSES)
        done = self.check(*self.arguments, "--only", "device", "dp", "loader", "--continue")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines() if line[0] != " "],
                         ["loader", "dp", "gpu-check:"])
        self.assertEqual(list(self.steps()), ["device", "loader", "dp"])
        self.assertEqual(self.steps()["dp"], "failed")  # this levin wrote no checkpoints
        self.expect_ended(pid)

    def test_a_failed_device_step_is_retried_with_all_steps_that_it_blocked(self):
        self.program(self.root, "levin", "exit 1\n")
        self.check(*self.arguments, "--only", "device", "loader")
        self.assertEqual(self.steps(), {"device": "failed", "loader": "skipped"})
        self.program(self.root, "levin", PASSES)
        self.check(*self.arguments, "--only", "device", "loader", "--continue")
        self.assertEqual(self.steps()["device"], "passed")
        self.assertIn("there is no", self.written()["steps"][-1]["reason"])  # of the loader's benchmark itself

    def test_a_file_that_holds_no_results_is_refused_and_kept(self):
        self.json.write_text("[]")
        done = self.check(*self.arguments, "--only", "device", "--continue")
        self.assertEqual(done.returncode, 1)
        self.assertIn("holds no results to continue. Leave --continue out", done.stderr)
        self.assertEqual(self.json.read_text(), "[]")

    def test_a_hanging_nvidia_smi_fails_only_its_step(self):
        self.program(self.root, "nvidia-smi", "exec sleep 600\n")
        os.environ["PATH"], before = f"{self.levin.bin}:{os.environ['PATH']}", os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        self.program(self.root, "levin", "sleep 1\n")
        start = time.monotonic()
        entry = gpu_check.carry_out(gpu_steps.Step("one", 20, "what", gpu_steps.nvml), self.levin, self.folder / "one")
        self.assertLess(time.monotonic() - start, 15)
        self.assertEqual((entry["outcome"], entry["reason"]), ("failed", "nvidia-smi gave no figures during the fit"))

    def carry_out(self, function):
        return gpu_check.carry_out(gpu_steps.Step("one", 20, "what", function), self.levin, self.folder / "one")

    def test_a_suite_that_crashes_or_hangs_keeps_the_results_of_the_others(self):
        entry = self.cuda_test("echo '[ RUN      ] Two.AStep'; kill -ABRT $$")
        self.assertEqual(entry["figures"], {"passed": 3, "failed": ["Two"], "skipped": 0})
        self.assertRegex(entry["reason"], r"(?s)failed: Two\nTwo: exit status -6 of .*RUN      . Two.AStep")
        with unittest.mock.patch.object(gpu_steps, "SECONDS_A_SUITE", 1):
            entry = self.cuda_test("exec sleep 600")
        self.assertEqual(entry["figures"], {"passed": 3, "failed": ["Two"], "skipped": 0})
        self.assertIn("Two: not done after 1 s", entry["reason"])

    def test_a_benchmark_that_takes_too_long_keeps_the_tables_it_has_written(self):
        table = {"tables": {"a step": {"unit": "ms", "figures": {"Trainer": {"median": 3.5}}}}}
        self.program(self.root, "bench_gpt", "mkdir -p build/bench\n"
                     f"echo '{json.dumps(table)}' > build/bench/gpt_gpu.json; exec sleep 600\n")
        entry = gpu_check.carry_out(gpu_steps.Step("one", 2, "what", gpu_steps.gpt), self.levin, self.folder / "one")
        self.assertEqual((entry["outcome"], entry["figures"]), ("failed", {"a step: Trainer (ms)": 3.5}))
        self.assertIn("not done after 2 s", entry["reason"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
