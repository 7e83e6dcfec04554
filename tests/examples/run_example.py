#!/usr/bin/env python3
"""What a user does with the built programs: each case runs them in a fresh folder and checks their output and files.

  run_example.py --bin BUILD/bin --source ROOT --scratch FOLDER CASE [ARGUMENT]
  run_example.py list

Cases are the functions named case_…; the folder is removed afterwards. Exit status 1 and the command with its output
if something differs.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402
from ports import free_port  # noqa: E402, F401

# A short run that writes everything: 20 steps on real images, a fixed learning rate, no worker threads.
SHORT_RUN = """\
seed_everything: 7
trainer:
  max_epochs: 1
  limit_train_batches: 20
  limit_val_batches: 4
  limit_test_batches: 4
  limit_predict_batches: 2
  log_every_n_steps: 5
  callbacks:
    - class_path: ModelCheckpoint
      init_args: {monitor: val_loss, save_last: true}
model: {class_path: Classifier, init_args: {hidden: 16, dropout: 0.1}}
data: {class_path: FashionMnist, init_args: {batch_size: 32}}
"""


class Failure(Exception):
    pass


class Program:
    """A finished command: exit status, and stdout and stderr in one string."""

    def __init__(self, command, folder, environment=None):
        self.command = " ".join(map(str, command))
        if environment is None and Path(command[0]).name == "levin":
            done = run_levin(command, cwd=folder, timeout=240)
        else:
            done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, encoding="utf-8", timeout=240, check=False)
        self.status, self.output = done.returncode, done.stdout

    def fail(self, what):
        raise Failure(f"{what}\n$ {self.command}\n{self.output}(exit status {self.status})")

    def exits(self, status):
        if self.status != status:
            self.fail(f"expected exit status {status}, got {self.status}")
        return self

    def says(self, *parts):
        for part in parts:
            if part not in self.output:
                self.fail(f"expected the output to hold: {part}")
        return self

    def lines(self, start):
        return [line for line in self.output.splitlines() if line.startswith(start)]


class Place:
    """A fresh folder and the programs to run in it."""

    def __init__(self, bin_folder, source, folder):
        self.bin, self.source, self.folder = bin_folder, source, folder

    def run(self, *command):
        return Program([self.bin / command[0], *command[1:]], self.folder)

    def levin(self, *arguments):
        return self.run("levin", *arguments)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def files(self):
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*"))

    def expect_files(self, expected):
        if self.files() != sorted(expected):
            raise Failure(f"expected the files {sorted(expected)}, found {self.files()}")

    def log(self, version=0):
        return self.folder / "levin_logs" / f"version_{version}"

    def metrics(self, version=0):
        with open(self.log(version) / "metrics.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def expect_same(what, first, second):
    if first != second:
        raise Failure(f"{what} differ:\n{first}\n--- and ---\n{second}")


# ---- the example programs ------------------------------------------------------------------------------------------

def case_minimal(place):
    """The whole program trains to a test accuracy over 0.8."""
    done = place.run("01_minimal").exits(0).says("test_acc")
    accuracy = float(done.lines("test_acc")[-1].split()[1])
    if not 0.8 < accuracy < 1.0:
        done.fail(f"expected test_acc over 0.8, got {accuracy}")


def case_custom_callback(place):
    """Without arguments the program trains; with them it is `levin` and knows the program's own classes."""
    place.run("02_custom_callback").exits(0).says("stopped after", "epochs: train_loss is")
    place.run("02_custom_callback", "help", "StopAtLoss").exits(0).says("below", "stop when train_loss is below this")
    place.run("02_custom_callback", "list").exits(0).says("StopAtLoss", "Line", "EarlyStopping")


def case_gradient_accumulation(place):
    """Accumulated batches give the weights of the big batch, in the Trainer and in a manual loop; small batches alone do not."""
    done = place.run("03_gradient_accumulation").exits(0)
    difference = {text: float(done.lines(text)[-1].split(": ")[1])
                  for text in ["accumulated by the Trainer", "accumulated by hand", "batches of 32 alone"]}
    if difference["accumulated by the Trainer"] > 1e-6 or difference["accumulated by hand"] > 1e-6:
        done.fail("expected weights that are equal within rounding")
    if difference["batches of 32 alone"] < 1e-3:
        done.fail("expected different weights from small batches: otherwise the comparison proves nothing")


