"""What a step frees stays with the process and is taken again by the next one: few page faults, counted by the kernel, compared
with the same run under malloc's defaults.

  freed_memory_test.py PROGRAM [unittest options]
"""
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
STEPS = 25  # of the program
FIRST = 10  # of them, which make the threads and their memory
CLEAN = {name: value for name, value in os.environ.items()
         if name not in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")}


def later_faults(kind, **variables):
    """Of the later steps but for the three with most: what a busy machine has taken away meanwhile is faulted in too."""
    done = subprocess.run([PROGRAM, kind], env={**CLEAN, **variables}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    counts = [int(line) for line in done.stdout.split()]
    assert len(counts) == STEPS, done.stdout
    return sum(sorted(counts[FIRST:])[:-3])


class FreedMemory(unittest.TestCase):
    def check(self, kind):
        by_itself = later_faults(kind, GLIBC_TUNABLES="")  # settings of malloc in the environment are kept
        if by_itself < 1000:
            self.skipTest(f"{by_itself} faults with this machine's malloc and size of pages: there is nothing to keep")
        self.assertLess(later_faults(kind), by_itself / 3)

    def test_a_pipeline_keeps_it(self):
        self.check("pipeline")

    def test_so_does_dp(self):
        self.check("dp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
