"""Finds Levin for gpu_check.py and runs programs, with a time limit and a record of every command."""
import contextlib
import ctypes
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import gpu_figures as figures

HERE = Path(__file__).resolve().parent
PR_SET_PDEATHSIG = 1  # of sys/prctl.h
# Benchmarks set PYTHONPATH to the folder of their peers, and leave out the user's own packages.
PEER_PYTHON = '#!/bin/sh\nunset PYTHONNOUSERSITE\nexport PYTHONPATH={path}\nexec {python} "$@"\n'


class Skipped(Exception):
    """The step cannot run here; the message gives the reason."""


class Failed(Exception):
    """The step ran, and its check failed."""


def end_of(output):
    return "".join("\n  " + line for line in output.strip().splitlines()[-12:])


class Levin:
    """Levin in a built tree or an unpacked bundle: programs, run files, peers and data."""

    def __init__(self, root=None, accelerator="gpu"):
        self.root, self.accelerator = Path(root).resolve() if root else HERE.parent, accelerator
        self.bundled = bundled = (self.root / "libexec/levin").exists()
        self.share = self.root / "share/levin" if bundled else self.root
        self.bin = self.root / "bin" if bundled else self.root / "build/release/bin"
        self.libraries = self.root / "lib" if bundled else self.root / "build/release/lib"
        self.configs = self.share / "configs"
        self.environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if bundled:
            self.environment["LEVIN_BENCH_PEERS"] = str(self.share / "peers")
            self.environment["LEVIN_PEERS_EXTRA"] = str(self.share / "peers-python")
            self.environment.setdefault("LEVIN_HOME", os.environ.get("LEVIN_HOME", str(self.share)))

    def program(self, name):
        path = self.bin / name
        if not path.exists():
            raise Skipped(f"there is no {path}: a bundle with --tests and --cuda has it")
        return str(path)

    def config(self, name):
        return str(self.configs / name)

    def below(self, tool, words):
        """Returns (words, environment) that run a Levin program under a tool such as a sanitizer."""
        if self.bundled:
            return words, {"LEVIN_LAUNCH_WITH": " ".join(tool)}
        return [*tool, *words], {}

    def why_no_gpu(self):
        """As levin::why_no_gpu(): "" if a GPU can be used."""
        if self.accelerator == "cpu":
            return ""
        why = ask_driver()[1]
        if why:
            return why
        if not (self.libraries / "liblevin_cuda.so").exists():
            return (f"this Levin has no CUDA component (no liblevin_cuda.so in {self.libraries}): make it with "
                    "./dev bundle --cuda, or LEVIN_CUDA=1 ./dev build")
        return ""

    def gpus(self):
        return ask_driver()[0]


def ask_driver():
    """Returns (the number of GPUs that this process may use, the reason if there is none)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return 0, f"NVIDIA's driver is not installed: {error}"
    status, count = driver.cuInit(0), ctypes.c_int()
    if status != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1:
        return 0, f"NVIDIA's driver finds no GPU (cuInit: {status}); look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    return count.value, ""


def torch_versions(python):
    """{"python", "torch", "cuda", "folder"} of the PyTorch that this interpreter would import; {} without."""
    question = ('import importlib.util as u; found = u.find_spec("torch"); '
                'print(found.submodule_search_locations[0] if found else "")')
    try:
        done = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return {}
    folder = done.stdout.strip()
    if done.returncode != 0 or not folder:
        return {}
    text = (Path(folder) / "version.py").read_text()
    said = {name: re.search(rf"^{name}\b.*= '([^']*)'", text, re.M) for name in ("__version__", "cuda")}
    return {"python": python, "folder": folder, "torch": said["__version__"][1] if said["__version__"] else None,
            "cuda": said["cuda"][1] if said["cuda"] else None}


def python_with_torch():
    """The interpreter of LEVIN_PYTHON, or python3; None if it has no torch."""
    wanted = os.environ.get("LEVIN_PYTHON") or shutil.which("python3")
    return wanted if wanted and torch_versions(wanted) else None


PRCTL = ctypes.CDLL(None).prctl  # looked up before a fork, after which the loader may be locked


def die_with_parent():
    """Runs in a new process: makes the kernel kill it when its parent ends, even if the parent is killed."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


