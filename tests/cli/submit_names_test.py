"""Names that a shell would obey, handed to `levin submit`: bash itself runs the scripts that come of them.

  submit_names_test.py LEVIN [unittest's arguments]
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

RUN_FILE = "model: Classifier\ntrainer: {max_epochs: 1}\n"

# Each would make a file called "touched", or be taken for an option.
HOSTILE = ["$(touch touched)", "`touch touched`", "a; touch touched", "a' touch touched '", 'a" touch touched "',
           "a && touch touched", "a | touch touched", "-x", "--wrap=touch touched", "%j %x %%", "#a #b", "a\\", "\\\"",
           "*", "~", "!!", "{a,b}", "ü \u202e", "a=b", "$HOME", "${IFS}"]
FOLDERS = ["$(touch touched)", "a; touch touched", 'a" `touch touched`', "--wrap=touch touched", "a\\"]
WITH_CONTROLS = ["ok\ntouch touched", "ok\rtouch touched", "ok\x1b[2J\x7f"]


class SubmitNames(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="levin_submit_")
        self.addCleanup(self._folder.cleanup)
        self.root = pathlib.Path(self._folder.name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        # sbatch runs the script at once, in the folder that it was called in; srun records its arguments.
        self.stand_in("sbatch", 'exec bash "$1"')
        self.stand_in("srun", f'printf "%s\\0" "$@" > "{self.root}/arguments"')

    def stand_in(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)

    def submit(self, folder, *arguments):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        env.update(PATH=f"{self.bin}:{env['PATH']}", SLURM_ARRAY_TASK_ID="0")
        done = run_levin([LEVIN, "submit", *arguments], cwd=folder, env=env, timeout=120)
        self.assertEqual([str(path) for path in self.root.rglob("touched*")], [], done.stdout)
        return done.returncode, done.stdout

    def srun_arguments(self):
        return (self.root / "arguments").read_bytes().decode().split("\0")[:-1]

    def folder(self, name):
        path = self.root / name
        path.mkdir(exist_ok=True)
        return path

    def test_a_run_file_of_any_name_is_passed_unchanged(self):
        for name in HOSTILE:
            with self.subTest(name):
                folder = self.folder("plain")
                (folder / (name + ".yaml")).write_text(RUN_FILE)
                status, output = self.submit(folder, f"--config={name}.yaml")
                self.assertEqual(status, 0, output)
                self.assertEqual(self.srun_arguments()[1:], ["fit", f"--config={name}.yaml"])

    def test_a_folder_of_any_name_is_quoted(self):
        for name in FOLDERS:
            with self.subTest(name):
                folder = self.folder(name)
                (folder / "run.yaml").write_text(RUN_FILE)
                status, output = self.submit(folder, "--config=run.yaml")
                self.assertEqual(status, 0, output)
                chdir = [line for line in (folder / "run.sbatch").read_text().splitlines() if "--chdir" in line]
                self.assertEqual(len(chdir), 1)

    def test_values_of_options_and_of_a_grid_are_handed_over_as_they_are(self):
        (self.root / "run.yaml").write_text(RUN_FILE)
        option = "--trainer.default_root_dir='two\n\nlines'"
        status, output = self.submit(self.root, "--config=run.yaml", option)
        self.assertEqual(status, 0, output)
        self.assertEqual(self.srun_arguments()[1:], ["fit", "--config=run.yaml", option])
        quoted = ["'" + value.replace("'", "''") + "'" for value in HOSTILE]
        status, output = self.submit(self.root, "--config=run.yaml", "--job-name=grid",
                                     f"--grid=trainer.default_root_dir={','.join(quoted)}")
        self.assertEqual(status, 0, output)
        for task, value in enumerate(quoted):
            with self.subTest(value):
                subprocess.run([self.bin / "sbatch", self.root / "grid.sbatch"], cwd=self.root, check=True, timeout=60,
                               env={"PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": str(task)})
                self.assertEqual(self.srun_arguments()[-1], f"--trainer.default_root_dir={value}")
                self.assertEqual(list(self.root.rglob("touched*")), [])

    def test_control_characters_in_names_are_refused_and_shown_escaped(self):
        for name in WITH_CONTROLS:
            with self.subTest(name):
                folder = self.folder("plain")
                (folder / (name + ".yaml")).write_text(RUN_FILE)
                status, output = self.submit(folder, f"--config={name}.yaml")
                self.assertEqual(status, 2, output)
                self.assertIn("--job-name: \"ok\\", output)
                self.assertIn("control character", output)
                status, output = self.submit(folder, f"--config={name}.yaml", "--job-name=fine")
                self.assertEqual(status, 0, output)  # in the command it is quoted
                self.assertEqual(self.srun_arguments()[1:], ["fit", f"--config={name}.yaml"])
                folder = self.folder(name)
                (folder / "run.yaml").write_text(RUN_FILE)
                status, output = self.submit(folder, "--config=run.yaml")
                self.assertEqual(status, 2, output)
                self.assertIn("submit from a folder with a different name", output)
                self.assertEqual(list(folder.glob("*.sbatch")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
