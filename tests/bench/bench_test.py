"""Every benchmark runs and writes its JSON with the ratios that docs/performance.md names. What it measures means
nothing here: one short round each, on whatever else the machine does.

  bench_test.py BIN [unittest options]      BIN holds bench_overhead and the others

Bench holds what is tested of benchmarks; EachAlone runs each of them once. Both are nightly tests.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

BIN = Path(sys.argv.pop(1)).resolve()

# What each writes at the top of its JSON without peers, and with them too.
OWN = {
    "overhead": {"trainer_to_loop", "trainer_to_loop_no_log", "trainer_to_loop_adamw", "us_per_log", "us_fixed",
                 "us_per_logged_value"},
    "optimizers": {f"{name}_{size}" for name in ("sgd", "adam", "adamw", "adagrad", "rmsprop")
                   for size in ("small", "large")},
    "loader": {"to_torch_data_0", "to_torch_data_1", "to_torch_data_2"},
    "images": set(),
    "logging": {"us_all_four"},
    "lora": {"lora_time", "lora_memory", "int8_time", "int8_memory", "nf4_time", "nf4_memory"},
    "freed_memory": {"kept_to_returned", "faults_a_step_returned", "faults_a_step_kept"},
    "token_batches": {"by_length_to_fixed", "by_length_to_longest"},
    "metrics": set(),
    "recorded": {f"{shape}_to_loop" for shape in ("mlp16", "mlp784", "gru", "lstm", "cnn", "gpt")},
    "reinforcement": {f"{task}_{key}" for task in ("ppo_cart_pole", "ppo_pendulum", "dqn_cart_pole")
                      for key in ("reward", "recorded_to_eager")},
    "startup": {"trainer_to_loop"},
    "streams": {"far_to_near"},
    "gpt": {"to_libtorch_loop"},
    "recompute": {"time_to_plain", "memory_to_plain", "selective_time_to_plain", "selective_memory_to_plain"},
    "ddp": {"trainer_to_loop", "gpt_trainer_to_loop", "gpt_scaling_efficiency", "gpt_scaling_efficiency_no_overlap",
            "fsdp_memory_to_ddp", "predicted_to_measured_1", "predicted_to_measured_2", "predicted_to_measured_4"},
    "devices": {f"{model}_{key}" for model in ("rows", "weights")
                for key in ("pipeline_4_formula", "pipeline_4_to_micro_batches", "pipeline_4_to_whole_batch",
                            "pipeline_8_formula", "pipeline_8_to_micro_batches", "pipeline_8_to_whole_batch", "dp",
                            "two_threads")},
    "plan": {f"{shape}_{plan}_off" for shape in ("MLP", "GPT", "encoder", "ResNet")
             for plan in ("nothing", "each_block", "square_root", "half_way")},
    "xlmr": {"memory_of_recomputation", "time_of_recomputation", "predicted_memory_of_recomputation",
             "predicted_time_of_recomputation"},
    "checkpoint": {"save_rate_to_dd", "save_speed_to_torch_save", "load_speed_to_torch_load", "stall_to_copy"},
    "compile": {"levin_to_torch", "levin_to_torch_memory", "precompiled", "precompiled_memory", "train_to_loop",
                "train_to_loop_memory", "train_seconds"},
    "thousand_layers": {"memory_of_best_to_none", "memory_of_best_to_fewer_segments", "memory_of_best_to_more_segments",
                        "time_of_best_to_none"},
}
WITH_PEERS = {
    "overhead": {"raw_pytorch_to_trainer", "lightning_to_trainer_1_log", "lightning_to_trainer_10_logs",
                 "lightning_to_trainer_1_log_adamw", "lightning_to_trainer_10_logs_adamw"},
    "loader": {"to_python_0", "to_python_1", "to_python_2"},
    "images": {"to_python_1", "to_python_2"},
    "logging": {"lightning_to_trainer"},
    "metrics": {"Accuracy", "Precision", "Recall", "Specificity", "F1Score", "FBetaScore", "ConfusionMatrix", "AUROC",
                "AveragePrecision", "CalibrationError", "MeanAbsoluteError", "MeanSquaredError", "R2Score", "PearsonCorrCoef", "CosineSimilarity", "Perplexity",
                "BLEUScore", "ROUGEScore", "EditDistance", "JaccardIndex", "DiceScore", "MeanIoU", "PeakSignalNoiseRatio",
                "StructuralSimilarity", "MeanMetric", "SumMetric", "MinMetric", "MaxMetric", "MetricCollection"},
    "recorded": {f"{shape}_compiled_to_recorded" for shape in ("mlp16", "mlp784", "gru", "lstm")},
    "reinforcement": {f"{task}_{key}" for task in ("ppo_cart_pole", "ppo_pendulum", "dqn_cart_pole")
                      for key in ("reward_of_sb3", "speed_to_sb3")},
    "startup": {"lightning_to_trainer", "memory_to_lightning"},
    "streams": {"arrays_to_python", "images_to_python"},
    "gpt": {"to_raw_pytorch", "to_lightning"},
    "recompute": {"time_to_plain_of_python", "slowdown_to_python", "time_to_python", "memory_to_python"},
    "ddp": {"lightning_to_trainer"},
    "checkpoint": {"save_speed_to_python", "load_speed_to_python"},
}

# Stands for the Python of the peers: answers every line as bench/peers/rounds.py does, and startup's single question.
FAKE_PYTHON = """#!/bin/sh
case "$2" in
  */startup.py) exec {python} -c 'import json, time
