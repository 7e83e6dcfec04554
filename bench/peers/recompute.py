"""The step of bench/recompute.cpp in Python: forward, loss, backward of a GPT, plain or with torch.utils.checkpoint around
each block.

  recompute.py cuda|cpu BATCH BLOCK LAYERS HEADS WIDTH
  a round: time plain|again STEPS      milliseconds a step
           memory plain|again          MiB at the peak of a step, above what was held before it, by the allocator's records
"""
import sys
import time

from rounds import serve
from gpt_model import GPT
import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

DEVICE = sys.argv[1]
BATCH, BLOCK, LAYERS, HEADS, WIDTH = map(int, sys.argv[2:7])
VOCAB = 256
MODEL = GPT(vocab=VOCAB, block=BLOCK, layers=LAYERS, heads=HEADS, width=WIDTH).to(DEVICE)
TOKENS = torch.randint(VOCAB, (BATCH, BLOCK + 1), generator=torch.Generator().manual_seed(0)).to(DEVICE)


def again(block, x):
    return checkpoint(block, x, use_reentrant=False)


def step(way):
    MODEL.zero_grad()
    logits = MODEL(TOKENS[:, :-1], again) if way == "again" else MODEL(TOKENS[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten()).backward()


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def milliseconds(way, steps):
    if DEVICE == "cuda":
        step(way)
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step(way)
    wait()
    return (time.perf_counter() - start) * 1000 / steps


def peak(way):
    step(way)
    MODEL.zero_grad()
    if DEVICE == "cuda":
        wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(way)
        wait()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        step(way)
    events = [event for event in records.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / 2**20


def run(words):
    return milliseconds(words[1], int(words[2])) if words[0] == "time" else peak(words[1])


serve(run)
