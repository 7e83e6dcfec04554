"""Runs on a real Slurm of two nodes (cluster.py): srun, levin submit, job arrays, sweeps, and jobs that are started again.

  slurm_test.py LEVIN RANK_PROGRAM [unittest's arguments]
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "resume"))

from cluster import Cluster, missing  # noqa: E402
from runs import KEEP_ALL, KEEP_BEST, LEVIN, SAVE_EVERY, checkpoints_in, differences, run_file, wait_until  # noqa: E402

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).absolute())
SKIPPED = 77
CLUSTER = None
SHORT = ["--trainer.limit_train_batches=4", "--trainer.limit_val_batches=2"]


def setUpModule():
    global CLUSTER
    CLUSTER = Cluster()
    unittest.addModuleCleanup(CLUSTER.stop)
    CLUSTER.environment.update(OMP_NUM_THREADS="1")


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.cluster = CLUSTER
        folder = tempfile.TemporaryDirectory(prefix="levin slurm ")  # a space, since folders have them
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.runs = self.folder / "run"
        self.config = self.folder / "run.yaml"
        self.config.write_text(run_file(self.runs, auto_resume="false", checkpoint=KEEP_ALL, epochs=1))

    def submit(self, *arguments, status=0):
        """Runs levin submit in the test's folder; returns its output."""
        done = subprocess.run([LEVIN, "submit", "--config", "run.yaml", *arguments], capture_output=True, text=True,
                              timeout=60, cwd=self.folder, env=self.cluster.environment)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def submitted(self, *arguments):
        """Returns the job's number."""
        output = self.submit("--output", "job-%j.out", *arguments)
        return re.match(r"Submitted batch job (\d+) \(.+\.sbatch\)\n", output)[1]

    def output(self, job):
        file = self.folder / f"job-{job}.out"
        return file.read_text() if file.exists() else ""

    def finish(self, job, states=("COMPLETED",), seconds=120):
        self.cluster.wait_for(job, states, seconds, self.folder / f"job-{job}.out")


