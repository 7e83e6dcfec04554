#!/usr/bin/env python3
"""Checks everything of Levin that needs a GPU, in one go: as JSON and as a table.

    ./dev gpu-check                                     in a tree that was built with CUDA
    bin/gpu-check --json gpu.json                       in a bundle (./dev bundle --cuda --tests)
    gpu_check.py --only device,tests,fit                some of the steps, in their order; --list prints them all

Every step has a time limit of its own; one that fails does not keep the next from running. Python 3.9; the steps that
compare with PyTorch use the torch of LEVIN_PYTHON or python3, and say what they leave out without it.

Exit status: 0 if nothing failed, 1 if a step failed, 2 for wrong usage, 77 if there is no GPU and every step was
skipped.
"""
import argparse
import json
import os
import platform
import shutil
import sys
import textwrap
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_figures
import gpu_runs
import gpu_steps
from gpu_runs import Failed, Run, Skipped

NO_GPU = 77


def arguments():
    parser = argparse.ArgumentParser(description="Checks everything of Levin that needs a GPU.")
    parser.add_argument("--json", metavar="FILE", help="write the results there; default: gpu_check.json")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="only these steps, by name")
    parser.add_argument("--list", action="store_true", help="print the steps and their time limits")
    parser.add_argument("--root", help=argparse.SUPPRESS)  # of the tree or bundle; default: where this file is
    # Some steps are true of a CPU too: to test them.
    parser.add_argument("--accelerator", choices=("gpu", "cpu"), default="gpu", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = [name for word in options.only for name in word.split(",") if name]
    unknown = [name for name in options.only if name not in gpu_steps.order()]
    if unknown:
        parser.error(f"no step is called {', '.join(unknown)}. Steps: {' '.join(gpu_steps.order())}")
    return options


def cpu_model():
    with open("/proc/cpuinfo") as file:
        return next((line.split(": ", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")


def machine(levin):
    """What the figures depend on."""
    about = {"cpu": cpu_model(), "cores": os.cpu_count(), "system": platform.platform(), "gpus": [], "driver": None}
    if shutil.which("nvidia-smi"):
        try:
            rows = gpu_figures.smi_rows(Run(levin, ".", 20).command(gpu_steps.smi_words("nvidia-smi")))
            about["gpus"] = [f"{row['name']}, {row['memory.total']:.0f} MiB" for row in rows]
            about["driver"] = rows[0]["driver_version"]
        except (Failed, gpu_figures.Unreadable) as error:
            about["driver"] = str(error)
    return about


def carry_out(step, levin, folder):
    """The step's entry in the results."""
    folder.mkdir()
    run, began = Run(levin, folder, step.limit), time.monotonic()
    outcome, reason = "passed", ""
    try:
        step.run(run)
    except Skipped as error:
        outcome, reason = "skipped", str(error)
    except (Failed, gpu_figures.Unreadable) as error:
        outcome, reason = "failed", str(error)
    except Exception as error:  # a mistake in a step must not end the others
        outcome, reason = "failed", f"{type(error).__name__}: {error}"
    shutil.rmtree(folder, ignore_errors=True)
    return {"name": step.name, "what": step.what, "outcome": outcome, "seconds": round(time.monotonic() - began, 2),
            "limit": step.limit, "reason": reason, "figures": run.figures, "commands": run.commands}


def skipped(step, why):
    return {"name": step.name, "what": step.what, "outcome": "skipped", "seconds": 0.0, "limit": step.limit,
            "reason": why, "figures": {}, "commands": []}


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_entry(entry):
    print(f"{entry['name']:<14} {entry['outcome']:<8} {entry['seconds']:>7.1f} s  {entry['what']}", flush=True)
    lines = [f"{key}: {shown(value)}" for key, value in entry["figures"].items()]
    if entry["reason"]:
        lines.append(f"{entry['outcome']}: {entry['reason']}")
    for line in lines:
        for part in line.splitlines():
            print(textwrap.fill(part, 116, initial_indent=" " * 4, subsequent_indent=" " * 8), flush=True)


def write(path, results):
    """After each step, so that what is known stays if the machine goes away."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def check(options, levin, results, path):
    steps = [step for step in gpu_steps.STEPS if not options.only or step.name in options.only]
    why = levin.why_no_gpu()
    with gpu_runs.scratch() as scratch:
        for step in steps:
            entry = skipped(step, why) if why else carry_out(step, levin, scratch / step.name)
            print_entry(entry)
            results["steps"].append(entry)
            if entry["name"] == "device" and entry["outcome"] == "failed":
                why = "no GPU can be used: see the step device"
            write(path, results)
    counts = {outcome: sum(entry["outcome"] == outcome for entry in results["steps"])
              for outcome in ("passed", "failed", "skipped")}
    results["counts"] = counts
    results["no_gpu"] = why
    write(path, results)
    print("gpu-check: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f"; written to {path}")
    if counts["failed"]:
        return 1
    return NO_GPU if why else 0


def main():
    options = arguments()
    if options.list:
        for step in gpu_steps.STEPS:
            print(f"{step.name:<14} {step.limit:>4} s  {step.what}")
        return 0
    levin = gpu_runs.Levin(options.root, options.accelerator)
    path = Path(options.json or "gpu_check.json").resolve()
    python = gpu_runs.python_with_torch()
    results = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "root": str(levin.root), "machine": machine(levin),
               "torch": gpu_runs.torch_versions(python) if python else {}, "steps": []}
    try:
        write(path, results)
    except OSError as error:
        print(f"gpu-check: cannot write the results: {error}. Choose another --json FILE.", file=sys.stderr)
        return 2
    return check(options, levin, results, path)


if __name__ == "__main__":
    sys.exit(main())