class Run:
    """One step: its folder, its commands, and its remaining time."""

    def __init__(self, levin, folder, limit):
        self.levin, self.folder, self.limit = levin, Path(folder), limit
        self.end = time.monotonic() + limit
        self.commands, self.figures = [], {}
        self.processes, self.ended = set(), False

    def left(self):
        return max(0.1, self.end - time.monotonic())

    def command(self, words, allowed=(0,), environment=None, limit=math.inf):
        """Returns its output. Raises Failed if it ends with a different status or exceeds its limit or the step's."""
        with self.started(words, environment) as process:
            try:
                output, _ = process.communicate(timeout=min(limit, self.left()))
            except subprocess.TimeoutExpired as error:
                said = (error.output or b"").decode(errors="replace")
                raise Failed(f"not done after {min(limit, self.limit)} s: "
                             f"{shlex.join(map(str, words))}{end_of(said)}") from None
        if process.returncode not in allowed:
            raise Failed(f"exit status {process.returncode} of {shlex.join(map(str, words))}{end_of(output)}")
        return output

    @contextlib.contextmanager
    def started(self, words, environment=None):
        """Yields a running program with its output in a pipe. On exit it is stopped with its child processes."""
        own = {**self.levin.environment, **(environment or {})}
        self.commands.append(" ".join([*(f"{key}={shlex.quote(value)}" for key, value in (environment or {}).items()),
                                       shlex.join(map(str, words))]))
        process = subprocess.Popen([str(word) for word in words], cwd=self.folder, env={**os.environ, **own},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True,
                                   preexec_fn=die_with_parent)
        self.processes.add(process)
        try:
            if self.ended:
                raise Failed("the step was ended")
            yield process
        finally:
            self.processes.discard(process)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot be killed
                process.wait(timeout=10)
            if process.stdout and not process.stdout.closed:
                process.stdout.close()

    def stop(self):
        """Ends the programs that other threads have started, and keeps them from starting more."""
        self.ended = True
        for process in list(self.processes):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def peers(self):
        """The environment in which benchmarks find their Python peers: LEVIN_PEERS, or python3 with torch."""
        if os.environ.get("LEVIN_PEERS"):
            return {}
        python = python_with_torch()
        if python is None:
            return {}
        folder = self.folder / "peers"
        folder.mkdir(exist_ok=True)
        program = folder / "python3"  # a link would lose the virtual environment
        program.write_text(PEER_PYTHON.format(python=shlex.quote(python),
                                              path=shlex.quote(os.environ.get("PYTHONPATH", ""))))
        program.chmod(0o755)
        return {"LEVIN_PEERS": str(folder)}


class Fit:
    """A run of levin fit."""

    def __init__(self, run, name, config, *options, allowed=(0,)):
        self.root = run.folder / name
        self.output = run.command(fit_words(run, self.root, config, *options), allowed)
        self.folder = self.root / "levin_logs/version_0"
        self.last = self.folder / "checkpoints/last.ckpt"

    def metrics(self):
        return figures.test_metrics(self.output)

    def seconds(self):
        return figures.fit_seconds(self.output)

    def column(self, name):
        return figures.column(self.folder / "metrics.csv", name)


def differing_tensors(run, one, other):
    """The tensors that differ between two checkpoints, from `levin checkpoint diff`."""
    output = run.command([run.levin.program("levin"), "checkpoint", "diff", one, other], allowed=(0, 1))
    return figures.differing_tensors(output)


def strategy(name, **options):
    return [f"--trainer.strategy.class_path={name}",
            *(f"--trainer.strategy.init_args.{key}={value}" for key, value in options.items())]


def fit_words(run, root, config, *options):
    return [run.levin.program("levin"), "fit", "--config", run.levin.config(config),
            f"--trainer.accelerator={run.levin.accelerator}", "--trainer.devices=1",
            f"--trainer.default_root_dir={root}", *options]


@contextlib.contextmanager
def scratch():
    folder = tempfile.mkdtemp(prefix="levin_gpu_check_")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