print(json.dumps(dict(first_step=time.monotonic(), peak_mib=500, versions=dict(torch="2.11.0", lightning="2.6.6"))))' ;;
esac
echo '{{"torch": "2.11.0", "lightning": "2.6.6"}}'
echo "starting $2" >&2
while read -r line; do
  echo "$2 $line" >> {calls}
  {answer}
done
"""


class Benchmarks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.calls = self.folder / "calls"
        self.calls.touch()

    def bench(self, name, *arguments, peers=None, executable=None):
        environment = {**os.environ, "LEVIN_BENCH_DIR": str(self.folder / "out"), "TMPDIR": str(self.folder)}
        environment.pop("LEVIN_PEERS", None)
        if peers is not None:
            environment["LEVIN_PEERS"] = str(peers)
        return subprocess.run([BIN / f"bench_{name}", *arguments], executable=executable, env=environment, cwd=self.folder, capture_output=True,
                              text=True, timeout=300)

    def fake_peers(self, answer):
        python = self.folder / "peers/python3"
        python.parent.mkdir()
        python.write_text(FAKE_PYTHON.format(calls=self.calls, answer=answer, python=sys.executable))
        python.chmod(0o755)
        return python.parent

    def written(self, name):
        return json.loads((self.folder / f"out/{name}.json").read_text())

    def check_alone(self, name):
        done = self.bench(name, "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.written(name)
        self.assertLessEqual(OWN[name], set(out))
        self.assertFalse(WITH_PEERS.get(name, set()) & set(out))
        self.assertNotIn("peers", out)
        self.assertTrue(out["cpu"] and out["libtorch"].startswith("2.11"))
        for title, table in out["tables"].items():
            for row in table["figures"].values():
                self.assertEqual(len(row["rounds"]), 1, title)
                self.assertGreater(row["median"], 0, title)
        for key, bar in out.get("bars", {}).items():
            self.assertEqual(bar["value"], out[key])
            met = bar["value"] <= bar["at most"] if "at most" in bar else bar["value"] >= bar["at least"]
            self.assertEqual(bar["met"], met)
        self.assertEqual("./dev bench --peers" in done.stdout, name in WITH_PEERS)
        self.assertEqual(done.stdout.count("left out"), name in WITH_PEERS)

    def check_with_peers(self, name):
        done = self.bench(name, "--quick", peers=self.fake_peers("echo 1000000"))
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.written(name)
        self.assertLessEqual(OWN[name] | WITH_PEERS[name], set(out))
        self.assertEqual(out["peers"], {"torch": "2.11.0", "lightning": "2.6.6"})
        if name != "startup":
            self.assertIn(f"/{name}.py ", self.calls.read_text())
        return out


class Bench(Benchmarks):
    def test_loader_asks_its_peer_for_each_number_of_workers(self):
        out = self.check_with_peers("loader")
        self.assertEqual([line.split()[1] for line in self.calls.read_text().splitlines()], ["0", "1", "2"])
        table = out["tables"]["samples of 3x32x32, 2 workers"]["figures"]
        self.assertEqual(table["Python's DataLoader"]["median"], 1e6)
        self.assertAlmostEqual(out["to_python_2"], table["Levin"]["median"] / 1e6)

    def test_startup_takes_time_and_memory_from_the_process_output(self):
        out = self.check_with_peers("startup")
        memory = out["tables"]["peak of resident memory"]["figures"]
        self.assertEqual(memory["Lightning"]["median"], 500)
        self.assertAlmostEqual(out["memory_to_lightning"], memory["Trainer"]["median"] / 500)

    def test_a_peer_that_dies_is_reported_with_its_last_output_and_keeps_the_other_results(self):
        dies = self.fake_peers("echo 'no such tensor' >&2; exit 3")
        for name, peer, tables in (("loader", "Python's DataLoader", 3), ("recompute", "PyTorch", 2)):
            done = self.bench(name, "--quick", peers=dies)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stdout, rf"(?s){peer} failed: \S*/{name}.py ended without an answer.*no such tensor")
            self.assertIn(f"failed, see above: {peer}", done.stderr)
            out = self.written(name)
            self.assertEqual(len(out["tables"]), tables)
            self.assertLessEqual(OWN[name], set(out))
            self.assertFalse(WITH_PEERS[name] & set(out))
            for table in out["tables"].values():
                self.assertNotIn(peer, table["figures"])

    def test_a_column_of_xlmr_that_fails_leaves_the_others(self):
        """Each round of a column is a process of bench_xlmr, next to the program. Here one runs out of memory, and the others
        print a result at once."""
        own = self.folder / "bin"
        own.mkdir()
        shutil.copy(BIN / "levin_bench", own)
        column = own / "bench_xlmr"
        column.write_text(f"""#!/bin/sh
