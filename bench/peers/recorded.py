"""Steps of the shapes of bench/recorded.cpp, on fixed batches in memory: microseconds a step of raw PyTorch, of the same
step with torch.compile (forward, loss and backward by Inductor; SGD's step compiled too), and of Lightning with a compiled
module.

  a round: raw|compiled|lightning SHAPE STEPS
           ahead SHAPE FILE      writes the step, compiled ahead, for Levin's CompiledModule
"""
import logging
import os
import sys
import time
import warnings

from rounds import serve
import lightning
import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
SKIPPED = 8  # compiling, and what else comes first


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(64, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def cnn():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(400, 10))


SHAPES = {
    "mlp16": ((32, 16), 4, lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                                 nn.Linear(64, 4))),
    "mlp784": ((64, 784), 10, lambda: nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))),
    "gru": ((32, 16, 64), 10, lambda: Recurrent(nn.GRU)),
    "lstm": ((32, 16, 64), 10, lambda: Recurrent(nn.LSTM)),
    "cnn": ((16, 1, 28, 28), 10, cnn),
}
COMPILED = {}  # compiling takes longer than a round


def batches_of(shape):
    sizes, classes, _ = SHAPES[shape]
    torch.manual_seed(1)
    return [(torch.randn(sizes), torch.randint(classes, (sizes[0],))) for _ in range(16)]


def by_hand(shape, steps, compiles):
    if not compiles or shape not in COMPILED:
        torch.manual_seed(0)
        net = SHAPES[shape][2]()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loss_of = lambda x, y: F.cross_entropy(net(x), y)
        update = optimizer.step
        if compiles:
            loss_of, update = torch.compile(loss_of), torch.compile(optimizer.step)
            COMPILED[shape] = (optimizer, loss_of, update)
    if compiles:
        optimizer, loss_of, update = COMPILED[shape]
    batches = batches_of(shape)
    for k in range(steps + SKIPPED):
        if k == SKIPPED:
            start = time.perf_counter()
        x, y = batches[k % len(batches)]
        optimizer.zero_grad()
        loss_of(x, y).backward()
        update()
    return (time.perf_counter() - start) * 1e6 / steps


class Module(lightning.LightningModule):
    def __init__(self, shape):
        super().__init__()
        torch.manual_seed(0)
        self.net = SHAPES[shape][2]()
        self.compiled = torch.compile(self.net)

    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.compiled(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Clock(lightning.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == SKIPPED:
            self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.end, self.steps = time.perf_counter(), batch_idx + 1 - SKIPPED


class Fixed:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        while True:
            yield from self.batches


def by_lightning(shape, steps):
    clock = Clock()
    trainer = lightning.Trainer(barebones=True, max_steps=steps + SKIPPED, max_epochs=-1, accelerator="cpu", devices=1,
                                callbacks=[clock])
    trainer.fit(Module(shape), Fixed(batches_of(shape)))
    return (clock.end - clock.start) * 1e6 / clock.steps


def compile_ahead(shape, file):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
    from compile_step import compile_step
    x, y = batches_of(shape)[0]
    torch.manual_seed(0)
    compile_step(SHAPES[shape][2](), [x], "cross_entropy", file, target=y)
    return 0


def run(words):
    if words[0] == "ahead":
        return compile_ahead(words[1], words[2])
    kind, shape, steps = words[0], words[1], int(words[2])
    return by_lightning(shape, steps) if kind == "lightning" else by_hand(shape, steps, kind == "compiled")


serve(run)
