"""forked_runs.py: a run that does not end leaves no process behind, neither after its time limit nor when the program that asked
for it is killed.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from forked_runs import ForkedRuns  # noqa: E402
from waiting import alive, wait_until  # noqa: E402

# A run writes its process and the one that it has started to the file that is its argument, and does not end.
ENDLESS = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
from forked_runs import serve_runs

def run(arguments):
    child = os.fork()
    if child:
        pathlib.Path(arguments[0] + ".new").write_text(f"{os.getppid()} {os.getpid()} {child}")
        os.rename(arguments[0] + ".new", arguments[0])
    while True:
        signal.pause()

serve_runs(run)
"""
SERVER = [sys.executable, "-B", "-c", ENDLESS, str(HERE)]


class ARunThatDoesNotEnd(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "processes")

    def processes(self):
        return [int(process) for process in wait_until(self.file.exists, "the run begins") and self.file.read_text().split()]

    def test_ends_with_all_that_it_has_started_at_its_time_limit(self):
        runs = ForkedRuns(SERVER, os.environ)
        with self.assertRaisesRegex(AssertionError, "did not end within 3 s"):
            runs.run([str(self.file)], timeout=3)
        for process in self.processes():
            wait_until(lambda process=process: not alive(process), f"process {process} ends")

    def test_ends_with_all_that_it_has_started_when_the_program_that_asked_for_it_is_killed(self):
        asks = (f"import os, sys; sys.path.insert(0, {str(HERE)!r}); from forked_runs import ForkedRuns; "
                f"ForkedRuns({SERVER!r}, os.environ).run([{str(self.file)!r}])")
        asking = subprocess.Popen([sys.executable, "-B", "-c", asks])
        processes = self.processes()
        self.assertTrue(all(alive(process) for process in processes))
        asking.send_signal(signal.SIGKILL)
        asking.wait()
        for process in processes:
            wait_until(lambda process=process: not alive(process), f"process {process} ends")


if __name__ == "__main__":
    unittest.main()
