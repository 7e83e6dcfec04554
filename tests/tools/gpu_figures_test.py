"""Tests of what tools/gpu_check.py reads: on small outputs of the programs, as they print them, and hand-made traces.

  gpu_figures_test.py SOURCES [unittest options]
"""
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv.pop(1)).resolve() / "tools"))
import gpu_figures as figures
from gpu_figures import Unreadable

FIT = """epoch 7/7: 860 batches in 1.4 s (603 it/s), train_loss 0.09285, val_acc 0.8976, val_loss 0.2986
Trained 8 epochs, 6880 steps, in 11.1 s: max_epochs (8) is reached.
logs:        ./levin_logs/version_0
test metrics:
  test_acc   0.8905
  test_loss  0.3145
"""

PLAN = """GPT on cuda:0, 4 blocks: parameters 3.2 MiB, gradients 3.2 MiB, optimizer state 6.4 MiB. Budget 60.0 MiB.
plan                   segments  predicted peak       step   slower   largest batch
no recomputation              0        83.2 MiB   454.8 ms    0.0 %              10
each block                    4         1.5 GiB   556.3 ms   22.3 %              33
√n segments                   1        52.0 MiB   517.9 ms   13.9 %              19
memory over the step: memory_plan.svg
"""

DIFF = """value trainer.record_steps: false and true
tensor model.net.0.weight: F32 (256, 784), largest difference 1.5e-07, 12 of 200704 differ
tensor optimizer.step: only in the first, I64 ()
"""

SMI = """0, NVIDIA H100 80GB HBM3, 580.95.05, 81559, 1523, 551, 87, 41, 312.55
1, NVIDIA H100 80GB HBM3, 580.95.05, 81559, 4, [N/A], 0, 30, [N/A]
"""

GTEST = """[==========] 19 tests from 5 test suites ran. (2345 ms total)
[  PASSED  ] 16 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] GpuRanks.TwoRanks
[  FAILED  ] 2 tests, listed below:
[  FAILED  ] GpuGraph.AStepTrainsBitwiseIdentically
[  FAILED  ] GpuMemoryReport.AGpuThatRanOutTrainsAgain

 2 FAILED TESTS
"""


def event(category, name, start, duration, **more):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "args": more}


class Tool(unittest.TestCase):
    def test_the_metrics_and_the_time_of_a_fit(self):
        self.assertEqual(figures.test_metrics(FIT), {"test_acc": 0.8905, "test_loss": 0.3145})
        self.assertEqual(figures.fit_seconds(FIT), 11.1)

    def test_durations_and_sizes_in_every_unit(self):
        for text, value in (("778 ms", 0.778), ("11.1 s", 11.1), ("7 min 54 s", 474), ("1 h 2 min", 3720)):
            self.assertAlmostEqual(figures.seconds(text), value)
        for text, value in (("512 B", 512), ("1.5 KiB", 1536), ("83.2 MiB", 83.2 * 2**20), ("2 GiB", 2**31)):
            self.assertEqual(figures.size(text), value)

    def test_the_predicted_peaks_by_plan(self):
        peaks = figures.predicted_peaks(PLAN)
        self.assertEqual(list(peaks), ["no recomputation", "each block", "√n segments"])
        self.assertEqual(peaks["no recomputation"], 83.2 * 2**20)
        self.assertEqual(peaks["each block"], 1.5 * 2**30)

    def test_only_tensors_count_as_differences(self):
        lines = figures.differing_tensors(DIFF)
        self.assertEqual([line.split(":")[0] for line in lines], ["tensor model.net.0.weight", "tensor optimizer.step"])
        self.assertEqual(figures.differing_tensors("value trainer.max_epochs: 1 and 2\n"), [])

    def test_a_column_of_metrics_without_its_empty_cells(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "metrics.csv"
            path.write_text("epoch,step,bytes\n0,0,\n0,9,1024.5\n0,19,2048\n")
            self.assertEqual(figures.column(path, "bytes"), [1024.5, 2048])
            with self.assertRaisesRegex(Unreadable, "no column seconds"):
                figures.column(path, "seconds")

    def test_unexpected_output_is_reported(self):
        for read, what in ((figures.test_metrics, "no test metrics"), (figures.fit_seconds, "Trained"),
                           (figures.predicted_peaks, "no table"), (figures.seconds, "not a duration"),
                           (figures.size, "not a size"), (figures.smi_rows, "no row"),
                           (figures.sanitizer_errors, "no summary"), (figures.gtest_counts, "without a summary"),
                           (figures.gtest_suites, "did not list themselves")):
            with self.assertRaisesRegex(Unreadable, what):
                read("Segmentation fault")


class Nvidia(unittest.TestCase):
    def test_the_rows_of_nvidia_smi(self):
        rows = figures.smi_rows(SMI)
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[0]["name"], "NVIDIA H100 80GB HBM3")
        self.assertEqual(rows[0]["driver_version"], "580.95.05")
        self.assertEqual((rows[0]["memory.total"], rows[0]["memory.used"], rows[0]["power.draw"]), (81559, 1523, 312.55))
        self.assertIsNone(rows[1]["power.draw"])

    def test_memory_in_bytes_with_what_the_driver_reserves(self):
        rows = figures.smi_rows(SMI)
        self.assertEqual(figures.smi_column(rows, "memory.used"), [2074 * 2**20, 4 * 2**20])
        self.assertEqual(figures.smi_column(rows, "memory.total"), [81559 * 2**20] * 2)
        self.assertEqual(figures.smi_column(rows, "power.draw"), [312.55])

    def test_a_message_of_the_driver_is_not_a_row(self):
        with self.assertRaisesRegex(Unreadable, "No devices were found"):
            figures.smi_rows("No devices were found\n")

    def test_the_errors_of_all_processes(self):
        self.assertEqual(figures.sanitizer_errors("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"), 0)
        self.assertEqual(figures.sanitizer_errors("========= ERROR SUMMARY: 3 errors\n========= ERROR SUMMARY: 1 error\n"), 4)

    def test_the_counts_of_googletest(self):
        self.assertEqual(figures.gtest_counts(GTEST), (16, ["GpuGraph.AStepTrainsBitwiseIdentically",
                                                            "GpuMemoryReport.AGpuThatRanOutTrainsAgain"], 1))
        self.assertEqual(figures.gtest_counts("[  PASSED  ] 19 tests.\n"), (19, [], 0))
        listed = "Running main() from ./src/gtest_main.cc\nGpuComponent.\n  DISABLED_A\nGpuGraph.  # TypeParam\n  B\n"
        self.assertEqual(figures.gtest_suites(listed), ["GpuComponent", "GpuGraph"])


