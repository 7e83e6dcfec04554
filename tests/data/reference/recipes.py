"""Records the numbers that tests/optim/recipe_reference_test.cpp compares with: python recipes.py > recipes.json

Muon and Adafactor are the classes of torch.optim of PyTorch 2.11 (Muon's other parameters: torch.optim.AdamW). The
others are written here from the formulas of their papers, on numpy's float64, and share no code or rearrangement with
Levin's.
"""

import json

import numpy as np
import torch

SHAPES = [(4, 3), (2, 5), (3,)]
CONVOLUTION = [(2, 3, 2, 4), (4, 3), (5,)]  # Adafactor factors the last two dimensions
STEPS = 8


def start(shapes=SHAPES):
    return [np.sin(0.37 * (i + 1) * np.arange(1, np.prod(s) + 1)).reshape(s) for i, s in enumerate(shapes)]


def gradient(p):
    """Returns the gradient of sum((p - 0.3)^2 / 2 + p^3 / 30)."""
    return p - 0.3 + p * p / 10


def lists(params):
    return [np.asarray(p, dtype=np.float64).ravel().tolist() for p in params]


def lars(lr, momentum, weight_decay, trust_coefficient=1e-3, eps=1e-8, adapt_vectors=False):
    """You et al. 2017, algorithm 1."""
    w = start()
    v = [np.zeros_like(p) for p in w]
    for _ in range(STEPS):
        for i, p in enumerate(w):
            g = gradient(p)
            local = 1.0
            if p.ndim > 1 or adapt_vectors:
                local = trust_coefficient * np.linalg.norm(p) / (
                    np.linalg.norm(g) + weight_decay * np.linalg.norm(p) + eps)
            v[i] = momentum * v[i] + lr * local * (g + weight_decay * p)
            w[i] = p - v[i]
        yield lists(w)


def lamb(lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=1e-2, adapt_vectors=False):
    """You et al. 2019, algorithm 2, phi(z) = z."""
    w = start()
    m = [np.zeros_like(p) for p in w]
    v = [np.zeros_like(p) for p in w]
    for t in range(1, STEPS + 1):
        for i, p in enumerate(w):
            g = gradient(p)
            m[i] = betas[0] * m[i] + (1 - betas[0]) * g
            v[i] = betas[1] * v[i] + (1 - betas[1]) * g * g
            r = (m[i] / (1 - betas[0] ** t)) / (np.sqrt(v[i] / (1 - betas[1] ** t)) + eps) + weight_decay * p
            ratio = np.linalg.norm(p) / np.linalg.norm(r) if p.ndim > 1 or adapt_vectors else 1.0
            w[i] = p - lr * ratio * r
        yield lists(w)


def schedule_free(lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, warmup_steps=0):
    """Defazio et al. 2024, algorithm 1: x, y and z are all kept."""
    x, z = start(), start()
    v = [np.zeros_like(p) for p in x]
    sum_of_squares = 0.0
    for t in range(1, STEPS + 1):
        rate = lr * np.sqrt(1 - betas[1] ** t) * (min(1.0, t / warmup_steps) if warmup_steps else 1.0)
        sum_of_squares += rate * rate
        c = rate * rate / sum_of_squares
        for i in range(len(x)):
            y = (1 - betas[0]) * z[i] + betas[0] * x[i]
            g = gradient(y)
            v[i] = betas[1] * v[i] + (1 - betas[1]) * g * g
            z[i] = z[i] - rate * g / (np.sqrt(v[i]) + eps) - rate * weight_decay * y
            x[i] = (1 - c) * x[i] + c * z[i]
        yield lists([(1 - betas[0]) * zi + betas[0] * xi for zi, xi in zip(z, x)]), lists(x)


def sgd_step(w, v, g, lr, momentum):
    for i in range(len(w)):
        v[i] = momentum * v[i] + g[i]
        w[i] = w[i] - lr * v[i]


def sam(rho, adaptive, lr, momentum):
    """Foret et al. 2020, equation 2 with p = 2; adaptive: Kwon et al. 2021."""
    w = start()
    v = [np.zeros_like(p) for p in w]
    for _ in range(STEPS):
        g = [gradient(p) for p in w]
        t = [np.abs(p) if adaptive else np.ones_like(p) for p in w]
        norm = np.sqrt(sum(((ti * gi) ** 2).sum() for ti, gi in zip(t, g)))
        there = [p + rho * ti * ti * gi / norm for p, ti, gi in zip(w, t, g)]
        sgd_step(w, v, [gradient(p) for p in there], lr, momentum)
        yield lists(w)


