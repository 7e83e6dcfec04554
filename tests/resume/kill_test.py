"""A run that is killed again and again, and restarted by the same command, ends bitwise identical to an undisturbed
run.

  kill_test.py LEVIN [SEED]

Two workloads, since what is kept decides what is removed: all checkpoints, and the best two. Each is killed with SIGKILL
at random moments, and about every third time while a file is being written, which random moments seldom meet; now and
then it is asked to stop by SIGTERM instead, so that kills meet what a stop leaves too. A run that has ended is compared
and begun anew, until each workload has been killed often enough.
"""
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from runs import KEEP_ALL, KEEP_BEST, Run, differences, run_file, wait_until

KILLS = 16  # of each workload
WORKLOADS = {
    "all are kept": dict(checkpoint=KEEP_ALL, epochs=4, val_every=25, val_batches=40, flush=3),
    "the best two are kept": dict(checkpoint=KEEP_BEST, epochs=4, val_every=20, val_batches=40),
}


def seconds_of_a_run(config, folder):
    """Returns the seconds of an undisturbed run: until it has saved, and in total."""
    start = time.monotonic()
    with Run("fit", "--config", config) as run:
        wait_until(lambda: any(folder.rglob("*.ckpt")), "the first checkpoint", run)
        first = time.monotonic() - start
        if run.status() != 0:
            raise AssertionError(run.report())
    return first, time.monotonic() - start


def names_in(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def is_writing(folder):
    return any(".tmp-" in name for name in names_in(folder))


def saved(folder):
    """Changes with every file that is complete."""
    found = set()
    for name in names_in(folder):
        try:
            if name.endswith(".ckpt"):
                found.add((name, os.stat(folder / name).st_mtime_ns))
        except FileNotFoundError:
            pass
    return found


class Kills:
    def __init__(self):
        self.count = self.stops = self.while_writing = self.while_starting = self.rounds = 0


def disturb(config, folder, seconds, chance, kills):
    """One start; True if the run ended by itself. It is left alone when it has been killed often enough."""
    logs = folder / "levin_logs/version_0"
    checkpoints = logs / "checkpoints"
    first, whole = seconds
    moment = chance.choices(["starting", "writing logs", "running", "writing"], weights=[15, 10, 45, 30])[0]
    while_starting = moment in ("starting", "writing logs")
    delay = chance.uniform(0, first) if moment == "starting" else chance.uniform(0, 0.35 * (whole - first))
    stops = chance.random() < 0.15
    before = saved(checkpoints)
    with Run("fit", "--config", config) as run:
        def wait(until, seconds=60.0):
            end = time.monotonic() + seconds
            while not run.ended() and time.monotonic() < end and not until():
                time.sleep(0.0002)

        if kills.count < KILLS:
            if not while_starting:
                wait(lambda: saved(checkpoints) != before)
            if moment != "writing logs":
                wait(lambda: False, delay)
            if moment.startswith("writing"):
                wait(lambda: is_writing(logs if while_starting else checkpoints), 2.0)
            run.send(signal.SIGTERM if stops else signal.SIGKILL)
        status = run.status()
        if status == 0:
            return True
        if status not in ((143, -signal.SIGTERM) if stops else (-signal.SIGKILL,)):
            raise AssertionError(run.report())
    if stops:
        kills.stops += 1
        return False
    kills.count += 1
    kills.while_writing += is_writing(checkpoints) or is_writing(logs)
    kills.while_starting += before == saved(checkpoints)
    return False


def check(name, options, root, chance):
    folder = root / "run"  # the same for all, since checkpoints hold absolute paths
    undisturbed = root / "undisturbed"
    config = root / "run.yaml"
    config.write_text(run_file(folder, **options))
    seconds = seconds_of_a_run(config, folder)
    folder.rename(undisturbed)
    kills = Kills()
    while kills.count < KILLS:
        before = kills.count
        while not disturb(config, folder, seconds, chance, kills):
            pass
        kills.rounds += 1
        problems = differences(undisturbed, folder)
        if problems:
            raise AssertionError(f"{name}: after {kills.count - before} kills the run has ended, and differs from the "
                                 f"undisturbed one:\n{problems}")
        shutil.rmtree(folder)
    shutil.rmtree(undisturbed)
    print(f"{name}: first checkpoint after {seconds[0]:.1f} s, end after {seconds[1]:.1f} s; {kills.count} kills "
          f"and {kills.stops} stops, {kills.while_writing} kills in the middle of a file, {kills.while_starting} before "
          f"anything was saved, {kills.rounds} runs to the end", flush=True)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="levin-kill-") as folder:
        for name, options in WORKLOADS.items():
            check(name, options, Path(folder).resolve(), chance)


if __name__ == "__main__":
    main()
