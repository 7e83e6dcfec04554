"""Models of torchvision, timm, transformers and PyTorch itself, exported by Python, train in Levin with Python's losses.

exported_peers_test.py PROGRAM LEVIN. Skipped where PyTorch for Python and the libraries are missing (`./dev check --peers`
installs them).
"""
import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM, LEVIN = [pathlib.Path(name).absolute() for name in sys.argv[1:3]]
FOLDER = tempfile.TemporaryDirectory(prefix="levin-exported-")
WITHIN = 1e-5
WITHIN_PRECISION = {"bf16-true": 2e-2, "bf16-mixed": 5e-3}


def find_python():
    """(interpreter, environment) that imports all of the libraries, or nothing."""
    for peers in sorted(HOME.glob("peers-*")):
        path = f"{HOME / 'models-python'}:{peers}"
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        for python in (os.environ.get("LEVIN_PYTHON"), peers / "python3", "/usr/bin/python3"):
            if not python or not pathlib.Path(python).exists():
                continue
            tried = "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in " \
                    "('torch', 'torchvision', 'timm', 'transformers', 'safetensors')))"
            if subprocess.run([python, "-c", tried], env=environment, capture_output=True).returncode == 0:
                return str(python), environment
    return None


def weights_of(path):
    """Returns the names of a program's weights, in order."""
    with zipfile.ZipFile(path) as archive:
        config = next(name for name in archive.namelist() if name.endswith("data/weights/model_weights_config.json"))
        return list(json.loads(archive.read(config))["config"])


