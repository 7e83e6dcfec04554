"""Levin's LoRA compared with PEFT, on models of transformers with random weights: losses of 20 steps, adapters that one writes
and the other reads, merged folders. Needs the packages of cmake/model-packages.txt and PyTorch for Python
(`./dev check --peers` installs both); skipped where they are missing.

  lora_peers_test.py PROGRAM [unittest's arguments]
"""

import json
import pathlib
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402

peers.run_under_peers("peft", "peft, transformers, safetensors and PyTorch for Python")

import peft  # noqa: E402
import torch  # noqa: E402
import transformers as hf  # noqa: E402
from forked_runs import ForkedRuns  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

sys.argv.pop(1)
RUNS = ForkedRuns([PROGRAM, "serve"], None)
torch.set_num_threads(1)
TOLERANCE = 1e-5
VOCAB, TOKENS, STEPS, BATCH, LR = 96, 12, 20, 4, 0.01

GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=40, initializer_range=0.3, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, max_position_embeddings=64, initializer_range=0.3, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)
BERT = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
            max_position_embeddings=40, initializer_range=0.3, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, num_labels=3)
DISTILBERT = dict(vocab_size=VOCAB, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=40,
                  initializer_range=0.3, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=3)

VIT = dict(image_size=8, patch_size=4, num_channels=3, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
           intermediate_size=48, initializer_range=0.3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
           num_labels=3)

CAUSAL, CLASSES, IMAGES = "causal_lm", "sequence_classification", "image_classification"
AUTO = {CAUSAL: hf.AutoModelForCausalLM, CLASSES: hf.AutoModelForSequenceClassification,
        IMAGES: hf.AutoModelForImageClassification}

# name: (config, task, PEFT's options)
CASES = {
    "gpt2": (lambda: hf.GPT2Config(**GPT2), CAUSAL,
             dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)),
    "llama": (lambda: hf.LlamaConfig(**LLAMA), CAUSAL,
              dict(r=4, lora_alpha=6, target_modules="all-linear", use_rslora=True)),
    "bert": (lambda: hf.BertConfig(**BERT), CLASSES,
             dict(r=4, lora_alpha=8, target_modules=["query", "value"], modules_to_save=["classifier"])),
    "bert, biases": (lambda: hf.BertConfig(**BERT), CLASSES,
                     dict(r=2, lora_alpha=8, target_modules=["query", "intermediate.dense"], bias="all")),
    "gpt2, embeddings": (lambda: hf.GPT2Config(**GPT2, tie_word_embeddings=False), CAUSAL,
                         dict(r=4, lora_alpha=8, target_modules=["wte", "wpe", "c_attn"], fan_in_fan_out=True)),
    "llama, embeddings": (lambda: hf.LlamaConfig(**LLAMA), CAUSAL,
                          dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "q_proj"])),
    "bert, embeddings": (lambda: hf.BertConfig(**BERT), CLASSES,
                         dict(r=4, lora_alpha=8, target_modules=["word_embeddings", "token_type_embeddings", "value"],
                              modules_to_save=["classifier"])),
    # PEFT adds the heads of all classifiers, classifier and score, to modules_to_save.
    "bert, task_type": (lambda: hf.BertConfig(**BERT), CLASSES,
                        dict(r=4, lora_alpha=8, target_modules=["query", "value"], task_type="SEQ_CLS")),
    "bert, task_type, biases": (lambda: hf.BertConfig(**BERT), CLASSES,
                                dict(r=4, lora_alpha=8, target_modules=["query"], task_type="SEQ_CLS", bias="all")),
    # Of which classifier names pre_classifier, too.
    "distilbert, task_type": (lambda: hf.DistilBertConfig(**DISTILBERT), CLASSES,
                              dict(r=4, lora_alpha=8, target_modules=["q_lin"], task_type="SEQ_CLS")),
    "llama, patterns": (lambda: hf.LlamaConfig(**LLAMA), CAUSAL,
                        dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"],
                             rank_pattern={"^model.layers.1.self_attn.q_proj": 2, "self_attn.[qv]_proj": 3},
                             alpha_pattern={"down_proj": 12.5, "layers.0.*": 5})),  # PEFT sorts them when it saves
    "llama, dora": (lambda: hf.LlamaConfig(**LLAMA, attention_bias=True), CAUSAL,
                    dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_dora=True)),
    "gpt2, dora, embeddings": (lambda: hf.GPT2Config(**GPT2, tie_word_embeddings=False), CAUSAL,
                               dict(r=4, lora_alpha=8, target_modules=["wte", "c_attn"], fan_in_fan_out=True,
                                    use_dora=True, rank_pattern={"wte": 2})),
    "vit, attention, dora": (lambda: hf.ViTConfig(**VIT), IMAGES,
                             dict(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj", "fc1", "fc2", "projection"],
                                  modules_to_save=["classifier"], use_dora=True)),
    "vit, patches": (lambda: hf.ViTConfig(**VIT), IMAGES,
                     dict(r=4, lora_alpha=8, target_modules=["projection"], modules_to_save=["classifier"])),
}


