"""Ranks that a real mpirun starts (Debian: openmpi-bin)."""

import shutil
import signal

from tool_runs import ToolTest, main

from ranks import PROGRAM

# Debian's own name for it: mpirun may be MPICH's.
NAME = "mpirun.openmpi" if shutil.which("mpirun.openmpi") else "" if shutil.which("mpirun.mpich") else "mpirun"
MPIRUN = [NAME, "--allow-run-as-root", "--oversubscribe", "-n", "2"]


class Mpirun(ToolTest):
    def test_the_tool_trains_as_on_two_local_ranks(self):
        self.expect_as_two_local_ranks(*MPIRUN)

    def test_devices_that_contradict_it_are_an_error_that_shows_both(self):
        status, output = self.run_tool(*MPIRUN, *self.fit, "--trainer.devices=3")
        self.assertEqual(status, 2, output)
        self.assertIn("3 devices x 1 node are 3 ranks, but MPI has started 2 (2 on this node)", output)

    def test_a_rank_that_throws_ends_the_job(self):
        status, output = self.run_tool(*MPIRUN, PROGRAM, f"out={self.out}", "samples=64", "throw=1:3", "strategy=ddp")
        self.assertEqual(status, 1, output)
        self.assertIn("a fault in the model", output)

    def test_a_signal_that_mpirun_hands_on_ends_all_with_a_checkpoint(self):
        process = self.start("samples=4000", "batch=1", "slow=5", "checkpoint", "strategy=ddp",
                             program=MPIRUN + [PROGRAM])
        self.wait_until(lambda: list(self.root.parent.glob("**/*.ckpt")), "a first checkpoint")
        process.send_signal(signal.SIGUSR1)
        output = process.communicate(timeout=60)[1]
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("fit was stopped by SIGUSR1", output)


if __name__ == "__main__":
    main("" if shutil.which(NAME) else "Open MPI's mpirun is not installed (./dev check installs openmpi-bin where it is root)")