def case_recompute_sequential(place):
    """Equal gradients, and least memory near the square root of the number of layers."""
    done = place.run("04_recompute_sequential").exits(0)
    kept = float(done.lines("all kept:")[0].split()[2])
    memory = {}
    for line in done.lines(""):
        if " segments: " in line:
            memory[int(line.split()[0])] = float(line.split()[2])
            if not line.endswith("gradients equal"):
                done.fail("expected equal gradients")
    if sorted(memory) != [2, 10, 17, 50, 300] or min(memory, key=memory.get) != 17:
        done.fail("expected least memory in 17 segments of 300 layers")
    if memory[17] > 0.2 * kept or not 0.45 * kept < memory[2] < 0.6 * kept or memory[300] < 0.9 * kept:
        done.fail("expected a fifth at most in 17 segments, half in 2, and all in 300")


MNIST_SHORT = ["--accelerator", "cpu", "--epochs", "2", "--limit-batches", "40", "--lr", "0.05", "--momentum=0.5",
               "--log-interval", "20", "--dropout", "0"]


def mnist_results(done):
    """(loss, accuracy in %) of the test set after each epoch."""
    return [tuple(map(float, re.findall(r"[0-9]+\.[0-9]+", line))) for line in done.lines("Test set: ")]


def case_mnist_distributed(place):
    """Two ranks that meet over TCP learn what one process learns from twice the batch; so do two that --devices starts."""
    program = "05_mnist_distributed"
    alone = place.run(program, *MNIST_SHORT, "--batch-size", "128").exits(0)
    alone.says("epoch 1, batch 20 of 40: loss", "Epoch 2 of 2 took", "Trained on 1 rank for")
    url = f"tcp://127.0.0.1:{free_port()}"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        ranks = list(pool.map(lambda rank: place.run(program, *MNIST_SHORT, "--batch-size", "64", "--init-method", url,
                                                     "--rank", rank, "--world-size", "2"), ["0", "1"]))
    ranks[0].exits(0).says("epoch 2, batch 20 of 40: loss", "Epoch 2 of 2 took", "Trained on 2 ranks for")
    ranks[1].exits(0)
    if "Epoch" in ranks[1].output:
        ranks[1].fail("expected rank 0 alone to tell of epochs")
    started = place.run(program, *MNIST_SHORT, "--batch-size", "64", "--devices", "2").exits(0)
    expected = mnist_results(alone)
    if len(expected) != 2 or expected[1][1] < 60:
        alone.fail("expected the results of two epochs, the second over 60 %")
    # The same samples summed in a different order (dropout, which differs by rank, is off): rounding, which later steps enlarge.
    for done in [ranks[0], started]:
        pairs = zip(mnist_results(done), expected, [(1e-3, 0.1), (0.02, 1.5)], strict=True)
        for (loss, accuracy), (expected_loss, expected_accuracy), (loss_bound, accuracy_bound) in pairs:
            if abs(loss - expected_loss) > loss_bound or abs(accuracy - expected_accuracy) > accuracy_bound:
                done.fail(f"expected {expected}, as one process has with batches of 128")


def case_mnist_distributed_arguments(place):
    """Its options are the script's, and an error explains what to write."""
    place.run("05_mnist_distributed", "--help").exits(0).says(
        "--init-method tcp://127.0.0.1:23456 --rank R --world-size N", "--batch-size 1024", "--test-batch-size 1000",
        "--epochs 20", "--lr 0.01", "--momentum 0.5", "--no-cuda  ", "--seed 1", "--log-interval 10")
    for arguments, parts in [(["--batch-sizes", "3"], ['"batch_sizes"', 'Did you mean "batch_size"']),
                             (["--epochs", "0"], ["--epochs", ">= 1", "0"]), (["--lr"], ['"--lr"', "--NAME VALUE"]),
                             (["--rank", "0"], ["--init-method", "missing"]),
                             (["--rank", "2", "--world-size", "2"], ["--rank", "2"]),
                             (["--data-root", "nowhere", "--accelerator", "cpu"], ["Mnist", "nowhere"])]:
        status = 1 if "nowhere" in arguments else 2  # the run has begun, or it has not
        place.run("05_mnist_distributed", *arguments).exits(status).says("error: ", *parts)


