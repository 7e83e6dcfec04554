"""Compiled steps compared with eager PyTorch: tools/compile_step.py compiles modules, `levin fit` trains them. Needs the PyTorch
for Python that benchmarks compare with (`./dev check --peers` installs it) and a C++ compiler; skipped without them.

  compiled_step_test.py LEVIN [unittest's arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = sys.argv.pop(1)
HERE = pathlib.Path(__file__).parent
HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")
SGD = "{class_path: SGD, init_args: {lr: 0.1, momentum: 0.9}}"
ADAMW = "{class_path: AdamW, init_args: {lr: 0.01}}"


def find_python():
    """(Python, environment); nothing if PyTorch is not installed for it."""
    for folder in sorted(HOME.glob("peers-*")):
        env = {**os.environ, "PYTHONPATH": str(folder)}
        python = folder / "python3"
        if python.exists() and subprocess.run([python, "-c", "import torch"], env=env, capture_output=True).returncode == 0:
            return str(python), env
    return None


class CompiledStep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        python, env = FOUND
        env = {**env, "TORCHINDUCTOR_CACHE_DIR": str(cls.path / "cache")}
        done = subprocess.run([python, "-B", HERE / "compile_nets.py", cls.folder.name], env=env, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-3000:])
        cls.eager = json.loads((cls.path / "eager.json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def levin(self, command, name, run, *arguments, optimizer=SGD, fails=False):
        """Runs the tool in a folder of its own; returns its output."""
        folder = self.path / run
        folder.mkdir(exist_ok=True)
        batch = self.eager["cases"][name]["batch"]
        (folder / "run.yaml").write_text(f"""
seed_everything: 1
trainer:
  max_steps: 20
  log_every_n_steps: 1
  num_threads: 1
  enable_progress_bar: false
  logger: [{{class_path: JSONLinesLogger}}]
model: {{class_path: CompiledModule, init_args: {{path: ../{name}.pt2, trust: true}}}}
data:
  class_path: NpyData
  init_args: {{inputs: ../{name}-x.npy, targets: ../{name}-y.npy, batch_size: {batch}, shuffle: false}}
