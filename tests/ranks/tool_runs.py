"""Runs of the levin tool under a launcher, compared with the same run on two local ranks. Started as

  X_test.py LEVIN RANK_PROGRAM [unittest's arguments]
"""
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))

from runs import KEEP_ALL, LEVIN, Run, checkpoints_in, few_images, run_file, wait_until, weights  # noqa: E402, F401

import ranks  # noqa: E402
from levin_runs import run_levin  # noqa: E402

SKIPPED = 77  # what CTest takes for a skipped test


class ToolTest(ranks.RanksTest):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.out) / "run"
        self.config = pathlib.Path(self.out) / "run.yaml"
        self.config.write_text(run_file(self.root, auto_resume="false", checkpoint=KEEP_ALL, epochs=1))
        self.fit = [LEVIN, "fit", "--config", str(self.config), "--trainer.limit_train_batches=6",
                    "--trainer.limit_val_batches=2", "--trainer.oversubscribe=true"]

    def run_tool(self, *arguments, env=None, timeout=120):
        """Returns (exit status, output of both streams)."""
        env = {**ranks.CLEAN, **(env or {})}
        if arguments[0] == LEVIN:
            done = run_levin(arguments, env=env, timeout=timeout)
        else:
            done = subprocess.run([str(argument) for argument in arguments], env=env, text=True, timeout=timeout,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def last_weights(self):
        """Returns the last weights of the run below `root`, which is removed for the next run."""
        saved = checkpoints_in(self.root / "levin_logs/version_0/checkpoints")
        found = weights(saved[-1])
        self.assertTrue(found)
        shutil.rmtree(self.root)
        return found

    def expect_as_two_local_ranks(self, *launcher, env=None):
        """The tool, started with `launcher`, ends at the weights of levin's own two ranks."""
        status, output = self.run_tool(*self.fit, "--trainer.devices=2")
        self.assertEqual(status, 0, output)
        local = self.last_weights()
        status, output = self.run_tool(*launcher, *self.fit, env=env)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("Trained 1 epoch, 6 steps"), 1, output)  # rank 0 alone speaks
        self.assertEqual(self.last_weights(), local)


def main(missing):
    """`missing`: why nothing can be tested here, or ""."""
    if missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    ranks.main()