class ExportedPeers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(FOLDER.name)
        python, environment = FOUND
        done = subprocess.run([python, "-B", HERE / "export_peers.py", cls.folder], env=environment, capture_output=True,
                              text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        done = subprocess.run([PROGRAM, cls.folder], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        cls.levin = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
        cls.output = done.stdout[-2000:] + done.stderr[-2000:]

    def each(self):
        recorded = {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}
        self.assertGreaterEqual(len(recorded), 12)
        for name, python in sorted(recorded.items()):
            with self.subTest(name):
                self.assertIn(name, self.levin, self.output)
                self.assertNotIn("error", self.levin[name])
                yield python, self.levin[name]

    def test_losses_of_all_steps_are_pythons(self):
        for python, levin in self.each():
            self.assertEqual(len(levin["losses"]), 20)
            within = WITHIN_PRECISION.get(python["precision"], WITHIN)
            for step, (one, other) in enumerate(zip(python["losses"], levin["losses"])):
                self.assertLessEqual(abs(one - other), within * max(1, abs(one)), f"step {step}: {one} and {other}")
            self.assertNotAlmostEqual(levin["losses"][0], levin["losses"][-1], places=4)

    def test_the_trained_model_evaluates_as_pythons(self):
        for python, levin in self.each():
            within = WITHIN_PRECISION.get(python["precision"], 10 * WITHIN)
            self.assertLessEqual(abs(python["eval_loss"] - levin["eval_loss"]), within * max(1, abs(python["eval_loss"])))

    def test_gradients_that_python_defines_are_refused(self):
        output = json.loads((self.folder / "refused.txt").read_text())
        for name, message in output.items():
            with self.subTest(name):
                if name in ("swish", "by_tensors"):
                    self.assertEqual(message, "")
                    continue
                self.assertRegex(message, r"^the gradient of first\.weight of the saved program of training differs from the "
                                 r"model's by .*loses gradients that Python defines: torch\.autograd\.Function.*a \* x\.?$")
        self.assertEqual(len(output), 7)

    def test_a_file_holds_the_weights_once(self):
        with zipfile.ZipFile(self.folder / "swin.pt2") as archive:
            sizes = {entry.filename.partition("/")[2]: entry.file_size for entry in archive.infolist()}
            models = [name for name in sizes if name.startswith("models/")]
            self.assertEqual(sorted(models), ["models/evaluation.json", "models/model.json"])
        weights = weights_of(self.folder / "swin.pt2")
        files = [name for name in sizes if name.startswith("data/weights/weight_")]
        self.assertEqual(len(files), len(weights))

    def test_the_command_of_a_tutorial_writes_the_file_that_its_run_has(self):
        page = (ROOT / "docs/tutorials/table.md").read_text(encoding="utf-8")
        (self.folder / "rental_net.py").write_text(re.search(r"```python\n# rental_net\.py\n(.*?)```", page, re.S)[1])
        kept, command = re.search(r"<!-- instead: (\S+) -->\n\n```sh\n(.*?)```", page, re.S).groups()
        python, environment = FOUND
        (self.folder / "tools").symlink_to(ROOT / "tools")
        done = subprocess.run(["bash", "-c", f'python3() {{ "{python}" -B "$@"; }}\n{command}'], cwd=self.folder, env=environment,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("rental_net.pt2: the same numbers as the model", done.stdout)
        self.assertEqual(weights_of(self.folder / "rental_net.pt2"), weights_of(ROOT / kept))

    def test_parameters_have_pythons_names(self):
        for python, levin in self.each():
            self.assertEqual(sorted(python["parameters"]), sorted(levin["parameters"]))

    def fit(self, name, run, *arguments):
        """val_loss of every epoch, and the bytes of the last checkpoint's tensors, of `levin fit`."""
        config = self.folder / "run.yaml"
        config.write_text(f"""
seed_everything: 3
trainer:
  default_root_dir: {self.folder / run}
  max_epochs: 4
  enable_progress_bar: false
  enable_model_summary: false
  callbacks: [{{class_path: ModelCheckpoint, init_args: {{save_last: true}}}}]
  logger: CSVLogger
model: {{class_path: ExportedModule, init_args: {{path: {self.folder / name}.pt2}}}}
optimizer: {{class_path: SGD, init_args: {{lr: 0.05, momentum: 0.9}}}}
data:
  class_path: NpyData
  init_args:
    {{inputs: {self.folder / name}_x.npy, targets: {self.folder / name}_y.npy, val_inputs: {self.folder / name}_x.npy,
     val_targets: {self.folder / name}_y.npy, batch_size: 8}}
""")
        done = run_levin([LEVIN, "fit", "--config", config, *arguments], cwd=self.folder,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout)
        losses = {}
        for path in sorted((self.folder / run).rglob("metrics.csv")):
            for row in csv.DictReader(path.read_text().splitlines()):
                if row.get("val_loss"):
                    losses[int(row["epoch"])] = row["val_loss"]
        saved = sorted((self.folder / run).rglob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
        return [losses[epoch] for epoch in sorted(losses)], saved[-1]

    def test_recomputing_and_placing_blocks_of_gpt2_changes_no_bit(self):
        blocks = "model.transformer.h"
        plain, last = self.fit("gpt2", "gpt2")
        self.assertNotEqual(plain[0], plain[-1])
        for run, *arguments in (
                ("gpt2_recomputed", f'--trainer.recompute={{modules: ["{blocks}.*"]}}'),
                ("gpt2_nested", f'--trainer.recompute={{modules: ["{blocks}", "{blocks}.*.mlp"], keep: matmul}}'),
                ("gpt2_placed", "--trainer.devices=2", "--trainer.accelerator=cpu",
                 f'--trainer.strategy={{class_path: ModelParallel, init_args: {{placement: {{"{blocks}.1": 1}}}}}}')):
            losses, saved = self.fit("gpt2", run, *arguments)
            self.assertEqual(losses, plain, run)
            self.assertEqual(tensors_of(saved), tensors_of(last), run)

    def test_two_ranks_train_as_one_with_the_same_batch(self):
        one, _ = self.fit("vit", "one")
        two, _ = self.fit("vit", "two", "--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.oversubscribe=true",
                          "--data.init_args.batch_size=4")
        self.assertEqual(len(one), 4)
        for first, second in zip(one, two):
            self.assertAlmostEqual(float(first), float(second), places=4)
        self.assertNotEqual(one[0], one[-1])

    def test_bf16_mixed_is_near_float32(self):
        plain, _ = self.fit("convnext", "plain")
        mixed, _ = self.fit("convnext", "mixed", "--trainer.precision=bf16-mixed")
        self.assertEqual(len(mixed), 4)
        self.assertNotEqual(plain, mixed)
        for first, second in zip(plain, mixed):
            self.assertAlmostEqual(float(first), float(second), delta=0.05)

    def test_a_resumed_run_ends_bitwise_identically(self):
        whole, last = self.fit("mlp", "whole")
        _, half = self.fit("mlp", "cut", "--trainer.max_epochs=2")
        resumed, last_resumed = self.fit("mlp", "cut", f"--ckpt_path={half}")
        self.assertEqual(whole, resumed)
        first, second = tensors_of(last), tensors_of(last_resumed)
        self.assertTrue(any("layers.0.weight" in name for name in first))
        self.assertEqual(first, second)


def tensors_of(path):
    """Name to bytes, of a safetensors file."""
    whole = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:begin])
    return {name: whole[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


FOUND = find_python()
if __name__ == "__main__":
    if FOUND is None:
        print("the Python packages torch, torchvision, timm and transformers are not installed: ./dev check --peers")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
