"""Events of a running start, and what is done to it then.

An event is (name, count, milliseconds after it): started, now, handler (it catches SIGTERM), output (lines), checkpoint
(files that are complete), writing (a temporary file, after so many checkpoints), rows (changes of the loggers' files).
"""
import os
import re
import resource
import signal
import time
from pathlib import Path

from processes import children, marked_processes


class Disturbance:
    """What happens to one start. `place` has its folders; see soak.py."""

    def __init__(self, run, place):
        self.run, self.place = run, place
        self.done = []  # what was done while the run was alive
        self.saved_before, self.rows_before = self.saved(), self.rows()
        self.new_saves, self.new_rows = set(), 0

    # ---- events --------------------------------------------------------------------------------------------------

    def saved(self):
        found = set()
        try:
            paths = os.scandir(self.place.checkpoints) if self.place.checkpoints else self.place.root.rglob("*.ckpt")
            for each in paths:
                if each.name.endswith(".ckpt"):
                    found.add((os.fspath(each), each.stat().st_mtime_ns))
        except OSError:  # it does not exist yet, or a file was removed
            pass
        return found

    def rows(self):
        sizes = []
        try:
            for entry in os.scandir(self.place.logs):
                if re.match(r"metrics\.(csv|jsonl)$|events\.out", entry.name):
                    sizes.append((entry.name, entry.stat().st_size))
        except OSError:
            pass
        return sorted(sizes)

    def has_happened(self, name, count):
        if name in ("started", "now"):
            return True
        if name == "handler":
            try:
                return self.run.catches(signal.SIGTERM)
            except OSError:
                return False
        if name == "output":
            return self.run.output().count("\n") >= count
        if name == "rows":
            rows = self.rows()
            self.new_rows += rows != self.rows_before
            self.rows_before = rows
            return self.new_rows >= count
        self.new_saves |= self.saved() - self.saved_before
        return len(self.new_saves) >= count

    def is_writing(self):
        try:
            return any(".tmp-" in name for name in os.listdir(self.place.checkpoints or self.place.root))
        except OSError:
            return False

    def wait_for(self, when, end):
        """Returns true once it has happened; false if the run ends before, or `end` is reached."""
        name, count, late = when
        pause = 0.0005 if self.place.checkpoints else 0.01
        while not self.has_happened(name, count):
            if self.run.ended() or time.monotonic() > end:
                return False
            time.sleep(pause)
        writing_end = time.monotonic() + 2.0 if name == "writing" else 0
        while time.monotonic() < writing_end and not self.is_writing() and not self.run.ended():
            time.sleep(0.0002)
        late_end = time.monotonic() + late / 1000
        while time.monotonic() < late_end and not self.run.ended():
            time.sleep(0.001)
        return not self.run.ended()

    # ---- acts ----------------------------------------------------------------------------------------------------

    def act(self, what):
        self.done.append(what)
        name, *rest = what
        getattr(self, "_" + name)(*rest)

    def _targets(self, target):
        main = self.run.process.pid
        if target == "main":
            return [main]
        if target == "rank":  # the last rank, or trial
            return children(main)[-1:]
        return [main, *(pid for pid in marked_processes(self.place.mark) if pid != main)]  # a launcher first: it would report

    def _send(self, number, pids):
        sent = 0
        for pid in pids:
            try:
                os.kill(pid, number)
                sent += 1
            except ProcessLookupError:
                pass
        if not sent:  # all have just ended, or a rank has not started
            self.done.pop()

    def _kill(self, target):
        self._send(signal.SIGKILL, self._targets(target))

    def _signal(self, name, target):
        if target == "group":
            os.killpg(self.run.process.pid, getattr(signal, name))
        else:
            self._send(getattr(signal, name), self._targets(target))

    def _pause(self, target, milliseconds):
        pids = self._targets(target)
        self._send(signal.SIGSTOP, pids)
        time.sleep(milliseconds / 1000)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def _file(self, name):
        try:
            (self.place.logs / name).touch()
        except OSError:  # the run has no folder yet
            self.done.pop()

    def _disk(self, action, left=0):
        self.place.fill_disk(left) if action == "fill" else self.place.free_disk()

    def _memory(self, more):
        """Limits every process to its present memory and this many MiB more: allocations fail, as with ulimit -d."""
        for pid in marked_processes(self.place.mark):
            try:
                used = int(re.search(r"VmData:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) * 1024
                resource.prlimit(pid, resource.RLIMIT_DATA, (used + more * 2**20, resource.RLIM_INFINITY))
            except (OSError, TypeError):
                pass


def expected_statuses(scenario, done, had_stop_file):
    """Returns the exit statuses that the documentation allows after these acts: docs/resuming.md, docs/rank_failures.md. As
    subprocess has them: -N is death by signal N."""
    statuses = {0}  # it may have finished before
    restarts = "restarts" in scenario.features
    if had_stop_file:
        statuses.add(3)
    for name, *rest in done:
        if name == "kill" and rest[0] in ("main", "all"):
            statuses |= {-signal.SIGKILL, *([128 + signal.SIGKILL] if rest[0] == "all" and scenario.ranks > 1 else [])}
        elif name == "kill" and scenario.kind != "sweep" and not restarts:
            statuses.add(128 + signal.SIGKILL)
        elif name == "signal":
            number = getattr(signal, rest[0])
            statuses |= {128 + number, -number}  # the latter before its handler is there, or at a second request
        elif name == "file":
            statuses |= {3} if rest[0] == "stop" else set()
        elif name in ("disk", "memory"):
            statuses.add(1)
            if name == "memory":  # oneDNN does not check for memory, and the C library ends a process without it for a thread
                statuses |= {-signal.SIGSEGV, 128 + signal.SIGSEGV, 127}
    return statuses
