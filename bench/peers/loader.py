"""Python's DataLoader over 50,000 CIFAR-shaped samples: samples a second of one pass.

  loader.py SAMPLES      a round: WORKERS

A sample is transformed as in bench/loader.cpp: (3, 32, 32) uint8 -> float32 of 0 to 1.
"""
import sys
import time

from rounds import serve
import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 128


class Images(Dataset):
    def __init__(self, count):
        torch.manual_seed(0)
        self.images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (count,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index].to(torch.float32).div_(255), self.labels[index]


def make_loader(workers):
    """Workers stay for the next pass, as threads of the others do: a pass does not pay for their start."""
    return DataLoader(DATA, batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def run(words):
    workers = int(words[0])
    if workers not in LOADERS:
        LOADERS[workers] = make_loader(workers)
    start = time.perf_counter()
    seen = 0
    for x, _ in LOADERS[workers]:
        seen += len(x)
    return seen / (time.perf_counter() - start)


DATA = Images(int(sys.argv[1]))
LOADERS = {}
serve(run)
