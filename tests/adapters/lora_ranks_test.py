"""LoRA on two ranks: ddp and fsdp train the same adapters as one process with the whole batch.

  lora_ranks_test.py PROGRAM [unittest's arguments]
"""

import array
import json
import pathlib
import random
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "ranks"))
from ranks import RanksTest

MODEL = pathlib.Path(__file__).resolve().parent.parent / "models" / "data" / "gpt2"
SAMPLES, TOKENS = 48, 8


def write_ids(path):
    """Random tokens as input_ids and the tokens that follow, int64."""
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    draw = random.Random(5)
    rows = [[draw.randrange(vocab) for _ in range(TOKENS + 1)] for _ in range(SAMPLES)]
    data, header = b"", {}
    for name, start in (("input_ids", 0), ("labels", 1)):
        values = array.array("q", [t for row in rows for t in row[start:start + TOKENS]]).tobytes()
        header[name] = {"dtype": "I64", "shape": [SAMPLES, TOKENS], "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_floats(path):
    """The float32 tensors of a safetensors file, by name."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", raw[8 + size + begin:8 + size + end])
    return tensors


class Ranks(RanksTest):
    def setUp(self):
        super().setUp()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)
        write_ids(self.path / "in.safetensors")
        self.run_program("make", f"saved={self.path / 'start'}", "targets=c_attn,c_proj", "r=3", "save=ln_f")

    def run_program(self, *arguments, fails=False):
        """Starts a run that must fail by Levin's launcher; returns its output."""
        arguments = [*arguments, f"model={MODEL}", "task=causal_lm"]
        if not fails:
            self.run_ranks(*arguments, ranks=2 if "devices=2" in arguments else 1, timeout=120)
            return ""
        status, text = self.run_with(*arguments, timeout=120)
        self.assertNotEqual(status, 0, text)
        return text

    def train(self, *arguments, fails=False):
        """Returns what a run writes: (the adapter's tensors, the merged model's tensors)."""
        saved = self.path / f"saved{random.random()}"
        text = self.run_program("train", f"tensors={self.path / 'in.safetensors'}", f"out={self.path / 'out'}",
                                f"saved={saved}", "lr=0.02", *arguments,
                                *([] if any(w.startswith("adapter=") for w in arguments) else [f"adapter={self.path / 'start'}"]),
                                fails=fails)
        if fails:
            return text
        if "apart" in arguments:
            return (read_floats(saved / "adapter" / "adapter_model.safetensors"),)
        return (read_floats(saved / "adapter" / "adapter_model.safetensors"),
                read_floats(saved / "merged" / "model.safetensors"))

    def assert_close(self, one, other, tolerance, what):
        for mine, wanted in zip(one, other):
            self.assertEqual(sorted(mine), sorted(wanted), what)
            for name, values in wanted.items():
                largest = max(abs(a - b) for a, b in zip(mine[name], values))
                self.assertLessEqual(largest, tolerance, f"{what}: {name}")

    def test_ranks_train_the_adapters_of_one_process(self):
        alone = self.train("batch=8")
        start = read_floats(self.path / "start" / "adapter_model.safetensors")
        moved = max(abs(a - b) for name in start for a, b in zip(start[name], alone[0][name]))
        self.assertGreater(moved, 0.02)
        self.assertIn("base_model.model.transformer.ln_f.weight", start)
        for arguments in (["strategy=ddp"], *([f"strategy=fsdp", f"stage={stage}"] for stage in (1, 2, 3))):
            with self.subTest(arguments=arguments):
                self.assert_close(self.train("batch=4", "devices=2", *arguments), alone, 2e-5, arguments)

    def test_ranks_train_adapters_of_embeddings(self):
        start = self.path / "embeddings"
        self.run_program("make", f"saved={start}", "targets=wte,wpe,c_attn", "r=3")
        before = read_floats(start / "adapter_model.safetensors")
        alone = self.train("batch=8", f"adapter={start}", "apart")
        for name in ("wte.lora_embedding_A", "wte.lora_embedding_B", "wpe.lora_embedding_A"):
            name = f"base_model.model.transformer.{name}"
            moved = max(abs(a - b) for a, b in zip(before[name], alone[0][name]))
            self.assertGreater(moved, 0.02, name)
        for arguments in (["strategy=ddp"], *([f"strategy=fsdp", f"stage={stage}"] for stage in (1, 2, 3))):
            with self.subTest(arguments=arguments):
                ranks = self.train("batch=4", "devices=2", f"adapter={start}", "apart", *arguments)
                self.assert_close(ranks, alone, 2e-5, arguments)

    def test_ranks_train_dora_of_several_ranks_of_matrices(self):
        start = self.path / "dora"
        self.run_program("make", f"saved={start}", "targets=wte,c_attn,c_proj", "r=3", "dora", "ranks=c_attn:2", "alphas=wte:5")
        before = read_floats(start / "adapter_model.safetensors")
        alone = self.train("batch=8", f"adapter={start}", "apart")
        magnitudes = [name for name in before if "lora_magnitude_vector" in name]
        self.assertEqual(len(magnitudes), len(before) // 3)
        for name in magnitudes:
            self.assertGreater(max(abs(a - b) for a, b in zip(before[name], alone[0][name])), 1e-3, name)
        for arguments in (["strategy=ddp"], ["strategy=fsdp", "stage=3"]):
            with self.subTest(arguments=arguments):
                ranks = self.train("batch=4", "devices=2", f"adapter={start}", "apart", *arguments)
                self.assert_close(ranks, alone, 2e-5, arguments)

    def test_quantized_weights_are_the_same_on_all_ranks(self):
        alone = self.train("batch=8", "quantize=int8")
        ranks = self.train("batch=4", "devices=2", "strategy=ddp", "quantize=int8")
        self.assert_close(ranks, alone, 2e-5, "int8")

    def test_recomputed_blocks_train_the_same(self):
        alone = self.train("batch=8")
        ranks = self.train("batch=4", "devices=2", "strategy=fsdp", "stage=3", "recompute=model.transformer.h.*")
        self.assert_close(ranks, alone, 2e-5, "recomputed")

    def test_fsdp_refuses_quantized_weights(self):
        text = self.train("batch=4", "devices=2", "strategy=fsdp", "quantize=int8", fails=True)
        self.assertIn("LoRAOptions.quantize: int8 is not possible with the strategy fsdp", text)
        self.assertIn("use ddp", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
