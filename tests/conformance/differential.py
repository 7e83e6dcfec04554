#!/usr/bin/env python3
"""Runs random scenarios (README.md) in Levin and in PyTorch Lightning and compares what happened.

usage: differential.py RUNNER N [SEED]          N scenarios, drawn from SEED, SEED + 1 …
       differential.py RUNNER FILE…             scenarios from files
       differential.py RUNNER --record N SEED   writes what Lightning does in N scenarios to recorded_runs.jsonl.gz
       differential.py RUNNER --recorded        compares with that file; needs no Lightning

Prints a line for each scenario that differs, with the smallest scenario that still differs, and a count. Exit status 1 if
any differs.
"""
import collections
import concurrent.futures
import copy
import gzip
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
import compare
import ports
import random_scenarios
from forked_runs import ForkedRuns


class Runs:
    """Both sides, each a process that forks a process for each run."""

    def __init__(self, runner):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        peers = os.environ.get("LEVIN_PEERS", "")  # ./dev differential sets it
        python = os.environ.get("LEVIN_PYTHON") or f"{peers}/python3"
        self.sides = {"levin": ForkedRuns([runner, "serve"], env),
                      "lightning": ForkedRuns([python, str(HERE / "lightning_runs.py"), "serve"], {**env, "PYTHONPATH": peers})}
        self.folder = tempfile.TemporaryDirectory(prefix="levin_differential_")
        self.other_side = concurrent.futures.ThreadPoolExecutor(1)
        self.count = 0

    def both(self, scenario):
        """The traces of Lightning and Levin, which run at the same time unless each needs a port of its own."""
        if scenario.get("trainer", {}).get("devices", 1) > 1:
            return self.trace("lightning", scenario), self.trace("levin", scenario)
        want = self.other_side.submit(self.trace, "lightning", scenario)
        got = self.trace("levin", scenario)
        return want.result(), got

    def trace(self, side, scenario):
        self.count += 1
        folder = pathlib.Path(self.folder.name, f"{side}{self.count}")
        folder.mkdir()
        (folder / "scenario.json").write_text(json.dumps(scenario))
        arguments = [str(folder / "scenario.json"), str(folder / "out.json")]
        timeout = 1200 if self.count <= 2 else 120  # the first ones load PyTorch and Lightning
        try:
            statuses, log = self.sides[side].run(arguments, ranks_of(scenario, self.count), timeout)
        except AssertionError as error:
            if self.sides[side].status() == 1:
                raise  # Lightning cannot be imported
            return {"phases": [], "failed": f"{side}: no answer: {error}"[:300], "ended": False}
        out = folder / "out.json"
        trace = json.loads(out.read_text()) if out.exists() else {"phases": []}
        if any(statuses):
            trace["failed"] = f"{side} ended with {statuses}: {log[-400:]}"
        shutil.rmtree(folder)
        return trace


