"""From the start of the process to its first step: the same training as bench/startup.cpp's, once.

  startup.py raw|lightning

Answers with the moment after the first step (s, of the monotonic clock, which all processes share) and the peak of
resident memory (MiB).
"""
import json
import os
import re
import sys
import tempfile
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

STEPS = 10


def make_net():
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def raw(data):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first_step = None
    for b in range(STEPS):
        x, y = (tensor[b * 64:(b + 1) * 64] for tensor in data)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        first_step = first_step or time.monotonic()
    return first_step


def lightning_fit(data):
    import lightning

    class Mlp(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def training_step(self, batch, batch_idx):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class FirstStep(lightning.Callback):
        moment = None

        def on_train_batch_end(self, *_):
            self.moment = self.moment or time.monotonic()

    first_step = FirstStep()
    dataset = TensorDataset(*data)
    loader = DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), 64, drop_last=False), batch_size=None)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, callbacks=[first_step],
                                    default_root_dir=folder)
        trainer.fit(Mlp(), loader)
    return first_step.moment


torch.set_num_threads(1)
samples = (torch.rand(64 * STEPS, 784), torch.randint(0, 10, (64 * STEPS,)))
moment = (raw if sys.argv[1] == "raw" else lightning_fit)(samples)
with open("/proc/self/status") as status:
    peak_kib = int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])
versions = {name: sys.modules[name].__version__ for name in ("torch", "lightning") if name in sys.modules}
print(json.dumps({"first_step": moment, "peak_mib": peak_kib / 1024, "versions": versions}), file=answers, flush=True)
