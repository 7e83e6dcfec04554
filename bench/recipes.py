"""The effect of each recipe on Fashion-MNIST, as the table of docs/recipes.md: test accuracy, mean and deviation over
seeds. Every figure is that of `levin fit --config configs/recipes.yaml` with the overrides below; --commands prints them.

  python3 bench/recipes.py [--levin build/release/bin/levin] [--seeds 3] [--commands] [EXPERIMENT…]
"""

import argparse
import pathlib
import re
import shlex
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def optimizer(name, **init_args):
    return [f"--optimizer={{class_path: {name}, init_args: {{{settings(init_args)}}}}}"]


def settings(init_args):
    return ", ".join(f"{key}: {value}" for key, value in init_args.items())


def inner(name, **init_args):
    return f"{{class_path: {name}, init_args: {{{settings(init_args)}}}}}"


def callback(name, **init_args):
    return [f"--trainer.callbacks+={{class_path: {name}, init_args: {{{settings(init_args)}}}}}"]


COSINE = ["--lr_scheduler={class_path: CosineWithWarmup, init_args: {warmup: 0.1dur}}"]
LARGE = ["--data.batch_size=6000", "--trainer.max_epochs=4", *COSINE]
FEW = ["--data.val_size=59000", "--trainer.max_epochs=40", "--data.batch_size=50", *COSINE]
SGD = dict(lr=0.05, momentum=0.9, weight_decay=5e-4)
RESNET = ["--model={class_path: ResNet, init_args: {width: 8, first_stride: 2, blocks: [2, 2, 2]}}",
          "--data.val_size=59000", "--trainer.max_epochs=20", "--data.batch_size=50", *COSINE,
          *optimizer("SGD", lr=0.1, momentum=0.9, weight_decay=5e-4)]

# name: what is trained; rows of a label and overrides.
EXPERIMENTS = {
    "muon": ("one epoch, 117 steps of 512 images", [
        (f"{label}, lr {rate}", ["--trainer.max_epochs=1", "--data.batch_size=512", *COSINE,
                                 *optimizer(name, lr=rate, weight_decay=0.01, **more)])
        for label, name, rates, more in (("AdamW", "AdamW", (0.003, 0.01, 0.02), {}),
                                         ("Muon", "Muon", (0.02, 0.05, 0.1),
                                          {"adamw_params": "[net.4.weight]", "adamw_lr": 0.003}))
        for rate in rates]),
    "large_batch": ("four epochs, 40 steps of 6000 images", [
        (f"{name}, lr {rate}", [*LARGE, *optimizer(name, lr=rate, weight_decay=decay, **more)])
        for name, rates, decay, more in (("SGD", (0.2, 0.8), 1e-4, {"momentum": 0.9}),
                                         ("LARS", (0.2, 0.8), 1e-4, {"momentum": 0.9, "trust_coefficient": 0.02}),
                                         ("AdamW", (0.003, 0.01), 0.01, {}),
                                         ("LAMB", (0.02, 0.06), 0.01, {}))
        for rate in rates]),
    "schedules": ("two epochs, 936 steps of 128 images", [
        *[(f"AdamW, constant lr {rate}", optimizer("AdamW", lr=rate)) for rate in (0.001, 0.003)],
        *[(f"AdamW, CosineWithWarmup, lr {rate}", [*COSINE, *optimizer("AdamW", lr=rate)]) for rate in (0.003,)],
        *[(f"ScheduleFreeAdamW, lr {rate}", optimizer("ScheduleFreeAdamW", lr=rate, weight_decay=0.01, warmup_steps=70))
          for rate in (0.003,)],
        *[(f"Lookahead around AdamW, constant lr {rate}", optimizer("Lookahead", optimizer=inner("AdamW", lr=rate)))
          for rate in (0.003,)]]),
    "few_images": ("40 epochs of 1000 images", [
        ("SGD", [*FEW, *optimizer("SGD", **SGD)]),
        ("label smoothing 0.1", [*FEW, *optimizer("SGD", **SGD), "--model.label_smoothing=0.1"]),
        ("MixUp", [*FEW, *optimizer("SGD", **SGD), *callback("MixUp", num_classes=10, alpha=0.4)]),
        ("CutMix", [*FEW, *optimizer("SGD", **SGD), *callback("CutMix", num_classes=10, p=0.5)]),
        ("SAM", [*FEW, *optimizer("SAM", rho=0.1, optimizer=inner("SGD", **SGD))]),
        ("GradientCentralization", [*FEW, *optimizer("SGD", **SGD), *callback("GradientCentralization")])]),
    "stochastic_depth": ("a residual net of 6 blocks, 20 epochs of 1000 images", [
        ("none", RESNET),
        ("stochastic_depth 0.3", [*RESNET, "--model.stochastic_depth=0.3"])]),
}


def accuracy(levin, overrides, seed, folder):
    words = [levin, "fit", "--config", ROOT / "configs/recipes.yaml", f"--seed_everything={seed}", *overrides]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    found = re.search(r"test_acc\W+([0-9.]+)", done.stdout + done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(shlex.join(map(str, words)) + "\n" + done.stdout + done.stderr)
    return 100 * float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=", ".join(EXPERIMENTS))
    parser.add_argument("--levin", type=pathlib.Path, default=ROOT / "build/release/bin/levin")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--commands", action="store_true", help="print the commands, and train nothing")
    wanted = parser.parse_args()
    for name in wanted.experiments or EXPERIMENTS:
        if name not in EXPERIMENTS:
            parser.error(f"no experiment is called {name}; there are {', '.join(EXPERIMENTS)}")
        trained, rows = EXPERIMENTS[name]
        print(f"\n{name}: {trained}\n\n| | test accuracy, % |\n| --- | --- |")
        for label, overrides in rows:
            if wanted.commands:
                print(f"# {label}\nlevin fit --config configs/recipes.yaml {shlex.join(overrides)}")
                continue
            with tempfile.TemporaryDirectory() as folder:
                seen = [accuracy(wanted.levin.resolve(), overrides, seed, folder)
                        for seed in range(1, wanted.seeds + 1)]
            spread = statistics.stdev(seen) if len(seen) > 1 else 0.0
            print(f"| {label} | {statistics.mean(seen):.2f} ± {spread:.2f} |", flush=True)


if __name__ == "__main__":
    main()
