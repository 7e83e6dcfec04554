#!/usr/bin/env python3
"""Makes what data/weighted_sampler_test.cpp compares with: indices that PyTorch's WeightedRandomSampler draws.

  PYTHONPATH=~/.cache/levin/peers-2.11.0 python3 tests/data/reference/weighted_sampler.py

Writes weighted_sampler.json. The generator's seed is the one that Levin makes of the seed and the epoch.
"""
import json
from pathlib import Path

import torch
from torch.utils.data import WeightedRandomSampler

MASK = (1 << 64) - 1
INCREMENT = 0x9E3779B97F4A7C15


def finalise(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def mix_seed(seed, value):
    """core/random.h"""
    return finalise((finalise((seed + INCREMENT) & MASK) + (value + 1) * INCREMENT) & MASK)


def case(weights, num_samples, replacement, seed, epoch):
    generator = torch.Generator()
    generator.manual_seed(mix_seed(seed, epoch))
    indices = list(WeightedRandomSampler(weights, num_samples, replacement, generator=generator))
    return dict(weights=weights, num_samples=num_samples, replacement=replacement, seed=seed, epoch=epoch,
                indices=indices)


if __name__ == "__main__":
    uneven = [1.0, 2.0, 3.0, 0.0, 4.0, 10.0, 0.5, 2.5]
    cases = [case(uneven, 20, True, 5, 0), case(uneven, 20, True, 5, 1), case(uneven, 7, False, 5, 0),
             case(uneven, 3, False, 6, 2), case([float(i % 7) for i in range(300)], 60, False, 1, 0)]
    path = Path(__file__).resolve().with_suffix(".json")
    path.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1) + "\n")
