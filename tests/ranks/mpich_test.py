"""Ranks that a real mpiexec of MPICH starts (Debian: mpich), as Intel MPI's does too."""

import shutil

from tool_runs import ToolTest, main

from ranks import PROGRAM, free_port

MPIEXEC = shutil.which("mpiexec.hydra") or shutil.which("mpiexec.mpich")


class Mpich(ToolTest):
    def setUp(self):
        super().setUp()
        self.mpiexec = [MPIEXEC, "-n", "2", "-genv", "MASTER_PORT", str(free_port())]

    def test_the_tool_trains_as_on_two_local_ranks(self):
        self.expect_as_two_local_ranks(*self.mpiexec)

    def test_devices_that_contradict_it_are_an_error_that_shows_both(self):
        status, output = self.run_tool(*self.mpiexec, *self.fit, "--trainer.devices=3")
        self.assertEqual(status, 2, output)
        self.assertIn("3 devices x 1 node are 3 ranks, but MPI (PMI) has started 2 (2 on this node)", output)

    def test_a_rank_that_throws_ends_the_job(self):
        status, output = self.run_tool(*self.mpiexec, PROGRAM, f"out={self.out}", "samples=64", "throw=1:3", "strategy=ddp")
        self.assertNotEqual(status, 0, output)
        self.assertIn("a fault in the model", output)


if __name__ == "__main__":
    main("" if MPIEXEC else "MPICH's mpiexec is not installed (./dev check installs mpich where it is root)")
