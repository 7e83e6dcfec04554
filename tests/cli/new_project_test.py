"""`levin new`: its files, its messages and what it refuses. tests/consumer/new_project_test.py builds a project.

  new_project_test.py LEVIN [unittest's arguments]
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "cli/new_project"


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


class NewProject(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_new_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def new(self, *arguments):
        done = run_levin([LEVIN, "new", *arguments], cwd=self.folder)
        return done.returncode, done.stdout

    def test_the_project_is_the_template_with_its_name(self):
        status, output = self.new("waves")
        self.assertEqual(status, 0, output)
        expected = {path: text.replace("my_project", "waves") for path, text in files_of(TEMPLATE).items()}
        self.assertEqual(files_of(self.folder / "waves"), expected)
        self.assertIn("waves", expected["CMakeLists.txt"])

    def test_the_next_commands_are_printed(self):
        status, output = self.new("below/my_waves")
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"cd below/my_waves\n +cmake --preset release.* && cmake --build --preset release\n"
                                 r" +build/my_waves fit --config run.yaml\n +ctest --preset release\n")
        self.assertIn("project(my_waves LANGUAGES CXX)", (self.folder / "below/my_waves/CMakeLists.txt").read_text())

    def test_an_empty_folder_is_filled_and_no_other_is_touched(self):
        (self.folder / "empty").mkdir()
        status, output = self.new("empty/")
        self.assertEqual(status, 0, output)
        before = files_of(self.folder)
        for name, part in (("empty", "empty: the folder is not empty. Choose a new one; nothing is overwritten."),
                           ("empty/README.md", "a project's name has letters"),
                           (".", "a project's name has letters")):
            with self.subTest(name):
                status, output = self.new(name)
                self.assertEqual(status, 2, output)
                self.assertIn(part, output)
        (self.folder / "notes").write_text("mine")
        status, output = self.new("notes")
        self.assertEqual(status, 2, output)
        self.assertIn("notes: exists, and is not a folder.", output)
        self.assertEqual(files_of(self.folder), {**before, "notes": "mine"})

    def test_names_that_are_not_identifiers_are_refused(self):
        for name, part in (("my-project", 'Did you mean "my_project"?'), ("2fast", "begins with a letter."),
                           ("_hidden", "begins with a letter."), ("a b", 'Did you mean "a_b"?'), ("Größe", "letters"),
                           ("test", "uses this name for a target"), ("levin", "uses this name for a target"),
                           ("", "letters"), ("a;b", 'Did you mean "a_b"?'), ("$(touch x)", "letters")):
            with self.subTest(name):
                status, output = self.new(name)
                self.assertEqual(status, 2, output)
                self.assertIn(part, output)
                self.assertIn("nothing was written. See levin new --help.", output)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_wrong_arguments_are_refused(self):
        for arguments, part in (([], "the project's name is missing. Write levin new my_project."),
                                (["one", "two"], "Make one project at a time."), (["one", "--force"], "unknown option.")):
            with self.subTest(arguments):
                status, output = self.new(*arguments)
                self.assertEqual(status, 2, output)
                self.assertIn(part, output)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder_that_cannot_be_made_is_named(self):
        status, output = self.new("/proc/nowhere/waves")
        self.assertEqual(status, 1, output)
        self.assertIn("levin new: cannot make the folder /proc/nowhere/waves: ", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
