"""Python's DataLoader over mosaicml-streaming: samples a second of one pass.

  streams.py FOLDER      a round: NAME WORKERS, where FOLDER/NAME is a data set in MDS
"""
import os
import pathlib
import sys
import time

from rounds import serve

for packages in ("formats-python", "models-python"):  # mosaicml-streaming imports transformers
    sys.path.append(str(pathlib.Path(os.environ["LEVIN_PEERS"]).parent / packages))
from streaming import StreamingDataset  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torchvision.transforms.functional import pil_to_tensor  # noqa: E402

BATCH = 64
LOADERS = {}


class Samples(StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return (sample["x"] if "x" in sample else pil_to_tensor(sample["image"])), sample["y"]


def run(words):
    name, workers = words[0], int(words[1])
    if name not in LOADERS:
        data = Samples(local=f"{sys.argv[1]}/{name}", shuffle=True, batch_size=BATCH, num_canonical_nodes=1)
        LOADERS[name] = DataLoader(data, batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0)
    start = time.perf_counter()
    seen = 0
    for x, _ in LOADERS[name]:
        seen += len(x)
    return seen / (time.perf_counter() - start)


serve(run)
