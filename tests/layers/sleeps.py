#!/usr/bin/env python3
"""sleeps.py ROOT: reports sleeps in tests that are not in the list below; exit status 1 if there are any.

A test that sleeps until something will have happened fails on a busy machine and wastes time on an idle one. Wait for the
event: wait_until() and is_blocked() of tests/support/wait_until.h, wait_until() and the functions after it of
tests/support/waiting.py, a latch, a pipe. A shell's `sleep` of 30 s or more is a program that hangs, which needs no reason.
"""
import re
import sys
from pathlib import Path

SLEEP = re.compile(r"\bsleep_(for|until)\(|\b(u|nano)sleep\(|(?<!\w)(time\.|::)sleep\(|\bsleep +(?![3-9]\d|\d{3})[\d.$]")

ITS_TIME = "the time that it takes is what the test measures"
WORK = "stands for work that takes time; nothing waits for its end"
ARRIVALS = "ranks call at different times; the results must not depend on them"
MOMENTS = "a different moment each time, none of which may be a wrong one"

# file below tests/: (number of sleeps, why the test has no event to wait for)
KNOWN = {
    "callbacks/other_callbacks_test.cpp": (1, WORK),
    "callbacks/progress_bar_test.cpp": (1, WORK),
    "callbacks/throughput_monitor_test.cpp": (1, ITS_TIME),
    "checkpoint/safetensors_test.cpp": (1, WORK),
    "data/dataloader_test.cpp": (2, WORK),
    "endurance/endurance_program.cpp": (1, "a planted thread that stays"),
    "loggers/mlflow_test.py": (2, "a server that answers too late; and values that must not be sent, which no event tells"),
    "loggers/prometheus_test.py": (1, "the interval between attempts to write, of which only the first leaves a trace"),
    "profilers/simple_profiler_test.cpp": (1, ITS_TIME),
    "profilers/time_split_test.cpp": (1, ITS_TIME),
    "ranks/model_program.cpp": (1, "the interval between measurements of memory"),
    "ranks/namespaces_test.py": (2, "the order in which two machines begin; and attempts to reach a different machine's port"),
    "ranks/rank_program.cpp": (3, WORK),
    "ranks/stopping_test.py": (4, "the time after which the same signal is a new request; signals at different moments"),
    "reliability/system_faults.py": (4, "how long a rank or a run is stopped, or works, or a cable is down"),
    "resume/kill_test.py": (1, MOMENTS),
    "resume/signals_test.py": (2, "the time after which the same signal is a new request; the interval at which files are polled"),
    "soak/disturbance.py": (4, "how late after an event, and how long, a run is disturbed"),
    "soak/oracle.py": (1, "the interval at which processes and ports are polled"),
    "soak/oracle_test.py": (2, "programs that end too late, or wait for each other in a shell"),
    "strategies/hosts_backend_test.cpp": (1, ARRIVALS),
    "strategies/replay_watch_test.cpp": (3, "how long a replay takes, compared with its timeout"),
    "strategies/shm_backend_test.cpp": (1, ARRIVALS),
    "support/simulated_gpu/stream.cpp": (1, "a simulated kernel takes its time"),
    "support/wait_until.h": (1, "the helper itself"),
    "support/waiting.py": (1, "the helper itself"),
    "sweep/sweep_test.py": (1, MOMENTS),
    "tools/gpu_check_calls_test.py": (1, "a program that runs long enough to be watched"),
    "tools/gpu_check_test.py": (1, "a program that runs long enough to be watched"),
    "trainer/num_threads_test.cpp": (1, ITS_TIME),
    "trainer/validation_period_test.cpp": (1, ITS_TIME),
}

SUFFIXES = {".cmake", ".cpp", ".cu", ".h", ".py", ".sh", ".txt"}


def findings(root):
    tests, counts = root / "tests", {}
    for path in sorted(tests.rglob("*")):
        name = path.relative_to(tests).as_posix()
        if path.suffix not in SUFFIXES or name.startswith(("layers/sleeps", "mutation/")):
            continue
        lines = [number for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
                 if SLEEP.search(line)]
        allowed = KNOWN.get(name, (0, ""))[0]
        counts[name] = len(lines)
        if len(lines) > allowed:
            yield (f"tests/{name}:{','.join(map(str, lines))}: {len(lines)} sleeps, and {allowed} are known. Wait for the event "
                   "(tests/support/wait_until.h, waiting.py), or name the reason in tests/layers/sleeps.py.")
    for name, (allowed, _) in KNOWN.items():
        if counts.get(name, 0) < allowed:
            yield f"tests/layers/sleeps.py: {name} has {counts.get(name, 0)} sleeps, not {allowed}. Correct the list."


if __name__ == "__main__":
    found = list(findings(Path(sys.argv[1])))
    print("\n".join(found) or "sleeps: every one has its reason")
    sys.exit(bool(found))