def ranks_of(scenario, number):
    """The variables of each rank, as torchrun sets them."""
    count = scenario.get("trainer", {}).get("devices", 1)
    if count == 1:
        return [{}]
    run = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(ports.free_port()), "TORCHELASTIC_RUN_ID": f"run{number}"}
    return [{**run, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def differences(runs, scenario, want=None):
    """(what differs, the names of the documented differences that were met, Lightning's errors). `want`: a recorded trace."""
    want, got = (want, runs.trace("levin", scenario)) if want else runs.both(scenario)
    if not want.get("ended", True) and "failed" not in got:
        return [], [], [f"Lightning does not end: {want['failed']}"]
    failed = next((number for number, phase in enumerate(want["phases"]) if "error" in phase), None)
    if failed is not None:  # a later phase would depend on the files that the failed one has left
        want, got = ({**trace, "phases": trace["phases"][:failed + 1]} for trace in (want, got))
    why = [trace["failed"] for trace in (want, got) if "failed" in trace]
    tolerance = 2e-2 if scenario.get("trainer", {}).get("precision") == "bf16-true" else 2e-5
    why = why or compare.differ(want, got, tolerance)
    errors = [phase["error"] for phase in want["phases"] if "error" in phase]
    return why, want.get("rules", []), errors


def smaller(scenario):
    """Scenarios with one thing less."""
    def without(*path):
        copied = copy.deepcopy(scenario)
        part = copied
        for key in path[:-1]:
            part = part[key]
        del part[path[-1]]
        return copied

    if len(scenario["phases"]) > 1:
        yield without("phases", -1)
    for index, _ in enumerate(scenario.get("callbacks", [])):
        yield without("callbacks", index)
    for index, _ in enumerate(scenario["module"].get("log", [])):
        yield without("module", "log", index)
    for part in ("trainer", "data", "module"):
        for key in scenario.get(part, {}):
            if key not in ("max_epochs", "log", "strategy", "devices"):
                yield without(part, key)
    for index, callback in enumerate(scenario.get("callbacks", [])):
        for key in callback["init_args"]:
            if key not in ("monitor", "scheduling", "swa_lrs"):
                yield without("callbacks", index, "init_args", key)
    for index, entry in enumerate(scenario["module"].get("log", [])):
        for key in entry:
            if key not in ("name", "stage", "value", "values"):
                yield without("module", "log", index, key)
    for index, phase in enumerate(scenario["phases"]):
        for key in phase.get("trainer", {}):
            if key != "max_epochs":
                yield without("phases", index, "trainer", key)
    if scenario.get("trainer", {}).get("max_epochs", 1) > 1:
        copied = copy.deepcopy(scenario)
        copied["trainer"]["max_epochs"] -= 1
        yield copied


def kind_of(why):
    """What differs, without numbers: a smaller scenario must show the same."""
    return why[0].split(":")[1].split(" want")[0].split(" differ")[0].strip() if ":" in why[0] else why[0]


def shrink(runs, scenario, why, budget=60):
    shown = why
    progress = True
    while progress and budget > 0:
        progress = False
        for candidate in smaller(scenario):
            budget -= 1
            if budget <= 0:
                break
            found, _, errors = differences(runs, candidate)
            if found and kind_of(found) == kind_of(why) and not errors:
                scenario, shown, progress = candidate, found, True
                break
    return scenario, shown


RECORDED = HERE / "recorded_runs.jsonl.gz"


def record(runs, count, seed):
    """Draws scenarios, and records those that agree."""
    lines = []
    while len(lines) < count:
        scenario = random_scenarios.draw(seed)
        want = runs.trace("lightning", scenario)
        why, _, errors = differences(runs, scenario, want)
        if not why and not errors:
            lines.append(json.dumps({"scenario": scenario, "want": want}, separators=(",", ":")))
        seed += 1
    with open(RECORDED, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:  # the same bytes each time
        packed.write("\n".join(lines).encode())
    print(f"{RECORDED}: {count} runs, {RECORDED.stat().st_size // 1000} kB")


def compare_recorded(runs):
    differ = 0
    lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    for line in lines:
        recorded = json.loads(line)
        why, _, _ = differences(runs, recorded["scenario"], recorded["want"])
        if why:
            differ += 1
            print(f"{recorded['scenario']['name']}: {'; '.join(why[:4])}")
    print(f"{len(lines) - differ} recorded runs agree, {differ} differ")
    return differ > 0


def main():
    arguments = sys.argv[1:]
    runner = arguments.pop(0)
    runs = Runs(runner)
    if arguments[0] == "--recorded":
        sys.exit(compare_recorded(runs))
    if "LEVIN_PEERS" not in os.environ:
        sys.exit("LEVIN_PEERS is not set: the folder in which ./dev bench --peers has installed Lightning.")
    if arguments[0] == "--record":
        return record(runs, int(arguments[1]), int(arguments[2]))
    if pathlib.Path(arguments[0]).exists():
        scenarios = ((path, json.loads(pathlib.Path(path).read_text())) for path in arguments)
    else:
        first = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(10**6)
        scenarios = ((f"seed {seed}", random_scenarios.draw(seed)) for seed in range(first, first + int(arguments[0])))
    agreed = differ = failed = unended = 0
    rules = collections.Counter()
    for name, scenario in scenarios:
        try:
            why, used, errors = differences(runs, scenario)
        except AssertionError as error:
            sys.exit(f"Lightning cannot be imported. Install it with ./dev bench --peers.\n{error}")
        rules.update(used)
        if errors and not why:
            unended += errors[0].startswith("Lightning does not end")
            failed += not errors[0].startswith("Lightning does not end")
            print(f"{name}: no comparison: {errors[0][:160]}", flush=True)
        elif why:
            differ += 1
            print(f"{name}: {'; '.join(why[:4])}", flush=True)
            if os.environ.get("LEVIN_SHRINK", "1") == "1":
                small, shown = shrink(runs, scenario, why)
                print(f"   smallest: {shown[0]}\n   {json.dumps(small)}", flush=True)
        else:
            agreed += 1
    print("rules: " + ", ".join(f"{name} {count}" for name, count in sorted(rules.items())))
    print(f"{agreed} agree, {differ} differ, {failed} fail in both, {unended} do not end in Lightning")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
