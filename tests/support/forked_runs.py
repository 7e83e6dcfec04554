"""Many runs of a test program from one process that has loaded LibTorch: see forked_runs.h."""

import atexit
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading


class ForkedRuns:
    def __init__(self, command, env):
        """`command` reads runs from its standard input. `env`: the variables of all runs."""
        self._command, self._env = command, env
        self._process = None
        self._logs = tempfile.TemporaryDirectory(prefix="levin_runs_")
        atexit.register(self.stop)

    def run(self, words, ranks=({},), timeout=60):
        """(the exit status of each rank, what all of them printed). `ranks`: the variables of each."""
        if self._process is None:
            self._process = subprocess.Popen(self._command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             text=True, start_new_session=True)
        log = pathlib.Path(self._logs.name) / "log"
        log.unlink(missing_ok=True)
        timer = threading.Timer(timeout, self._kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"words": list(words), "ranks": list(ranks), "log": str(log)}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        text = log.read_text(errors="replace") if log.exists() else ""
        if not answer:
            self.stop()
            raise AssertionError(f"{words} did not end within {timeout} s:\n{text}")
        return json.loads(answer), text

    def _kill(self):
        """All of its session: the ranks are process groups of their own, so that a run may signal its own."""
        session = self._process.pid
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getsid(int(entry.name)) == session:
                        os.kill(int(entry.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def stop(self):
        process, self._process = self._process, None
        if process is None:
            return
        process.stdin.close()
        process.wait()
        process.stdout.close()