def lookahead(k, alpha, lr, momentum):
    """Zhang et al. 2019, algorithm 1, around SGD that keeps its momentum."""
    fast, slow = start(), start()
    v = [np.zeros_like(p) for p in fast]
    for step in range(1, STEPS + 1):
        sgd_step(fast, v, [gradient(p) for p in fast], lr, momentum)
        if step % k == 0:
            slow = [s + alpha * (f - s) for s, f in zip(slow, fast)]
            fast = [s.copy() for s in slow]
        yield lists(fast)


def muon(adamw_lr, by_adamw=(), **options):
    params = [torch.tensor(p, dtype=torch.float32, requires_grad=True) for p in start()]
    matrices = [p for i, p in enumerate(params) if p.ndim == 2 and i not in by_adamw]
    others = [p for i, p in enumerate(params) if p.ndim != 2 or i in by_adamw]
    parts = [torch.optim.Muon(matrices, **options),
             torch.optim.AdamW(others, lr=adamw_lr, betas=(0.9, 0.95), weight_decay=options.get("weight_decay", 0.1))]
    for _ in range(STEPS):
        for p in params:
            p.grad = p.detach() - 0.3 + p.detach() ** 2 / 10
        for part in parts:
            part.step()
        yield lists([p.detach().numpy() for p in params])


def adafactor(**options):
    params = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in start(CONVOLUTION)]
    optimizer = torch.optim.Adafactor(params, **options)
    for _ in range(STEPS):
        for p in params:
            p.grad = p.detach() - 0.3 + p.detach() ** 2 / 10
        optimizer.step()
        yield lists([p.detach().numpy() for p in params])


def main():
    cases = []

    def add(optimizer, init_args, made, **more):
        cases.append({"optimizer": optimizer, "init_args": init_args, **more, "trajectory": list(made)})

    for args in ({"lr": 0.2, "momentum": 0.9, "weight_decay": 0.01, "trust_coefficient": 0.05},
                 {"lr": 2.0, "momentum": 0.0, "weight_decay": 0.0, "trust_coefficient": 0.02, "adapt_vectors": True}):
        add("LARS", args, lars(**args))
    for args in ({"lr": 0.05}, {"lr": 0.02, "betas": [0.8, 0.99], "weight_decay": 0.1, "adapt_vectors": True}):
        add("LAMB", args, lamb(**args))
    for args in ({"lr": 0.1}, {"lr": 0.05, "betas": [0.95, 0.99], "weight_decay": 0.1, "warmup_steps": 5}):
        steps = list(schedule_free(**args))
        add("ScheduleFreeAdamW", args, [y for y, _ in steps], averages=[x for _, x in steps])
    sgd = {"lr": 0.1, "momentum": 0.9}
    inner = {"class_path": "SGD", "init_args": sgd}
    for rho, adaptive in ((0.05, False), (0.5, True)):
        add("SAM", {"rho": rho, "adaptive": adaptive, "optimizer": inner}, sam(rho, adaptive, **sgd))
    for k, alpha in ((3, 0.5), (1, 0.8)):
        add("Lookahead", {"k": k, "alpha": alpha, "optimizer": inner}, lookahead(k, alpha, **sgd))
    add("Muon", {"lr": 0.05, "adamw_lr": 0.01}, muon(0.01, lr=0.05))
    add("Muon", {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "nesterov": False, "momentum": 0.8, "ns_steps": 3,
                 "weight_decay": 0.3},
        muon(0.02, lr=0.02, adjust_lr_fn="match_rms_adamw", nesterov=False, momentum=0.8, ns_steps=3, weight_decay=0.3))
    add("Muon", {"lr": 0.05, "adamw_lr": 0.01, "adamw_params": ["p1"]}, muon(0.01, (1,), lr=0.05))
    for args in ({"lr": 0.05}, {"lr": 0.3, "beta2_decay": -0.5, "eps": [0.01, 0.5], "d": 1.5, "weight_decay": 0.1},
                 {"lr": 0.02, "eps": [None, 1e-3], "maximize": True}):
        add("Adafactor", args, adafactor(**args), shapes=CONVOLUTION)
    lr = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    warmup, total = 7, 40
    schedule = torch.optim.lr_scheduler.SequentialLR(
        lr, [torch.optim.lr_scheduler.LinearLR(lr, start_factor=0.1, total_iters=warmup),
             torch.optim.lr_scheduler.CosineAnnealingLR(lr, T_max=total - warmup, eta_min=0.01)], milestones=[warmup])
    rates = []
    for _ in range(total + 1):
        rates.append(lr.param_groups[0]["lr"])
        lr.step()
        schedule.step()
    print(json.dumps({"torch": torch.__version__, "shapes": SHAPES, "cases": cases,
                      "cosine_with_warmup": {"lr": 0.3, "warmup": warmup, "start_factor": 0.1, "eta_min": 0.01,
                                             "total_steps": total, "rates": rates}}))


if __name__ == "__main__":
    main()
