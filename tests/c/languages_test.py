#!/usr/bin/env python3
"""Programs in C, Fortran and Python train a run file's model through levin_c, and end with the Trainer's weights, bitwise.

  languages_test.py SOURCES BUILD INCLUDE [unittest's arguments]

BUILD has bin/trained_by_trainer, lib/liblevin_c.so and lib/liblevin_c_test_model.so.
"""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, INCLUDE = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(3))
HERE = SOURCES / "tests/c"

sys.path.insert(0, str(SOURCES / "tests/support"))
sys.dont_write_bytecode = True
import peers

RUN_FILE = f"""
seed_everything: 7
plugins: [{BUILD}/lib/liblevin_c_test_model.so]
model: GuestModel
optimizer: {{class_path: AdamW, init_args: {{lr: 0.05}}}}
lr_scheduler: {{class_path: StepLR, init_args: {{step_size: 1, gamma: 0.5}}}}
trainer:
  accelerator: cpu
  devices: 1
  max_epochs: 2
  accumulate_grad_batches: 2
  gradient_clip_val: 0.5
  num_threads: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
"""


def run(*command):
    """The output of a program that must succeed."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def weights(output):
    """The lines about weights, as {name: digits}. The Trainer prints other lines too."""
    return {words[0]: words[1:] for words in map(str.split, output.splitlines()) if words and words[0].startswith("layers.")}


def python_with_numpy():
    """(Python, PYTHONPATH); nothing where there is none."""
    return (sys.executable, "") if importlib.util.find_spec("numpy") else peers.find_python("transformers")


class Languages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.run_file = cls.folder / "run.yaml"
        cls.run_file.write_text(RUN_FILE)
        cls.wanted = weights(run(BUILD / "bin/trained_by_trainer", cls.run_file))

    def assert_weights(self, output):
        self.assertEqual(len(self.wanted), 4)
        self.assertEqual(weights(output), self.wanted)

    def link_options(self):
        return [f"-L{BUILD}/lib", "-llevin_c", f"-Wl,-rpath,{BUILD}/lib", "-Wl,--allow-shlib-undefined"]

    def test_c_ends_with_the_trainers_weights(self):
        program = self.folder / "train_c"
        run("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", HERE / "train.c", "-o", program,
            *self.link_options())
        self.assert_weights(run(program, self.run_file))

    def test_fortran_ends_with_the_trainers_weights(self):
        if shutil.which("gfortran") is None:
            self.skipTest("gfortran is not installed (apt package gfortran)")
        program = self.folder / "train_fortran"
        run("gfortran", "-std=f2008", "-Wall", "-Wextra", "-Werror", f"-J{self.folder}", SOURCES / "c/levin.f90",
            HERE / "train.f90", "-o", program, *self.link_options())
        self.assert_weights(run(program, self.run_file))

    def test_python_ends_with_the_trainers_weights(self):
        found = python_with_numpy()
        if found is None:
            self.skipTest("NumPy is not installed (apt package python3-numpy, or ./dev check --peers)")
        self.assert_weights(run("env", f"PYTHONPATH={found[1]}", found[0], "-B", HERE / "train.py",
                                BUILD / "lib/liblevin_c.so", self.run_file))


class Header(unittest.TestCase):
    def test_fortran_has_each_function_and_constant_of_the_header(self):
        header = (SOURCES / "c/levin.h").read_text()
        module = (SOURCES / "c/levin.f90").read_text()
        functions = set(re.findall(r"(?m)^(?:const )?\w+\*? (levin_\w+)\(", header))
        bound = set(re.findall(r"function (levin_\w+)\([^)]*\) bind\(c\)", module)) | {"levin_abi_version"}
        self.assertGreater(len(functions), 25)
        self.assertEqual(functions, bound)
        numbers = dict(re.findall(r"\b(LEVIN_[A-Z0-9_]+)(?: = | )(\d+)\b", header))
        self.assertEqual(dict(re.findall(r"\b(LEVIN_[A-Z0-9_]+) = (\d+)", module)), numbers)


if __name__ == "__main__":
    unittest.main(verbosity=2)
