"""The GPT of bench/gpt_gpu.cpp in bf16-mixed: tokens a second of a raw loop, of one with
torch.compile(mode="reduce-overhead"), and of Lightning.

  gpt_gpu.py cuda|cpu BLOCK LAYERS HEADS WIDTH VOCABULARY
  a round: raw|compiled|lightning BATCH STEPS      after SKIPPED steps that are not measured
           can WAY                                 why it cannot, or ""

All with fused AdamW, attention by scaled_dot_product_attention (FlashAttention where the GPU has it), and batches that are
gathered whole and copied from pinned memory while the GPU computes.
"""
import logging
import sys
import tempfile
import time
import warnings

from rounds import serve
from gpt_model import GPT
from kjv import load_tokens
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

try:
    import lightning
except ImportError as error:
    lightning, no_lightning = None, str(error)

SKIPPED = 8  # kSkippedSteps of steady_stopwatch.h
DEVICE = sys.argv[1]
BLOCK, LAYERS, HEADS, WIDTH, VOCABULARY = map(int, sys.argv[2:7])
PARTS = {}  # of compiled steps, by batch: compiling takes longer than a round


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def make_model():
    torch.manual_seed(0)
    return GPT(vocab=VOCABULARY, block=BLOCK, layers=LAYERS, heads=HEADS, width=WIDTH)


def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), fused=True)


def draw(batch):
    """(batch, BLOCK + 1) int64 in pinned memory where there is a GPU."""
    blocks = WINDOWS[torch.randint(len(WINDOWS), (batch,))].long()
    return blocks.pin_memory() if DEVICE == "cuda" else blocks


def loss_of(model, blocks):
    return F.cross_entropy(model(blocks[:, :-1]).flatten(0, 1), blocks[:, 1:].flatten())


def make_parts(compiles):
    model = make_model().to(DEVICE)
    optimizer = make_optimizer(model.parameters())

    def loss(blocks):
        return loss_of(model, blocks)

    return torch.compile(loss, mode="reduce-overhead", dynamic=False) if compiles else loss, optimizer


def loop(batch, steps, compiles):
    if compiles and batch not in PARTS:
        PARTS[batch] = make_parts(True)
    loss, optimizer = PARTS[batch] if compiles else make_parts(False)
    for step in range(SKIPPED + steps):
        if step == SKIPPED:
            wait()
            start = time.perf_counter()
        blocks = draw(batch).to(DEVICE, non_blocking=True)
        if compiles:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            value = loss(blocks)
        value.backward()
        optimizer.step()
    wait()
    return steps * batch * BLOCK / (time.perf_counter() - start)


def by_lightning(batch, steps):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def training_step(self, blocks, batch_idx):
            loss = loss_of(self.model, blocks)
            self.log("train_loss", loss, prog_bar=True)
            return loss

        def configure_optimizers(self):
            return make_optimizer(self.parameters())

    class Clock(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step in (SKIPPED, SKIPPED + steps):
                wait()
                times.append(time.perf_counter())

    class Batches(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                yield draw(batch)

    times = []
    on_gpu = DEVICE == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_steps=SKIPPED + steps, max_epochs=-1, accelerator="gpu" if on_gpu else "cpu",
                                    devices=1, precision="bf16-mixed" if on_gpu else "32-true", callbacks=[Clock()],
                                    default_root_dir=folder)
        trainer.fit(Module(), DataLoader(Batches(), batch_size=None))
    return steps * batch * BLOCK / (times[1] - times[0])


def why_not(way):
    """Tried rather than looked up: torch.compile needs Triton, a C compiler and Python's headers."""
    if way == "lightning" and not lightning:
        return no_lightning
    try:
        if way == "lightning":
            by_lightning(1, 1)
        if way == "compiled":
            value = torch.compile(lambda x: (x * 2).sum(), mode="reduce-overhead")(torch.ones(8, device=DEVICE))
            assert value.item() == 16
    except Exception as error:  # the error is the answer
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
    return ""


def run(words):
    batch, steps = int(words[1]), int(words[2])
    return by_lightning(batch, steps) if words[0] == "lightning" else loop(batch, steps, words[0] == "compiled")


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
WINDOWS = load_tokens().unfold(0, BLOCK + 1, 1)
serve(run, why_not=why_not)
