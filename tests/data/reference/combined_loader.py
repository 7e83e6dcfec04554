#!/usr/bin/env python3
"""Makes what data/combined_loader_test.cpp compares with: the batches of Lightning's CombinedLoader.

  PYTHONPATH=~/.cache/levin/peers-2.11.0 python3 tests/data/reference/combined_loader.py

Writes combined_loader.json: for each mode and each list of lengths, the batches as text. Batch k of loader i is
100 i + k; "-" is a loader that has ended.
"""
import json
from importlib.metadata import version
from pathlib import Path

from lightning.pytorch.utilities.combined_loader import CombinedLoader


def batches(mode, lengths):
    combined = CombinedLoader([[100 * i + k for k in range(length)] for i, length in enumerate(lengths)], mode)
    rows = []
    for batch, _, _ in combined:
        parts = [batch] if mode == "sequential" else batch
        rows.append("".join(" " + ("-" if part is None else str(part)) for part in parts))
    return {"mode": mode, "lengths": lengths, "length": len(combined), "batches": ",".join(rows)}


if __name__ == "__main__":
    cases = [batches(mode, lengths) for mode in ("min_size", "max_size", "max_size_cycle", "sequential")
             for lengths in ([5, 2, 3], [4, 4], [7, 1], [3])]
    path = Path(__file__).resolve().with_suffix(".json")
    path.write_text(json.dumps({"lightning": version("lightning"), "cases": cases}, indent=1) + "\n")
