#!/usr/bin/env python3
"""Writes gpt.json: what a GPT-2 written from torch's functions alone computes, to compare examples/models/gpt.cpp with.

  python3 tests/examples/reference/gpt.py        needs torch 2.11

Weights are a formula of their name's place in the sorted list, so that none need be stored. Attention is spelt out.
"""
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

VOCAB, BLOCK, LAYERS, HEADS, WIDTH = 11, 6, 2, 2, 8
TOKENS = [[(3 * b + 5 * t + t * t) % VOCAB for t in range(BLOCK)] for b in range(2)]  # x and, one further, y


def shapes(bias, tied):
    named = {"wte.weight": (VOCAB, WIDTH), "wpe.weight": (BLOCK, WIDTH), "ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}
    for i in range(LAYERS):
        for name, shape in {"ln_1": (WIDTH,), "ln_2": (WIDTH,), "attn.c_attn": (3 * WIDTH, WIDTH),
                            "attn.c_proj": (WIDTH, WIDTH), "mlp.c_fc": (4 * WIDTH, WIDTH),
                            "mlp.c_proj": (WIDTH, 4 * WIDTH)}.items():
            named[f"h.{i}.{name}.weight"], named[f"h.{i}.{name}.bias"] = shape, shape[:1]
    if not tied:
        named["lm_head.weight"] = (VOCAB, WIDTH)
    return {name: named[name] for name in sorted(named) if bias or not name.endswith(".bias")}


def weights(bias, tied):
    result = {}
    for place, (name, shape) in enumerate(shapes(bias, tied).items()):
        index = torch.arange(math.prod(shape), dtype=torch.float64)
        values = 0.3 * torch.sin(0.7 * index + place) + (1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        result[name] = values.to(torch.float32).view(shape).requires_grad_()
    return result


def forward(w, x):
    def norm(name, h):
        return F.layer_norm(h, (WIDTH,), w[name + ".weight"], w.get(name + ".bias"))

    def linear(name, h):
        return F.linear(h, w[name + ".weight"], w.get(name + ".bias"))

    tokens = x.shape[1]
    h = w["wte.weight"][x] + w["wpe.weight"][:tokens]
    for i in range(LAYERS):
        q, k, v = (part.view(-1, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in linear(f"h.{i}.attn.c_attn", norm(f"h.{i}.ln_1", h)).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -math.inf)
        heads = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, tokens, WIDTH)
        h = h + linear(f"h.{i}.attn.c_proj", heads)
        h = h + linear(f"h.{i}.mlp.c_proj", F.gelu(linear(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", h)), approximate="tanh"))
    return F.linear(norm("ln_f", h), w.get("lm_head.weight", w["wte.weight"]))


def run(bias, tied):
    w = weights(bias, tied)
    matrices, others = [p for p in w.values() if p.dim() >= 2], [p for p in w.values() if p.dim() < 2]
    groups = [{"params": g, "weight_decay": d} for g, d in ((matrices, 0.1), (others, 0.0)) if g]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    blocks = torch.tensor(TOKENS)
    x, y = blocks[:, :-1], blocks[:, 1:]
    losses, gradients, logits = [], {}, None
    for step in range(3):
        out = forward(w, x)
        loss = F.cross_entropy(out.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            logits = out.detach().flatten().tolist()
            gradients = {name: p.grad.norm().item() for name, p in w.items()}
        optimizer.step()
        losses.append(loss.item())
    return {"bias": bias, "tied": tied, "parameters": sum(p.numel() for p in w.values()), "logits": logits,
            "gradient_norms": gradients, "losses": losses}


torch.set_num_threads(1)
result = {"tokens": TOKENS, "cases": [run(True, True), run(False, False)]}
Path(__file__).with_name("gpt.json").write_text(json.dumps(result).replace('{"bias"', '\n{"bias"') + "\n")
