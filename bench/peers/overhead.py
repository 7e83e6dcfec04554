"""MLP 784-64-10, batch 64, on Fashion-MNIST in memory: microseconds a step of raw PyTorch and of Lightning.

  a round: raw sgd|adamw BATCHES          a hand-written loop
           lightning sgd|adamw BATCHES LOGS    Trainer with its defaults, so many logged values a step
"""
import gzip
import logging
import tempfile
import time
import warnings

from rounds import serve
import lightning
import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

BATCH = 64
FOLDER = "/usr/share/datasets/fashion-mnist/"


def read_idx(name, offset):
    with gzip.open(FOLDER + name) as file:
        return torch.from_numpy(numpy.frombuffer(file.read(), numpy.uint8, offset=offset).copy())


def load_data():
    """(60000, 784) float32 and (60000) int64."""
    return (read_idx("train-images-idx3-ubyte.gz", 16).view(-1, 784).float() / 255,
            read_idx("train-labels-idx1-ubyte.gz", 8).long())


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimizer(kind, parameters):
    return torch.optim.SGD(parameters, lr=0.1) if kind == "sgd" else torch.optim.AdamW(parameters, lr=1e-3)


def raw_loop(kind, batches):
    net = make_net()
    optimizer = make_optimizer(kind, net.parameters())
    start = time.perf_counter()
    done = 0
    while done < batches:
        order = torch.randperm(len(X))
        for b in range(min(batches - done, (len(X) + BATCH - 1) // BATCH)):
            indices = order[b * BATCH:(b + 1) * BATCH]
            x, y = X.index_select(0, indices), Y.index_select(0, indices)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            done += 1
    return (time.perf_counter() - start) * 1e6 / batches


class Mlp(lightning.LightningModule):
    def __init__(self, kind, logs):
        super().__init__()
        self.net = make_net()
        self.kind = kind
        self.names = [f"metric_{i}" for i in range(logs)]

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        for name in self.names:
            self.log(name, loss)
        return loss

    def configure_optimizers(self):
        return make_optimizer(self.kind, self.parameters())


class Stopwatch(lightning.Callback):
    """From on_train_start to on_train_end, as in overhead_runs.cpp: without the set-up."""

    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.figure = (time.perf_counter() - self.start) * 1e6 / trainer.global_step


def lightning_fit(kind, batches, logs):
    # Whole batches gathered at once: the plain DataLoader(dataset, batch_size=64) collates sample by sample and is slower.
    data = TensorDataset(X, Y)
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), BATCH, drop_last=False), batch_size=None)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_steps=batches, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[watch],
                                    default_root_dir=folder)
        trainer.fit(Mlp(kind, logs), loader)
    return watch.figure


def run(words):
    kind, batches = words[1], int(words[2])
    return raw_loop(kind, batches) if words[0] == "raw" else lightning_fit(kind, batches, int(words[3]))


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
X, Y = load_data()
serve(run)
