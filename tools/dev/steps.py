"""Runs programs: long ones as steps with a log, in process groups that end with this process."""
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIFE_SIGN_SECONDS = 20
_held_locks = []  # descriptors that every child inherits


class Failed(SystemExit):
    """A step failed, with the exit status of its program. Its output has been shown."""


class StepError(Exception):
    """What a generator of commands raises if what its programs made is not usable."""


def die(status, *lines):
    """Ends the process: status 2 for wrong usage, 3 where the user must act."""
    for line in lines:
        print(f"dev: {line}", file=sys.stderr)
    raise SystemExit(status)


STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_on_signals():
    """Makes INT, TERM and HUP raise SystemExit(130), so that `finally` blocks end children and remove folders."""
    signals = [s for s in STOP_SIGNALS if signal.getsignal(s) != signal.SIG_IGN]

    def leave(number, frame):
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(130)

    for each in signals:
        signal.signal(each, leave)


@contextlib.contextmanager
def group(command, **options):
    """Starts a program as the leader of a session; ends all processes of its group if the body raises."""
    # A signal while the program starts waits until there is a process to end.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, start_new_session=True,
                                   pass_fds=_held_locks, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
                                   **options)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield process
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def status_of(process):
    """The exit status as a shell gives it: 128 + N if signal N ended the process."""
    status = process.wait()
    return status if status >= 0 else 128 - status


def run(command, **options):
    """Runs a program whose output is the caller's, and returns its exit status."""
    with group(command, **options) as process:
        return status_of(process)


def step(label, log, commands, environment=None):
    """Runs programs one after the other with their output in a log, and prints a line every 20 s while they run.

    `commands` is an iterable of argument lists; a generator may work between its programs, and raise StepError. If a
    program fails, prints the part of the log that matters and raises Failed. A step of less than half a second prints nothing.
    """
    log = Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    start, shown = time.monotonic(), False
    status = 0
    with open(log, "wb") as output:
        try:
            for command in commands:
                with group(command, stdout=output, stderr=subprocess.STDOUT,
                           env={**os.environ, **(environment or {})}) as process:
                    if not shown:
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(max(0.0, start + 0.5 - time.monotonic()))
                        if process.returncode is None:
                            print(f"{label} …")
                            shown = True
                    status = wait_with_signs_of_life(process, label, log)
                if status != 0:
                    break
        except FileNotFoundError as error:
            output.write(f"{error.filename}: command not found\n".encode())
            status = 127
        except StepError as error:
            output.write(f"{error}\n".encode())
            status = 1
    seconds = int(time.monotonic() - start)
    if status != 0:
        lines = log.read_text(errors="replace").splitlines()
        # The first error of ninja is relevant, not the output of other jobs after it.
        first = next((number for number, line in enumerate(lines) if line.startswith("FAILED: ")), None)
        if first is None:
            print(f"{label}: failed (exit {status}) after {seconds} s. The end of {log}:", *lines[-40:], sep="\n")
        else:
            print(f"{label}: failed (exit {status}) after {seconds} s. From {log}:", *lines[first:first + 80], sep="\n")
        raise Failed(status)
    if shown:
        print(f"{label}: done in {seconds} s")


def wait_with_signs_of_life(process, label, log):
    """Returns the exit status; every 20 s until then, prints the last line of the log."""
    while True:
        try:
            process.wait(LIFE_SIGN_SECONDS)
            return status_of(process)
        except subprocess.TimeoutExpired:
            lines = Path(log).read_text(errors="replace").splitlines()
            last = next((line.strip()[:100] for line in reversed(lines) if line.strip()), "")
            print(f"{label} … {last}".rstrip())


@contextlib.contextmanager
def lock(path, waiting):
    """Holds a lock file; if another process holds it, prints `waiting` and waits.

    Children inherit the lock, so it also holds while the children of a killed process run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        _held_locks.append(file.fileno())
        try:
            yield
        finally:
            _held_locks.remove(file.fileno())


@contextlib.contextmanager
def replaced_folder(target):
    """Yields a temporary folder with an empty subfolder `root`, which becomes `target` if the body succeeds.

    `target` is therefore complete whenever it exists. The caller holds the lock of the folder around it: what a killed
    process has left is removed.
    """
    prefix = f".{target.name}.tmp-"
    for old in target.parent.glob(prefix + "*"):
        shutil.rmtree(old, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        (staging / "root").mkdir()
        (staging / "tmp").mkdir()
        yield staging
        shutil.rmtree(target, ignore_errors=True)
        (staging / "root").rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