def seeded(number):
    return torch.Generator().manual_seed(number)


def levin(*arguments):
    statuses, text = RUNS.run([str(argument) for argument in arguments])
    if statuses != [0]:
        raise AssertionError(f"{arguments}: {text}")


def make(name):
    torch.manual_seed(7)
    config, task, _ = CASES[name]
    model = AUTO[task].from_config(config())
    for parameter in model.parameters():  # biases and norms count too
        if parameter.dim() == 1:
            with torch.no_grad():
                parameter.add_(torch.randn(parameter.shape, generator=seeded(parameter.numel())) * 0.1)
    return model.eval()


def samples(task):
    ids = torch.randint(3, VOCAB, (STEPS * BATCH, TOKENS + 1), generator=seeded(11))
    if task == CAUSAL:
        return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}
    if task == IMAGES:
        return {"pixel_values": torch.randn((STEPS * BATCH, 3, 8, 8), generator=seeded(8)), "labels": ids[:, 0] % 3}
    return {"input_ids": ids, "labels": torch.randint(0, 3, (STEPS * BATCH,), generator=seeded(6))}


class Peers(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name)

    def near(self, one, other, what, tolerance=TOLERANCE):
        self.assertEqual(one.shape, other.shape, what)
        self.assertTrue(torch.isfinite(one).all(), what)
        largest = (one - other).abs().max().item()
        self.assertLessEqual(largest, tolerance * max(1, other.abs().max().item()), what)

    def adapted(self, name):
        """The model's folder, an adapter with random B, and PEFT's model with both."""
        _, _, options = CASES[name]
        model, folder = make(name), self.path / name
        model.save_pretrained(folder)
        torch.manual_seed(3)
        tuned = peft.get_peft_model(model, peft.LoraConfig(**options, lora_dropout=0.0))
        with torch.no_grad():
            for key, parameter in tuned.named_parameters():
                if "lora_B" in key or "lora_embedding" in key:
                    parameter.normal_(0, 0.1)
                elif "lora_magnitude_vector" in key:
                    parameter.mul_(torch.rand_like(parameter) + 0.5)
        tuned.save_pretrained(folder / "adapter")
        return folder, tuned

    def arguments(self, folder, name, **more):
        task = CASES[name][1]
        save_file(samples(task), self.path / "in.safetensors")
        return [f"model={folder}", f"task={task}", f"tensors={self.path / 'in.safetensors'}",
                f"out={self.path / 'out.safetensors'}", *(f"{key}={value}" for key, value in more.items())]

    def logits(self, folder, name, *arguments, **more):
        levin("forward", *self.arguments(folder, name, **more), *arguments)
        return load_file(self.path / "out.safetensors")["logits"]

    def wanted(self, model, name):
        with torch.no_grad():
            data = samples(CASES[name][1])
            data.pop("labels")
            return model.eval()(**data).logits

    def test_levin_reads_what_peft_writes_and_merges_it(self):
        for name in CASES:
            with self.subTest(model=name):
                folder, tuned = self.adapted(name)
                wanted = self.wanted(tuned, name)
                plain = self.logits(folder, name)
                self.assertGreater((plain - wanted).abs().max().item(), 1e-2, "the adapter changes the logits")
                self.near(self.logits(folder, name, adapter=folder / "adapter"), wanted, name)
                self.near(self.logits(folder, name, "merge", adapter=folder / "adapter"), wanted, f"{name}, merged")

    def test_losses_of_twenty_steps_are_pefts_and_so_is_the_adapter(self):
        for name in CASES:
            with self.subTest(model=name):
                self.compare_losses(name)

    def compare_losses(self, name):
        folder, tuned = self.adapted(name)
        saved = self.path / f"{name} saved"
        levin("train", *self.arguments(folder, name, adapter=folder / "adapter", saved=saved, lr=LR, batch=BATCH))
        losses = self.train(tuned, name)
        got = load_file(self.path / "out.safetensors")["losses"]
        self.assertEqual(len(got), STEPS)
        self.near(got, losses, name)
        self.assertGreater((losses.max() - losses.min()).item(), 1e-2, "the losses differ")
        # What Levin wrote, read by PEFT and by transformers; and PEFT's own file after the same steps.
        wanted = self.wanted(tuned, name)
        again = peft.PeftModel.from_pretrained(make(name), saved / "adapter")
        self.near(self.wanted(again, name), wanted, f"{name}: the adapter", tolerance=1e-4)
        merged, info = AUTO[CASES[name][1]].from_pretrained(saved / "merged", output_loading_info=True)
        self.assertFalse(any(info.values()), info)
        self.near(self.wanted(merged, name), wanted, f"{name}: merged", tolerance=1e-4)
        tuned.save_pretrained(self.path / "python")
        own = {key: tensor for key, tensor in load_file(self.path / "python" / "adapter_model.safetensors").items()
               if ".modules_to_save." not in key and ".original_module." not in key}  # copies of biases
        levins = load_file(saved / "adapter" / "adapter_model.safetensors")
        self.assertEqual(sorted(own), sorted(levins))
        for key, tensor in own.items():
            # Attention does not depend on the keys' bias: its gradient is rounding, which AdamW makes steps of.
            if not key.endswith("key.bias"):
                self.near(levins[key], tensor, f"{name}: {key}", tolerance=1e-4)

    def train(self, tuned, name):
        """AdamW with what HuggingFaceModule does: no decay of biases and norms, a learning rate that falls linearly to 0."""
        tuned.train()
        decays, rest = [], []
        for key, parameter in tuned.named_parameters():
            if parameter.requires_grad:
                is_norm = "norm" in key.lower() or "ln_" in key
                (rest if key.endswith("bias") or is_norm else decays).append(parameter)
        optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                                      lr=LR)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (STEPS - step) / STEPS)
        losses, data = [], samples(CASES[name][1])
        for step in range(STEPS):
            rows = slice(step * BATCH, (step + 1) * BATCH)
            logits = tuned(**{key: value[rows] for key, value in data.items() if key != "labels"}).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), data["labels"][rows].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def test_peft_reads_what_levin_makes(self):
        for name, arguments in (("gpt2", ["targets=c_attn,mlp.c_proj", "r=3", "alpha=5", "rslora"]),
                                ("llama", ["targets=all-linear", "r=4", "alpha=8"]),
                                ("llama", ["targets=model.layers.[01].mlp.*", "r=4", "alpha=8"]),
                                ("gpt2, embeddings", ["targets=wte,wpe,c_proj", "r=3"]),
                                ("llama, embeddings", ["targets=embed_tokens,v_proj", "r=3"]),
                                ("bert, embeddings", ["targets=*embeddings", "save=classifier", "bias=lora_only"]),
                                ("vit, patches", ["targets=projection", "save=classifier", "r=3"]),
                                ("vit, patches", ["targets=query,*.output.dense,intermediate.dense", "save=classifier"]),
                                ("llama", ["targets=q_proj,down_proj", "ranks=down_proj:3,model.layers.1.*.q_proj:2",
                                           "alphas=down_proj:5"]),
                                ("llama", ["targets=q_proj,down_proj", "dora"]),
                                ("bert", ["targets=query,dense", "save=classifier", "bias=lora_only"])):
            with self.subTest(model=name, arguments=arguments):
                folder = self.path / name
                make(name).save_pretrained(folder)
                adapter = self.path / f"{name} {arguments[0]}"
                levin("make", f"model={folder}", f"task={CASES[name][1]}", f"saved={adapter}", *arguments)
                tuned = peft.PeftModel.from_pretrained(make(name), adapter)
                wanted = self.wanted(tuned, name)
                self.near(self.logits(folder, name, adapter=adapter), wanted, name)
                self.assertGreater((self.logits(folder, name) - wanted).abs().max().item(), 1e-3)
                config = json.loads((adapter / "adapter_config.json").read_text())
                self.assertEqual(config["peft_type"], "LORA")
                kept = peft.LoraConfig.from_pretrained(adapter)
                self.assertEqual(kept.r, config["r"])

    def test_a_tied_embedding_is_adapted_for_its_inputs_alone(self):
        CASES["gpt2, tied"] = (CASES["gpt2"][0], CAUSAL, dict(r=4, lora_alpha=8, target_modules=["wte"]))
        self.addCleanup(CASES.pop, "gpt2, tied")
        folder, tuned = self.adapted("gpt2, tied")
        wanted = self.wanted(tuned, "gpt2, tied")
        self.near(self.logits(folder, "gpt2, tied", adapter=folder / "adapter"), wanted, "tied")
        with self.assertRaisesRegex(AssertionError, "the adapter of transformer.wte cannot be merged"):
            self.logits(folder, "gpt2, tied", "merge", adapter=folder / "adapter")

    def test_quantized_models_compute_near_the_whole_ones(self):
        folder, tuned = self.adapted("llama")
        wanted = self.wanted(tuned, "llama")
        for quantize, share in (("int8", 0.03), ("nf4", 0.5)):
            with self.subTest(quantize=quantize):
                got = self.logits(folder, "llama", adapter=folder / "adapter", quantize=quantize)
                difference = (got - wanted).norm() / wanted.norm()
                self.assertLess(difference.item(), share)
                self.assertGreater(difference.item(), 1e-4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
