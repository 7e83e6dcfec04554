"""The GPT of bench/gpt.cpp on the bytes of the King James Bible: tokens a second of raw PyTorch and of Lightning.

  a round: raw STEPS | lightning STEPS

Both with fused AdamW and with batches gathered whole, so that Python does as little as it can.
"""
import logging
import tempfile
import time
import warnings

from rounds import serve
from gpt_model import GPT
from kjv import load_tokens
import lightning
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

BATCH, BLOCK = 12, 64
SHAPE = dict(vocab=256, block=BLOCK, layers=4, heads=4, width=128)


def loss_of(model, blocks):
    return F.cross_entropy(model(blocks[:, :-1]).flatten(0, 1), blocks[:, 1:].flatten())


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), fused=True)


def rate(start, steps):
    return steps * BATCH * BLOCK / (time.perf_counter() - start)


def raw_loop(steps):
    torch.manual_seed(0)
    model = GPT(**SHAPE)
    optimizer = make_optimizer(model.parameters())
    start = time.perf_counter()
    for _ in range(steps):
        blocks = WINDOWS[torch.randint(len(WINDOWS), (BATCH,))].long()
        optimizer.zero_grad()
        loss = loss_of(model, blocks)
        loss.backward()
        optimizer.step()
    return rate(start, steps)


class Blocks(Dataset):
    """Asked for whole batches."""

    def __len__(self):
        return len(WINDOWS)

    def __getitem__(self, places):
        return WINDOWS[torch.tensor(places)].long()


class Batches(RandomSampler):
    """Rows of BATCH random places, as the raw loop draws them."""

    def __init__(self, steps):
        super().__init__(range(steps))
        self.steps = steps

    def __iter__(self):
        for _ in range(self.steps):
            yield torch.randint(len(WINDOWS), (BATCH,)).tolist()

    def __len__(self):
        return self.steps


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GPT(**SHAPE)

    def training_step(self, batch, batch_idx):
        loss = loss_of(self.model, batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return make_optimizer(self.parameters())


class Stopwatch(lightning.Callback):
    """From on_train_start to on_train_end, as in gpt.cpp: without the set-up."""

    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.figure = rate(self.start, trainer.global_step)


def lightning_fit(steps):
    torch.manual_seed(0)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[watch],
                                    default_root_dir=folder)
        trainer.fit(Module(), DataLoader(Blocks(), sampler=Batches(steps), batch_size=None))
    return watch.figure


def run(words):
    return raw_loop(int(words[1])) if words[0] == "raw" else lightning_fit(int(words[1]))


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
WINDOWS = load_tokens().unfold(0, BLOCK + 1, 1)
serve(run)