class Traces(unittest.TestCase):
    def copy(self, start, duration, stream=13, size=2**22, name="Memcpy HtoD (Pinned -> Device)"):
        return event("gpu_memcpy", name, start, duration, stream=stream, bytes=size)

    def kernel(self, start, duration, stream=7):
        return event("kernel", "gemm", start, duration, stream=stream)

    def share(self, *events):
        return figures.overlapped_share(figures.copies_to_device(events, 2**20), figures.kernels(events))

    def test_a_copy_during_a_kernel_overlaps(self):
        self.assertEqual(self.share(self.kernel(0, 100), self.copy(10, 20)), 1)
        self.assertEqual(self.share(self.kernel(0, 20), self.copy(10, 20)), 0.5)
        self.assertEqual(self.share(self.kernel(0, 10), self.copy(10, 20), self.kernel(30, 5)), 0)

    def test_kernels_that_overlap_each_other_count_once(self):
        self.assertEqual(self.share(self.kernel(0, 20), self.kernel(5, 20, stream=8), self.copy(10, 20)), 0.75)

    def test_a_kernel_on_the_copies_stream_does_not_overlap(self):
        self.assertEqual(self.share(self.kernel(0, 100, stream=13), self.copy(10, 20)), 0)

    def test_small_copies_and_copies_to_the_host_do_not_count(self):
        self.assertEqual(self.share(self.kernel(0, 30), self.copy(0, 10), self.copy(50, 10, size=64),
                                    self.copy(60, 10, name="Memcpy DtoH (Device -> Pinned)")), 1)

    def test_the_fraction_is_of_time(self):
        self.assertEqual(self.share(self.kernel(0, 30), self.copy(0, 30), self.copy(100, 10)), 0.75)

    def test_a_trace_without_copies_is_reported(self):
        with self.assertRaisesRegex(Unreadable, "no copies"):
            self.share(self.kernel(0, 100))

    def test_time_without_kernels_is_idle(self):
        spans = figures.kernels([self.kernel(0, 30), self.kernel(10, 10, stream=8), self.kernel(20, 20), self.kernel(90, 10)])
        self.assertAlmostEqual(figures.idle_share(spans), 0.5)
        with self.assertRaisesRegex(Unreadable, "no kernels"):
            figures.idle_share([])

    def test_waits_are_counted_by_step(self):
        events = [event("user_annotation", f"ProfilerStep#{k}", 100 * k, 90) for k in range(3)]
        events += [event("cuda_runtime", "cudaStreamSynchronize", 10, 5), event("cuda_runtime", "cudaLaunchKernel", 20, 1),
                   event("cuda_runtime", "cudaEventSynchronize", 110, 5),
                   event("cuda_runtime", "cudaDeviceSynchronize", 295, 5)]  # of the tracer, after the last step
        self.assertEqual(figures.waits_a_step(events), 1)
        events.append(event("cuda_runtime", "cudaMemcpy", 120, 1))
        self.assertEqual(figures.waits_a_step(events), 1)  # 1, 2 and 0
        events += [event("cuda_runtime", "cudaStreamSynchronize", at, 1) for at in (11, 210, 220)]
        self.assertEqual(figures.waits_a_step(events), 2)
        with self.assertRaisesRegex(Unreadable, "no step"):
            figures.waits_a_step([])

    def test_a_trace_is_read_from_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [self.kernel(0, 1)]}))
            self.assertEqual(len(figures.kernels(figures.read_trace(path))), 1)


class Benchmarks(unittest.TestCase):
    RESULT = {"name": "gpt_gpu", "cores": 16, "threads": 1, "to_loop": 0.9, "graph": 2.5,
              "tables": {"a GPT": {"unit": "tokens/s", "figures": {"Trainer": {"median": 1000.0, "rounds": [1000.0]}}}},
              "bars": {"to_loop": {"value": 0.9, "at least": 1, "met": False}, "graph": {"value": 2.5, "at least": 1.5, "met": True},
                       "time": {"value": 1.5, "at most": 1.33, "met": False}}}

    def test_the_numbers_and_medians(self):
        self.assertEqual(figures.bench_figures(self.RESULT),
                         {"to_loop": 0.9, "graph": 2.5, "a GPT: Trainer (tokens/s)": 1000.0})

    def test_targets_that_are_not_met(self):
        self.assertEqual(figures.bars_not_met(self.RESULT), ["to_loop is 0.9, at least 1", "time is 1.5, at most 1.33"])


if __name__ == "__main__":
    unittest.main()
