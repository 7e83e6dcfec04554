"""Python's DataLoader over torchvision's ImageFolder: images a second of one pass.

  images.py FOLDER      a round: WORKERS

The transforms are those of bench/images.cpp: a random part resized to 224 x 224, a flip, floats of 0 to 1, normalised.
"""
import sys
import time

from rounds import serve
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

BATCH = 64


def make_loader(workers):
    """Workers stay for the next pass, as threads of the other do: a pass does not pay for their start."""
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


DATA = ImageFolder(sys.argv[1], transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))
LOADERS = {}
serve(run)
