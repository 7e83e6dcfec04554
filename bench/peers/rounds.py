"""What every peer program shares: `serve` runs one round for each line on standard input and answers with its figure.

Import this before torch: whatever torch and Lightning print goes to nowhere, their errors to standard error, and the
first answer tells the versions. bench/peer.h is the other side. A program that waits for its turn uses no processor time.
"""
import json
import os
import sys

_answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _answer(value):
    print(json.dumps(value), file=_answers, flush=True)


def _versions():
    modules = {name: sys.modules.get(name) for name in ("torch", "lightning", "peft")}
    return {"python": sys.version.split()[0],
            **{name: module.__version__ for name, module in modules.items() if module is not None}}


def serve(run, threads=1):
    """`run(words)` is one round and returns its figure; `words` are those of the line."""
    import torch
    torch.set_num_threads(threads)
    _answer(_versions())
    for line in sys.stdin:
        _answer(run(line.split()))
