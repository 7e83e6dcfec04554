"""Waiting for an event instead of for a time. A test that needs a different sleep is in the list of tests/layers/sleeps.py,
with the reason.
"""
import signal
import time
from pathlib import Path

# Whoever has started this test may ignore signals, as nohup and the background of a shell script do. Programs that the test
# starts would inherit that.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def wait_until(condition, what, run=None, seconds=60.0):
    """Waits until condition() is true, and returns its value. Fails after so many seconds, which are many because they bound
    the time of a failure alone, or as soon as the run has ended without it. `run` has ended() and report()."""
    began = looked = time.monotonic()
    while not (value := condition()):
        if run is not None and run.ended() and not condition():
            raise AssertionError(f"the run ended before {what}:\n{run.report()}")
        if time.monotonic() > began + seconds:
            raise AssertionError(f"{what}: not within {seconds} s" + (f":\n{run.report()}" if run else ""))
        time.sleep(max(0.002, time.monotonic() - looked))  # a costly condition is not evaluated without a break
        looked = time.monotonic()
    return value


def state(pid):
    """Returns the state that ps shows: R, S, T (stopped), Z …; "" if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid):
    """Returns true if the process runs. Zombies have ended: a container may have no process that reaps them."""
    return state(pid) not in ("", "Z")


def _has_signal(pid, line, number):
    words = Path(f"/proc/{pid}/status").read_text().split()
    return bool(int(words[words.index(line + ":") + 1], 16) >> (number - 1) & 1)


def catches(pid, number):
    """Returns true if the process has a handler for the signal."""
    return _has_signal(pid, "SigCgt", number)


def is_pending(pid, number):
    """Returns true if the signal was sent to the process, which has not reacted to it yet."""
    return _has_signal(pid, "ShdPnd", number) or _has_signal(pid, "SigPnd", number)


def is_waiting(pid):
    """Returns true if the process's first thread is blocked, and not by a sleep: it waits for another thread or process."""
    try:
        return state(pid) == "S" and "nanosleep" not in Path(f"/proc/{pid}/wchan").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


# Seconds after which the same stop signal is a second request, and a bit more (kSameRequest in core/process/stop_signal.h).
NEW_REQUEST = 0.6
