#!/usr/bin/env python3
"""Writes encoder.json: what torch.nn.TransformerEncoderLayer between hand-written embeddings and heads computes, to
compare examples/models/encoder.cpp and text_classifier.cpp with.

  python3 tests/examples/reference/encoder.py        needs torch 2.11

Their weights are those of encoder_weights.py.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from encoder_weights import HEADS, KINDS, LAYERS, WIDE, WIDTH, values
from torch import nn

VOCAB, TOKENS = 13, 7
POSITIONS = {"xlmr": 10, "bert": 8}
LENGTHS, LABELS = [7, 4, 1], [2, 0, 1]
TEXTS, TEXT_LABELS = ["In the beginning", "was the Word, and more than fits", "x"], [0, 2, 1]  # by bytes, cut at 24


def weights(kind, vocab, positions):
    return {name: torch.tensor(numbers, dtype=torch.float64).to(torch.float32).view(shape).requires_grad_()
            for name, (shape, numbers) in values(kind, vocab, positions).items()}


def token_ids(pad):
    """Returns (3, TOKENS): as many tokens as LENGTHS says, then padding."""
    rows = [[2 + (3 * b + 5 * t + t * t) % (VOCAB - 2) for t in range(TOKENS)] for b in range(len(LENGTHS))]
    return torch.tensor([[v if t < n else pad for t, v in enumerate(row)] for row, n in zip(rows, LENGTHS)])


def text_ids():
    """(3, 24): <s> 0, a byte's value and 4, </s> 2, padding 1."""
    rows = [[0, *[4 + b for b in text.encode()][:22], 2] for text in TEXTS]
    return torch.tensor([row + [1] * (24 - len(row)) for row in rows])


def layer_output(kind, w, i, x, padding):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, WIDE, dropout=0.0, activation="gelu", batch_first=True,
                                       norm_first=False, layer_norm_eps=kind["eps"])
    at = f"{kind['prefix']}.encoder.layer.{i}."
    own = {"in_proj": [f"attention.self.{part}" for part in ("query", "key", "value")],
           "self_attn.out_proj": ["attention.output.dense"], "norm1": ["attention.output.LayerNorm"],
           "linear1": ["intermediate.dense"], "linear2": ["output.dense"], "norm2": ["output.LayerNorm"]}
    given = {}
    for name, parts in own.items():
        for which in ("weight", "bias"):
            key = f"self_attn.in_proj_{which}" if name == "in_proj" else f"{name}.{which}"
            given[key] = torch.cat([w[f"{at}{part}.{which}"] for part in parts])
    return torch.func.functional_call(layer, given, (x,), {"src_key_padding_mask": padding})


def forward(kind, w, ids, pad):
    p, tokens = kind["prefix"], ids.shape[1]
    padding = ids == pad
    if p == "bert":
        places = torch.arange(tokens).expand_as(ids)
    else:  # the first token at pad + 1, padding at pad
        lengths = (~padding).sum(1).tolist()
        places = torch.tensor([[pad + 1 + t if t < n else pad for t in range(tokens)] for n in lengths])
    own = {name[len(p) + 12:]: tensor for name, tensor in w.items() if name.startswith(f"{p}.embeddings.")}
    x = F.embedding(ids, own["word_embeddings.weight"], padding_idx=pad)
    x = x + F.embedding(places, own["position_embeddings.weight"], padding_idx=None if p == "bert" else pad)
    x = x + own["token_type_embeddings.weight"][0]
    x = F.layer_norm(x, (WIDTH,), own["LayerNorm.weight"], own["LayerNorm.bias"], kind["eps"])
    for i in range(LAYERS):
        x = layer_output(kind, w, i, x, padding)
    first = x[:, 0]
    if p == "bert":
        first = torch.tanh(F.linear(first, w["bert.pooler.dense.weight"], w["bert.pooler.dense.bias"]))
        return F.linear(first, w["classifier.weight"], w["classifier.bias"])
    first = torch.tanh(F.linear(first, w["classifier.dense.weight"], w["classifier.dense.bias"]))
    return F.linear(first, w["classifier.out_proj.weight"], w["classifier.out_proj.bias"])


def run(name):
    kind = KINDS[name]
    w = weights(kind, VOCAB, POSITIONS[name])
    plain = [p for n, p in w.items() if n.endswith(".bias") or "LayerNorm" in n]
    decayed = [p for n, p in w.items() if not (n.endswith(".bias") or "LayerNorm" in n)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    # Hugging Face's get_linear_schedule_with_warmup without a warmup, over 3 steps
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (3 - step) / 3)
    ids, labels = token_ids(kind["pad"]), torch.tensor(LABELS)
    losses, gradients, logits = [], {}, None
    for step in range(3):
        out = forward(kind, w, ids, kind["pad"])
        loss = F.cross_entropy(out, labels)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            logits = out.detach().flatten().tolist()
            gradients = {n: p.grad.norm().item() for n, p in w.items()}
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return {"kind": name, "ids": ids.tolist(), "labels": LABELS, "parameters": sum(p.numel() for p in w.values()),
            "logits": logits, "gradient_norms": gradients, "losses": losses}


def text_loss(name):
    """Returns the loss of TEXTS with the weights for 260 tokens and 30 positions."""
    kind = KINDS[name]
    with torch.no_grad():
        return F.cross_entropy(forward(kind, weights(kind, 260, 30), text_ids(), 1), torch.tensor(TEXT_LABELS)).item()


torch.set_num_threads(1)
result = {"cases": [run(name) for name in KINDS],
          "classifier": {"strings": TEXTS, "labels": TEXT_LABELS, "losses": {name: text_loss(name) for name in KINDS}}}
Path(__file__).with_name("encoder.json").write_text(json.dumps(result).replace('{"kind"', '\n{"kind"') + "\n")
