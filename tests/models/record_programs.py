"""Records the programs in tests/models/data with PyTorch 2.11: record_programs.py FOLDER. Weights are written by formula, and
expected outputs are in expected.json, so that tests compare with Python's numbers.
"""
import json
import pathlib
import sys
import warnings

import torch
from torch import nn

FOLDER = pathlib.Path(sys.argv[1])
BATCH = {0: torch.export.Dim.DYNAMIC}


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(6, 2)

    def forward(self, x):
        return self.second(self.drop(self.norm(self.first(x)).relu()))


class State(nn.Module):
    """Tied weights, a buffer changed in place, one that is not saved, sizes computed, several outputs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]), persistent=False)

    def forward(self, x, shift):
        self.count.add_(1)
        h = self.b(self.a(x) * self.scale) + shift + torch.tensor([1.0, -1.0, 1.0, -1.0])
        first, second = h.split(2, dim=1)
        return {"h": h.view(x.shape[0] * 2, -1), "mean": first.mean(), "size": x.shape[0] // 2, "x": x, "second": second}


class Branch(nn.Module):
    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return torch.cond(y.sum() > 1, lambda y: y + 1, lambda y: y - 1, (y,))


def fill(model):
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_((torch.arange(value.numel(), dtype=torch.float32) * 0.7 + len(name)).sin().view_as(value))
    return model


def main():
    warnings.simplefilter("ignore")
    x = torch.arange(12, dtype=torch.float32).view(3, 4).cos()
    expected = {}

    def save(name, model, args, shapes, change=lambda program: program):
        program = change(torch.export.export(model, args, dynamic_shapes=shapes))
        torch.export.save(program, str(FOLDER / f"{name}.pt2"))

    mlp = fill(MLP())
    save("mlp", mlp, (x,), (BATCH,))
    save("mlp_eval", fill(MLP()).eval(), (x,), (BATCH,))
    save("mlp_functional", fill(MLP()).train(), (x,), (BATCH,), lambda program: program.run_decompositions({}))
    mlp.eval()
    expected["mlp_eval"] = mlp(x).tolist()
    mlp.train()
    mlp.drop.eval()
    expected["mlp_without_dropout"] = mlp(x).tolist()
    expected["running_mean"] = mlp.norm.running_mean.tolist()
    state = fill(State())
    save("state", state, (x[:2], torch.ones(4)), (BATCH, None))
    state = fill(State())
    out = state(x, torch.ones(4))
    expected["state"] = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in out.items()}
    save("branch", Branch(), (x,), None)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
