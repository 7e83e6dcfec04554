"""examples/pendulum: a simulator on two MPI ranks trains a surrogate of itself, in C++ and, through the C interface, in Fortran.

  pendulum_test.py SOURCES BUILD MPIEXEC [unittest's arguments]
"""
import array
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from run_example import free_port

SOURCES, BUILD = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
MPIEXEC = sys.argv.pop(1)
PROGRAM, EXAMPLE = BUILD / "bin/pendulum", SOURCES / "examples/pendulum"
# Open MPI refuses root, and more ranks than processors, unless it is told not to.
VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
             "OMP_NUM_THREADS": "1"}


def start(*command, cwd):
    return subprocess.Popen([str(word) for word in command], cwd=cwd, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env={**os.environ, **VARIABLES, "MASTER_PORT": str(free_port())})


def output_of(process, timeout=120):
    """All output. A launcher that takes too long gets SIGTERM, at which it ends its ranks."""
    try:
        return process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        raise AssertionError(f"{process.args} has not ended after {timeout} s:\n{process.communicate(timeout=30)[0]}") from None


def children_of(process):
    return [int(child) for tasks in Path(f"/proc/{process.pid}/task").glob("*/children") for child in tasks.read_text().split()]


def tensors_of(checkpoint):
    """Each tensor's bytes."""
    content = checkpoint.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return {name: content[8 + length:][slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


def weights_of(checkpoint):
    return {name: array.array("f", data) for name, data in tensors_of(checkpoint).items() if name.startswith("model.")}


def number_after(label, output):
    (found,) = [line.split(": ")[1] for line in output.splitlines() if line.startswith(label + ":")]
    return float(found)


def reports(output):
    """The lines about energies and losses. The simulator in C++ has a thread of its own, so their order may differ."""
    return sorted(line for line in output.splitlines() if line.startswith(("simulated ", "trained ")))


@unittest.skipUnless(PROGRAM.exists(), "MPI was not found when Levin was configured (apt package libopenmpi-dev)")
class Pendulum(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.cpp = cls.run_program(MPIEXEC, "-n", 2, PROGRAM, "cpp.ckpt")

    @classmethod
    def run_program(cls, *command):
        """The output of a program that must succeed."""
        process = start(*command, cwd=cls.folder)
        output = output_of(process)
        if process.returncode != 0:
            raise AssertionError(f"{process.args} ended with {process.returncode}:\n{output}")
        return output

    def fortran_program(self):
        """The words that start the program, before the name of the checkpoint."""
        program, run_file = self.folder / "pendulum_fortran", self.folder / "pendulum.yaml"
        if not shutil.which("mpifort") or not shutil.which("gfortran"):
            self.skipTest("mpifort is not installed (apt packages libopenmpi-dev and gfortran)")
        if not program.exists():
            self.run_program("mpifort", "-std=f2008", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", SOURCES / "c/levin.f90",
                             EXAMPLE / "pendulum.f90", "-o", program, f"-L{BUILD}/lib", "-llevin_c", f"-Wl,-rpath,{BUILD}/lib",
                             "-Wl,--allow-shlib-undefined")
            run_file.write_text((EXAMPLE / "pendulum.yaml").read_text().replace("build/release", str(BUILD)))
        return program, run_file

    def test_the_surrogate_predicts_a_trajectory_that_was_not_trained_on(self):
        surrogate = number_after("error of the surrogate", self.cpp)
        self.assertLess(surrogate, number_after("error of a straight line", self.cpp) / 3, self.cpp)
        self.assertLess(surrogate, number_after("error of the unchanged state", self.cpp) / 30, self.cpp)
        self.assertLess(number_after("error of the surrogate alone", self.cpp), 0.15, self.cpp)

    def test_both_ranks_have_the_same_weights(self):
        self.assertEqual(number_after("largest difference between the ranks' weights", self.cpp), 0)

    def test_fortran_computes_the_numbers_of_cpp_bitwise(self):
        output = self.run_program(MPIEXEC, "-n", 2, *self.fortran_program(), "fortran.ckpt")
        self.assertEqual(len(reports(output)), 8)
        self.assertEqual(reports(output), reports(self.cpp))
        self.assertEqual(number_after("largest difference between the ranks' weights", output), 0)
        self.assertAlmostEqual(number_after("error of the surrogate", output), number_after("error of the surrogate", self.cpp), 5)
        self.assertEqual(tensors_of(self.folder / "fortran.ckpt"), tensors_of(self.folder / "cpp.ckpt"))

    def test_two_ranks_train_as_one_process_with_the_batches_of_both(self):
        self.run_program(*self.fortran_program(), "alone.ckpt")
        two, alone = (weights_of(self.folder / name) for name in ("cpp.ckpt", "alone.ckpt"))
        self.assertEqual(len(two), 6)
        self.assertEqual(two.keys(), alone.keys())
        for name in two:
            self.assertLess(max(abs(a - b) for a, b in zip(two[name], alone[name], strict=True)), 1e-4, name)

    def test_the_death_of_a_rank_ends_the_program(self):
        process = start(MPIEXEC, "-n", 2, PROGRAM, "killed.ckpt", cwd=self.folder)
        seen = ""
        while not seen.startswith("trained 250"):
            seen = process.stdout.readline()
            self.assertNotEqual(seen, "", "the program has ended early")
        ranks = [os.pidfd_open(rank) for rank in children_of(process)]
        for rank in ranks:
            self.addCleanup(os.close, rank)
        signal.pidfd_send_signal(ranks[-1], signal.SIGKILL)
        output = output_of(process, timeout=60)
        self.assertNotEqual(process.returncode, 0, output)
        for rank in ranks:
            self.assertEqual(select.select([rank], [], [], 30)[0], [rank], f"a rank has not ended:\n{output}")
        self.assertFalse((self.folder / "killed.ckpt").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