def case_levin_waits_without_spinning(place):
    """Waiting threads of the tool yield their cores, unless the environment chooses how to wait."""
    plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for variables, spins in [({}, "10000"), ({"GOMP_SPINCOUNT": "123"}, "123"), ({"OMP_WAIT_POLICY": "passive"}, "0")]:
        Program([place.bin / "levin", "--version"], place.folder, {**plain, **variables, "OMP_DISPLAY_ENV": "verbose"}).exits(0).says(
            f"GOMP_SPINCOUNT = '{spins}'")


# ---- the run files -------------------------------------------------------------------------------------------------

# What a run file asks of a machine and its user, replaced by what any machine has.
SMALL_ENCODER = ["--model.num_hidden_layers=2", "--model.hidden_size=32", "--model.num_attention_heads=2",
                 "--model.intermediate_size=64", "--model.vocab_size=260", "--data.max_length=24"]
SMALLER = {
    **dict.fromkeys(["xlmr_base.yaml", "xlmr_base_mixed.yaml", "xlmr_base_16_mixed.yaml", "xlmr_large.yaml",
                     "xlmr_large_mixed.yaml", "xlmr_large_mixed_recompute.yaml",
                     "bert_large_recompute.yaml"], SMALL_ENCODER),
    "gpt_124m.yaml": ["--trainer.accelerator=cpu", "--model.vocab_size=0", "--model.n_layer=2", "--model.n_embd=96",
                      "--data.tokenizer=byte", "--data.batch_size=1", "--data.block_size=64"],
    "bert_masked_lm_dp.yaml": ["--trainer.accelerator=cpu", *SMALL_ENCODER[:-1], "--data.batch_size=4",
                               "--data.block_size=24"],
    "thousand_layers.yaml": ["--model.layers=100", "--data.batch_size=64"],
    "tiny_llama.yaml": ["--model.path=SOURCE/configs/tiny_llama"],  # tests run in a folder of their own
    "tiny_llama_lora.yaml": ["--model.path=SOURCE/configs/tiny_llama", "--model.from_scratch=true"],
}


def write_table(place):
    """Writes the files of configs/table.yaml, which docs/tutorials/table.md makes, with fewer rows. Returns their names."""
    rows = [f"t{k},{k % 24},{k % 7},{'' if k % 9 == 0 else k % 30},{k % 50 + 3}" for k in range(200)]
    names = ["rentals.csv", "test.csv"]
    for name in names:
        place.write(name, "\n".join(["time,hour,weekday,temperature,rentals", *rows]) + "\n")
    return names


def case_config(place, name):
    """A run file of configs/ works: one batch of each loop, and nothing is written."""
    config = place.source / "configs" / name
    data = write_table(place) if name == "table.yaml" else []
    smaller = [option.replace("SOURCE", str(place.source)) for option in SMALLER.get(name, [])]
    place.levin("fit", "--config", config, "--trainer.fast_dev_run=true", *smaller).exits(0)
    place.expect_files(data)
    printed = place.levin("fit", "--config", config, "--print_config", *smaller).exits(0).output
    again = place.levin("fit", "--config", place.write("printed.yaml", printed), "--print_config").exits(0).output
    expect_same("the printed configuration and what it prints", printed, again)


def case_sweep_configs(place):
    """The sweep files of configs/ are valid: every value that they may try fits their run files."""
    for config in sorted((place.source / "configs").glob("sweep_*.yaml")):
        place.levin("sweep", config, "--prepare", "--folder", config.stem).exits(0).says("prepared")


def case_ddp_equals_accumulation(place):
    """The article's example: two ranks, and one process that accumulates two batches in the order the ranks see them."""
    config = place.source / "configs/ddp_equals_accumulation.yaml"
    weights = "weights: 0.9472 0.9440 0.9527 0.9687 0.9570 0.9343 0.9411 0.9186"
    place.levin("fit", "--config", config).exits(0).says(weights)
    place.levin("fit", "--config", config, "--trainer.devices=1", "--trainer.accumulate_grad_batches=2",
                "--data.interleave=2").exits(0).says(weights)


def case_dp(place):
    """The article's example on two logical CPU devices, by replicas that are made from the model's name."""
    config = place.source / "configs/dp.yaml"
    weights = "weights: 0.9472 0.9440 0.9527 0.9687 0.9570 0.9343 0.9411 0.9186"
    for strategy in ["dp", "dp_balanced"]:
        done = place.levin("fit", "--config", config, f"--trainer.strategy={strategy}").exits(0).says(weights)
        if len(done.lines("weights:")) != 1:
            done.fail("expected the weights once: only the module's hooks are called, not the replicas'")


