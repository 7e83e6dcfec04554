"""`levin check`: everything that is wrong with a run file, at once and with its position, without training.

  check_test.py LEVIN [unittest's arguments]
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"

DATA = "data: {class_path: CsvData, init_args: {path: points.csv, target: y}}\n"
GOOD = "model: {class_path: Classifier, init_args: {hidden: 8}}\n" + DATA


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_check_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "points.csv").write_text("x,y\n" + "".join(f"{k},{k % 2}\n" for k in range(100)))

    def check_file(self, text, *arguments):
        (self.folder / "run.yaml").write_text(text)
        return self.check("run.yaml", *arguments)

    def check(self, *arguments):
        done = run_levin([LEVIN, "check", *arguments], cwd=self.folder)
        return done.returncode, done.stdout

    def test_a_good_file_has_no_problem_and_says_what_was_not_checked(self):
        status, output = self.check_file(GOOD)
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"No problem found: model Classifier \(\d+ weights\), data CsvData \(\d+ batch")
        self.assertIn("Not checked: the model's steps and its optimizer. levin fit", output)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["points.csv", "run.yaml"])

    def test_a_model_with_loaders_of_its_own_is_checked_without_them(self):
        status, output = self.check_file("model: Classifier\n")
        self.assertEqual(status, 0, output)
        self.assertIn("Not checked: the model's steps, its optimizer and its loaders. levin fit", output)

    def test_all_problems_are_found_at_once(self):
        status, output = self.check_file("seed_everythin: 1\n"
                                         "trainer:\n"
                                         "  max_epochs: many\n"
                                         "  callbacks: [{class_path: EarlyStoping}]\n"
                                         "model: {class_path: Classifier, init_args: {hidden: 0}}\n"
                                         "weights: {path: nowhere}\n"
                                         "ckpt_path: gone.ckpt\n" + DATA.replace("points", "absent"))
        self.assertEqual(status, 2, output)
        for part in ("run.yaml:1:1: seed_everythin: unknown key", "run.yaml:3:15: trainer.max_epochs: expected a whole number",
                     'unknown callback "EarlyStoping". Did you mean "EarlyStopping"?',
                     "run.yaml:5:53: model.init_args.hidden: must be >= 1, got 0.",
                     "run.yaml:6:17: weights.path: no file or folder nowhere",
                     "run.yaml:7:12: ckpt_path: no file or folder gone.ckpt", "run.yaml:8:20: data: ", "absent.csv",
                     "error: 7 problems; nothing was run."):
            self.assertIn(part, output)

    def test_data_that_cannot_be_read_are_a_problem_of_the_file(self):
        (self.folder / "points.csv").write_text("x,y\n1,zero\n2,one,more\n")
        status, output = self.check_file(GOOD)
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"error: run.yaml:2:20: data: .*points.csv")

    def test_what_a_model_refuses_is_a_problem_of_the_file(self):
        status, output = self.check_file("model: {class_path: HuggingFaceLM, init_args: {path: no_such_folder}}\n")
        self.assertEqual(status, 2, output)
        self.assertRegex(output, r"error: run.yaml:1:21: model: .*no_such_folder")

    def test_overrides_and_several_files_are_merged_as_fit_does(self):
        (self.folder / "more.yaml").write_text("trainer: {max_epochs: 0x10}\n")
        (self.folder / "run.yaml").write_text(GOOD)
        status, output = self.check("run.yaml", "more.yaml", "--model.hidden=-1")
        self.assertEqual(status, 2, output)
        self.assertIn("more.yaml:1:23: trainer.max_epochs: expected a whole number", output)
        self.assertIn("--model.hidden=-1: must be >= 1", output)
        status, output = self.check("--config", "run.yaml", "--config=more.yaml", "--trainer.max_epochs=1")
        self.assertEqual(status, 0, output)

    def test_a_missing_model_file_or_argument_is_reported(self):
        for arguments, part in (([], "levin check: no file was given"), (["none.yaml"], "none.yaml"),
                                (["run.yaml", "--turbo"], "--turbo: unknown option"),
                                (["run.yaml"], "model: no model was given")):
            with self.subTest(arguments):
                (self.folder / "run.yaml").write_text("trainer: {max_epochs: 1}\n")
                status, output = self.check(*arguments)
                self.assertEqual(status, 2, output)
                self.assertIn(part, output)

    def test_classes_of_a_library_that_cannot_be_opened_are_no_problem_of_their_own(self):
        status, output = self.check_file("plugins: [nowhere.so]\nmodel: MyModel\n")
        self.assertEqual(status, 2, output)
        self.assertIn("plugins: no file nowhere.so", output)
        self.assertIn("error: 1 problem; nothing was run.", output)

    def test_a_sweep_file_is_named_as_one(self):
        status, output = self.check(CONFIGS / "sweep_fashion_mnist.yaml")
        self.assertEqual(status, 2, output)
        self.assertIn("this is a sweep file. levin sweep FILE --prepare checks it.", output)
        self.assertIn("error: 1 problem; nothing was run.", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
