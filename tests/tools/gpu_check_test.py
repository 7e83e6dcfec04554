"""Tests of tools/gpu_check.py on a machine without a GPU: its messages, how it runs steps, what each step requires, and the
steps that also apply to a CPU.

  gpu_check_test.py SOURCES BIN [unittest options]      BIN holds the levin that was built, BIN/../lib its libraries
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

SOURCES = Path(sys.argv.pop(1)).resolve()
BIN = Path(sys.argv.pop(1)).resolve()
TOOL = SOURCES / "tools/gpu_check.py"
sys.path[:0] = [str(TOOL.parent), str(Path(__file__).resolve().parent.parent / "support")]
import gpu_check
import gpu_runs
import gpu_steps
from gpu_runs import Failed, Run, Skipped
from waiting import alive, wait_until

ORDER = ["device", "tests", "fit", "cuda_graph", "recorded", "copies_ahead", "resume", "out_of_memory", "nvml", "nccl", "fsdp", "dp",
         "options", "recompute", "planner", "overhead", "loader", "gpt", "gpt_124m", "xlmr", "sanitizer"]


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.json = self.folder / "out.json"

    def check(self, *arguments, **environment):
        return subprocess.run([sys.executable, "-B", TOOL, *arguments], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment}, timeout=250)

    def written(self):
        return json.loads(self.json.read_text())

    def tree(self):
        """A tree with the programs of the build, in which a test may put others."""
        root = self.folder / "tree"
        (root / "build/release/bin").mkdir(parents=True)
        (root / "build/release/lib").mkdir()
        (root / "configs").symlink_to(SOURCES / "configs")
        (root / "build/release/bin/levin").symlink_to(BIN / "levin")
        return root

    def program(self, root, name, text):
        path = root / "build/release/bin" / name
        path.unlink(missing_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def cuda_test(self, of_suite):
        """Makes a cuda_test with the suites One, which passes, and Two."""
        self.program(self.levin.root, "cuda_test", f"""
case "$1" in
  --gtest_list_tests) printf 'One.\\n  AStep\\nTwo.\\n  AStep\\n' ;;
  --gtest_filter=One.*) echo '[  PASSED  ] 3 tests.' ;;
  --gtest_filter=Two.*) {of_suite} ;;
