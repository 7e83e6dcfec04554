"""Run files that open shared libraries with `plugins`: for a model, and for a device that is not the CPU.

  plugins_test.py LEVIN MODEL_LIBRARY DEVICE_LIBRARY LIBRARY_OF_ANOTHER_LIBTORCH [unittest's arguments]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LEVIN, MODEL, DEVICE, OTHER = (str(pathlib.Path(sys.argv.pop(1)).resolve()) for _ in range(4))
SOURCE = pathlib.Path(__file__).resolve().parents[2]


class Plugins(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_plugins_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def levin(self, *arguments, cwd=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        env.update(OMP_NUM_THREADS="1", NO_COLOR="1")
        done = subprocess.run([LEVIN, *arguments], cwd=cwd or self.folder, env=env, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def fit(self, text, *arguments):
        (self.folder / "run.yaml").write_text(text)
        return self.levin("fit", "--config", "run.yaml", *arguments)

    def with_plugins(self, *libraries):
        return (f"plugins: {json.dumps(libraries)}\n"
                "trainer: {max_epochs: 2, logger: false, enable_progress_bar: false, enable_checkpointing: false}\n"
                "model: {class_path: PluginModel, init_args: {lr: 0.01}}\n"
                "data: {class_path: EightNumbers, init_args: {batch_size: 4}}\n")

    def test_a_model_of_a_library_is_known_to_the_run_file(self):
        status, output = self.fit(self.with_plugins(MODEL))
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"layer +Linear +2")
        self.assertIn("4 steps in 2 epochs", output)

    def test_its_options_are_checked_like_others(self):
        status, output = self.fit(self.with_plugins(MODEL), "--model.lr=-1")
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"error: --model.lr=-1: must be > 0.0, got -1.0")

    def test_help_and_list_open_the_library(self):
        (self.folder / "run.yaml").write_text(self.with_plugins(MODEL))
        for arguments in (["--plugins", MODEL], [f"--plugins={MODEL}"], [f"--plugins+={MODEL}"], ["--config", "run.yaml"]):
            with self.subTest(arguments):
                status, output = self.levin("help", "PluginModel", *arguments)
                self.assertEqual(status, 0, output)
                self.assertRegex(output, r"In a run file at model: .class_path: PluginModel")
                self.assertRegex(output, r"lr +float")
                status, output = self.levin("list", "models", *arguments)
                self.assertEqual(status, 0, output)
                self.assertRegex(output, r"^models \(model\)\n yours\n  PluginModel ")

    def test_help_and_list_say_why_a_library_cannot_be_opened(self):
        for arguments in (["help", "PluginModel"], ["list"]):
            status, output = self.levin(*arguments, "--plugins", "nowhere.so")
            self.assertEqual(status, 2, output)
            self.assertRegex(output, r"plugins: no file nowhere.so \(from ")
            self.assertNotIn("unknown class", output)
        status, output = self.levin("help", "PluginModel")
        self.assertEqual(status, 2, output)
        self.assertIn("For a class of a library, add --plugins FILE or --config FILE.", output)

    def test_a_single_library_needs_no_list(self):
        status, output = self.fit(self.with_plugins().replace("plugins: []", f"plugins: {MODEL}"), "--print_config")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"plugins:[^:]*" + re.escape(MODEL))

    def test_the_printed_file_names_the_libraries(self):
        status, output = self.fit(self.with_plugins(MODEL), "--print_config")
        self.assertEqual(status, 0, output)
        self.assertIn(MODEL, output)

    def with_relative_plugin(self):
        """A run file that names the library by a path from self.folder, and logs to self.folder/runs."""
        (self.folder / "build").mkdir()
        shutil.copy(MODEL, self.folder / "build/model.so")
        return self.with_plugins("build/model.so").replace("logger: false", "default_root_dir: runs")

    def test_a_run_is_repeated_by_its_config_from_another_folder(self):
        status, output = self.fit(self.with_relative_plugin())
        self.assertEqual(status, 0, output)
        config = next(self.folder.glob("runs/**/config.yaml"))
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        status, output = self.levin("fit", "--config", str(config), cwd=elsewhere)
        self.assertEqual(status, 0, output)
        self.assertIn("4 steps in 2 epochs", output)
        self.assertTrue(list(elsewhere.glob("runs/**/config.yaml")))

    def test_a_run_continues_after_its_library_has_moved(self):
        text = self.with_relative_plugin().replace("enable_checkpointing: false", "auto_resume: true")
        status, output = self.fit(text)
        self.assertEqual(status, 0, output)
        (self.folder / "new").mkdir()
        shutil.copy(MODEL, self.folder / "new/model.so")
        status, output = self.fit(text.replace("build/model.so", "new/model.so"), "--trainer.max_epochs=3")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"auto_resume: plugins\[0\] was .*/build/model.so and is .*/new/model.so now")
        self.assertIn("6 steps", output)

    def test_without_the_library_the_class_is_unknown(self):
        status, output = self.fit(self.with_plugins())
        self.assertEqual(status, 2, output)
        self.assertRegex(output, 'unknown model "PluginModel"\\. .*or in a library that plugins names')

    def test_a_file_that_is_not_there_or_no_library_is_named(self):
        status, output = self.fit(self.with_plugins("nowhere.so"))
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"plugins: no file nowhere.so \(from .*levin_plugins_")
        self.assertNotIn("PluginModel", output, "what it would have registered is not known")
        self.assertIn("error: 1 problem; nothing was run", output)
        status, output = self.fit(self.with_plugins("run.yaml"))
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"plugins: .*run.yaml: .*Build it against this Levin \(find_package\(levin\)")

    def test_a_library_that_was_compiled_with_another_libtorch_is_refused(self):
        for arguments in ([], ["--print_config"]):
            status, output = self.fit(self.with_plugins(OTHER), *arguments)
            self.assertEqual(status, 2, output)
            self.assertRegex(output, re.escape(OTHER) + r": it was compiled with LibTorch 2\.99\.1, and this Levin uses "
                             r"2\.\d+\.\d+\. Build it against this Levin")
            self.assertIn("error: 1 problem; nothing was run", output)

    def test_a_library_adds_a_device_by_name(self):
        text = (SOURCE / "configs/dp.yaml").read_text()
        text = re.sub(r"(?m)^  (devices|strategy|accelerator):.*\n", "", text)
        arguments = ["--trainer.accelerator=testdev", "--trainer.devices=1"]
        weights = {}
        for accelerator in ("cpu", "testdev"):
            arguments[0] = f"--trainer.accelerator={accelerator}"
            status, output = self.fit(f"plugins: [{json.dumps(DEVICE)}]\n" + text, *arguments)
            self.assertEqual(status, 0, output)
            weights[accelerator] = re.search(r"weights: .*", output)[0]
        self.assertEqual(weights["testdev"], weights["cpu"])
        status, output = self.fit(text, *arguments)
        self.assertEqual(status, 2, output)
        self.assertIn('--trainer.accelerator=testdev: "testdev" is not known.', output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