case "$2" in base-8) echo CUDA out of memory >&2; exit 1 ;; esac
echo '{{"ms": 3, "without": 2, "mib": 100}}'
""")
        column.chmod(0o755)
        done = self.bench("xlmr", "--quick", executable=own / "levin_bench")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"(?s)^base-8 failed: \S* ended without an answer.*CUDA out of memory")
        self.assertIn("\npredicted base-8 failed: ", done.stdout)
        self.assertIn("failed, see above: base-8; predicted base-8", done.stderr)
        out = self.written("xlmr")
        self.assertLessEqual(OWN["xlmr"], set(out))
        self.assertEqual(len(out["tables"]), 4)
        for table in out["tables"].values():
            self.assertEqual(set(table["figures"]), {"base-8-mixed", "base-16-mixed", "large-8", "large-8-mixed",
                                                     "large-8-mixed-recompute"})

    def test_a_candidate_that_fails_keeps_the_results_of_the_others(self):
        answer = """case "$line" in can*) echo '""' ;; raw*) echo no kernel image >&2; exit 1 ;; esac"""
        done = self.bench("gpt", "gpu", "dry", "1", "--quick", peers=self.fake_peers(answer))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?s)raw PyTorch loop failed: .*ended without an answer.*no kernel image")
        self.assertIn("failed, see above: raw PyTorch loop; torch.compile, reduce-overhead; Lightning", done.stderr)
        out = self.written("gpt_gpu")
        figures = next(iter(out["tables"].values()))["figures"]
        self.assertEqual(list(figures), ["Trainer", "Trainer, recorded", "hand-written LibTorch loop"])
        self.assertIn("to_libtorch_loop_1", out)

    def test_thousand_layers_need_least_memory_near_the_square_root_and_are_drawn(self):
        done = self.bench("thousand_layers", "--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = self.written("thousand_layers")  # what the allocator records is the same on a busy machine
        for key in ("memory_of_best_to_none", "memory_of_best_to_fewer_segments", "memory_of_best_to_more_segments"):
            self.assertTrue(out["bars"][key]["met"], out["bars"][key])
        memory = next(table for title, table in out["tables"].items() if title.startswith("peak memory"))["figures"]
        every_layer = memory["64 segments"]["median"] / memory["no recomputation"]["median"]
        self.assertTrue(0.9 < every_layer < 1.1, every_layer)  # the inputs of all layers are kept after all
        picture = xml.etree.ElementTree.parse(self.folder / "out/thousand_layers.svg").getroot()
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        for part in ("peak memory, MiB", "a step, ms", "segments", "32", "without", "k + n/k inputs, and weights"):
            self.assertIn(part, texts)
        self.assertEqual(len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))), 2 * 4)

    # What runs on a GPU, as a dry run on the CPU: the same programs and peers with next to no work.
    def test_gpt_on_a_gpu_compares_each_batch_with_the_working_peers(self):
        answer = """case "$line" in "can compiled") echo '"no C compiler"' ;; can*) echo '""' ;; *) echo 1000 ;; esac"""
        done = self.bench("gpt", "gpu", "dry", "1", "2", "--quick", peers=self.fake_peers(answer))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("torch.compile, reduce-overhead is left out: no C compiler", done.stdout)
        out = self.written("gpt_gpu")
        for batch in ("1", "2"):
            self.assertLessEqual({f"{key}_{batch}" for key in ("to_libtorch_loop", "graph_to_libtorch_loop", "to_raw_pytorch",
                                                               "graph_to_raw_pytorch", "to_lightning")}, set(out))
            self.assertNotIn(f"graph_to_compiled_{batch}", out)
        table = out["tables"]["GPT of 4 layers, 128 wide, batches of 2 x 128 bytes, bf16-mixed, one GPU"]["figures"]
        self.assertEqual(table["raw PyTorch loop"]["median"], 1000)
        self.assertAlmostEqual(out["to_raw_pytorch_2"], table["Trainer"]["median"] / 1000)
        calls = [line.split()[1:] for line in self.calls.read_text().splitlines()]
        self.assertEqual(calls, [["can", "raw"], ["can", "compiled"], ["can", "lightning"], ["raw", "1", "2"],
                                 ["lightning", "1", "2"], ["raw", "2", "2"], ["lightning", "2", "2"]])

    def test_the_large_gpt_and_the_others_run_without_peers(self):
        for arguments, result, keys in ((("gpt", "gpu", "124m"), "gpt_124m_gpu", {"gflops_a_token"}),
                                        (("overhead", "gpu"), "overhead_gpu", {"trainer_to_loop", "recorded_to_loop"}),
                                        (("recompute", "gpu"), "recompute_gpu", {"time_to_plain", "memory_to_plain"}),
                                        (("loader", "gpu"), "loader_gpu", {"real_to_synthetic of DataLoader, 2 workers"})):
            done = self.bench(arguments[0], *arguments[1:], "dry", "--quick")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLessEqual(keys, set(self.written(result)), result)
        # 2 layers, 16 wide, 512 rows, blocks of 16: (512 x 16 + 2 x 3280 + 32) weights by 6, and 12 x 2 x 16 x 16.
        self.assertAlmostEqual(self.written("gpt_124m_gpu")["gflops_a_token"], (6 * 14784 + 6144) / 1e9, places=9)

    def test_a_missing_gpu_is_reported(self):
        for name in ("gpt", "overhead", "recompute", "loader", "xlmr"):
            done = self.bench(name, "gpu", "--quick")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("gpu: ", done.stderr)
        done = self.bench("gpt", "gpu", "four")
        self.assertIn('takes sizes of batches, 124m and dry, not "four"', done.stderr)

    def test_overhead_runs_one_candidate_alone(self):
        for arguments in (("loop", "3"), ("trainer", "3", "adamw", "10"), ("tiny_trainer", "5")):
            done = self.bench("overhead", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, rf"^{arguments[0]}: [0-9.]+ us a step\n$")
        self.assertFalse((self.folder / "out").exists())

    def test_a_wrong_option_is_refused(self):
        done = self.bench("startup", "--rounds", "0")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--rounds", done.stderr)


class EachAlone(Benchmarks):
    pass


def add_test(case, name, check, bench):
    def test(self):
        check(self, bench)
    setattr(case, name, test)


for each in OWN:
    often = each in ("overhead", "startup")
    add_test(Bench if often else EachAlone, f"test_{each}_writes_its_ratios", Benchmarks.check_alone, each)
for each in ("overhead", "checkpoint", "gpt", "images", "metrics", "reinforcement"):
    often = each == "overhead"
    add_test(Bench if often else EachAlone, f"test_{each}_writes_the_ratios_to_its_peers", Benchmarks.check_with_peers, each)


if __name__ == "__main__":
    unittest.main()