esac
""")
        return self.carry_out(gpu_steps.tests)

    def carry_out_with(self, programs, step):
        """Like carry_out of the test's class, with a folder's programs found before all others."""
        with unittest.mock.patch.dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}"):
            return self.carry_out(step)


class WithoutGpu(Folders):
    def test_every_step_is_skipped_in_order_with_the_reason(self):
        done = self.check("--json", self.json)
        self.assertEqual(done.returncode, 77, done.stderr)
        steps = self.written()["steps"]
        self.assertEqual([step["name"] for step in steps], ORDER)
        for step in steps:
            self.assertEqual((step["outcome"], step["figures"], step["commands"]), ("skipped", {}, []))
            self.assertIn("NVIDIA's driver", step["reason"])
        self.assertEqual(self.written()["counts"], {"passed": 0, "failed": 0, "skipped": len(ORDER)})
        self.assertEqual(done.stdout.count("skipped: NVIDIA's driver"), len(ORDER))
        self.assertIn(f"0 passed, 0 failed, {len(ORDER)} skipped", done.stdout)

    def test_the_results_name_the_machine_and_torch(self):
        self.check("--json", self.json, "--only", "device")
        results = self.written()
        self.assertTrue(results["machine"]["cpu"] and results["machine"]["cores"] >= 1)
        self.assertEqual(results["machine"]["gpus"], [])
        self.assertRegex(results["started"], r"^\d{4}-\d\d-\d\dT")

    def test_only_some_steps_and_the_list_of_all(self):
        done = self.check("--json", self.json, "--only", "dp,device", "gpt")
        self.assertEqual(done.returncode, 77)
        self.assertEqual([step["name"] for step in self.written()["steps"]], ["device", "dp", "gpt"])
        done = self.check("--list")
        self.assertEqual((done.returncode, [line.split()[0] for line in done.stdout.splitlines()]), (0, ORDER))

    def test_results_that_cannot_be_written_are_reported_before_the_first_step(self):
        done = self.check("--json", self.folder / "missing/out.json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("missing/out.json.part'. Choose another --json FILE.", done.stderr)

    def test_an_unknown_step_is_refused_with_all_names(self):
        done = self.check("--only", "gpt2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no step is called gpt2. Steps: device tests", done.stderr)

    def test_short_steps_end_within_a_minute_or_three(self):
        for step in gpu_steps.STEPS:
            self.assertLessEqual(step.limit, 420 if step.name in ("tests", "xlmr", "gpt", "gpt_124m", "sanitizer") else 180)


class Steps(Folders):
    def setUp(self):
        super().setUp()
        self.levin = gpu_runs.Levin(self.tree(), "cpu")

    def carry_out(self, function, limit=20):
        return gpu_check.carry_out(gpu_steps.Step("one", limit, "what", function), self.levin, self.folder / "one")

    def test_an_exception_is_the_outcome_and_measurements_are_kept(self):
        def fails(run):
            run.figures["seen"] = 3
            raise Failed("it does not hold")

        def is_skipped(run):
            raise Skipped("there is none")

        def has_a_mistake(run):
            {}["key"]

        entry = self.carry_out(fails)
        self.assertEqual((entry["outcome"], entry["reason"], entry["figures"]),
                         ("failed", "it does not hold", {"seen": 3}))
        entry = self.carry_out(is_skipped)
        self.assertEqual((entry["outcome"], entry["reason"]), ("skipped", "there is none"))
        entry = self.carry_out(has_a_mistake)
        self.assertEqual((entry["outcome"], entry["reason"]), ("failed", "KeyError: 'key'"))
        self.assertEqual(self.carry_out(lambda run: None)["outcome"], "passed")
        self.assertFalse((self.folder / "one").exists())

    def test_commands_are_recorded_so_that_they_can_be_repeated(self):
        def step(run):
            run.command(["echo", "two words"], environment={"MODE": "a b"})

        self.assertEqual(self.carry_out(step)["commands"], ["MODE='a b' echo 'two words'"])

    def test_a_program_that_fails_is_reported_with_its_last_output(self):
        entry = self.carry_out(lambda run: run.command(["sh", "-c", "echo the last words; exit 3"]))
        self.assertEqual(entry["outcome"], "failed")
        self.assertRegex(entry["reason"], r"exit status 3 of sh -c .*\n  the last words")

    def test_a_program_that_does_not_end_is_stopped_with_its_children(self):
        mark = self.folder / "pid"
        arguments = ["sh", "-c", f"echo begun; sleep 600 & echo $! > {mark}; wait"]
        start = time.monotonic()
        entry = self.carry_out(lambda run: run.command(arguments), limit=1)
        self.assertLess(time.monotonic() - start, 15)
        self.assertIn("not done after 1 s", entry["reason"])
        self.assertIn("begun", entry["reason"])
        wait_until(lambda: not alive(mark.read_text().strip()), "the end of the program's child")

    def test_a_missing_program_skips_its_step(self):
        entry = self.carry_out(gpu_steps.tests)
        self.assertEqual(entry["outcome"], "skipped")
        self.assertIn("cuda_test: a bundle with --tests and --cuda has it", entry["reason"])

    def test_the_tests_step_fails_with_the_names_of_failed_tests(self):
        entry = self.cuda_test("echo '[  PASSED  ] 2 tests.'; echo '[  FAILED  ] Two.AStep'; exit 1")
        self.assertEqual((entry["outcome"], entry["figures"]),
                         ("failed", {"passed": 5, "failed": ["Two.AStep"], "skipped": 0}))
        entry = self.cuda_test("echo '[  PASSED  ] 3 tests.'; echo '[  SKIPPED ] 2 tests, listed below:'")
        self.assertIn("2 tests were skipped although there is a GPU", entry["reason"])
        self.assertEqual(self.cuda_test("echo '[  PASSED  ] 2 tests.'")["outcome"], "passed")

    def bench(self, result):
        self.program(self.levin.root, "bench_recompute", "echo 'Lightning is left out: no module'\n"
                     f"mkdir -p build/bench; echo '{json.dumps(result)}' > build/bench/recompute_gpu.json\n")
        return self.carry_out(gpu_steps.recompute)

    def test_a_benchmark_step_has_its_measurements_and_fails_if_a_target_is_not_met(self):
        met = {"value": 1.3, "at most": 1.33, "met": True}
        entry = self.bench({"time_to_plain": 1.3, "bars": {"time_to_plain": met}})
        self.assertEqual((entry["outcome"], entry["figures"]),
                         ("passed", {"time_to_plain": 1.3, "left out": ["Lightning is left out: no module"]}))
        entry = self.bench({"time_to_plain": 1.5, "bars": {"time_to_plain": {**met, "value": 1.5, "met": False}}})
        self.assertEqual((entry["outcome"], entry["reason"]),
                         ("failed", "bars not met: time_to_plain is 1.5, at most 1.33"))

    def test_the_python_that_has_torch_runs_peers_in_any_environment(self):
        site = self.folder / "site/torch"
        site.mkdir(parents=True)
        (site / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
        (site / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n")
        python = self.folder / "python with torch"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={site.parent} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        before = {name: os.environ.pop(name, None) for name in ("LEVIN_PYTHON", "LEVIN_PEERS")}
        os.environ["LEVIN_PYTHON"] = str(python)
        try:
            versions = gpu_runs.torch_versions(gpu_runs.python_with_torch())
            run = Run(self.levin, self.folder, 20)
            peer = Path(run.peers()["LEVIN_PEERS"]) / "python3"
        finally:
            del os.environ["LEVIN_PYTHON"]
            os.environ.update({name: value for name, value in before.items() if value is not None})
        self.assertEqual((versions["torch"], versions["cuda"], versions["folder"]), ("2.11.0+cu130", "13.0", str(site)))
        output = subprocess.run([peer, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"],
                                capture_output=True, text=True).stdout
        self.assertEqual(output.strip(), str(site / "__init__.py"))

    def nvml(self, smi):
        """The step with a fit that wrote 70 W, 40 degrees and 2 GiB of 80, next to an nvidia-smi that prints `smi`."""
        self.program(self.levin.root, "levin", """