optimizer: {optimizer}
""")
        done = run_levin([LEVIN, command, "--config", "run.yaml", *arguments], cwd=folder,
                         env={**os.environ, "TMPDIR": str(folder)})
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout

    def metric(self, run, name="train_loss"):
        found = {}
        for file in sorted((self.path / run).rglob("metrics.jsonl")):
            for line in file.read_text().splitlines():
                event = json.loads(line)
                if name in event.get("metrics", {}):
                    found[event["step"]] = event["metrics"][name]
        return [value for _, value in sorted(found.items())]

    def weights(self, run):
        return sorted((self.path / run).rglob("*.ckpt"))[-1]

    def assert_near(self, ours, theirs, within):
        self.assertEqual(len(ours), len(theirs))
        for k, (one, other) in enumerate(zip(ours, theirs)):
            self.assertLess(abs(one - other), within, f"value {k}: {one} and {other}")

    def same_weights(self, one, other):
        self.assertEqual(self.tensors(one), self.tensors(other))

    def test_losses_equal_eager_pytorch(self):
        for name, case in self.eager["cases"].items():
            for optimizer, config in (("SGD", SGD), ("AdamW", ADAMW)):
                with self.subTest(name, optimizer=optimizer):
                    run = f"{name}-{optimizer}"
                    self.levin("fit", name, run, optimizer=config)
                    self.assert_near(self.metric(run), case[optimizer]["losses"], 1e-5)

    def test_a_tied_weight_and_changed_buffers_are_named_once_as_python_names_them(self):
        for name in ("gpt", "tiny"):
            self.levin("fit", name, f"{name}-names")
            shown = run_levin([LEVIN, "checkpoint", "inspect", self.weights(f"{name}-names")]).stdout
            for tensor in self.eager["cases"][name]["SGD"]["saved"]:
                if tensor != "head.weight":  # tied to tokens.weight
                    self.assertIn(tensor, shown)
            self.assertNotIn("model.head.weight", shown)

    def test_a_validation_runs_the_evaluation_graph_with_the_trained_buffers(self):
        x, y = "../tiny-x.npy", "../tiny-y.npy"
        self.levin("fit", "tiny", "tiny-validated", f"--data.val_inputs={x}", f"--data.val_targets={y}",
                   "--trainer.limit_val_batches=1", "--trainer.num_sanity_val_steps=0")
        self.assert_near(self.metric("tiny-validated", "val_loss"),
                         [self.eager["cases"]["tiny"]["SGD"]["evaluated"]], 1e-5)

    def test_a_resumed_fit_ends_bitwise_identically(self):
        for name in ("mlp", "tiny"):
            self.levin("fit", name, f"{name}-whole", optimizer=ADAMW)
            self.levin("fit", name, f"{name}-halves", "--trainer.callbacks=[{class_path: ModelCheckpoint, init_args: "
                       "{every_n_train_steps: 9, save_top_k: -1}}]", optimizer=ADAMW)
            half = next((self.path / f"{name}-halves").rglob("*step=9.ckpt"))
            self.levin("fit", name, f"{name}-resumed", f"--ckpt_path={half}", optimizer=ADAMW)
            self.same_weights(f"{name}-whole", f"{name}-resumed")

    def test_two_ranks_equal_accumulation_clipping_included(self):
        for name in ("mlp",):
            clip = "--trainer.gradient_clip_val=0.5"
            self.levin("fit", name, "ranks", clip, "--trainer.max_steps=5", "--trainer.devices=2", "--trainer.strategy=ddp",
                       "--trainer.accelerator=cpu")
            self.levin("fit", name, "accumulated", clip, "--trainer.max_steps=5", "--trainer.accumulate_grad_batches=2")
            ranks, accumulated = self.metric("ranks"), self.metric("accumulated")
            self.assertEqual(len(ranks), 5)
            final = [self.tensors(run) for run in ("ranks", "accumulated")]
            self.assertEqual(set(final[0]), set(final[1]))
            for key, value in final[0].items():
                self.assert_near(value, final[1][key], 1e-6)

    def tensors(self, run):
        """{name: numbers} of a checkpoint's weights in float32."""
        import struct
        data = self.weights(run).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        found = {}
        for key, entry in header.items():
            if key.startswith("model.") and entry["dtype"] == "F32":
                begin, end = entry["data_offsets"]
                found[key] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
        self.assertTrue(found, list(header))
        return found

    def test_another_size_of_the_last_batch_is_refused_unless_compiled_for_any(self):
        output = self.levin("fit", "mlp", "odd", "--data.batch_size=50", fails=True)
        self.assertIn("batch[0] has shape (50, 784)", output)
        self.assertIn("was compiled for (64, 784). Set drop_last: true", output)
        self.levin("fit", "tiny", "any", "--data.batch_size=5")

    def test_recorded_steps_are_refused_and_auto_leaves_them_alone(self):
        output = self.levin("fit", "mlp", "recorded", "--trainer.record_steps=true", fails=True)
        self.assertIn("a compiled step has no operators that could be recorded", output)
        self.levin("fit", "mlp", "auto", "--trainer.record_steps=auto")
        self.assert_near(self.metric("auto"), self.eager["cases"]["mlp"]["SGD"]["losses"], 1e-5)

    def test_a_mixed_precision_and_another_type_of_weights_are_refused(self):
        output = self.levin("fit", "mlp", "mixed", "--trainer.precision=bf16-mixed", fails=True)
        self.assertIn("runs under the autocast of a mixed precision", output)
        output = self.levin("fit", "mlp", "bf16", "--trainer.precision=bf16-true", fails=True)
        self.assertIn("Set precision: 32-true", output)

    def test_adapters_are_refused_before_the_first_step(self):
        lora = "--trainer.callbacks=[{class_path: LoRA, init_args: {target_modules: [%s], r: 2%s}}]"
        for name, values in (("mlp", ("'0'", "")), ("mlp", ("'0', '2'", "")), ("mlp", ("'0'", ", modules_to_save: ['2']")),
                             ("cnn", ("'0'", "")), ("gpt", ("tokens", "")), ("gpt", ("qkv", ", bias: all"))):
            with self.subTest(name, values=values):
                output = self.levin("fit", name, "adapted", lora % values, fails=True)
                self.assertIn("the module has the parameter", output)
                self.assertRegex(output, "lora_A.weight, and .*%s.pt2 was compiled without it" % name)
                self.assertIn("A compiled step cannot be adapted with LoRA", output)
                self.assertIn("ExportedModule", output)
                self.assertEqual(self.metric("adapted"), [], "no step was taken")
        for command in ("validate", "predict"):
            data = "test" if command == "predict" else "val"
            output = self.levin(command, "mlp", f"adapted-{command}", lora % ("'0'", ""),
                                f"--data.{data}_inputs=../mlp-x.npy", f"--data.{data}_targets=../mlp-y.npy", fails=True)
            self.assertIn("A compiled step cannot be adapted with LoRA", output)

    def test_averages_of_the_weights_and_predictions_work(self):
        self.levin("fit", "mlp", "averaged", "--trainer.callbacks=[{class_path: EMAWeightAveraging}]")
        output = self.levin("predict", "mlp", "predicted", "--data.test_inputs=../mlp-x.npy", "--data.test_targets=../mlp-y.npy",
                            "--trainer.limit_predict_batches=2")
        self.assertNotIn("error", output)

    def test_the_exporter_compiles_with_a_flag(self):
        python, env = FOUND
        env = {**env, "TORCHINDUCTOR_CACHE_DIR": str(self.path / "cache"), "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0"}
        export = [python, "-B", HERE.parents[1] / "tools" / "export_model.py", HERE / "nets.py"]
        export[-1] = f"{export[-1]}:tiny"

        def exported(*arguments):
            return subprocess.run([*export, "--inputs", "float32[8, 6]", "--compile", *arguments], env=env, text=True,
                                  capture_output=True)
        file = self.path / "flag.pt2"
        done = exported("--loss", "mse_loss", "--output", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("loss and gradients within", done.stdout)
        self.levin("fit", "tiny", "flag", "--model.path=../flag.pt2")
        self.assertEqual(len(self.metric("flag")), 20)
        done = exported("--loss", "kl_div", "--output", str(self.path / "refused-flag.pt2"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--loss kl_div needs --target", done.stderr)
        self.assertFalse((self.path / "refused-flag.pt2").exists())

    def test_nothing_is_left_in_the_temporary_folder(self):
        self.levin("fit", "mlp", "clean")
        self.assertEqual({path.name for path in (self.path / "clean").iterdir()}, {"run.yaml", "levin_logs"})

    def test_code_runs_only_if_it_is_trusted(self):
        output = self.levin("fit", "mlp", "stranger", "--model.trust=false", fails=True)
        self.assertIn("holds native code, which can do anything that you can do on this machine", output)
        self.assertIn("set trust: true", output)

    def test_modules_that_cannot_be_compiled_are_refused_with_the_reason(self):
        output = self.eager["refusals"]
        self.assertIn("shapes or branches depend on the values of the batch", output["branches"])
        self.assertIn("no parameter requires a gradient", output["frozen"])
        self.assertIn("--dynamic-batch needs a sample batch of at least 2", output["one_sample"])
        self.assertIn("torch.nn.functional has no such function", output["no_such_loss"])
        self.assertIn("--loss kl_div needs --target", output["no_target"])
        self.assertIn("the gradient of model.first.weight of the saved program of training differs", output["reversed"])
        self.assertIn("loses gradients that Python defines: torch.autograd.Function", output["reversed"])
        self.assertFalse((self.path / "refused.pt2").exists())


FOUND = find_python()
if __name__ == "__main__":
    if FOUND is None:
        print("skipped: PyTorch for Python is missing; ./dev check --peers installs it")
        sys.exit(77)
    if shutil.which(os.environ.get("CXX", "g++").split()[0]) is None:
        print("skipped: Inductor needs a C++ compiler (g++, or CXX)")
        sys.exit(77)
    unittest.main(verbosity=2)
