"""torch.save and torch.load of Python on the 512 MiB of bench/checkpoint.cpp: milliseconds.

  checkpoint.py FOLDER MIB      a round: save | save_and_fsync | load
"""
import os
import sys
import time

from rounds import serve
import torch

FOLDER, MIB = sys.argv[1], int(sys.argv[2])
PATH, KEPT = os.path.join(FOLDER, "python.pt"), os.path.join(FOLDER, "python-kept.pt")


def make_state():
    """Layers of 4 MiB and their small vectors, as in bench/checkpoint.cpp."""
    torch.manual_seed(0)
    state, left, layer = {}, MIB << 20, 0
    while left > 0:
        weight = min(4 << 20, left)
        state[f"layers.{layer}.weight"] = torch.randn(weight // 4)
        left -= weight
        layer += 1
    return state


def run(words):
    if words[0] != "load" and os.path.exists(PATH):
        os.remove(PATH)
    start = time.perf_counter()
    if words[0] == "load":
        torch.load(KEPT)
    else:
        torch.save(STATE, PATH)
    if words[0] == "save_and_fsync":
        with open(PATH, "rb") as file:
            os.fsync(file.fileno())
    return (time.perf_counter() - start) * 1e3


STATE = make_state()
torch.save(STATE, KEPT)
serve(run)
