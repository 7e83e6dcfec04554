"""Runs of the `levin` tool to its end, for tests that check its output and files.

run_levin() takes what subprocess.run() takes and returns the same. A start of the tool takes nearly half a second of a
processor, and almost all of that is the loading of LibTorch. Therefore the tool is started once, with a library that
forks a process for each run (served_levin.cpp), and the run begins where the loading ends. What the tool sees of itself
(its program, arguments and variables) is as if it had been started directly.

Not for tests of the start itself, of signals, terminals, crashes and limits of memory, nor of libraries that the
environment names: start those with subprocess.
"""

import os
import pathlib
import subprocess
import threading

from forked_runs import ForkedRuns

# What libraries read when they are loaded: runs share a process only if these variables are the same.
READ_WHEN_LOADED = ("ACC_", "ASAN_", "ATEN_", "CUDA_", "C10_", "DNNL_", "GLIBC", "GNUTLS_", "GOMP_", "INTEL_", "KINETO_",
                    "KMP_", "LD_", "LEVIN_PLUGIN", "LSAN_", "MALLOC_", "MKL", "NCCL_", "NETTLE_", "NVIDIA_", "OMP_",
                    "ONEDNN_", "OPENSSL", "P11_KIT_", "PYTORCH_", "TORCH_", "TSAN_", "UBSAN_")
CANNOT_SERVE = 69  # the exit status of served_levin.cpp where the kernel does not let it show a run's arguments

_lock = threading.Lock()
_idle = {}  # the processes that wait for a run, by tool and variables
_served = True


def run_levin(command, cwd=None, env=None, merge=True, timeout=600):
    """Runs `command`, a list whose first word is the path of `levin`, with an empty standard input, and returns a
    subprocess.CompletedProcess with the output as text. `env` holds all variables, and None means this process's own.
    Standard error is part of the output if `merge` is true. After `timeout` seconds the run is killed with all
    processes of its group, and subprocess.TimeoutExpired is raised. Threads may call it at the same time."""
    arguments = [str(argument) for argument in command]
    folder = os.path.abspath(cwd or os.getcwd())
    env = {name: str(value) for name, value in (os.environ if env is None else env).items()}
    library = pathlib.Path(arguments[0]).resolve().parent.parent / "lib/served/liblevin_tool.so"
    if _served and library.exists() and _is_utf8([*arguments, folder, *env, *env.values()]):
        done = _serve(arguments, folder, env, library, merge, timeout)
        if done is not None:
            return done
    return subprocess.run(arguments, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if merge else subprocess.PIPE, encoding="utf-8", errors="replace",
                          timeout=timeout)


def _is_utf8(texts):
    """Requests are JSON, which holds no other names than these."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def _serve(arguments, folder, env, library, merge, timeout):
    """Returns the run in one of the waiting processes, or nothing if this machine cannot have one."""
    global _served
    key = (arguments[0], tuple(sorted(item for item in env.items() if item[0].startswith(READ_WHEN_LOADED))))
    with _lock:
        waiting = _idle.setdefault(key, [])
        process = waiting.pop() if waiting else None
    if process is None:
        path = os.pathsep.join(filter(None, [str(library.parent), env.get("LD_LIBRARY_PATH")]))
        process = ForkedRuns([arguments[0]], {**env, "LD_LIBRARY_PATH": path})
    done = process.run_alone(arguments, folder, env, merge, timeout)
    if done is None:
        if process.status() != CANNOT_SERVE:
            raise AssertionError(f"{arguments}: the process that runs the tool ended with status {process.status()}")
        _served = False
        return None
    with _lock:
        _idle[key].append(process)
    return done
