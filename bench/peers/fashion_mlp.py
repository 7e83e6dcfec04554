"""What overhead.py and ddp.py train: MLP 784-64-10, batch 64, on Fashion-MNIST in memory. Import it after rounds.py."""
import gzip
import logging
import os
import time
import warnings

import lightning
import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

BATCH = 64
FOLDER = next((folder for folder in ("/usr/share/datasets/fashion-mnist/",
                                    os.environ.get("LEVIN_HOME", "") + "/datasets/fashion-mnist/") if os.path.isdir(folder)), "")
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


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


def make_loader(x, y):
    """Whole batches gathered at once: the plain DataLoader(dataset, batch_size=64) collates sample by sample, slower."""
    data = TensorDataset(x, y)
    return DataLoader(data, sampler=BatchSampler(RandomSampler(data), BATCH, drop_last=False), batch_size=None)


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
    """From on_train_start to on_train_end, as in stopwatch.h: without the set-up."""

    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.figure = (time.perf_counter() - self.start) * 1e6 / trainer.global_step
