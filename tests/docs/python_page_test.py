"""Runs the commands and programs of docs/python.md in their order, and compares Levin's numbers with Python's.

  python_page_test.py BUILD/bin ROOT [unittest's arguments]

Needs PyTorch for Python and Hugging Face's packages (`./dev check --peers` installs both); skipped where they are missing.
"""
import collections
import contextlib
import csv
import io
import json
import os
import pathlib
import random
import shlex
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402
from levin_runs import run_levin  # noqa: E402

peers.run_under_peers("transformers", "transformers, safetensors and PyTorch for Python")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from docs import blocks_of  # noqa: E402

BIN, SOURCE = pathlib.Path(sys.argv.pop(1)).resolve(), pathlib.Path(sys.argv.pop(1)).resolve()
TOLERANCE = 1e-6
torch.manual_seed(3)


def predictions_in(file):
    return torch.tensor([json.loads(line)["prediction"] for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()])


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        (self.folder / "configs").symlink_to(SOURCE / "configs")
        outside = os.getcwd()
        self.addCleanup(os.chdir, outside)
        os.chdir(self.folder)
        self.program = {"__name__": "page"}

    def levin(self, *arguments):
        done = run_levin([BIN / "levin", *arguments], timeout=240)
        self.assertEqual(done.returncode, 0, f"$ levin {shlex.join(map(str, arguments))}\n{done.stdout}")
        return done.stdout

    def run_block(self, language, text):
        if language == "sh":
            for line in text.splitlines():
                name, *arguments = shlex.split(line)
                self.assertEqual(name, "levin", line)
                self.levin(*arguments)
        else:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(text, "docs/python.md", "exec"), self.program)  # the page's own text
            return output.getvalue()
        return ""

    def metrics_of(self, version):
        """Returns the metrics of the row that a test run wrote, with all digits."""
        with open(f"levin_logs/version_{version}/metrics.csv", newline="", encoding="utf-8") as file:
            row = [row for row in csv.DictReader(file) if row.get("test_loss")][-1]
        return {name: float(row[name]) for name in ("test_loss", "test_acc")}

    def assert_same(self, levins, pythons):
        for name, value in levins.items():
            self.assertLess(abs(value - pythons[name]), TOLERANCE * max(1, abs(value)), name)

    def assert_same_tensor(self, levins, pythons):
        self.assertEqual(levins.shape, pythons.shape)
        self.assertGreater(levins.abs().max().item(), 0.01)
        self.assertLess((levins - pythons).abs().max().item(), TOLERANCE * max(1, levins.abs().max().item()))
    def test_its_commands_and_programs_work_and_both_sides_agree(self):
        page = (SOURCE / "docs/python.md").read_text(encoding="utf-8")
        blocks = [block[1:] for block in blocks_of(page) if block[1] in ("sh", "python")]
        self.assertEqual([language for language, _ in blocks],
                         ["sh", "python", "python", "python", "sh", "sh", "python", "sh"])
        fit, load, evaluate, go_on, back, tiny, transform, predict = blocks
        self.run_block(*fit)
        self.assertEqual(self.run_block(*load), "Classifier after 860 steps\n")
        self.run_block(*evaluate)
        trained = self.program["evaluate"](self.program["model"])
        self.assert_same(self.metrics_of(0), trained)
        self.run_block(*go_on)
        continued = self.program["evaluate"](self.program["model"])
        self.assertGreater(abs(continued["test_loss"] - trained["test_loss"]), 1e-3, "else the next lines say nothing")
        self.run_block(*back)
        self.assertTrue(pathlib.Path("levin_logs/version_1/checkpoints/last.ckpt").is_file())
        self.levin(*shlex.split(back[1].splitlines()[0])[1:], "--trainer.logger=CSVLogger")  # prints four digits, logs all
        self.assert_same(self.metrics_of(2), continued)
        self.run_block(*tiny)
        llama_before = load_file("tuned/model.safetensors")
        self.run_block(*transform)
        self.assertFalse(all(torch.equal(a, b) for a, b in zip(llama_before.values(), load_file("back/model.safetensors").values())))
        self.run_block(*predict)
        with torch.no_grad():
            logits = self.program["llama"].eval()(input_ids=torch.tensor([list(b"In the beginning")])).logits
        self.assert_same_tensor(predictions_in("logits.jsonl"), logits)

    def test_logits_of_a_model_agree_both_ways(self):
        numbers = random.Random(7)
        rows = [[round(numbers.uniform(-2, 2), 3) for _ in range(6)] for _ in range(64)]
        lines = [",".join(map(str, [*row, "no" if sum(row) < 0 else "yes"])) for row in rows]
        pathlib.Path("rows.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines, ""]), encoding="utf-8")
        config = {"seed_everything": 3, "trainer": {"max_epochs": 10},
                  "model": {"class_path": "PaddleMlp", "init_args": {"in_features": 6, "hidden": 24, "num_classes": 2}},
                  "data": {"class_path": "CsvData", "init_args": {"path": "rows.csv", "test_path": "rows.csv", "target": "label",
                                                                  "target_is_class": True, "batch_size": 16}}}
        pathlib.Path("run.json").write_text(json.dumps(config), encoding="utf-8")
        self.levin("fit", "--config", "run.json")
        checkpoint = next(pathlib.Path("levin_logs/version_0/checkpoints").glob("*.ckpt"))
        self.levin("predict", "--config", "run.json", "--ckpt_path", checkpoint, "--output", "first.jsonl")
        linear, relu = torch.nn.Linear, torch.nn.ReLU()
        net = torch.nn.Sequential(collections.OrderedDict(
            fc_1=linear(6, 24), relu_1=relu, fc_2=linear(24, 24), relu_2=relu, fc_3=linear(24, 24), relu_3=relu, pred=linear(24, 2)))
        weights = {name.removeprefix("model.net."): value for name, value in load_file(checkpoint).items() if name.startswith("model.")}
        net.load_state_dict(weights)
        x = torch.tensor(rows)
        with torch.no_grad():
            self.assert_same_tensor(predictions_in("first.jsonl"), net(x))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(x).square().mean().backward()
        optimizer.step()
        save_file({f"net.{name}": value for name, value in net.state_dict().items()}, "python.safetensors")
        self.levin("predict", "--config", "run.json", "--weights.path=python.safetensors", "--output", "second.jsonl")
        second = predictions_in("second.jsonl")
        self.assertGreater((second - predictions_in("first.jsonl")).abs().max().item(), 1e-4)
        with torch.no_grad():
            self.assert_same_tensor(second, net(x))


if __name__ == "__main__":
    unittest.main(verbosity=2)
