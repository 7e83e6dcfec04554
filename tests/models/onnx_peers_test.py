"""Graphs that Levin exports, checked by the package onnx and computed by onnxruntime with the outputs that Levin computes,
at batch sizes other than the example's; then `levin export` of run files. Needs the packages of cmake/model-packages.txt
and PyTorch for Python (`./dev check --peers` installs both); skipped where they are missing.

  onnx_peers_test.py PROGRAM LEVIN [unittest's arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LEVIN = [pathlib.Path(name).absolute() for name in sys.argv[1:3]]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402
from levin_runs import run_levin  # noqa: E402

peers.run_under_peers("onnxruntime", "onnx, onnxruntime, transformers, safetensors and PyTorch for Python")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402
from safetensors.torch import load_file as load_torch  # noqa: E402

del sys.argv[1:3]
WITHIN = 1e-5
# Of models this small threads only wait for each other: on a busy machine that took the test ten times as long.
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
torch.set_num_threads(1)
TEMPORARY = tempfile.TemporaryDirectory(prefix="levin-onnx-")
FOLDER = pathlib.Path(TEMPORARY.name)


# Cases of operators that older versions do not have.
NEEDS_OPSET = {
    "bitwise": ("aten::bitwise_and.Scalar", 18, "of whole numbers "),
    "scatter_extremes": ("aten::scatter_reduce.two", 18, "of the largest or smallest "),
    "embedding_bag_max": ("aten::_embedding_bag_forward_only", 18, "of the largest "),
    "col2im": ("aten::col2im", 18, ""),
    "antialiased": ("aten::_upsample_bilinear2d_aa", 18, ""),
    "grid_sample_of_volumes": ("aten::grid_sampler_3d", 20, "of volumes "),
}


def run_graph(path, inputs):
    """Returns the graph's outputs by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {port.name for port in session.get_inputs()}
    given = {name: value for name, value in inputs.items() if name in names}
    return dict(zip([port.name for port in session.get_outputs()], session.run(None, given)))


class Peers(unittest.TestCase):
    def levin(self, *arguments, code=0):
        done = run_levin([LEVIN, *arguments], cwd=FOLDER, env=ONE_THREAD)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def check(self, path):
        onnx.checker.check_model(str(path), full_check=True)

    def assert_close(self, given, wanted, where):
        self.assertEqual(given.dtype, wanted.dtype, where)
        self.assertEqual(given.shape, wanted.shape, where)
        if given.dtype.kind == "f":
            largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)  # sums round relative to what they are made of
            self.assertTrue(np.allclose(given, wanted, rtol=WITHIN, atol=WITHIN * largest, equal_nan=True),
                            f"{where}: {np.nanmax(np.abs(given - wanted))} apart")
        else:
            self.assertTrue(np.array_equal(given, wanted), where)


