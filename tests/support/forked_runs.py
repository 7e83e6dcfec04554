"""Many runs of a test program from one process that has loaded LibTorch: see forked_runs.h."""

import atexit
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile


class ForkedRuns:
    def __init__(self, command, env):
        """`command` reads runs from its standard input. `env`: the variables of all runs."""
        self._command, self._env = command, env
        self._process = self._ended = None
        self._logs = tempfile.TemporaryDirectory(prefix="levin_runs_")
        atexit.register(self.stop)

    def run(self, arguments, ranks=({},), timeout=60):
        """(the exit status of each rank, or 128 + signal; what all of them printed). `ranks`: the variables of each."""
        log = self._new_file("log")
        try:
            statuses = self._ask({"arguments": list(arguments), "ranks": list(ranks), "log": str(log)}, timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{arguments} did not end within {timeout} s:\n{self._text(log)}") from None
        if statuses is None:
            raise AssertionError(f"{arguments}: the process that runs it ended:\n{self._text(log)}")
        return [status if status >= 0 else 128 - status for status in statuses], self._text(log)

    def run_alone(self, arguments, cwd, env, merge, timeout):
        """One rank with the variables `env` and no others: what subprocess.run returns. Its standard error goes where
        its standard output goes if `merge` is true. Nothing if the process that runs it ended before."""
        log, errors = self._new_file("log"), self._new_file("errors")
        request = {"arguments": arguments, "ranks": [env], "only_these_variables": True, "folder": cwd, "log": str(log),
                   "errors": str(log if merge else errors)}
        try:
            statuses = self._ask(request, timeout)
        except subprocess.TimeoutExpired as late:
            late.output, late.stderr = self._text(log), self._text(errors)
            raise
        if statuses is None:
            return None
        return subprocess.CompletedProcess(arguments, statuses[0], self._text(log), None if merge else self._text(errors))

    def status(self):
        """The exit status of the process that runs them, if it ended by itself."""
        return self._ended

    def stop(self):
        process, self._process = self._process, None
        if process is None:
            return
        process.stdin.close()
        self._ended = process.wait()
        process.stdout.close()

    def _ask(self, request, timeout):
        """The answer; nothing if the process ended without one."""
        if self._process is None:
            self._process = subprocess.Popen(self._command, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             text=True, start_new_session=True)
        try:
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # it has ended, and has no answer either
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(request["arguments"], timeout)
            answer = self._process.stdout.readline()
        except BaseException:
            self._kill()
            self.stop()
            raise
        if not answer:
            self.stop()
            return None
        return json.loads(answer)

    def _new_file(self, name):
        path = pathlib.Path(self._logs.name) / name
        path.unlink(missing_ok=True)
        return path

    @staticmethod
    def _text(path):
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

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


def serve_runs(run):
    """The protocol of forked_runs.h for a Python program: `run` gets the arguments in a separate process for each rank, and
    returns its exit status. When a rank fails, the others are killed. When standard input is closed, a run that has not
    ended is killed."""
    while line := os.read(0, 1 << 20):  # not sys.stdin, whose buffer would hide that the other end was closed
        while not line.endswith(b"\n"):
            line += os.read(0, 1 << 20)
        request = json.loads(line)
        running = {}
        for rank, variables in enumerate(request["ranks"]):
            process = os.fork()
            if process == 0:
                _become_run(request, variables, run)
            os.setpgid(process, process)
            running[process] = rank
        statuses = [0] * len(running)
        while running:
            ended = _wait_for_one_of(running)
            if ended:
                statuses[running.pop(ended[0])] = os.waitstatus_to_exitcode(ended[1])
            if not ended or ended[1] != 0:
                for other in running:
                    os.killpg(other, signal.SIGKILL)
            if not ended:
                return
        print(json.dumps(statuses), flush=True)


def _wait_for_one_of(running):
    """(process, status) of a rank that has ended; nothing if standard input was closed before."""
    poll, files = select.poll(), [os.pidfd_open(process) for process in running]
    poll.register(0, 0)
    for file in files:
        poll.register(file, select.POLLIN)
    ready = poll.poll()
    for file in files:
        os.close(file)
    if any(file == 0 for file, _ in ready):
        return None
    return next((process, status) for process, status in (os.waitpid(one, os.WNOHANG) for one in running) if process)


def _become_run(request, variables, run):
    status = 1
    try:
        os.setpgid(0, 0)
        os.environ.update(variables)
        output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if "folder" in request:
            os.chdir(request["folder"])
        status = run(request["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
