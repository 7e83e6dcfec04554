"""Runs rank_program and reads what its ranks leave: shared by the tests of this folder."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from forked_runs import ForkedRuns
from ports import free_port  # noqa: F401
from processes import CLEAN, children  # noqa: F401
from waiting import alive, state, wait_until  # noqa: F401

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else ""

# rank_program then runs on GPUs, the simulated one's too: gloo or nccl.
ON_GPUS = "LEVIN_TEST_ON_GPUS" in os.environ
ON_NCCL = os.environ.get("LEVIN_TEST_ON_GPUS") == "nccl"


RUNS = ForkedRuns([PROGRAM, "serve"], CLEAN)

FSDP_STAGES = (1, 2, 3)


def fsdp(stage, *arguments):
    """Returns the arguments of a run with fsdp, in units so small that shards begin and end inside parameters."""
    return ["strategy=fsdp", f"stage={stage}", "unit_mb=0.0001", *arguments]


class RanksTest(unittest.TestCase):
    wait_until = staticmethod(wait_until)

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="levin_ranks_", ignore_cleanup_errors=True)
        self.addCleanup(self._folder.cleanup)
        self.out = self._folder.name

    def start(self, *arguments, env=None, program=PROGRAM, **more):
        """Starts a run, which ends with the test at the latest; a launcher's ranks end with it."""
        command = program if isinstance(program, list) else [program]
        process = subprocess.Popen([*command, f"out={self.out}", *arguments], env={**CLEAN, **(env or {})},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

        def end():
            if process.poll() is None:
                process.kill()
                process.communicate()

        self.addCleanup(end)
        return process

    def run_with(self, *arguments, timeout=60, env=None):
        """Returns (exit status, standard error) of a run."""
        process = self.start(*arguments, env=env)
        try:
            _, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
            self.fail(f"{arguments} did not end within {timeout} s:\n{errors}")
        return process.returncode, errors

    def run_ranks(self, *arguments, ranks=1, timeout=60, env=None):
        """Runs ranks that torchrun's variables start; they must succeed."""
        variables = [{**(env or {})} for _ in range(ranks)]
        if ranks > 1:
            port = str(free_port())
            for rank, own in enumerate(variables):
                own.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks),
                            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
        statuses, text = RUNS.run(arguments, variables, timeout)
        self.assertEqual(statuses, [0] * ranks, f"{arguments}:\n{text}")

    def train(self, *arguments, ranks=1, **more):
        """Returns every rank's report of a run, which must succeed."""
        for old in pathlib.Path(self.out).glob("rank*.json"):
            old.unlink()
        self.run_ranks(f"out={self.out}", *arguments, *([f"devices={ranks}"] if ranks > 1 else []), ranks=ranks, **more)
        reports = self.reports(ranks)
        self.assertEqual([r["world_size"] for r in reports], [ranks] * ranks)
        return reports

    def train_each(self, *runs, ranks=1, timeout=60):
        """Like train() for several lists of arguments, one after another in the same processes, each in its own folder."""
        arguments = []
        for k, run in enumerate(runs):
            folder = self.folder(k)
            folder.mkdir()
            arguments += [*(["--"] if arguments else []), f"out={folder}", *run, *([f"devices={ranks}"] if ranks > 1 else [])]
        self.run_ranks(*arguments, ranks=ranks, timeout=timeout)
        reports = [[json.loads((self.folder(k) / f"rank{rank}.json").read_text()) for rank in range(ranks)]
                   for k in range(len(runs))]
        self.assertEqual([r["world_size"] for run in reports for r in run], [ranks] * ranks * len(runs))
        for k in range(len(runs)):
            shutil.rmtree(self.folder(k))
        return reports

    def folder(self, k):
        """Returns the folder of the k-th run of train_each()."""
        return pathlib.Path(self.out) / f"run{k}"

    def reports(self, ranks):
        return [self.report(k) for k in range(ranks)]

    def report(self, rank):
        return json.loads((pathlib.Path(self.out) / f"rank{rank}.json").read_text())

    def assert_close(self, one, other, tolerance=2e-6):
        self.assertEqual(len(one), len(other))
        worst = max(abs(a - b) for a, b in zip(one, other))
        self.assertLessEqual(worst, tolerance, f"{one}\n{other}")


def main():
    unittest.main(verbosity=2)
