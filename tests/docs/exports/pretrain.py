"""Writes the files that docs/tutorials/transfer.md has in place of torchvision's model: a small network, exported by torch.export.

pretrain.py FOLDER, with PyTorch for Python. pretrained.pt2 has a backbone that was trained on Fashion-MNIST's ten classes in random
colours, and a new head for four; scratch.pt2 is the same network with new weights alone.
"""
import gzip
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
from export_model import export_model  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist/train-{}-ubyte.gz"


class Net(nn.Module):
    def __init__(self, classes, width=8):
        super().__init__()
        layers, channels = [], 3
        for out in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        self.backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, images):
        return self.head(self.backbone(images))


def pretrain(net, count=30000, epochs=8):
    images = torch.frombuffer(bytearray(gzip.open(DATA.format("images-idx3")).read()[16:]), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray(gzip.open(DATA.format("labels-idx1")).read()[8:]), dtype=torch.uint8).long()
    images = images.view(-1, 1, 28, 28)[:count].float() / 255
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (count // 64))
    for epoch in range(epochs):
        for rows in torch.randperm(count).split(64)[:count // 64]:
            x, dark, light = images[rows], torch.rand(64, 3, 1, 1), torch.rand(64, 3, 1, 1)
            if torch.rand(()) < 0.5:
                x = x.flip(3)
            x = dark * (1 - x) + light * x + 0.05 * torch.randn(64, 3, 28, 28)
            loss = nn.functional.cross_entropy(net((x - 0.45) / 0.225), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = pathlib.Path(sys.argv[1])
    net = Net(10)
    pretrain(net)
    fresh = Net(4)
    images = torch.randn(2, 3, 28, 28)
    export_model(fresh, [images], folder / "scratch.pt2")
    net.head = fresh.head
    export_model(net, [images], folder / "pretrained.pt2")


if __name__ == "__main__":
    main()
