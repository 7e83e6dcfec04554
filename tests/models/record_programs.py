"""Records the programs in tests/models/data with PyTorch 2.11: record_programs.py FOLDER. Weights are written by formula, and
expected outputs are in expected.json, so that tests compare with Python's numbers.
"""
import json
import pathlib
import sys
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import export_model  # noqa: E402

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


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)})
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x, mask):
        batch, length, width = x.shape
        parts = self.attn["qkv"](self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=0.1 if self.training else 0.0)
        x = x + self.attn["out"](seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class Transformer(nn.Module):
    """A language model whose output layer is its embedding, with a mask that is computed outside of the blocks."""

    def __init__(self, blocks=2, width=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, width), nn.Embedding(32, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(width, 2) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1])
        mask = (places[:, None] >= places[None, :])[None, None].expand(tokens.shape[0], 1, -1, -1)
        x = self.drop(self.tokens(tokens) + self.places(places))
        for block in self.h:
            x = block(x, mask)
        return self.head(self.norm(x))


class Counter(nn.Module):
    """Changes a tensor that is not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4), persistent=False)

    def forward(self, x):
        self.seen.add_(1)
        return x * self.seen


class AddOne(nn.Module):
    def forward(self, x):
        return x.add_(1)


class Half(nn.Module):
    """Computes a number that is used outside."""

    def forward(self, x):
        return x.sin(), x.shape[0] // 2


class Calls(nn.Module):
    """A module that is called three times, batch norm, lists that take turns, changes in place, a call without gradients."""

    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.2))
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        self.down = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.add, self.middle, self.count, self.still = AddOne(), Half(), Counter(), nn.Linear(4, 4)

    def forward(self, x):
        x = self.one(self.one(x))
        for down, up in zip(self.down, self.up):
            x = up(down(x).sin())
        x = self.add(self.up[3](x) * 2).cos()
        x, rows = self.middle(self.net(self.one(x)))
        with torch.no_grad():
            shift = self.still(x.detach())
        return (self.count(x) + shift).view(-1, 2, 4)[:rows].sum() * rows


class Modes(nn.Module):
    """What the model does in training alone: power iterations, random paths, noise, an auxiliary head."""

    def __init__(self):
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.head, self.auxiliary = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x)
        if not self.training:
            return self.head(h)
        h = h * torch.empty(x.shape[0], 1).bernoulli_(0.5) + 0.1 * torch.randn_like(h)
        return self.head(h), self.auxiliary(h)


class Norms(nn.Module):
    """Norms that have the batch's statistics in both modes."""

    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm1d(4, track_running_stats=False)
        self.instance, self.group = nn.InstanceNorm1d(4), nn.GroupNorm(4, 4)

    def forward(self, x, y, z):
        return self.batch(x), self.instance(y), self.group(z)


class Types(nn.Module):
    """A recurrent layer makes its first state of x.dtype, a mask is the smallest number of x.dtype."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0].masked_fill(x < 0, torch.finfo(x.dtype).min).softmax(-1)


def without_traces(program):
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


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

    def save_both(name, model, args, shapes):
        training = torch.export.export(model.train(), args, dynamic_shapes=shapes)
        evaluation = torch.export.export(model.eval(), args, dynamic_shapes=shapes)
        same = export_model.same_graph(training, evaluation)
        export_model.save({"model": training, "evaluation": training if same else evaluation}, FOLDER / f"{name}.pt2")

    torch.manual_seed(0)
    modes = fill(Modes())
    save("modes_training", modes, (x,), (BATCH,))
    save_both("modes", modes, (x,), (BATCH,))
    expected["modes"] = {"before": modes(x).tolist()}
    torch.manual_seed(1)
    expected["modes"]["training"], expected["modes"]["auxiliary"] = (value.tolist() for value in modes.train()(x))
    expected["modes"]["after"] = modes.eval()(x).tolist()
    norms, inputs = fill(Norms()), (x, x.view(1, 4, 3).repeat(2, 1, 1), x.repeat(2, 1)[:5])  # of three sizes
    save_both("norms", norms, inputs, (BATCH, {0: BATCH[0], 2: BATCH[0]}, BATCH))
    expected["batch_norm_without_statistics"] = norms.eval()(*inputs)[0].tolist()
    save("types", Types(), (x.view(1, 3, 4).repeat(2, 1, 1),), (BATCH,))

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
    save_both("state", state, (x[:2], torch.ones(4)), (BATCH, None))
    state = fill(State())
    out = state(x, torch.ones(4))
    expected["state"] = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in out.items()}
    save("branch", Branch(), (x,), None)
    save("transformer", fill(Transformer()), (torch.arange(12).view(2, 6) % 20,), ({0: BATCH[0], 1: BATCH[0]},), without_traces)
    save("calls", fill(Calls()), (x[:2].repeat(2, 1),), (BATCH,), without_traces)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