class Srun(Case):
    def reports(self, folder):
        return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]

    def test_two_nodes_train_as_two_local_ranks_do(self):
        ours, theirs = self.folder / "here", self.folder / "there"
        for folder in (ours, theirs):
            folder.mkdir()
        arguments = ["samples=16", "batch=2", "model=dropout", "strategy=ddp"]
        subprocess.run([PROGRAM, f"out={ours}", "devices=2", *arguments], check=True, timeout=60,
                       env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.cluster.run("srun", "--nodes=2", "--ntasks=2", PROGRAM, f"out={theirs}", *arguments)
        for here, there in zip(self.reports(ours), self.reports(theirs)):
            self.assertEqual(there["world_size"], 2)
            self.assertEqual(here["weights"], there["weights"])
            self.assertEqual(here["random"], there["random"])

    def test_a_step_on_a_part_of_the_job_is_a_world_of_its_own(self):
        job = self.folder / "job"
        job.write_text(f"#!/bin/sh\nsrun --nodes=1 --ntasks=1 {PROGRAM} out='{self.folder}' samples=8 strategy=ddp\n")
        self.cluster.run("sbatch", "--wait", "--nodes=2", "--ntasks=2", f"--output={self.folder}/out", job)
        self.assertEqual(json.loads((self.folder / "rank0.json").read_text())["world_size"], 1)

    def test_two_steps_of_one_job_do_not_meet(self):
        """Both on the job's first node, at the same time."""
        for step in ("a", "b"):
            (self.folder / step).mkdir()
        one = "srun --overlap --nodes=2 --ntasks=2"
        train = f"{PROGRAM} samples=400 batch=1 epochs=1 slow=5 strategy=ddp"
        job = self.folder / "job"
        job.write_text(f"#!/bin/sh\n{one} {train} out='{self.folder}/a' &\n{one} {train} out='{self.folder}/b' seed=2 &\n"
                       "wait\n")
        self.cluster.run("sbatch", "--wait", "--nodes=2", "--ntasks=2", f"--output={self.folder}/out", job)
        one, other = self.reports(self.folder / "a"), self.reports(self.folder / "b")
        self.assertEqual([r["world_size"] for r in one + other], [2] * 4)
        self.assertEqual(one[0]["weights"], one[1]["weights"])
        self.assertEqual(other[0]["weights"], other[1]["weights"])
        self.assertNotEqual(one[0]["weights"], other[0]["weights"])

    def test_nodes_with_different_numbers_of_ranks(self):
        self.cluster.run("srun", "--overcommit", "--nodes=2", "--ntasks=3", PROGRAM, f"out={self.folder}", "samples=18",
                         "batch=2", "strategy=ddp")
        reports = [json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(3)]
        self.assertEqual([r["world_size"] for r in reports], [3, 3, 3])
        self.assertEqual(reports[0]["weights"], reports[2]["weights"])

    def test_devices_that_contradict_slurm_are_an_error_that_shows_both(self):
        with self.assertRaisesRegex(AssertionError, "2 devices x 2 nodes are 4 ranks, but SLURM has started 2 "
                                                    r"\(1 on this node\)"):
            self.cluster.run("srun", "--nodes=2", "--ntasks=2", PROGRAM, f"out={self.folder}", "devices=2", "nodes=2")

    def test_a_script_without_srun_is_reported(self):
        job = self.folder / "job"
        job.write_text(f"#!/bin/sh\n{PROGRAM} out='{self.folder}' samples=8\n")
        self.cluster.run("sbatch", "--wait", "--nodes=2", "--ntasks=2", f"--output={self.folder}/out", job, check=False)
        self.assertIn("SLURM has 2 tasks for this job, but the job's script runs on one of them. Write srun",
                      (self.folder / "out").read_text())


class Submit(Case):
    def test_a_job_on_two_nodes(self):
        job = self.submitted("--nodes", "2", "--time", "00:10:00", "--job-name", "two words", *SHORT)
        self.finish(job)
        self.assertIn("Trained 1 epoch, 4 steps", self.output(job))
        self.assertIn("num_nodes: 2\n", (self.runs / "levin_logs/version_0/config.yaml").read_text())
        self.assertEqual(self.cluster.field_of(job, "NumNodes"), "2")
        self.assertEqual(self.cluster.field_of(job, "TimeLimit"), "00:10:00")
        self.assertIn("JobName=two words", self.cluster.run("scontrol", "-o", "show", "job", job))

    def test_dry_run_prints_the_script_that_would_be_submitted(self):
        printed = self.submit("--dry-run", "--nodes=2", "--time=04:00:00", *SHORT)
        self.assertEqual(self.cluster.run("squeue", "-h", "--name=run"), "")
        self.assertFalse(list(self.folder.glob("*.sbatch")))
        self.submit("--nodes=2", "--time=04:00:00", *SHORT)
        self.assertEqual((self.folder / "run.sbatch").read_text(), printed)

    def test_a_grid_is_a_job_array_with_a_folder_for_each_task(self):
        job = self.submitted("--grid", "trainer.max_epochs=1,2", "--grid", "model.hidden=16,24", *SHORT)
        self.finish(job)
        found = set()
        for folder in (self.runs / "levin_logs").iterdir():
            text = (folder / "config.yaml").read_text()
            found.add((re.search(r"max_epochs: (\d+)", text)[1], re.search(r"hidden: (\d+)", text)[1]))
            self.assertTrue(checkpoints_in(folder / "checkpoints"))
        self.assertEqual(found, {("1", "16"), ("1", "24"), ("2", "16"), ("2", "24")})

    def test_the_error_of_sbatch_is_shown(self):
        output = self.submit("--slurm", "partition=nowhere", status=1)
        self.assertIn("sbatch refuses run.sbatch: sbatch: error: ", output)
        self.assertIn("nowhere", output)


class Requeue(Case):
    ARGUMENTS = ["--nodes", "2", "--time", "00:10:00", "--trainer.max_epochs=3", "--model.arch=cnn", "--model.hidden=32",
                 "--data.batch_size=64"]

    def wait_for_training(self, job):
        checkpoints = self.runs / "levin_logs/version_0/checkpoints"
        wait_until(lambda: self.cluster.state_of(job)[0] in ("FAILED", "COMPLETED") or
                   (checkpoints.is_dir() and checkpoints_in(checkpoints)), f"a checkpoint of job {job}", seconds=90)
        self.assertEqual(self.cluster.state_of(job), ["RUNNING"], self.output(job))

    def owner(self):
        """The job and the command that the run's folder belongs to; forgets it, as it differs between jobs."""
        file = self.runs / "levin_logs/version_0/slurm_job"
        text = file.read_text()
        file.unlink()
        return text

    def test_a_job_that_is_warned_saves_and_continues_bitwise_identically(self):
        job = self.submitted(*self.ARGUMENTS)
        self.finish(job)
        self.assertRegex(self.owner(), rf"^{job}\n\S+ fit --config run\.yaml ")
        undisturbed = self.folder / "undisturbed"
        self.runs.rename(undisturbed)

        job = self.submitted(*self.ARGUMENTS)
        self.wait_for_training(job)
        other = self.runs / "levin_logs/version_7"  # a run of somebody else began meanwhile
        other.mkdir()
        self.cluster.run("scancel", "--signal=USR1", job)  # to the ranks, as the end of the time limit does
        wait_until(lambda: self.cluster.field_of(job, "Restarts") == "1", "the restart", seconds=60)
        self.finish(job)
        output = self.output(job)
        stopped = r"fit was stopped by SIGUSR1 in epoch \d, step (\d+)\. Continue with .*interrupted\.ckpt\. Slurm is asked to start the job again\."
        self.assertRegex(output, stopped)
        step = int(re.search(stopped, output)[1])
        newest = "last" if step % SAVE_EVERY == 0 else "interrupted"  # of two with the same step, last.ckpt
        self.assertRegex(output, rf"auto_resume: continuing from .*/version_0/checkpoints/{newest}\.ckpt")
        self.assertRegex(self.owner(), rf"^{job}\n")
        self.assertFalse(list(other.iterdir()))
        other.rmdir()
        self.assertEqual(differences(undisturbed, self.runs), "")

    def test_it_can_be_switched_off(self):
        job = self.submitted("--no-requeue", *self.ARGUMENTS)
        self.wait_for_training(job)
        self.cluster.run("scancel", "--signal=USR1", job)
        self.finish(job, ["FAILED"])
        self.assertIn("fit was stopped by SIGUSR1", self.output(job))
        self.assertNotIn("again", self.output(job))
        self.assertEqual(self.cluster.field_of(job, "Restarts"), "0")

    def test_a_refusal_of_slurm_is_shown_next_to_the_checkpoint(self):
        job = self.submitted(*self.ARGUMENTS)
        self.wait_for_training(job)
        self.cluster.run("scontrol", "update", f"JobId={job}", "Requeue=0")
        self.cluster.run("scancel", "--signal=USR1", job)
        self.finish(job, ["FAILED"])
        self.assertRegex(self.output(job), rf"Continue with .*interrupted\.ckpt\. Slurm does not start job {job} again"
                                           rf": scontrol requeue {job} printed \"")


class Sweep(Case):
    """levin sweep --slurm: each trial is a task of one array, on either node."""

    def setUp(self):
        super().setUp()
        self.config.write_text(run_file(self.runs, checkpoint=KEEP_BEST, epochs=2, val_batches=2, sanity=0, flush=1)
                               .replace("limit_train_batches: 60", "limit_train_batches: 4"))

    def sweep(self, *arguments):
        done = subprocess.run([LEVIN, "sweep", *arguments], capture_output=True, text=True, timeout=200, cwd=self.folder,
                              env=self.cluster.environment)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, output)
        return output

    def write_sweep(self, name, trials):
        (self.folder / f"{name}.yaml").write_text(
            f"run: run.yaml\nmetric: val_loss\nseed: 3\nmax_trials: {trials}\ncores_per_slot: 1\n"
            "search: {method: random}\n"
            "space: {lr_scheduler.max_lr: {log_uniform: [0.001, 0.1]}, model.hidden: {choice: [8, 16]}}\n")

    def trials(self, name):
        status = json.loads(self.sweep("status", name, "--json"))
        return [(trial["state"], trial["overrides"], trial["value"]) for trial in status["trials"]]

    def finish_tasks(self, output):
        job = re.match(r"Submitted batch job (\d+) \(.+/sweep\.sbatch\)\n", output)[1]
        self.cluster.wait_for(job, ("COMPLETED",), 200, self.folder / "there/slurm-0.out")

    def test_an_array_finds_the_best_trial_that_a_local_sweep_finds(self):
        for name in ("here", "there"):
            self.write_sweep(name, 3)
        self.sweep("here.yaml")
        self.finish_tasks(self.sweep("there.yaml", "--slurm"))
        here, there = self.trials("here"), self.trials("there")
        self.assertEqual([state for state, _, _ in there], ["completed"] * 3)
        self.assertEqual(there, here)
        best = json.loads(self.sweep("best", "there", "--json"))
        self.assertEqual(best["trial"], json.loads(self.sweep("best", "here", "--json"))["trial"])
        self.assertTrue(pathlib.Path(best["checkpoint"]).is_file(), best)

        self.assertIn("No trial is left to run.", self.sweep("there.yaml", "--slurm"))
        self.write_sweep("there", 4)
        self.finish_tasks(self.sweep("there.yaml", "--slurm"))
        self.assertEqual(self.trials("there")[:3], here)
        self.assertEqual([state for state, _, _ in self.trials("there")], ["completed"] * 4)


if __name__ == "__main__":
    if missing():
        print(f"skipped: no Slurm can be started here: {missing()}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