for word; do case $word in --trainer.default_root_dir=*) root=${word#*=}/levin_logs/version_0 ;; esac; done
mkdir -p "$root"; sleep 1.2
p=DeviceStatsMonitor.on_train_batch_end/gpu_
printf %s "step,${p}memory_total_bytes,${p}memory_used_bytes,${p}utilization_percent," > "$root/metrics.csv"
echo "${p}temperature_celsius,${p}power_watts" >> "$root/metrics.csv"
echo "19,85899345920,2147483648,60,40,70" >> "$root/metrics.csv"
""")
        self.program(self.levin.root, "nvidia-smi", f"echo '{smi}'\n")
        return self.carry_out_with(self.levin.bin, gpu_steps.nvml)

    def test_nvml_is_compared_with_nvidia_smi(self):
        entry = self.nvml("0, NVIDIA H100, 580.95.05, 81920, 1548, 500, 60, 41, 72.5")
        self.assertEqual((entry["outcome"], entry["reason"]), ("passed", ""))
        self.assertEqual((entry["figures"]["gpu_power_watts"], entry["figures"]["nvidia-smi: power.draw"]), (70, 72.5))
        entry = self.nvml("0, NVIDIA H100, 580.95.05, 81920, 1548, 500, 60, 41, 300")
        self.assertEqual((entry["outcome"], entry["reason"]),
                         ("failed", "gpu_power_watts is 70, nvidia-smi's power.draw 300 to 300"))
        entry = self.nvml("0, NVIDIA H100, 580.95.05, 81920, 1548, 500, 60, 41, [N/A]")
        self.assertEqual((entry["outcome"], entry["figures"]["power.draw"]), ("passed", "nvidia-smi has no figure"))

    def test_programs_of_a_bundle_run_below_a_tool_through_their_launcher(self):
        self.assertEqual(self.levin.below(["tool", "-x"], ["levin", "fit"]), (["tool", "-x", "levin", "fit"], {}))
        self.levin.bundled = True
        self.assertEqual(self.levin.below(["tool", "-x"], ["levin", "fit"]),
                         (["levin", "fit"], {"LEVIN_LAUNCH_WITH": "tool -x"}))

    def test_a_failing_device_step_skips_the_rest_and_fails_the_check(self):
        self.program(self.levin.root, "levin", "echo no kernel image is available; exit 1\n")
        done = self.check("--root", self.levin.root, "--accelerator", "cpu", "--only", "device", "dp", "--json",
                          self.json)
        self.assertEqual(done.returncode, 1, done.stderr)
        first, second = self.written()["steps"]
        self.assertEqual((first["outcome"], second["outcome"]), ("failed", "skipped"))
        self.assertIn("no kernel image is available", first["reason"])
        self.assertIn("see the step device", second["reason"])


class Checks(Folders):
    """What steps require, with a levin that leaves the files and the output of one on a GPU."""

    def setUp(self):
        super().setUp()
        self.levin = gpu_runs.Levin(self.tree(), "cpu")

    def carry_out(self, function):
        entry = gpu_check.carry_out(gpu_steps.Step("one", 20, "what", function), self.levin, self.folder / "one")
        return entry["outcome"], entry["reason"], entry["figures"]

    def fake_levin(self, script):
        """`script` runs in the folder of the run's logs."""
        self.program(self.levin.root, "levin", """
for word; do case $word in --trainer.default_root_dir=*) folder=${word#*=}/levin_logs/version_0 ;; esac; done
[ -z "$folder" ] || { mkdir -p "$folder" && cd "$folder"; }
""" + script)

    def trace(self, *events, unchecked=None):
        """`unchecked`: the events with nonfinite_loss: ignore, if they differ."""
        steps = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "ts": 100 * k, "dur": 90}
                 for k in (1, 2)]
        checked, other = (json.dumps({"traceEvents": [*steps, *some]}) for some in (events, unchecked or events))
        self.fake_levin(f"""case "$*" in *nonfinite_loss=ignore*) text='{other}' ;; *) text='{checked}' ;; esac
echo "$text" > fit-trace-rank0-0.pt.trace.json
""")

    def gpu_event(self, category, name, start, duration, stream):
        return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration,
                "args": {"stream": stream, "bytes": 2**22}}

    def test_copies_must_overlap_with_kernels_on_a_separate_stream_without_host_waits(self):
        copy = self.gpu_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 110, 10, 13)
        kernel = self.gpu_event("kernel", "gemm", 100, 90, 7)
        self.trace(copy, kernel)
        outcome, reason, figures = self.carry_out(gpu_steps.copies_ahead)
        self.assertEqual((outcome, reason, figures["fraction of their time that overlaps with kernels"]), ("passed", "", 1))
        self.trace(copy, {**kernel, "args": {"stream": 13}})
        self.assertEqual(self.carry_out(gpu_steps.copies_ahead)[1], "copies and kernels share streams {13}")
        self.trace(copy, {**kernel, "ts": 116})
        self.assertEqual(self.carry_out(gpu_steps.copies_ahead)[1], "only 40% of the copies' time overlaps with kernels")
        wait = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "dur": 1}
        self.trace(copy, kernel, {**wait, "ts": 120}, {**wait, "ts": 220})
        self.assertEqual(self.carry_out(gpu_steps.copies_ahead)[1],
                         "with nonfinite_loss: ignore the host still waits 1 times a step")
        self.trace(copy, kernel, *({**wait, "ts": at} for at in (120, 130, 220, 230)))
        self.assertEqual(self.carry_out(gpu_steps.copies_ahead)[1], "the host waits 2 times a step")
        self.trace(copy, kernel, {**kernel, "ts": 200}, unchecked=[copy, {**kernel, "dur": 100}, {**kernel, "ts": 200}])
        self.assertEqual(self.carry_out(gpu_steps.copies_ahead)[1],
                         "the GPU is idle 5.3% of the time, without the check 0.0%")

    def plan(self, measured, measured_again):
        self.fake_levin(f"""
if [ "$1" = plan ]; then
  printf '%s\\n' 'GPT on cuda:0' 'plan                   segments  predicted peak       step   slower   largest batch' \\
    'no recomputation              0       100.0 MiB   454.8 ms    0.0 %              10' \\
    'each block                    4        50.0 MiB   556.3 ms   22.3 %              33' 'memory over the step: a.svg'
  exit
fi
case "$*" in *recompute*) peak={measured_again} ;; *) peak={measured} ;; esac
echo "step,DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.peak" > metrics.csv
echo "0,$((peak / 2))" >> metrics.csv; echo "1,$peak" >> metrics.csv
""")
        return self.carry_out(gpu_steps.planner)

    def test_a_prediction_must_be_within_five_percent_for_both_plans(self):
        outcome, reason, figures = self.plan(104 * 2**20, 48 * 2**20)
        self.assertEqual((outcome, reason), ("passed", ""))
        self.assertAlmostEqual(figures["each block: off by"], 50 / 48 - 1)
        self.assertEqual(self.plan(104 * 2**20, 40 * 2**20)[1], "each block: the prediction is off by 25.0%")
        self.assertEqual(self.plan(110 * 2**20, 50 * 2**20)[1], "no recomputation: the prediction is off by -9.1%")

    def test_an_out_of_memory_error_must_name_the_step_and_the_largest_users(self):
        report = ("error: training_step, epoch 0, batch 0, global step 0: out of memory in forward on cuda:0. 15.6 GiB "
                  "more were asked for, where 60 GiB of 79 GiB are allocated, 70 GiB are reserved, and 3 GiB free.")
        users = "Largest users: parameters 197 MiB (h 192 MiB)"
        self.fake_levin(f"echo '{report}'; echo '{users}'; exit 1\n")
        outcome, reason, figures = self.carry_out(gpu_steps.out_of_memory)
        self.assertEqual((outcome, reason, figures["report"]), ("passed", "", report))
        self.fake_levin(f"echo '{report}'; exit 1\n")
        self.assertIn("the report names no users", self.carry_out(gpu_steps.out_of_memory)[1])
        self.fake_levin(f"echo '{users}'; exit 1\n")
        self.assertIn("no report of the memory that ran out", self.carry_out(gpu_steps.out_of_memory)[1])
        self.fake_levin(f"echo '{report}'; echo '{users}'\n")
        self.assertIn("exit status 0", self.carry_out(gpu_steps.out_of_memory)[1])

    def sanitizer(self, summary):
        self.fake_levin("echo Trained 1 epoch\n")
        tool = self.folder / "tools/compute-sanitizer"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"""#!/bin/sh
[ "$1 $2" = "--tool memcheck" ] || exit 9
shift 4; "$@"; echo "========= ERROR SUMMARY: {summary}"
""")
        tool.chmod(0o755)
        return self.carry_out_with(tool.parent, gpu_steps.sanitizer)

    def test_the_sanitizer_must_find_nothing_in_a_fit_that_trains(self):
        self.assertEqual(self.sanitizer("0 errors"), ("passed", "", {"errors": 0}))
        outcome, reason, _ = self.sanitizer("2 errors")
        self.assertEqual((outcome, reason.splitlines()[0]), ("failed", "2 errors:"))

    def xlmr(self, share):
        columns = {name: {"median": 1000.0} for name in gpu_steps.ARTICLE}
        result = {"memory_of_recomputation": share, "tables": {
            "peak memory of a step of XLM-R": {"unit": "MiB", "figures": columns},
            "peak memory of a step of XLM-R, fused attention": {
                "unit": "MiB", "figures": {name: {"median": 500.0} for name in gpu_steps.ARTICLE}},
            "time of a step of XLM-R": {"unit": "ms", "figures": columns}}}
        self.program(self.levin.root, "bench_xlmr",
                     f"mkdir -p build/bench; echo '{json.dumps(result)}' > build/bench/xlmr_gpu.json\n")
        return self.carry_out(gpu_steps.xlmr)

    def test_xlmr_is_compared_with_the_articles_columns_and_its_memory_must_be_halved(self):
        outcome, _, figures = self.xlmr(0.5)
        self.assertEqual(outcome, "passed")
        self.assertAlmostEqual(figures["large-8-mixed: GB"], 1.048576)
        self.assertAlmostEqual(figures["large-8-mixed, fused: GB"], 0.524288)
        self.assertEqual(figures["large-8-mixed: GB in the article"], 23.5)
        self.assertEqual(figures["large-8-mixed-recompute: minutes of the article's epoch"], 110)
        self.assertEqual(self.xlmr(0.64)[1], "recomputation leaves 0.640 of the large model's memory, in the article 0.50")