def case_model_parallel(place):
    """A model in two parts, pipelined, comes to the losses of one device."""
    config = place.source / "configs/fashion_mnist_model_parallel.yaml"
    short = ["--trainer.limit_train_batches=8", "--trainer.limit_val_batches=2", "--trainer.max_epochs=1",
             "--trainer.log_every_n_steps=8", "--model.dropout=0"]
    place.levin("fit", "--config", config, *short).exits(0)
    place.levin("fit", "--config", config, *short, "--trainer.devices=1", "--trainer.strategy=single_device").exits(0)
    parted, alone = place.metrics(0), place.metrics(1)
    if len(parted) != len(alone):
        raise Failure(f"rows of metrics.csv: {parted} and {alone}")
    for one, other in zip(parted, alone):
        for name in one:
            if one[name] and abs(float(one[name]) - float(other[name])) > 1e-3:
                raise Failure(f"{name}: {one[name]} with two parts, {other[name]} alone")


def expect_same_run_without_recomputation(place, config, *short):
    """metrics.csv, to the last digit, of a run file with and without its `recompute`."""
    short = ["--trainer.logger=true", "--trainer.log_every_n_steps=1", "--trainer.limit_val_batches=2", *short]
    place.levin("fit", "--config", config, *short).exits(0)
    place.levin("fit", "--config", config, *short, "--trainer.recompute=null").exits(0)
    if len(place.metrics(0)) < 4:
        raise Failure(f"expected rows of training and validation, got {place.metrics(0)}")
    expect_same("the metrics with recomputation and without", place.metrics(0), place.metrics(1))


def case_thousand_layers_learn_the_same_in_segments(place):
    expect_same_run_without_recomputation(place, place.source / "configs/thousand_layers.yaml", "--model.layers=200",
                                          "--trainer.limit_train_batches=4", "--data.batch_size=256")


def case_paddle_recompute(place):
    """The layers between the checkpoints fc_1 and pred are recomputed, and training does not change."""
    expect_same_run_without_recomputation(place, place.source / "configs/paddle_recompute.yaml",
                                          "--trainer.limit_train_batches=20", "--trainer.max_epochs=1")


def case_short_run_leaves_its_files(place):
    """metrics.csv, hparams.yaml, checkpoints and a config.yaml that runs the same run again."""
    place.levin("fit", "--config", place.source / "configs/fashion_mnist.yaml", "--trainer.max_epochs=1",
                "--trainer.limit_train_batches=30", "--trainer.limit_val_batches=5",
                "--trainer.limit_test_batches=5", "--trainer.log_every_n_steps=10").exits(0).says("test_acc")
    for name in ["metrics.csv", "config.yaml", "hparams.yaml", "checkpoints/last.ckpt",
                 "checkpoints/epoch=0-step=30.ckpt"]:
        if not (place.log() / name).is_file():
            raise Failure(f"{name} is missing; found {place.files()}")
    rows = place.metrics()
    for column in ["epoch", "step", "train_loss", "val_acc", "val_loss", "test_acc", "test_loss"]:
        if not any(row.get(column) for row in rows):
            raise Failure(f"metrics.csv holds no {column}: {rows}")
    place.levin("fit", "--config", place.log() / "config.yaml").exits(0)
    expect_same("the metrics of a run and of its config.yaml", rows, place.metrics(1))


def case_resume_continues_bit_for_bit(place):
    """Two epochs in one run equal one epoch and a second one that resumes from last.ckpt."""
    config = place.write("run.yaml", SHORT_RUN)
    whole = place.levin("fit", "--config", config, "--trainer.max_epochs=2").exits(0)
    place.levin("fit", "--config", config).exits(0)
    place.levin("fit", "--config", config, "--trainer.max_epochs=2", "--ckpt_path",
                place.log(1) / "checkpoints/last.ckpt").exits(0)

    def second_epoch(version):
        return [row for row in place.metrics(version) if row["epoch"] == "1"]

    if len(second_epoch(0)) < 4:
        whole.fail(f"expected training and validation rows of a second epoch, got {place.metrics(0)}")
    expect_same("the second epochs of the whole and of the resumed run", second_epoch(0), second_epoch(2))


