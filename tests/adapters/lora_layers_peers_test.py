"""Levin's LoRA of embeddings and convolutions compared with PEFT: names and shapes in files, outputs, losses, merged weights, of
a module with a layer of each kind, and of exported programs. Needs the packages of cmake/model-packages.txt and PyTorch
for Python (`./dev check --peers` installs both); skipped where they are missing.

  lora_layers_peers_test.py PROGRAM [unittest's arguments]
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

PROGRAM = sys.argv[1]
TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "models")]
import peers  # noqa: E402

peers.run_under_peers("peft", "peft, transformers, safetensors and PyTorch for Python")

import nets  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

sys.argv.pop(1)
torch.set_num_threads(1)
warnings.filterwarnings("ignore", message=".*groups > 1.*")
STEPS, BATCH, LR, TOLERANCE = 20, 4, 0.1, 1e-5
ALL = ["table", "one", "two", "grouped", "point", "three", "head"]  # PEFT's own forward fails with a dilation


class Layers(nn.Module):
    """lora_nets.h in Python."""

    def __init__(self, max_norm=2.0):
        super().__init__()
        self.table = nn.Embedding(12, 6, padding_idx=2, max_norm=max_norm)
        self.one = nn.Conv1d(6, 8, 3, stride=2, padding=1)
        self.two = nn.Conv2d(1, 4, (3, 2), padding=(1, 0))
        self.grouped = nn.Conv2d(4, 6, 3, padding=1, groups=2)
        self.point = nn.Conv2d(6, 6, 1, bias=False)
        self.three = nn.Conv3d(1, 3, 2, padding=1)
        self.dilated = nn.Conv1d(3, 3, 3, dilation=2)
        self.head = nn.Linear(3, 3)

    def forward(self, ids):
        x = self.one(self.table(ids).transpose(1, 2))
        x = torch.tanh(self.point(self.grouped(self.two(x.unsqueeze(1)))))
        x = torch.tanh(self.three(x.unsqueeze(1))).flatten(2)
        return self.head(torch.tanh(self.dilated(x)).mean(2))


def seeded(number):
    return torch.Generator().manual_seed(number)


def make(**options):
    torch.manual_seed(7)
    net = Layers(**options)
    with torch.no_grad():  # so that what comes first matters to the logits
        for parameter in net.parameters():
            parameter.mul_(2)
    return net


def samples():
    ids = torch.randint(0, 12, (STEPS * BATCH, 12), generator=seeded(11))
    return {"input_ids": ids, "labels": ids[:, 0] % 3}


def adapted(model, targets, **options):
    """PEFT's model with random A and B."""
    torch.manual_seed(3)
    tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, **{"r": 4, "lora_alpha": 6, **options}))
    with torch.no_grad():
        for key, parameter in tuned.named_parameters():
            if "lora_" in key:
                parameter.normal_(0, 0.3)
    return tuned


def levin(*arguments):
    ran = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if ran.returncode != 0:
        raise AssertionError(f"{arguments}: {ran.stdout}{ran.stderr}")


