"""MLP 784-64-10, batch 64, on Fashion-MNIST in memory: microseconds a step of raw PyTorch and of Lightning.

  a round: raw sgd|adamw BATCHES          a hand-written loop
           lightning sgd|adamw BATCHES LOGS    Trainer with its defaults, so many logged values a step
"""
import tempfile
import time

from rounds import serve
from fashion_mlp import BATCH, Mlp, Stopwatch, load_data, make_loader, make_net, make_optimizer
import lightning
import torch
from torch.nn import functional as F


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


def lightning_fit(kind, batches, logs):
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_steps=batches, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[watch],
                                    default_root_dir=folder)
        trainer.fit(Mlp(kind, logs), make_loader(X, Y))
    return watch.figure


def run(words):
    kind, batches = words[1], int(words[2])
    return raw_loop(kind, batches) if words[0] == "raw" else lightning_fit(kind, batches, int(words[3]))


X, Y = load_data()
serve(run)