class OnTheCpu(Folders):
    """Resuming and dp over one device are bitwise identical on a CPU too: the steps' commands, files and comparisons are real."""

    def test_steps_that_hold_on_a_cpu_pass_there(self):
        done = self.check("--root", self.tree(), "--accelerator", "cpu", "--only", "device", "dp", "--json", self.json,
                          OMP_NUM_THREADS="1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        device, dp = self.written()["steps"]
        self.assertGreater(device["figures"]["seconds of the process for one batch"], 0)
        self.assertEqual(dp["figures"]["dp: tensors that differ"], 0)
        self.assertTrue(any("checkpoint diff" in command for command in dp["commands"]), dp["commands"])

    def test_weights_that_differ_are_found(self):
        levin = gpu_runs.Levin(self.tree(), "cpu")
        run = Run(levin, self.folder, 120)
        short = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=5", "--trainer.limit_val_batches=1",
                 "--test_after_fit=false")
        one = gpu_steps.Fit(run, "one", "fashion_mnist.yaml", *short, "--seed_everything=1")
        other = gpu_steps.Fit(run, "other", "fashion_mnist.yaml", *short, "--seed_everything=2")
        with self.assertRaisesRegex(Failed, "seeds: [1-9][0-9]* tensors of the checkpoints differ, first: .*tensor "):
            gpu_steps.expect_same_tensors(run, "seeds", one.last, other.last)


if __name__ == "__main__":
    unittest.main(verbosity=2)