def case_recipes(place):
    """CosineWithWarmup moves after every step by itself, Muon knows the names of parameters, MixUp changes targets."""
    fit = ["fit", "--config", place.source / "configs/recipes.yaml", "--trainer.max_epochs=1", "--trainer.logger=true",
           "--trainer.limit_train_batches=8", "--trainer.limit_test_batches=2", "--trainer.log_every_n_steps=1",
           "--trainer.callbacks=[LearningRateMonitor, {class_path: MixUp, init_args: {num_classes: 10}}]",
           "--lr_scheduler={class_path: CosineWithWarmup, init_args: {warmup: 0.25dur, start_factor: 0.1}}"]
    muon = "--optimizer={class_path: Muon, init_args: {lr: 0.02, adamw_params: [%s]}}"
    place.levin(*fit, muon % "net.4.*").exits(0).says("test_acc")
    rates = [float(row["lr-Muon"]) for row in place.metrics() if row.get("lr-Muon")]
    cosine = [0.01 * (1 + math.cos(math.pi * step / 6)) for step in range(6)]
    if len(rates) != 8 or any(abs(a - b) > 1e-6 for a, b in zip(rates, [0.002, 0.011, *cosine])):
        raise Failure(f"learning rates: {rates}, expected a rise over two steps and {cosine}")
    place.levin(*fit, muon % "head.*").exits(2).says('no parameter\'s name matches "head.*"')


def case_resume_within_an_epoch(place):
    """A run that is continued from its 12th batch of 20, as after a power cut: the same metrics from there on."""
    config = place.write("run.yaml", SHORT_RUN + "lr_scheduler: {class_path: LinearLR, interval: step}\n")
    fit = ["fit", "--config", config, "--trainer.max_epochs=2", "--trainer.callbacks="
           "[{class_path: ModelCheckpoint, init_args: {every_n_train_steps: 12, save_top_k: -1}}]"]
    place.levin(*fit).exits(0)
    place.levin(*fit, "--ckpt_path", place.log() / "checkpoints/epoch=0-step=12.ckpt").exits(0)
    later = [row for row in place.metrics(0) if int(row["step"]) >= 12]
    if len(later) < 6:
        raise Failure(f"expected rows from the rest of two epochs, got {later}")
    expect_same("the rest of the whole and the resumed run", later, place.metrics(1))


def case_commands_take_a_checkpoint(place):
    """validate, test and predict run on a file; a file that is not there is named."""
    config = place.write("run.yaml", SHORT_RUN)
    place.levin("fit", "--config", config).exits(0)
    last = place.log() / "checkpoints/last.ckpt"
    of_fit = [row for row in place.metrics() if row["val_loss"]][-1]
    for command, parts in [("validate", ["val_loss", "val_acc"]), ("test", ["test_loss", "test_acc"]),
                           ("predict", ["predictions", "64", "sample 0: "])]:
        named = [command, "--config", config, "--ckpt_path", last, "--trainer.logger=CSVLogger"]
        place.levin(*named).exits(0).says(*parts)
    # Validation of the loaded weights sees what validation saw at the end of the epoch.
    of_file = [row for row in place.metrics(1) if row["val_loss"]][-1]
    expect_same("val_loss in fit and from its checkpoint", of_fit["val_loss"], of_file["val_loss"])
    for command in ["fit", "validate", "test", "predict"]:
        place.levin(command, "--config", config, "--ckpt_path", "gone.ckpt").exits(1).says("gone.ckpt")


def case_gpt_continues_a_prompt(place):
    """`levin predict` prints text that depends on the seed and the options of sampling."""
    config = ["--config", place.source / "configs/gpt.yaml"]
    tiny = ["--model.n_layer=1", "--model.n_embd=32", "--model.max_new_tokens=20", "--data.block_size=32"]
    place.levin("fit", *config, *tiny, "--trainer.max_steps=10", "--trainer.val_check_interval=10",
                "--trainer.limit_val_batches=2").exits(0).says("val_bits_per_byte")

    def samples(*options):
        done = place.levin("predict", *config, *tiny, "--ckpt_path", "last", "--data.prompt=And God said", *options)
        return done.exits(0).output[done.output.index("sample 0:"):]

    first = samples("--data.num_samples=2")
    if first.count("And God said") != 2 or "sample 1:" not in first:
        raise Failure(f"expected two samples that begin with the prompt, got {first}")
    expect_same("the samples of one seed", first, samples("--data.num_samples=2"))
    if samples("--data.num_samples=2", "--seed_everything=1") == first:
        raise Failure(f"a different seed gave the same samples: {first}")
    likeliest = samples("--model.temperature=0")
    expect_same("the likeliest text and the only one of top_k 1", likeliest, samples("--model.top_k=1"))


