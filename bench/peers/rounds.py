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
    modules = {name: sys.modules.get(name) for name in ("torch", "lightning", "peft", "stable_baselines3")}
    return {"python": sys.version.split()[0],
            **{name: module.__version__ for name, module in modules.items() if module is not None}}


def serve(run, threads=1, why_not=None):
    """Runs rounds on request: `run(words)` runs one round and returns its measurement; `words` are the words of the
    request's line. The answer to "can WAY" is `why_not(way)`: why rounds of that kind cannot run here, or ""."""
    import torch
    torch.set_num_threads(threads)
    _answer(_versions())
    for line in sys.stdin:
        words = line.split()
        _answer(why_not(words[1]) if words[0] == "can" else run(words))


# Packages that an environment with torch may lack; what it has itself comes first.
sys.path.extend(filter(None, os.environ.get("LEVIN_PEERS_EXTRA", "").split(":")))
