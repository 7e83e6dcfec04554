"""`levin new` as its users meet it: the project is configured against a built and an installed Levin, built, tested and
trained, and its tests find what is broken on purpose.

  new_project_test.py BUILD CMAKE COMPILER [unittest's arguments]
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE, COMPILER = (sys.argv.pop(1) for _ in range(3))
CTEST = str(pathlib.Path(CMAKE).with_name("ctest"))
GENERATOR = ["-G", "Ninja", f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]  # sooner built


def run(*command, cwd):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


class NewProject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="levin_project_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.project = cls.folder / "my_waves"
        cls.configure(f"{BUILD}/bin/levin", "my_waves")
        cls.built = cls.must(CMAKE, "--build", "--preset", "release", cwd=cls.project)

    @classmethod
    def must(cls, *command, cwd):
        status, output = run(*command, cwd=cwd)
        if status != 0:
            raise AssertionError(f"{command} ended with {status}:\n{output}")
        return output

    @classmethod
    def configure(cls, levin, name):
        """Returns what CMake prints about a new project, with the option that `levin new` prints."""
        printed = cls.must(levin, "new", name, cwd=cls.folder)
        option = next(word for word in printed.split() if word.startswith("-Dlevin_DIR="))
        return cls.must(CMAKE, "--preset", "release", option, *GENERATOR, cwd=cls.folder / name)

    def ctest(self):
        return run(CTEST, "--preset", "release", cwd=self.project)

    def change(self, path, before, after):
        file = self.project / path
        text = file.read_text()
        self.assertIn(before, text)
        self.addCleanup(file.write_text, text)
        file.write_text(text.replace(before, after))

    def test_it_builds_without_warnings_and_its_tests_pass(self):
        self.assertNotIn("warning", self.built.lower())
        status, output = self.ctest()
        self.assertEqual(status, 0, output)
        self.assertIn("100% tests passed, 0 tests failed out of 2", output)

    def test_an_installed_levin_is_found(self):
        prefix = self.folder / "prefix"
        self.must(CMAKE, "--install", BUILD, "--prefix", prefix, cwd=self.folder)
        self.assertIn("Configuring done", self.configure(prefix / "bin/levin", "other"))
        self.assertRegex((self.folder / "other/build/CMakeCache.txt").read_text(), rf"levin_DIR:\w+={prefix}/lib")

    def test_it_trains_and_predicts(self):
        tool = self.project / "build/my_waves"
        self.must(tool, "fit", "--config", "run.yaml", cwd=self.project)
        metrics = (next(self.project.glob("levin_logs/*/metrics.csv"))).read_text().splitlines()
        column = metrics[0].split(",").index("val_loss")
        losses = [float(row.split(",")[column]) for row in metrics[1:] if row.split(",")[column]]
        self.assertEqual(len(losses), 20)
        self.assertLess(losses[-1], 0.03)  # the noise alone is 0.01, and a line's loss is 0.5
        self.must(tool, "predict", "--config", "run.yaml", "--ckpt_path", "best", "--output", "predictions.csv", cwd=self.project)
        self.assertEqual(len((self.project / "predictions.csv").read_text().splitlines()), 501)

    def test_the_run_file_names_a_schema_with_the_classes_of_the_project(self):
        first = (self.project / "run.yaml").read_text().splitlines()[0]
        schema = json.loads((self.project / first.removeprefix("# yaml-language-server: $schema=")).read_text())
        self.assertIn("Net", schema["definitions"]["model"]["then"]["properties"]["class_path"]["anyOf"][0]["enum"])
        self.assertIn("width", schema["definitions"]["model.Net"]["properties"])

    def test_its_tests_find_a_wrong_option(self):
        self.change("run.yaml", "width: 64", "widht: 64")
        status, output = self.ctest()
        self.assertNotEqual(status, 0)
        self.assertIn('run.yaml:12:15: model.init_args.widht: unknown key "widht". Did you mean "width"?', output)
        self.assertIn("0% tests passed, 2 tests failed out of 2", output)

    def test_its_tests_find_a_step_that_fails(self):
        self.addCleanup(self.must, CMAKE, "--build", "--preset", "release", cwd=self.project)  # after the text is restored
        self.change("src/model.cpp", "torch::nn::Linear(width, 1)", "torch::nn::Linear(width + 1, 1)")
        self.must(CMAKE, "--build", "--preset", "release", cwd=self.project)
        status, output = self.ctest()
        self.assertNotEqual(status, 0)
        self.assertIn("50% tests passed, 1 tests failed out of 2", output)
        self.assertRegex(output, r"one_batch \(Failed\)")
        self.assertIn("mat1 and mat2 shapes cannot be multiplied", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