class LayersOfPeers(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)
        save_file(samples(), self.path / "in.safetensors")
        save_file(make().state_dict(), self.path / "net.safetensors")

    def near(self, one, other, what, tolerance=TOLERANCE):
        self.assertEqual(one.shape, other.shape, what)
        self.assertTrue(torch.isfinite(one).all(), what)
        largest = (one - other).abs().max().item()
        self.assertLessEqual(largest, tolerance * max(1, other.abs().max().item()), what)

    def arguments(self, task="layers", model=None, **more):
        return [f"task={task}", f"model={model or self.path / 'net.safetensors'}",
                f"tensors={self.path / 'in.safetensors'}", f"out={self.path / 'out.safetensors'}",
                *(f"{key}={value}" for key, value in more.items())]

    def logits(self, *arguments, **more):
        levin("forward", *self.arguments(**more), *arguments)
        return load_file(self.path / "out.safetensors")["logits"]

    def wanted(self, model):
        with torch.no_grad():
            return model.eval()(samples()["input_ids"])

    def test_levin_computes_what_peft_does_with_its_adapter(self):
        plain = self.logits()
        self.near(plain, self.wanted(make()), "without an adapter")
        for targets, options in ((ALL, {}), (["table"], {}), (["one", "three"], {"use_rslora": True}),
                                 (["grouped", "point", "two"], {"bias": "lora_only"})):
            with self.subTest(targets=targets):
                tuned = adapted(make(), targets, **options)
                tuned.save_pretrained(self.path / "adapter")
                wanted = self.wanted(tuned)
                self.assertGreater((plain - wanted).abs().max().item(), 1e-3, "the adapter changes the logits")
                self.near(self.logits(adapter=self.path / "adapter"), wanted, targets)

    def test_merged_weights_are_pefts(self):
        targets = [name for name in ALL if name != "grouped" and name != "table"] + ["dilated"]
        tuned = adapted(make(), targets)
        tuned.save_pretrained(self.path / "adapter")
        merged = self.wanted(tuned.merge_and_unload())
        self.near(self.logits("merge", adapter=self.path / "adapter"), merged, "merged")
        self.near(self.logits(adapter=self.path / "adapter"), merged, "apart")
        tuned = adapted(make(max_norm=None), ["table"])
        torch.export.save(torch.export.export(make(max_norm=None), (samples()["input_ids"],)), self.path / "net.pt2")
        tuned.save_pretrained(self.path / "table")
        self.near(self.logits("merge", task="exported", model=self.path / "net.pt2", adapter=self.path / "table"),
                  self.wanted(tuned.merge_and_unload()), "a merged embedding")

    def test_a_convolution_in_groups_is_merged_by_neither(self):
        tuned = adapted(make(), ["grouped"])
        tuned.save_pretrained(self.path / "adapter")
        with self.assertRaises(NotImplementedError):
            tuned.merge_and_unload()
        with self.assertRaisesRegex(AssertionError, "the adapter of grouped cannot be merged"):
            self.logits("merge", adapter=self.path / "adapter")

    def test_losses_of_twenty_steps_are_pefts_and_so_is_the_adapter(self):
        for options in ({}, {"bias": "all"}, {"modules_to_save": ["dilated"]}):
            with self.subTest(options=options):
                tuned = adapted(make(), ALL, **options)
                tuned.save_pretrained(self.path / "adapter")
                saved = self.path / f"saved {len(options)}{list(options)}"
                levin("train", *self.arguments(adapter=self.path / "adapter", saved=saved, lr=LR, batch=BATCH))
                losses = self.train(tuned)
                self.near(load_file(self.path / "out.safetensors")["losses"], losses, "losses")
                self.assertGreater((losses.max() - losses.min()).item(), 1e-2, "the losses differ")
                tuned.save_pretrained(self.path / "python")
                own = load_file(self.path / "python" / "adapter_model.safetensors")
                levins = load_file(saved / "adapter" / "adapter_model.safetensors")
                self.assertEqual(sorted(own), sorted(levins))
                for key, tensor in own.items():
                    self.near(levins[key], tensor, key, tolerance=1e-4)
                before = load_file(self.path / "adapter" / "adapter_model.safetensors")
                for key in ("table.lora_embedding_A", "table.lora_embedding_B", "grouped.lora_B.weight",
                            "three.lora_A.weight"):
                    key = f"base_model.model.{key}"
                    self.assertGreater((own[key] - before[key]).abs().max().item(), 1e-4, f"{key} was trained")
                again = peft.PeftModel.from_pretrained(make(), saved / "adapter")
                self.near(self.wanted(again), self.wanted(tuned), "Levin's adapter in PEFT", tolerance=1e-4)

    def train(self, tuned):
        tuned.train()
        optimizer = torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=LR)
        losses, data = [], samples()
        for step in range(STEPS):
            rows = slice(step * BATCH, (step + 1) * BATCH)
            loss = nn.functional.cross_entropy(tuned(data["input_ids"][rows]), data["labels"][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def test_peft_reads_what_levin_makes(self):
        for arguments in (["targets=" + ",".join(ALL), "r=4", "alpha=6"], ["targets=table,t*,*o*e*", "r=2", "rslora"],
                          ["targets=grouped,point", "r=6", "bias=lora_only"], ["targets=table,head", "save=dilated"]):
            with self.subTest(arguments=arguments):
                adapter = self.path / f"adapter {arguments[0]}"
                levin("make", *self.arguments(saved=adapter), *arguments)
                tuned = peft.PeftModel.from_pretrained(make(), adapter)
                tuned.save_pretrained(self.path / "again")
                own, levins = (load_file(folder / "adapter_model.safetensors") for folder in (self.path / "again", adapter))
                self.assertEqual({key: value.shape for key, value in own.items()},
                                 {key: value.shape for key, value in levins.items()})
                wanted = self.wanted(tuned)
                self.near(self.logits(adapter=adapter), wanted, arguments)
                self.assertGreater((self.logits() - wanted).abs().max().item(), 1e-3)

    def test_exported_programs_are_adapted_by_name(self):
        for name, model, targets, x in (
                ("layers", make(max_norm=None), ALL, samples()["input_ids"]),
                ("gpt", nets.Gpt(), ["tokens", "places", "qkv"], torch.randint(0, 32, (4, 8), generator=seeded(5)))):
            with self.subTest(model=name):
                file = self.path / f"{name}.pt2"
                torch.export.save(torch.export.export(model, (x,)), file)
                tuned = adapted(model, targets)
                tuned.save_pretrained(self.path / f"{name} adapter")
                save_file({"input_ids": x}, self.path / "in.safetensors")
                with torch.no_grad():
                    wanted, plain = tuned.eval()(x), self.logits(task="exported", model=file)
                got = self.logits(task="exported", model=file, adapter=self.path / f"{name} adapter")
                self.near(got, wanted, name)
                self.assertGreater((plain - wanted).abs().max().item(), 1e-3, name)
                if name == "gpt":  # its head is the embedding
                    with self.assertRaisesRegex(AssertionError, "the adapter of tokens cannot be merged: its weight is "
                                                "the weight of head.weight too"):
                        self.logits("merge", task="exported", model=file, adapter=self.path / f"{name} adapter")


if __name__ == "__main__":
    unittest.main(verbosity=2)
