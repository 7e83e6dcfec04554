"""Long runs in one process: memory, descriptors and threads stay the same, and a step takes as long at the end as at the start.

    endurance_test.py PROGRAM short            every kind of run, for 5,000 steps, and faults that must be found
    endurance_test.py PROGRAM long PART PARTS  the same for 200,000 steps, in parts that can run at the same time
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from usage import Samples

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).absolute())
LENGTH = sys.argv.pop(1)
PART, PARTS = (int(sys.argv.pop(1)), int(sys.argv.pop(1))) if LENGTH == "long" else (0, 1)
KINDS = subprocess.run([PROGRAM, "list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[PART::PARTS]

SHORT_STEPS = 5_000
LONG_STEPS = 200_000


def fast_folder():
    """Returns a folder in memory if there is one: runs write thousands of checkpoints, and each waits for the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Endurance(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_endurance_", dir=fast_folder())
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def samples_of(self, kind, steps, *plant):
        """Runs the program and returns the samples that it has written."""
        path = self.folder / f"{kind}.json"
        with open(self.folder / "output", "w+") as output:
            done = subprocess.run([PROGRAM, kind, str(steps), str(path), *plant], stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(self.folder)}, timeout=3000)
            output.seek(max(0, output.tell() - 2000))
            self.assertEqual(done.returncode, 0, f"{kind}: {output.read()}")
        return Samples(path, kind)

    def expect_flat(self, steps):
        for kind in KINDS:
            with self.subTest(kind=kind):
                samples = self.samples_of(kind, steps)
                print(f"{kind}: {samples.summary()}", flush=True)
                self.assertEqual(samples.problems(), [], samples.summary())


class Short(Endurance):
    def test_every_kind_of_run_is_flat(self):
        self.expect_flat(SHORT_STEPS)

    def test_planted_faults_are_found(self):
        for plant, part in {"bytes": "the heap grew by", "descriptor": "descriptors at its start",
                            "thread": "threads at its start", "slow": "a step took"}.items():
            with self.subTest(plant=plant):
                # The time is not compared in runs that are shorter.
                problems = self.samples_of("eager", 20_000 if plant == "slow" else SHORT_STEPS, plant).problems()
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(part, problems[0])


class Long(Endurance):
    def test_every_kind_of_run_is_flat(self):
        self.expect_flat(LONG_STEPS)

    @unittest.skipIf(PART > 0, "part 0 tests it")
    def test_sixteen_bytes_per_step_are_found(self):
        problems = self.samples_of("eager", LONG_STEPS, "few_bytes").problems()
        self.assertEqual(len(problems), 1, problems)
        self.assertIn("the heap grew by", problems[0])


if __name__ == "__main__":
    unittest.main(defaultTest="Short" if LENGTH == "short" else "Long")
