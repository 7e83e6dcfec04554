"""levin submit without Slurm: what it checks before it submits, and the script it prints.

  submit_test.py LEVIN [unittest's arguments]
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
RUN = "trainer: {max_epochs: 2}\nmodel: {class_path: Classifier, init_args: {hidden: 16}}\ndata: FashionMnist\n"


class Submit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin submit ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        (self.folder / "run.yaml").write_text(RUN)

    def submit(self, *arguments, path=None):
        done = run_levin([LEVIN, "submit", *arguments], cwd=self.folder, timeout=60,
                         env={**os.environ, "PATH": path or os.environ["PATH"]}, merge=False)
        return done.returncode, done.stdout + done.stderr

    def expect(self, status, parts, *arguments, **more):
        found, output = self.submit(*arguments, **more)
        self.assertEqual(found, status, output)
        for part in parts:
            self.assertIn(part, output)
        return output

    def refuses(self, parts, *arguments):
        self.expect(2, [*parts, "nothing was submitted. See levin submit --help."], *arguments)
        self.assertEqual(os.listdir(self.folder), ["run.yaml"])

    def script(self, *arguments):
        status, output = self.submit("--dry-run", *arguments)
        self.assertEqual(status, 0, output)
        return output

    def srun_arguments(self, script, **variables):
        """Returns the arguments that the script would pass to srun, as bash reads them."""
        (self.folder / "srun").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
        (self.folder / "srun").chmod(0o755)
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True, check=True,
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", **variables})
        return done.stdout.splitlines()

    def test_help(self):
        for arguments in (["--help"], ["-h"]):
            self.expect(0, ["levin submit", "--nodes N", "--grid PATH=A,B,…", "--dry-run"], *arguments)

    def test_the_run_becomes_a_script_that_runs_it(self):
        script = self.script("--config", "run.yaml", "--nodes=2", "--time", "04:00:00")
        for line in ("#SBATCH --job-name=run", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1",
                     "#SBATCH --time=04:00:00", f'#SBATCH --chdir="{self.folder}"', "#SBATCH --signal=SIGUSR1@90"):
            self.assertIn(line + "\n", script)

    def test_a_shell_reads_the_words_back(self):
        script = self.script("--config=run.yaml", "--nodes=2", "--trainer.default_root_dir=it's $HOME; ls")
        self.assertEqual(self.srun_arguments(script), [LEVIN, "fit", "--config=run.yaml",
                                                 "--trainer.default_root_dir=it's $HOME; ls", "--trainer.num_nodes=2"])

    def test_each_task_of_a_grid_has_its_point(self):
        script = self.script("test", "--config", "run.yaml", "--grid", "trainer.max_epochs=1,2",
                             "--grid=model.lr=0.1,1e-3")
        self.assertIn("#SBATCH --array=0-3\n", script)
        self.assertEqual(self.srun_arguments(script, SLURM_ARRAY_TASK_ID="2"),
                         [LEVIN, "test", "--config", "run.yaml", "--trainer.max_epochs=2", "--model.lr=0.1"])

    def test_nodes_and_devices_of_the_run_are_the_jobs(self):
        script = self.script("--config", "run.yaml", "--trainer.num_nodes=3", "--trainer.devices=4", "--no-requeue")
        self.assertIn("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=4\n", script)
        self.assertEqual(self.srun_arguments(script)[-1], "--trainer.auto_requeue=false")

    def test_gpus_are_asked_for_where_the_run_wants_them(self):
        script = self.script("--config", "run.yaml", "--trainer.accelerator=gpu", "--trainer.devices=2")
        self.assertIn("#SBATCH --gpus-per-node=2\n", script)  # though this machine may have none

    def test_mistakes_in_the_arguments(self):
        self.refuses(["--nodes: expected a whole number from 1 to 65535, got 0."], "--config=run.yaml", "--nodes=0")
        self.refuses(['--time: "4h" is not a time that Slurm accepts.'], "--config", "run.yaml", "--time=4h")
        self.refuses(["--nodes: 2 was asked for, but the run has trainer.num_nodes: 4."], "--config", "run.yaml",
                     "--nodes=2", "--trainer.num_nodes=4")
        self.refuses(["--ntasks-per-node: 2 was asked for, but the run has trainer.devices: 4."], "--config", "run.yaml",
                     "--ntasks-per-node=2", "--trainer.devices=4")
        self.refuses(['"list" is not a run. Use fit'], "list", "--config", "run.yaml")
        self.refuses(["--job-name: a job called bash is treated as an interactive shell"], "--config", "run.yaml", "--job-name=bash")
        self.refuses(["--tiem: unknown option."], "--config", "run.yaml", "--tiem=4")

    def test_mistakes_in_the_run(self):
        self.refuses(["nowhere.yaml"], "--config", "nowhere.yaml")
        self.refuses(["model: no model was given."])
        self.refuses(['unknown key "max_epoch". Did you mean "max_epochs"?'], "--config", "run.yaml",
                     "--trainer.max_epoch=3")

    def test_mistakes_in_the_grid(self):
        self.refuses(["--trainer.max_epochs=many", "expected a whole number"], "--config", "run.yaml",
                     "--grid=trainer.max_epochs=1,many")
        self.refuses(["--learning_rate: unknown option."], "--config", "run.yaml", "--grid=learning_rate=1,2")
        self.refuses(["cannot read other.yaml"], "--config", "run.yaml", "--grid=config=run.yaml,other.yaml")

    def test_without_sbatch_it_reports_it_and_keeps_the_script(self):
        output = self.expect(1, ["submit: sbatch cannot be started: No such file or directory.",
                                 "hand run.sbatch to sbatch"], "--config", "run.yaml", path="/nowhere")
        self.assertNotIn("Submitted", output)
        self.assertEqual((self.folder / "run.sbatch").read_text(), self.script("--config", "run.yaml"))
        self.submit("--config", "run.yaml", path="/nowhere")
        self.assertTrue((self.folder / "run-1.sbatch").exists())  # none is written over


if __name__ == "__main__":
    unittest.main(verbosity=2)
