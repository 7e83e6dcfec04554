"""Python's DataLoader over torchvision's ImageFolder, and over mosaicml-streaming: images a second of one pass.

  images.py FOLDER STORE      a round: WORKERS [store]

The transforms are those of bench/images.cpp: a random part resized, a flip, floats of 0 to 1, normalised.
"""
import os
import pathlib
import sys
import time

from rounds import serve
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

BATCH = 64
LOADERS = {}


def transform(size):
    return transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


def stored_images(store):
    for packages in ("formats-python", "models-python"):  # mosaicml-streaming imports transformers
        sys.path.append(str(pathlib.Path(os.environ["LEVIN_PEERS"]).parent / packages))
    from streaming import StreamingDataset

    class Images(StreamingDataset):
        change = transform(128)

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return self.change(sample["image"]), sample["label"]

    return Images(local=store, shuffle=True, batch_size=BATCH, num_canonical_nodes=1)


def make_loader(workers, store=""):
    """Workers stay for the next pass, as threads of the other do: a pass does not pay for their start."""
    if store:
        return DataLoader(stored_images(store), batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0)
    return DataLoader(ImageFolder(sys.argv[1], transform(224)), batch_size=BATCH, shuffle=True, num_workers=workers,
                      persistent_workers=workers > 0)


def run(words):
    key = tuple(words)
    if key not in LOADERS:
        LOADERS[key] = make_loader(int(words[0]), sys.argv[2] if "store" in words else "")
    start = time.perf_counter()
    seen = 0
    for x, _ in LOADERS[key]:
        seen += len(x)
    return seen / (time.perf_counter() - start)


serve(run)
