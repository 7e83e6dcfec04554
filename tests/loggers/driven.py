"""Loggers driven from outside (logger_program), and what their tests share."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_port  # noqa: E402
from waiting import wait_until  # noqa: E402

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
HOME = pathlib.Path(os.environ.get("LEVIN_HOME") or
                    pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin")


class Driven:
    """A logger in a separate process. Calls return what the logger returned."""

    def __init__(self, name, options, folder, resume=False, env=None):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [PROGRAM, name, json.dumps(options), str(folder), *(["resume"] if resume else [])], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env={**os.environ, **(env or {})})
        self.lines = []
        self.started = self.answer()

    def answer(self):
        """Returns the next line that is a result; all other lines are console output."""
        while line := self.process.stdout.readline():
            try:
                return json.loads(line)
            except ValueError:
                self.lines.append(line.rstrip("\n"))
        return None  # it has ended

    def __call__(self, *arguments):
        self.send(*arguments)
        return self.answer()

    def send(self, *arguments):
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        status = self.process.wait(60)
        self.process.stdout.close()
        return status

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()

    @property
    def output(self):
        """All messages that it has printed so far."""
        self.errors.seek(0)
        return "\n".join(self.lines) + self.errors.read()


class LoggerTest(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="levin-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def driven(self, name, options, resume=False, env=None, folder=None):
        logger = Driven(name, options, folder or self.folder / "root", resume, env)
        self.addCleanup(logger.close)
        return logger

    def start(self, arguments, cleanup=None, **more):
        """A program that ends with the test, or with what `cleanup` belongs to."""
        log = open(self.folder / f"log-{free_port()}", "w+")
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **more)
        process.log = log

        def stop():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            log.close()

        (cleanup or self.addCleanup)(stop)
        process.stop = stop
        return process


def main(problem=""):
    if problem:
        print(f"SKIPPED: {problem}")
        sys.exit(77)
    unittest.main(verbosity=2)