def case_encoder_takes_weights_of_other_programs(place):
    """Files with Hugging Face's names give the loss that PyTorch computes with them; a file without a head gives a warning."""
    sys.path.insert(0, str(Path(__file__).parent / "reference"))
    import encoder_weights as small
    recorded = json.loads((Path(__file__).parent / "reference/encoder.json").read_text(encoding="utf-8"))["classifier"]
    rows = [f'"{text}",{label}' for text, label in zip(recorded["strings"], recorded["labels"])]
    place.write("samples.csv", "\n".join(["text,label", *rows, ""]))
    older = {"weight": "gamma", "bias": "beta"}  # of norms in bert-large-uncased's file
    norms = ["bert.embeddings", "bert.encoder.layer.*.attention.output", "bert.encoder.layer.*.output"]
    maps = {"xlmr": [], "bert": [f"{{from: {norm}.LayerNorm.{old}, to: {norm}.LayerNorm.{new}}}"
                                 for norm in norms for new, old in older.items()]}

    def with_older_names(name):
        stem, _, last = name.rpartition(".")
        return f"{stem}.{older[last]}" if stem.endswith("LayerNorm") else name

    for kind, loss in recorded["losses"].items():
        tensors = small.values(small.KINDS[kind], 260, 30)
        if kind == "bert":
            tensors = {with_older_names(name): tensor for name, tensor in tensors.items()}
        small.write_safetensors(place.folder / f"{kind}.safetensors", {**tensors, "lm_head.bias": ((2,), [1.0, 2.0])})
        small.write_safetensors(place.folder / f"{kind}_body.safetensors",
                                {name: tensor for name, tensor in tensors.items() if "classifier" not in name})
        run = place.write(f"{kind}.yaml", f"""\
trainer: {{logger: false}}
model:
  class_path: TextClassifier
  init_args: {{architecture: {kind}_base, num_hidden_layers: {small.LAYERS}, hidden_size: {small.WIDTH},
              num_attention_heads: {small.HEADS}, intermediate_size: {small.WIDE}, vocab_size: 260,
              max_position_embeddings: 30, pad_token_id: 1}}
data: {{class_path: TextCsv, init_args: {{path: samples.csv, test_path: samples.csv, max_length: 24}}}}
weights: {{path: {kind}.safetensors, map: [{", ".join([*maps[kind], "{from: lm_head, to: null}"])}]}}
""")
        done = place.levin("test", "--config", run).exits(0)
        found = float(done.lines("  test_loss")[-1].split()[1])
        if abs(found - loss) > 1e-4 * loss:
            done.fail(f"expected the loss {loss} of reference/encoder.py, got {found}")
        place.levin("test", "--config", run, f"--weights.path={kind}_body.safetensors").exits(1).says(
            "missing classifier", "strict: false")
        place.levin("test", "--config", run, f"--weights.path={kind}_body.safetensors",
                    "--weights.strict=false").exits(0).says("Not loaded: missing classifier")


def case_help(place):
    """What a newcomer asks for."""
    place.levin().says("levin fit|validate|test|predict")
    place.levin("help").exits(0).says("--print_config", "list [KIND]", "help [NAME]")
    place.levin("help", "help").exits(0).says("--print_config", "list [KIND]")
    place.levin("--help").exits(0).says("--print_config")
    place.levin("--version").exits(0).says("levin 0.2.0")
    place.levin("fit", "--help").exits(0).says("max_epochs", "seed_everything", "LearningRateMonitor", "--trainer.max_epochs=5")
    place.levin("list").exits(0).says("Classifier", "FashionMnist", "ModelCheckpoint", "CSVLogger", "AdamW", "OneCycleLR")
    place.levin("list", "callbacks").exits(0).says("EarlyStopping")
    place.levin("help", "ModelCheckpoint").exits(0).says("save_top_k", "every_n_train_steps", "trainer.callbacks")
    place.levin("help", "ModelChekpoint").exits(2).says('"ModelChekpoint"', 'Did you mean "ModelCheckpoint"')
    place.levin("list", "calbacks").exits(2).says('"calbacks"', "callbacks")
    place.expect_files([])


