"""Modules that compiled_step_test.py compiles, and compares Levin with."""
import torch
from torch import nn
from torch.nn import functional as F


def mlp():
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def tiny(dropout=0.0):
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(dropout), nn.ReLU(), nn.Linear(5, 3))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 6 * 6, 10))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(c, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    """A small GPT whose output layer is its embedding (tied)."""

    def __init__(self, vocabulary=32, length=8, width=16, heads=2, layers=1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("positions", torch.arange(length), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(self.positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


class Reverse(torch.autograd.Function):
    """The same values, and the gradient of their negative."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return -gradient


class Reversed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)

    def forward(self, x):
        return self.second(Reverse.apply(self.drop(self.first(x))))