class OperatorsAndLayers(Peers):
    """What onnx_program exports."""

    def compare_all(self, opset):
        folder = FOLDER / f"opset{opset}"
        folder.mkdir()
        done = subprocess.run([PROGRAM, folder, str(opset)], capture_output=True, text=True, env=ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertGreater(len(lines), 90)
        for line in lines:
            with self.subTest(line["name"], opset=opset):
                operator, needs, reason = NEEDS_OPSET.get(line["name"], ("", 17, ""))
                if opset < needs:
                    self.assertIn(f"{operator} ", line["error"])
                    self.assertIn(f": {reason}needs --opset {needs}.", line["error"])
                    continue
                self.assertNotIn("error", line)
                self.compare(folder / line["name"])

    def compare(self, path):
        graph = path.with_suffix(".onnx")
        self.check(graph)
        self.assertEqual([p.type.tensor_type.shape.dim[0].dim_param for p in onnx.load(graph).graph.input][0], "batch")
        tensors = load_file(path.with_suffix(".safetensors"))
        for samples in ("1", "2", "7"):
            own = {name.split("/")[1]: value for name, value in tensors.items() if name.split("/")[0] == samples}
            outputs = run_graph(graph, own)
            wanted = {name: value for name, value in own.items() if name.startswith("output")}
            self.assertEqual(sorted(outputs), sorted(wanted))
            for name, value in wanted.items():
                self.assert_close(outputs[name], value, f"{path.name} of {samples} samples, {name}")

    def test_onnxruntime_computes_what_levin_does(self):
        self.compare_all(18)

    def test_older_and_newer_operators_too(self):
        for opset in (17, 22):
            self.compare_all(opset)


TRAINER = """
seed_everything: 3
trainer:
  default_root_dir: %s
  max_epochs: 1
  enable_progress_bar: false
  enable_model_summary: false
  callbacks: [{class_path: ModelCheckpoint, init_args: {save_last: true}}]
"""


class RunFiles(Peers):
    """`levin export` of what `levin fit` has trained, compared with `levin predict`, NumPy and transformers."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))

    def run_file(self, text):
        path = self.folder / "run.yaml"
        path.write_text(TRAINER % (self.folder / "runs") + text)
        self.levin("fit", "--config", path)
        return path

    def npy_data(self, inputs, targets):
        np.save(self.folder / "x.npy", inputs)
        np.save(self.folder / "y.npy", targets)
        return f"""
data:
  class_path: NpyData
  init_args: {{inputs: {self.folder}/x.npy, targets: {self.folder}/y.npy, val_fraction: 0.25, batch_size: 8, shuffle: false,
              test_inputs: {self.folder}/x.npy, test_targets: {self.folder}/y.npy}}
"""

    def export(self, config, name, *arguments):
        path = self.folder / name
        self.levin("export", "--config", config, "--ckpt_path", "last", "--output", path, *arguments)
        return path

    def graph(self, config, *arguments):
        path = self.export(config, "model.onnx", "--overwrite", *arguments)
        self.check(path)
        return path

    def predictions(self, config):
        """Returns the predictions for the test set, in its order."""
        self.levin("predict", "--config", config, "--ckpt_path", "last", "--output", self.folder / "predicted.safetensors")
        return load_file(self.folder / "predicted.safetensors")["predictions"]

    def assert_predicts(self, config, inputs, *arguments):
        """The graph of predict_step, or of its logits, gives what `levin predict` gives, in batches of other sizes."""
        graph = self.graph(config, *arguments)
        name = onnxruntime.InferenceSession(str(graph)).get_inputs()[0].name
        wanted, at = self.predictions(config), 0
        self.assertEqual(len(wanted), len(inputs))
        for size in (1, 5, len(inputs) - 6):
            given = next(iter(run_graph(graph, {name: inputs[at:at + size]}).values()))
            self.assert_close(given, wanted[at:at + size], f"{size} samples")
            at += size
        return graph

    def images(self):
        random = np.random.default_rng(7)
        return random.normal(size=(48, 1, 28, 28)).astype(np.float32), random.integers(0, 10, 48)

    def test_a_multilayer_perceptron_is_numpys(self):
        images, labels = self.images()
        config = self.run_file("model: {class_path: Classifier, init_args: {hidden: 32, dropout: 0.5}}"
                               + self.npy_data(images, labels))
        weights = load_file(self.export(config, "weights.safetensors", "--format", "safetensors"))
        with safe_open(self.folder / "weights.safetensors", "numpy") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
        hidden = np.maximum(images.reshape(48, 784) @ weights["net.1.weight"].T + weights["net.1.bias"], 0)
        wanted = hidden @ weights["net.4.weight"].T + weights["net.4.bias"]
        graph = self.graph(config)
        for size in (1, 48):
            self.assert_close(run_graph(graph, {"input": images[:size]})["output"], wanted[:size].astype(np.float32), size)
        beside = self.graph(config, "--external_data")
        self.assertEqual((self.folder / "model.onnx.data").stat().st_size,
                         sum(tensor.nbytes for tensor in weights.values() if tensor.nbytes >= 1024))
        self.assertLess(beside.stat().st_size, 2000)
        self.assert_close(run_graph(beside, {"input": images})["output"], wanted.astype(np.float32), "with weights in a second file")

    def test_image_classifiers_predict_the_same(self):
        images, labels = self.images()
        for model in ("{class_path: Classifier, init_args: {arch: cnn, hidden: 16}}",
                      "{class_path: ResNet, init_args: {width: 8, first_stride: 2, blocks: [1, 1, 1]}}"):
            with self.subTest(model):
                self.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
                data = self.npy_data(images, labels)
                self.assert_predicts(self.run_file("model: " + model + data), images, "--method", "predict_step")

    def test_a_program_of_torch_export_is_exported_as_a_graph(self):
        random = np.random.default_rng(5)
        rows = random.normal(size=(40, 4)).astype(np.float32)
        for program in ("mlp", "modes"):  # one graph, and one for each mode
            with self.subTest(program):
                self.folder = pathlib.Path(tempfile.mkdtemp(dir=FOLDER))
                model = f"model: {{class_path: ExportedModule, init_args: {{path: {SOURCE}/tests/models/data/{program}.pt2}}}}"
                config = self.run_file(model + self.npy_data(rows, random.integers(0, 2, 40)))
                self.assert_predicts(config, rows)

    def test_a_language_model_continues_a_prompt_the_same(self):
        text = self.folder / "text.txt"
        text.write_text("".join(f"{k} times {k + 1} is {k * (k + 1)}. " for k in range(200)))
        config = self.run_file(f"""
model:
  class_path: GPT
  init_args: {{n_layer: 2, n_head: 2, n_embd: 32, block_size: 48, lr: 0.01, max_new_tokens: 12, temperature: 0.0}}
data:
  class_path: TextFile
  init_args: {{path: {text}, block_size: 48, batch_size: 8, val_fraction: 0.2, prompt: "7 times", num_samples: 1}}
""")
        tokens = self.predictions(config)[0]
        graph = self.graph(config, "--dynamic_length")
        name = onnxruntime.InferenceSession(str(graph)).get_inputs()[0].name
        prompt = len(tokens) - 12
        self.assertIn("(batch, 48)", self.levin("export", "--config", config, "--output", self.folder / "fixed.onnx"))
        written = tokens[:prompt].tolist()
        while len(written) < len(tokens):
            written.append(int(run_graph(graph, {name: np.array([written])})["output"][0, -1].argmax()))
        self.assertEqual(written, tokens.tolist())

    def hugging_face_run(self):
        """A text classifier, trained a little."""
        (self.folder / "bert").mkdir()
        (self.folder / "bert/config.json").write_text(json.dumps(dict(
            model_type="bert", architectures=["BertForSequenceClassification"], vocab_size=300, hidden_size=32,
            num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=40, pad_token_id=1,
            initializer_range=0.2)))
        (self.folder / "samples.csv").write_text("text,label\n" + "".join(
            f"{'good' if k % 2 else 'bad'} {'very ' * (k % 4)}{k},{k % 2}\n" for k in range(48)))
        return self.run_file(f"""
model: {{class_path: HuggingFaceClassifier, init_args: {{path: {self.folder}/bert, from_scratch: true, lr: 0.001}}}}
data:
  class_path: TextCsv
  init_args: {{path: {self.folder}/samples.csv, text: text, label: label, tokenizer: byte, max_length: 24, batch_size: 8,
              val_fraction: 0.25}}
""")

    def test_a_hugging_face_model_is_transformers(self):
        config = self.hugging_face_run()
        folder = self.export(config, "folder", "--format", "hf")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        graph = self.graph(config, "--dynamic_length")
        random = np.random.default_rng(11)
        for size in (1, 3, 9):
            ids = random.integers(4, 260, (size, 20 + size))
            mask = np.ones_like(ids)
            mask[size // 2, 15:] = 0
            with torch.no_grad():
                wanted = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()
            given = run_graph(graph, {"input_ids": ids, "attention_mask": mask})
            self.assertEqual(list(given), ["logits"])
            self.assert_close(given["logits"], wanted, f"{size} samples")
        weights = load_torch(self.export(config, "weights.safetensors", "--format", "safetensors"))
        own = model.state_dict()
        self.assertEqual(sorted(weights), sorted("model." + name for name in own if name != "bert.embeddings.position_ids"))
        for name, tensor in weights.items():
            self.assertTrue(tensor.equal(own[name.removeprefix("model.")]), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
