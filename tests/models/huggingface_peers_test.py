"""Levin's models compared with Hugging Face's transformers, which makes each with random weights here: logits, losses of SGD
steps, and folders that one writes and the other reads. Then a published model, MiniLM. Needs the packages of
cmake/model-packages.txt and PyTorch for Python (`./dev check --peers` installs both); skipped where they are missing.

  huggingface_peers_test.py PROGRAM [unittest's arguments]
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

PROGRAM = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402

peers.run_under_peers("transformers", "transformers, safetensors and PyTorch for Python")

import torch  # noqa: E402
import transformers as hf  # noqa: E402
from forked_runs import ForkedRuns  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

sys.argv.pop(1)
RUNS = ForkedRuns([PROGRAM, "serve"], None)
torch.set_num_threads(1)
TOLERANCE = 1e-5
VOCAB, TOKENS = 96, 14

ENCODER = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
               max_position_embeddings=40, initializer_range=0.3, hidden_dropout_prob=0.0,
               attention_probs_dropout_prob=0.0)
DECODER = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
               intermediate_size=48, max_position_embeddings=512, initializer_range=0.3, pad_token_id=0,
               bos_token_id=1, eos_token_id=2)
GPT2 = dict(vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=4, n_positions=40, initializer_range=0.3, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
VIT = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, image_size=24,
           patch_size=8, initializer_range=0.3)
DISTILBERT = dict(vocab_size=VOCAB, dim=32, n_layers=3, n_heads=4, hidden_dim=48, max_position_embeddings=40,
                  initializer_range=0.3, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
PHI3 = {**DECODER, "max_position_embeddings": 64}
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

TASKS = {"base": "AutoModel", "sequence_classification": "AutoModelForSequenceClassification",
         "token_classification": "AutoModelForTokenClassification", "masked_lm": "AutoModelForMaskedLM",
         "causal_lm": "AutoModelForCausalLM", "image_classification": "AutoModelForImageClassification"}

# name: (config, tasks)
ENCODER_TASKS = ("base", "masked_lm", "sequence_classification", "token_classification")
DECODER_TASKS = ("base", "causal_lm", "sequence_classification", "token_classification")
MODELS = {
    "bert": (lambda: hf.BertConfig(**ENCODER, num_labels=3), ENCODER_TASKS),
    "bert, relu, untied": (lambda: hf.BertConfig(**ENCODER, hidden_act="relu", tie_word_embeddings=False),
                           ("masked_lm",)),
    "roberta": (lambda: hf.RobertaConfig(**ENCODER, num_labels=4), ENCODER_TASKS),
    "xlm-roberta": (lambda: hf.XLMRobertaConfig(**ENCODER), ("base", "masked_lm")),
    "camembert": (lambda: hf.CamembertConfig(**ENCODER), ENCODER_TASKS),
    "bert, relu2": (lambda: hf.BertConfig(**ENCODER, hidden_act="relu2"), ("base",)),
    "bert, gelu_10": (lambda: hf.BertConfig(**ENCODER, hidden_act="gelu_10"), ("base",)),
    "bert, laplace": (lambda: hf.BertConfig(**ENCODER, hidden_act="laplace"), ("base",)),
    "bert, sqrtsoftplus": (lambda: hf.BertConfig(**ENCODER, hidden_act="sqrtsoftplus"), ("base",)),
    "distilbert": (lambda: hf.DistilBertConfig(**DISTILBERT, num_labels=3), ENCODER_TASKS),
    "distilbert, mish, untied, sines": (lambda: hf.DistilBertConfig(
        **DISTILBERT, activation="mish", tie_word_embeddings=False, sinusoidal_pos_embds=True), ("masked_lm",)),
    "gpt2": (lambda: hf.GPT2Config(**GPT2, num_labels=3), DECODER_TASKS),
    "gpt2, untied, scaled by layer": (lambda: hf.GPT2Config(**GPT2, tie_word_embeddings=False, n_inner=40,
                                                            scale_attn_by_inverse_layer_idx=True), ("causal_lm",)),
    "llama": (lambda: hf.LlamaConfig(**DECODER, num_labels=3), DECODER_TASKS),
    "llama 3, tied, biased": (lambda: hf.LlamaConfig(**DECODER, rope_parameters=LLAMA3, tie_word_embeddings=True,
                                                     attention_bias=True, mlp_bias=True), ("causal_lm",)),
    "llama, linear rope, wide heads": (lambda: hf.LlamaConfig(**DECODER, head_dim=12, rope_parameters=dict(
        rope_type="linear", rope_theta=10000.0, factor=4.0)), ("causal_lm",)),
    "llama, dynamic rope": (lambda: hf.LlamaConfig(**{**DECODER, "max_position_embeddings": 10}, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=2.0)), ("causal_lm",)),
    "llama, yarn": (lambda: hf.LlamaConfig(**{**DECODER, "max_position_embeddings": 32}, rope_parameters=dict(
        rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8)), ("causal_lm",)),
    "qwen2, yarn with its own scales": (lambda: hf.Qwen2Config(**DECODER, rope_parameters=dict(
        rope_type="yarn", rope_theta=50.0, factor=4.0, original_max_position_embeddings=128, beta_fast=8.0,
        beta_slow=2.0, mscale=1.5, mscale_all_dim=0.7, truncate=False)), ("causal_lm",)),
    "gemma": (lambda: hf.GemmaConfig(**DECODER, head_dim=12, num_labels=3), DECODER_TASKS),
    "gemma, gelu, biased": (lambda: hf.GemmaConfig(**DECODER, head_dim=8, hidden_act="gelu", attention_bias=True,
                                                   tie_word_embeddings=False), ("causal_lm",)),
    "phi3": (lambda: hf.Phi3Config(**PHI3, num_labels=3), DECODER_TASKS),
    "phi3, window, half rotated, long": (lambda: hf.Phi3Config(
        **PHI3, sliding_window=5, original_max_position_embeddings=8, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, short_factor=[1.0, 1.5],
            long_factor=[2.0, 5.0])), ("causal_lm",)),
    "phi3, short": (lambda: hf.Phi3Config(
        **PHI3, original_max_position_embeddings=16, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3, 1.5],
            long_factor=[2.0, 3.0, 4.0, 5.0])), ("causal_lm",)),
    "llama, longrope": (lambda: hf.LlamaConfig(**{**DECODER, "max_position_embeddings": 40}, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, factor=5.0, original_max_position_embeddings=8,
        short_factor=[1.0, 1.1, 1.3, 1.5], long_factor=[2.0, 3.0, 4.0, 5.0])), ("causal_lm",)),
    "mistral, window": (lambda: hf.MistralConfig(**DECODER, sliding_window=5), ("causal_lm",)),
    "mistral, no window": (lambda: hf.MistralConfig(**DECODER, sliding_window=None), ("causal_lm",)),
    "qwen2": (lambda: hf.Qwen2Config(**DECODER, tie_word_embeddings=True), ("base", "causal_lm")),
    "qwen2, window": (lambda: hf.Qwen2Config(**DECODER, use_sliding_window=True, sliding_window=4,
                                             max_window_layers=1), ("causal_lm",)),
    "qwen3": (lambda: hf.Qwen3Config(**DECODER, head_dim=8), ("base", "causal_lm")),
    "vit": (lambda: hf.ViTConfig(**VIT, num_labels=5), ("base", "image_classification")),
    "vit, no bias": (lambda: hf.ViTConfig(**VIT, qkv_bias=False), ("image_classification",)),
}


def seeded(number):
    return torch.Generator().manual_seed(number)


def levin(*arguments):
    statuses, text = RUNS.run([str(argument) for argument in arguments], timeout=240)
    if statuses != [0]:
        raise AssertionError(f"{arguments}: {text}")
    return text


def make(name, task):
    torch.manual_seed(7)
    model = getattr(hf, TASKS[task]).from_config(MODELS[name][0]())
    for parameter in model.parameters():  # biases and norms count too
        if parameter.dim() == 1:
            with torch.no_grad():
                parameter.add_(torch.randn(parameter.shape, generator=seeded(parameter.numel())) * 0.1)
    return model.eval()


def texts(pad, left=False, batch=3, steps=None):
    """Samples of different lengths, and their mask."""
    shape = (batch, TOKENS) if steps is None else (steps, batch, TOKENS)
    ids = torch.randint(3, VOCAB, shape, generator=seeded(11))
    mask = torch.ones(shape, dtype=torch.int64)
    for row in range(batch):
        gone = slice(0, 3 * row) if left else slice(TOKENS - 3 * row, TOKENS)
        mask[..., row, gone] = 0
    ids[mask == 0] = pad
    return {"input_ids": ids, "attention_mask": mask}


class Folder:
    def __init__(self):
        self.holder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.holder.name)

    def forward(self, folder, task, inputs):
        save_file({k: v.contiguous() for k, v in inputs.items()}, self.path / "in.safetensors")
        levin("forward", folder, task, self.path / "in.safetensors", self.path / "out.safetensors")
        return load_file(self.path / "out.safetensors")


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = Folder()
        self.addCleanup(self.folder.holder.cleanup)
        self.path = self.folder.path

    def near(self, one, other, what, mask=None, tolerance=TOLERANCE):
        self.assertEqual(one.shape, other.shape, what)
        if mask is not None and one.dim() == 3:
            one, other = one[mask.bool()], other[mask.bool()]
        self.assertTrue(torch.isfinite(one).all(), what)
        largest = (one - other).abs().max().item()
        self.assertLessEqual(largest, tolerance * max(1, other.abs().max().item()), what)

    def same_outputs(self, model, folder, task, inputs, what):
        with torch.no_grad():
            wanted = model(**inputs)
        got = self.folder.forward(folder, task, inputs)
        mask = inputs.get("attention_mask")
        for key in ("logits", "last_hidden_state", "pooler_output"):
            if wanted.get(key) is not None:
                self.near(got[key], wanted[key], f"{what}: {key}", mask)
        return got

    def inputs(self, name, model, task):
        """Returns each input with its name."""
        if name.startswith("vit"):
            yield "images", {"pixel_values": torch.randn(2, 3, 24, 24, generator=seeded(3))}
            return
        pad = model.config.pad_token_id
        yield "padded", texts(pad)
        if task == "causal_lm":
            yield "padded on the left", texts(pad, left=True)
            yield "without a mask", {"input_ids": texts(pad)["input_ids"][:1]}
        if name == "bert" and task == "base":
            yield "two types", {**texts(pad), "token_type_ids": torch.randint(0, 2, (3, TOKENS), generator=seeded(4))}

    def test_each_model_gives_the_numbers_of_transformers(self):
        for name, (_, tasks) in MODELS.items():
            for task in tasks:
                model, folder = make(name, task), self.path / f"{name} {task}"
                model.save_pretrained(folder)
                for kind, inputs in self.inputs(name, model, task):
                    with self.subTest(model=name, task=task, inputs=kind):
                        self.same_outputs(model, folder, task, inputs, f"{name} {task} {kind}")

    def test_sgd_steps_have_the_losses_of_transformers(self):
        for name, task in (("bert", "sequence_classification"), ("roberta", "masked_lm"), ("gpt2", "causal_lm"),
                           ("llama 3, tied, biased", "causal_lm"), ("qwen3", "causal_lm"),
                           ("mistral, window", "causal_lm"), ("vit", "image_classification"),
                           ("distilbert", "sequence_classification"), ("gemma", "causal_lm"), ("phi3", "causal_lm")):
            with self.subTest(model=name):
                self.compare_losses(name, task)

    def compare_losses(self, name, task, steps=4, lr=0.02):
        model, folder = make(name, task), self.path / name
        model.save_pretrained(folder)
        if task == "image_classification":
            inputs = {"pixel_values": torch.randn(steps, 4, 3, 24, 24, generator=seeded(5)),
                      "labels": torch.randint(0, 5, (steps, 4), generator=seeded(6))}
        else:
            inputs = texts(model.config.pad_token_id, steps=steps)
            inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
            if task == "sequence_classification":
                inputs["labels"] = torch.randint(0, 3, (steps, 3), generator=seeded(6))
        save_file(inputs, self.path / "in.safetensors")
        levin("train", folder, task, self.path / "in.safetensors", self.path / "out.safetensors", lr,
              self.path / "saved")
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=lr), []
        for step in range(steps):
            loss = model(**{key: value[step] for key, value in inputs.items()}).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        losses = torch.stack(losses)
        self.near(load_file(self.path / "out.safetensors")["losses"], losses, name)
        self.assertGreater((losses[0] - losses[-1]).abs().item(), 1e-3, "the steps change the loss")
        # And the weights after them.
        trained = getattr(hf, TASKS[task]).from_pretrained(self.path / "saved").state_dict()
        for key, tensor in model.state_dict().items():
            self.near(trained[key], tensor, f"{name}: {key}", tolerance=2e-5)

    def test_transformers_reads_what_levin_writes_whole_and_in_shards(self):
        for name, task in (("bert", "masked_lm"), ("bert, relu, untied", "masked_lm"), ("gpt2", "causal_lm"),
                           ("llama", "causal_lm"), ("qwen2", "causal_lm"), ("vit", "image_classification"),
                           ("distilbert", "masked_lm"), ("gemma", "causal_lm"), ("phi3", "causal_lm")):
            model, folder = make(name, task), self.path / name
            model.save_pretrained(folder)
            (folder / "tokenizer.json").write_text("{}")
            for size in ("50GB", "12kB"):
                with self.subTest(model=name, max_shard_size=size):
                    saved = self.path / f"{name} {size}"
                    levin("save", folder, task, saved, size)
                    again, info = getattr(hf, TASKS[task]).from_pretrained(saved, output_loading_info=True)
                    self.assertFalse(any(info.values()), info)
                    self.assertEqual((saved / "model.safetensors").exists(), size == "50GB")
                    self.assertEqual((saved / "model.safetensors.index.json").exists(), size != "50GB")
                    self.assertEqual((saved / "tokenizer.json").read_text(), "{}")
                    kind, inputs = next(self.inputs(name, model, task))
                    with torch.no_grad():
                        self.near(again.eval()(**inputs).logits, model(**inputs).logits, kind, tolerance=0)
                    self.same_outputs(model, saved, task, inputs, f"{name} {size} {kind}")
                    mine, other = model.config.to_dict(), again.config.to_dict()
                    self.assertEqual({**mine, "_name_or_path": ""}, {**other, "_name_or_path": ""})
                    self.assertEqual(sorted(file_tensors(folder)), sorted(file_tensors(saved)))

    def test_reads_shards_of_transformers(self):
        model, folder = make("llama", "causal_lm"), self.path / "shards"
        model.save_pretrained(folder, max_shard_size="12KB")
        self.assertGreater(len(list(folder.glob("model-*.safetensors"))), 2)
        self.same_outputs(model, folder, "causal_lm", texts(0), "shards")

    def test_names_with_and_without_the_prefix_of_the_bare_model_fit(self):
        for name, task in (("bert", "sequence_classification"), ("llama", "causal_lm"), ("gpt2", "causal_lm")):
            model = make(name, task)
            bare, whole = self.path / f"{name} bare", self.path / f"{name} whole"
            model.base_model.save_pretrained(bare)
            model.save_pretrained(whole)
            output = levin("save", bare, task, self.path / "written", "50GB")
            missing = {"bert": "classifier.bias, classifier.weight", "llama": "lm_head.weight"}.get(name)
            if missing is None:  # gpt2: tied
                self.assertEqual(output, "")
            else:
                self.assertIn(f"newly initialized: {missing}. What", output)
            inputs = texts(model.config.pad_token_id)
            self.same_outputs(model.base_model, whole, "base", inputs, f"{name}: the bare model of a whole one")
            written = load_file(self.path / "written" / "model.safetensors")
            for key, tensor in model.base_model.state_dict().items():
                self.near(written[f"{model.base_model_prefix}.{key}"], tensor, key, tolerance=0)


def file_tensors(folder):
    return [key for path in folder.glob("*.safetensors") for key in load_file(path)]


def labelled():
    """Verses of Genesis (0) and of the Romans (1), in turn."""
    path = pathlib.Path("/usr/lib/bible.data")  # a table in front of compress(1) data
    if not path.exists():
        raise unittest.SkipTest("no Debian package bible-kjv-text on this machine")
    packed = path.read_bytes()
    text = subprocess.run(["gzip", "-dc"], input=packed[packed.index(b"\x1f\x9d"):], stdout=subprocess.PIPE, check=True).stdout
    lines = text.decode().splitlines()
    books = [[line.split(" ", 1)[1] for line in lines if line.startswith(book)][:240] for book in ("Ge", "Ro")]
    return [(text, label) for pair in zip(*books) for label, text in enumerate(pair)]


class MiniLM(unittest.TestCase):
    """all-MiniLM-L6-v2: 22.7 million parameters, published by sentence-transformers."""

    @classmethod
    def setUpClass(cls):
        archive = peers.PACKAGES / "all_minilm_l6_v2" / "model.zip"
        if not archive.exists():
            raise unittest.SkipTest(f"no {archive}. Run ./dev check --peers.")
        cls.holder = Folder()
        cls.addClassCleanup(cls.holder.holder.cleanup)
        cls.model = cls.holder.path / "minilm"
        with zipfile.ZipFile(archive) as file:
            for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                         "special_tokens_map.json"):
                file.extract(name, cls.model)
        cls.tokenizer = hf.AutoTokenizer.from_pretrained(cls.model)

    def tokens(self, sentences):
        found = self.tokenizer(sentences, padding=True, truncation=True, max_length=40, return_tensors="pt")
        return {key: found[key] for key in ("input_ids", "attention_mask", "token_type_ids")}

    def test_embeddings_of_sentences_equal_transformers(self):
        inputs = self.tokens([sentence for sentence, _ in labelled()[:24]])
        save_file(inputs, self.holder.path / "in.safetensors")
        levin("embed", self.model, self.holder.path / "in.safetensors", self.holder.path / "out.safetensors")
        with torch.no_grad():
            features = hf.AutoModel.from_pretrained(self.model)(**inputs).last_hidden_state
        weights = inputs["attention_mask"].unsqueeze(-1).float()
        wanted = torch.nn.functional.normalize((features * weights).sum(1) / weights.sum(1))
        got = load_file(self.holder.path / "out.safetensors")["embeddings"]
        self.assertLessEqual((got - wanted).abs().max().item(), TOLERANCE)
        self.assertLess((wanted[0] - wanted[1]).abs().max().item(), 1)

    def test_fine_tuning_learns_to_distinguish_two_books(self):
        sentences, labels = zip(*labelled())
        steps, batch = 40, 16
        order = torch.randperm(len(sentences), generator=seeded(2))
        chosen = [order[(i * batch + j) % len(order)].item() for i in range(steps) for j in range(batch)]
        inputs = self.tokens([sentences[i] for i in chosen])
        inputs = {key: value.view(steps, batch, -1).contiguous() for key, value in inputs.items()}
        inputs["labels"] = torch.tensor([labels[i] for i in chosen]).view(steps, batch)
        save_file(inputs, self.holder.path / "in.safetensors")
        levin("train", self.model, "sequence_classification", self.holder.path / "in.safetensors",
              self.holder.path / "out.safetensors", 0.05, self.holder.path / "tuned")
        losses = load_file(self.holder.path / "out.safetensors")["losses"]
        first, last = losses[:4].mean().item(), losses[-4:].mean().item()
        print(f"loss of the first four steps {first:.3f}, of the last four {last:.3f}")
        self.assertLess(last, 0.7 * first)
        # transformers continues with it.
        tuned = hf.AutoModelForSequenceClassification.from_pretrained(self.holder.path / "tuned").eval()
        with torch.no_grad():
            again = tuned(**{key: value[-1] for key, value in inputs.items()}).loss.item()
        self.assertLess(again, 0.7 * first)
        self.assertTrue((self.holder.path / "tuned" / "tokenizer.json").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