# ---- mistakes ------------------------------------------------------------------------------------------------------

def expect_refused(place, arguments, *parts):
    """Expects exit status 2, all the parts in the output, and no new file."""
    before = place.files()
    place.levin(*arguments).exits(2).says(*parts, "nothing was run")
    place.expect_files(before)


def edited(old, new):
    if SHORT_RUN.count(old) != 1:
        raise Failure(f"the short run holds {old!r} {SHORT_RUN.count(old)} times")
    return SHORT_RUN.replace(old, new)


MISTAKES = {
    "unknown_key": ("max_epochs: 1", "max_epoch: 1", ["bad.yaml:3:3", '"max_epoch"', 'Did you mean "max_epochs"']),
    "wrong_type": ("max_epochs: 1", "max_epochs: many", ["bad.yaml:3:15", "trainer.max_epochs", "many"]),
    "out_of_range": ("hidden: 16", "hidden: 0", ["bad.yaml:12:53", "model.init_args.hidden", ">= 1", "0"]),
    "unknown_class": ("Classifier", "Clasifier", ["bad.yaml:12:", '"Clasifier"', 'Did you mean "Classifier"']),
    "unknown_callback_option": ("save_last", "save_lst", ["bad.yaml:11:", '"save_lst"', 'Did you mean "save_last"']),
    "duplicate_key": ("max_epochs: 1", "max_epochs: 1\n  max_epochs: 2", ["bad.yaml:4:3", "duplicate key", "bad.yaml:3:3"]),
    "second_document": ("seed_everything: 7", "seed_everything: 7\n---\nx: 1", ["bad.yaml:", "document"]),
    "text_that_is_no_yaml": ("data: {", "data: {{", ["bad.yaml:"]),
}


def case_mistake(place, name):
    """One mistake in a run file is reported with file:line:column, and nothing is run."""
    old, new, parts = MISTAKES[name]
    expect_refused(place, ["fit", "--config", place.write("bad.yaml", edited(old, new))], *parts)


def case_mistakes_are_told_together(place):
    bad = edited("max_epochs: 1", "max_epoch: 1").replace("hidden: 16", "hidden: 0").replace("batch_size: 32", "batch_size: x")
    expect_refused(place, ["fit", "--config", place.write("bad.yaml", bad), "--trainer.precision=8", "--trainer.devicess=2"],
                   '"max_epoch"', "model.init_args.hidden", "data.init_args.batch_size", "devicess")


def case_mistakes_on_the_command_line(place):
    config = place.write("run.yaml", SHORT_RUN)
    expect_refused(place, ["fit", "--config", "gone.yaml"], "gone.yaml")
    expect_refused(place, ["fit", "--config", config, "--max_epochs=3"], "--max_epochs", "--trainer.max_epochs")
    expect_refused(place, ["fit", "--config", config, "--trainer.max_epochs=x"], "--trainer.max_epochs=x", "trainer.max_epochs")
    expect_refused(place, ["fit", "--config", config, "--trainer.precision=8"], "precision", "8", "bf16-mixed")
    expect_refused(place, ["fit", "--config", config, "--trainer.callbacks.3.verbose=true"], "trainer.callbacks", "item 3")
    expect_refused(place, ["fitt", "--config", config], '"fitt"', "fit")
    expect_refused(place, ["fit"], "model")
    expect_refused(place, ["fit", "--config"], "--config")


def all_cases(source):
    """Names as CTest shows them, with the arguments that run them."""
    for name in [n[5:] for n in globals() if n.startswith("case_")]:
        if name == "config":
            yield from (("config." + p.stem, [name, p.name]) for p in sorted((source / "configs").glob("*.yaml"))
                        if not p.name.startswith("sweep_"))
        elif name == "mistake":
            yield from (("mistake." + each, [name, each]) for each in MISTAKES)
        else:
            yield name, [name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"))
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--scratch", type=Path, default=None)
    parser.add_argument("case")
    parser.add_argument("argument", nargs="?")
    options = parser.parse_args()
    if options.case == "list":
        print("\n".join(" ".join([name, *arguments]) for name, arguments in all_cases(options.source)))
        return 0
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    run = globals()["case_" + options.case]
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        place = Place(options.bin.resolve(), options.source.resolve(), Path(folder).resolve())
        try:
            run(place, *([options.argument] if options.argument else []))
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
