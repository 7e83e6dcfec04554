"""Random runs of everything, started, signalled, killed and continued on a small disk, until the time is over: each must end
like an undisturbed run, report clearly what happened, and leave nothing behind.

  soak.py LEVIN PROGRAMS MINUTES [SEED]    PROGRAMS: the folder of rank_program and the examples
  soak.py LEVIN PROGRAMS --short           a few scenarios that use everything together

Scenario k of a soak has the seed SEED + k, so the seed that a failure prints repeats it: `./dev soak 0 SEED` runs one. The
same seed gives the same scenario; when its events happen is the machine's affair. Ends with status 1 at the first failure.
"""
import json
import os
import random
import resource
import shutil
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "resume"))

from isolation import ISOLATED, isolate  # noqa: E402

if __name__ == "__main__":
    isolate()

from runs import LEVIN, Run, finished  # noqa: E402

import sample_data  # noqa: E402
from disturbance import Disturbance, expected_statuses  # noqa: E402
from oracle import Before, faults_of_files, faults_of_output, leftovers, stacks  # noqa: E402
from processes import CLEAN, marked_processes  # noqa: E402
from scenario import make_scenario  # noqa: E402

DISK = 256 * 2**20  # bytes of the disk of a run: more than its checkpoints need together


class Place:
    """The folders of a scenario, on a disk of their own if this process may mount one."""

    def __init__(self, base, data, scenario):
        self.base, self.data, self.scenario = base, data, scenario
        self.mark = f"LEVIN_SOAK={base.name}"
        self.has_disk = ISOLATED in os.environ
        if self.has_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "soak", base], check=True)
        self.root, self.temporary, self.filler = base / "run", base / "tmp", base / "filler"
        self.temporary.mkdir()
        self.root.mkdir()
        self.logs = self.root / "levin_logs/version_0"
        self.checkpoints = self.logs / "checkpoints" if scenario.kind == "fit" else None
        for name, text in scenario.files.items():
            (base / name).write_text(self.fill_in(text))

    def fill_in(self, text):
        return string.Template(text).substitute(root=self.root, data=self.data)

    def close(self):
        if self.has_disk:
            subprocess.run(["umount", "--lazy", self.base], check=True)
        shutil.rmtree(self.base)

    def fill_disk(self, left):
        """Leaves `left` KiB free."""
        if not self.has_disk:
            return
        free = os.statvfs(self.base)
        size = max(0, free.f_bavail * free.f_frsize - left * 1024)
        with open(self.filler, "wb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            except OSError:  # the run has just written something
                pass

    def free_disk(self):
        self.filler.unlink(missing_ok=True)

    def start(self, arguments=()):
        environment = {**CLEAN, "GOMP_SPINCOUNT": "0", "TMPDIR": str(self.temporary), "CUDA_VISIBLE_DEVICES": "",
                       **dict([self.mark.split("=")])}
        program = LEVIN if self.scenario.program == "levin" else str(PROGRAMS / self.scenario.program)
        return Run(*map(self.fill_in, arguments or self.scenario.arguments), program=program, cwd=self.root if self.scenario.kind == "loop"
                   else self.base, env=environment)


class Failure(Exception):
    pass


class Soak:
    """Runs one scenario and collects the outputs of all its starts."""

    def __init__(self, scenario, place):
        self.scenario, self.place = scenario, place
        self.outputs = []
        self.starts = 0

    def run_to_end(self, acts, deadline):
        """One start. Raises Failure; returns its exit status and output."""
        place, before = self.place, Before(self.place.root)
        stop_file = place.logs / "stop"
        had_stop_file = stop_file.exists()
        self.starts += 1
        with place.start() as run:
            disturbance = Disturbance(run, place)
            end = time.monotonic() + deadline
            try:
                for when, what in acts:
                    if not disturbance.wait_for(when, end):
                        break
                    disturbance.act(what)
                try:
                    status = run.status(max(1.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    hanging = "\n".join(f"process {pid}: {command}\n{stacks(pid)}"
                                        for pid, command in marked_processes(place.mark).items())
                    raise Failure(f"the start hangs: it has not ended after {deadline:.0f} s\n{hanging}") from None
            finally:
                self.outputs.append(f"start {self.starts}, {acts or 'undisturbed'}, done {disturbance.done}:\n{run.report()}")
            output = run.output()
        killed = any(act[0] == "kill" for act in disturbance.done) or status < 0
        if "before training" not in output:
            before.locks.clear()
        place.free_disk()
        killed = killed or "Its memory is limited" in output  # see expected_statuses
        faults = faults_of_output(status, output, expected_statuses(self.scenario, disturbance.done, had_stop_file))
        if self.scenario.kind != "sweep" or not killed:  # a killed sweep's trials continue, and the next start waits for them
            faults += leftovers(place.mark, before, place.root, place.temporary, killed, self.scenario.kind == "fit")
        for name in ("stop", "save"):  # from a run that had ended before it looked
            (place.logs / name).unlink(missing_ok=True)
        if killed:
            for path in place.temporary.iterdir():
                path.unlink() if path.is_file() else shutil.rmtree(path)
        if faults:
            raise Failure("\n".join(faults))
        return status, output, disturbance.done

    def check(self):
        place, scenario = self.place, self.scenario
        begin = time.monotonic()
        _, expected, _ = self.run_to_end([], 300)
        took = time.monotonic() - begin
        undisturbed = place.base / "undisturbed"
        place.root.rename(undisturbed)
        place.root.mkdir()
        deadline = max(90.0, 20 * took)
        lost_saves = False
        for acts in scenario.starts:
            status, output, done = self.run_to_end(acts, deadline)
            is_full = any(act[0] == "disk" for act in done)
            lost_saves |= is_full and (status == 0 or "Training continues." in output)  # it may end while the disk is full
            if scenario.evaluates:
                self.evaluate(deadline)
        _, output, _ = self.run_to_end([], deadline)
        self.compare(undisturbed, expected, output, lost_saves)
        return took

    def evaluate(self, deadline):
        """Validates the newest checkpoint, if there is one. The loggers keep that in a newer folder, which must be no
        hindrance for the next start."""
        with self.place.start(["validate", "--config", "run.yaml", "--ckpt_path=last"]) as run:
            status, output = run.status(deadline), run.output()
            self.outputs.append(f"a validation:\n{run.report()}")
        faults = faults_of_output(status, output, {0, 1})
        if status == 1 and "there is no checkpoint" not in output:
            faults.append("a validation failed though there was a checkpoint")
        if faults:
            raise Failure("\n".join(faults))

    def compare(self, undisturbed, expected, output, lost_saves):
        kind, faults = self.scenario.kind, []
        if self.scenario.evaluates:
            for folder in self.place.logs.parent.iterdir():
                if folder != self.place.logs:
                    shutil.rmtree(folder)
        if kind == "fit":
            features = self.scenario.features
            # A checkpoint within a window holds the mean of all ranks' gradients (docs/resuming.md).
            rounded = self.scenario.ranks > 1 and "accumulation" in features
            faults = faults_of_files(undisturbed, self.place.root, "steps" if rounded else "weights" if lost_saves else "files",
                                     "recorded steps" in features)
            for path in self.place.root.rglob("saved-*.ckpt"):
                if path.is_file() and finished("checkpoint", "verify", path).returncode != 0:
                    faults.append(f"{path} is not a good checkpoint")
        elif kind == "sweep":
            faults = faults_of_sweeps(undisturbed / "sweep", self.place.root / "sweep")
        elif kind == "loop":
            one, other = expected.splitlines(), output.splitlines()
            if one[-len(other):] != other:
                faults = [f"the loop ends with {other[-1:]} instead of {one[-1:]}"]
        else:
            for rank in range(self.scenario.ranks):
                if (undisturbed / f"rank{rank}.json").read_bytes() != (self.place.root / f"rank{rank}.json").read_bytes():
                    faults.append(f"the weights of rank {rank} differ")
        if faults:
            raise Failure("the disturbed run does not end as the undisturbed one:\n" + "\n".join(faults) +
                          self.judge_repetition(undisturbed))

    def judge_repetition(self, undisturbed):
        """Runs a fit undisturbed once more: does it end in the same way without any disturbance?"""
        if self.scenario.kind != "fit":
            return ""
        self.place.root.rename(self.place.base / "disturbed")
        self.place.root.mkdir()
        self.run_to_end([], 300)
        faults = faults_of_files(undisturbed, self.place.root, "files", "recorded steps" in self.scenario.features)
        self.place.root.rename(self.place.base / "undisturbed_again")
        self.place.root.mkdir()
        return "\nTwo undisturbed runs " + ("differ too:\n" + "\n".join(faults) if faults else "end alike.")


def faults_of_sweeps(undisturbed, disturbed):
    """Both must have tried the same values, with the same results and the same weights."""
    def trials(folder):
        status = json.loads(finished("sweep", "status", folder, "--json").stdout)
        return [(each["parameters"], each["state"], each["value"], each["rungs"]) for each in status["trials"]]

    one, other = trials(undisturbed), trials(disturbed)
    faults = [f"trial {k} is {b} instead of {a}" for k, (a, b) in enumerate(zip(one, other)) if a != b]
    if len(one) != len(other):
        faults.append(f"{len(other)} trials instead of {len(one)}")
    for folder in sorted((undisturbed / "trials").iterdir()):
        own = faults_of_files(folder, disturbed / "trials" / folder.name, "weights")
        faults += [f"trial {folder.name}: {fault}" for fault in own]
    return faults


def run_scenario(scenario, data, busy_command=("sh", "-c", "while :; do :; done")):
    """Returns None, or the folder in which a failed scenario was kept."""
    base = Path(tempfile.mkdtemp(prefix="levin-soak-")).resolve()
    place = Place(base, data, scenario)
    neighbour = subprocess.Popen(busy_command) if scenario.busy else None
    soak = Soak(scenario, place)
    begin = time.monotonic()
    try:
        took = soak.check()
        print(f"seed {scenario.seed}: {', '.join(scenario.features)}: {soak.starts} starts, {time.monotonic() - begin:.1f} s "
              f"({took:.1f} s undisturbed)", flush=True)
    except Failure as failure:
        return keep(scenario, place, soak, str(failure))
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()
        for pid in marked_processes(place.mark):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        place.close()
    return None


def keep(scenario, place, soak, failure):
    """Copies what a failed scenario leaves, prints the failure, and returns the folder."""
    kept = Path(tempfile.mkdtemp(prefix=f"levin-soak-failed-{scenario.seed}-"))
    (kept / "scenario.json").write_text(scenario.text())
    (kept / "failure.txt").write_text(failure + "\n\n" + "\n\n".join(soak.outputs))
    shutil.copytree(place.base, kept / "files", symlinks=True, ignore=shutil.ignore_patterns("filler"))
    print(f"seed {scenario.seed} FAILED: {', '.join(scenario.features)}\n{failure}\n\n" + "\n\n".join(soak.outputs[-2:]) +
          f"\nconfiguration, outputs and files: {kept}\nrepeat: ./dev soak 0 {scenario.seed}", flush=True)
    return kept


# ---- which scenarios -----------------------------------------------------------------------------------------------

# What the short soak uses, in scenarios that are found by their features.
REQUIRED = {"fit", "sweep", "ranked_loop", "single", "ddp", "fsdp", "2 ranks", "kill main", "kill all", "kill rank",
            "signal SIGTERM", "disk", "memory", "pause", "recorded steps", "recompute", "CSVLogger",
            "JSONLinesLogger", "TensorBoardLogger",
            "SQLiteLogger"}


def covering_seeds(required=frozenset(REQUIRED)):
    """The fewest seeds, by greedy choice, whose scenarios have all features."""
    scenarios = {seed: make_scenario(seed) for seed in range(1, 400)}
    left, chosen = set(required), []
    while left:
        def worth(each):
            return len(left & set(scenarios[each].features)) / (1 + len(scenarios[each].starts)), -each

        seed = max(scenarios, key=worth)
        if not left & set(scenarios[seed].features):
            raise AssertionError(f"no scenario has {sorted(left)}")
        chosen.append(seed)
        left -= set(scenarios[seed].features)
    return chosen


def seeds(arguments):
    if arguments == ["--short"]:
        yield from covering_seeds()
        return
    minutes = float(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(1, 10**6)
    print(f"soak: {minutes:g} minutes from seed {seed}", flush=True)
    end = time.monotonic() + 60 * minutes
    yield seed
    while time.monotonic() < end:
        seed += 1
        yield seed


def main():
    global PROGRAMS
    PROGRAMS = Path(sys.argv[1]).resolve()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ISOLATED not in os.environ:
        print("soak: without root, disks are not filled, and ports are not checked", flush=True)
    begin, count, failed = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="levin-soak-data-") as folder:
        data = Path(folder).resolve()
        sample_data.write_samples(data)
        for seed in seeds(sys.argv[2:]):
            count += 1
            if run_scenario(make_scenario(seed), data):
                failed += 1
                if "LEVIN_SOAK_CONTINUE" not in os.environ:
                    break
    print(f"soak: {count} scenarios, {failed} failed, {time.monotonic() - begin:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
