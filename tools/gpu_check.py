#!/usr/bin/env python3
"""Checks everything in Levin that needs a GPU, in one run, and reports it as JSON and as a table.

    ./dev gpu-check                                     in a tree that was built with CUDA
    bin/gpu-check --json gpu.json                       in a bundle (./dev bundle --cuda --tests)
    gpu_check.py --only device,tests,fit                some of the steps, in their order; --list prints them all
    gpu_check.py --json gpu.json --within 570 --continue
                                                        what 570 seconds are enough for; called again: the rest

Every step has a time limit of its own; one that fails does not keep the next from running. Python 3.9; the steps that
compare with PyTorch use the torch of LEVIN_PYTHON or python3, and say what they leave out without it.

Exit status: 0 if nothing failed, 1 if a step failed, 2 for wrong usage, 77 if there is no GPU and every step was
skipped.
"""
import argparse
import json
import math
import os
import platform
import shutil
import signal
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
CUT = "cut short"
DEVICE_FAILED = "no GPU can be used: see the step device"


def arguments():
    parser = argparse.ArgumentParser(description="Checks everything in Levin that needs a GPU.")
    parser.add_argument("--json", metavar="FILE", help="write the results there; default: gpu_check.json")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="only these steps, by name")
    parser.add_argument("--within", metavar="SECONDS", type=float,
                        help="end within this time: begin only steps whose time limits fit into what is left of it")
    parser.add_argument("--continue", dest="continues", action="store_true",
                        help="keep the results in --json FILE and run only the missing steps; steps that did not "
                             "end run last")
    parser.add_argument("--list", action="store_true", help="print the steps and their time limits")
    parser.add_argument("--root", help=argparse.SUPPRESS)  # of the tree or bundle; default: where this file is
    # Some steps work on a CPU too, so that they can be tested.
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
    """The machine and the versions that the measurements depend on."""
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
    """Writes the results after each step, so that they survive the loss of the machine."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def steps_to_run(options, results):
    """Returns the steps in their order. With --continue, steps that `results` already holds are left out, and a step
    that was begun in an earlier call and did not end comes last, so that it cannot keep the others from running again."""
    wanted = [step for step in gpu_steps.STEPS if not options.only or step.name in options.only]
    cut = [entry["name"] for entry in results["steps"] if entry["outcome"] == CUT]
    known = [entry["name"] for entry in results["steps"] if entry["outcome"] != CUT]
    wanted = [step for step in wanted if step.name not in known]
    return [step for step in wanted if step.name not in cut] + [step for step in wanted if step.name in cut]


def put(results, entry):
    """Replaces an earlier entry of the same step."""
    results["steps"] = [other for other in results["steps"] if other["name"] != entry["name"]] + [entry]


def check(options, levin, results, path, end):
    why, not_begun = levin.why_no_gpu(), []
    with gpu_runs.scratch() as scratch:
        for step in steps_to_run(options, results):
            if not why and time.monotonic() + step.limit > end:
                not_begun.append(step.name)
                continue
            if not why:
                put(results, {**skipped(step, "the check ended before it did"), "outcome": CUT})
                write(path, results)
            entry = skipped(step, why) if why else carry_out(step, levin, scratch / step.name)
            print_entry(entry)
            put(results, entry)
            if entry["name"] == "device" and entry["outcome"] == "failed":
                why = DEVICE_FAILED
            write(path, results)
    return conclude(results, path, why, not_begun)


def conclude(results, path, why, not_begun):
    """Returns the exit status."""
    counts = {outcome: sum(entry["outcome"] == outcome for entry in results["steps"])
              for outcome in ("passed", "failed", "skipped")}
    results.update(counts=counts, no_gpu=why, not_begun=not_begun)
    write(path, results)
    print("gpu-check: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f"; written to {path}")
    if not_begun:
        print(f"gpu-check: not begun, because --within leaves too little time: {', '.join(not_begun)}. "
              "Call it again with --continue.")
    if counts["failed"]:
        return 1
    return NO_GPU if why else 0


def earlier(path):
    """Reads the results of an earlier call."""
    try:
        results = json.loads(path.read_text())
        no_gpu = results.get("no_gpu")  # what was skipped for it is tried again
        results["steps"] = [entry for entry in results["steps"]
                            if not no_gpu or (entry["reason"] != no_gpu and entry["name"] != "device")]
        return results
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        sys.exit(f"gpu-check: {path} holds no results to continue. Leave --continue out, or name another --json FILE.")


def main():
    began = time.monotonic()
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops what it has started, too
    if options.list:
        for step in gpu_steps.STEPS:
            print(f"{step.name:<14} {step.limit:>4} s  {step.what}")
        return 0
    levin = gpu_runs.Levin(options.root, options.accelerator)
    path = Path(options.json or "gpu_check.json").resolve()
    python = gpu_runs.python_with_torch()
    results = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "root": str(levin.root), "machine": machine(levin),
               "torch": gpu_runs.torch_versions(python) if python else {}, "steps": []}
    if options.continues:
        results = earlier(path) or results
    try:
        write(path, results)
    except OSError as error:
        print(f"gpu-check: cannot write the results: {error}. Choose another --json FILE.", file=sys.stderr)
        return 2
    return check(options, levin, results, path, began + options.within if options.within else math.inf)


if __name__ == "__main__":
    sys.exit(main())
