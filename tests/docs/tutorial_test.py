"""What tutorial.py says about pages that do not hold."""
import struct
import tempfile
import unittest
from pathlib import Path

import tutorial

PNG = "printf '\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR\\0\\0\\0\\4\\0\\0\\0\\3' > shown.png"
PICTURE = "<!-- picture: shown.png -->\n![What it shows](../pictures/tutorials/shown.png)\n"


class Tutorials(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        before = tutorial.ROOT, tutorial.PICTURES
        self.addCleanup(lambda: (setattr(tutorial, "ROOT", before[0]), setattr(tutorial, "PICTURES", before[1])))
        tutorial.ROOT, tutorial.PICTURES = self.root, self.root / "docs/pictures/tutorials"
        tutorial.PICTURES.mkdir(parents=True)
        self.programs = self.root / "bin"
        self.programs.mkdir()
        self.write_png(4, 3)

    def write_png(self, width, height):
        (tutorial.PICTURES / "shown.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height))

    def follow(self, text, write=False):
        page = self.root / "page.md"
        page.write_text(text, encoding="utf-8")
        return "\n".join(tutorial.follow(page, self.programs, write)).replace(f"{page}", "page.md")

    def followed(self, text):
        return self.follow(f"```sh\n{PNG}\n```\n\n{PICTURE}\n{text}")

    def test_a_page_that_holds_is_followed_to_its_end(self):
        self.assertEqual(self.followed("```yaml\n# run.yaml\na: 1\n```\n```sh\ncat run.yaml\n```\n```text\na: 1\n```\n"
                                       "```diff\n# run.yaml\n-a: 1\n+a: 2\n```\n```sh\ncat run.yaml; echo 3 steps in 5.1 s\n```\n"
                                       "```text\na: 2\n…\n3 steps in 7.9 s\n```\n"), "")

    def test_a_rate_is_not_compared_whether_it_is_above_or_below_one(self):
        self.assertEqual(self.followed("```sh\necho '5 batches (1.33 s/it)'\n```\n```text\n5 batches (37.1 it/s)\n```\n"), "")

    def test_a_command_that_fails_is_named_with_its_line_and_output(self):
        found = self.followed("```sh\necho this is printed; false\n```\n")
        self.assertRegex(found, r"page\.md:\d+: these commands ended with status 1:\n.*\nthis is printed")

    def test_a_command_in_a_pipe_that_fails_is_found(self):
        self.assertIn("ended with status", self.followed("```sh\nfalse | cat\n```\n"))

    def test_a_command_that_fails_ends_those_in_the_background(self):
        self.assertIn("ended with status 3", self.followed("```sh\nsleep 100 &\n```\n```sh\nexit 3\n```\n"))

    def test_a_port_is_a_free_one(self):
        self.assertIn("have not printed 'export MASTER_PORT=1'", self.followed(
            "```sh\nexport MASTER_PORT=1; echo now $MASTER_PORT\n```\n```text\nexport MASTER_PORT=1\nnow 1\n```\n"))

    def test_a_command_that_is_for_readers_alone_is_not_run(self):
        self.assertEqual(self.followed("<!-- not run: needs a second machine -->\n```sh\nfalse\n```\n"), "")
        self.assertIn("ended with status", self.followed("<!-- not run: needs a second machine -->\nText between.\n```sh\nfalse\n```\n"))

    def test_what_commands_write_that_are_not_run_here_is_copied_from_the_repository(self):
        for name in ("one", "two"):
            (self.root / f"{name}.txt").write_text(f"{name}, made before\n", encoding="utf-8")
        self.assertEqual(self.followed("<!-- instead: one.txt, two.txt -->\n```sh\nfalse\n```\n```sh\ncat one.txt two.txt\n```\n"
                                       "```text\none, made before\ntwo, made before\n```\n"), "")
        self.assertIn("ended with status", self.followed("<!-- instead: other.txt -->\n```sh\ntrue\n```\n"))

    def test_other_numbers_and_words_are_found(self):
        shown = "```sh\necho loss 0.25 after 3 epochs\n```\n{}```text\nloss {} after 3 epochs\n```\n"
        self.assertEqual(self.followed(shown.format("", "0.25")), "")
        self.assertIn("have not printed 'loss 0.26 after 3 epochs', but 0.25, 3", self.followed(shown.format("", "0.26")))
        self.assertEqual(self.followed(shown.format("<!-- output: tolerance 5 % -->\n", "0.26")), "")
        self.assertEqual(self.followed(shown.format("<!-- output: skip loss [\\d.]+ -->\n", "0.99")), "")
        self.assertIn("have not printed", self.followed("```sh\necho loss 1\n```\n```text\naccuracy 1\n```\n"))

    def test_times_and_rates_are_not_compared(self):
        self.assertEqual(self.followed("```sh\necho '10 batches in 2 min 3 s (12.3 s/it)'\n```\n```text\n10 batches in 0.2 s (50.1 it/s)\n```\n"), "")
        self.assertIn("have not printed", self.followed("```sh\necho 10 batches\n```\n```text\n11 batches\n```\n"))

    def test_an_output_belongs_to_the_block_before_it(self):
        self.assertIn("have not printed 'one'", self.followed("```sh\necho one\n```\n```sh\necho two\n```\n```text\none\n```\n"))

    def test_a_picture_must_be_made_by_the_run_and_be_like_the_one_in_the_tree(self):
        self.assertIn("a picture of its result is missing", self.follow("```sh\ntrue\n```\n"))
        self.assertIn("the commands of the page have not written shown.png", self.follow(f"```sh\ntrue\n```\n{PICTURE}"))
        self.assertIn("must name the file", self.follow("![What](../pictures/tutorials/shown.png)\n"))
        self.write_png(8, 3)
        self.assertIn("shown.png is a PNG of 8 x 3, and the run makes a PNG of 4 x 3", self.followed(""))
        self.assertEqual(self.follow(f"```sh\n{PNG}\n```\n\n{PICTURE}", write=True), "")
        self.assertEqual(self.followed(""), "")

    def test_a_program_that_is_not_compiled_is_found(self):
        self.assertIn("enabled.txt does not name it", self.followed("```cpp\n// net.cpp\nint main() {}\n```\n"))

    def test_the_program_that_runs_is_the_one_after_the_edits_so_far(self):
        (self.programs / "docs_programs").write_text("#!/bin/sh\necho runs \"$1\" with \"$2\"\n")
        (self.programs / "docs_programs").chmod(0o755)
        page = "```cpp\n// net.cpp\nint main() { first(); }\n```\n```sh\nbuild/net one\n```\n```text\nruns /page.md with one\n```\n"
        page += "```diff\n// net.cpp\n-int main() { first(); }\n+int main() { second(); }\n```\n```sh\nbuild/net two; cat net.cpp\n```\n"
        page += "```text\nruns /page.md#1 with two\nint main() { second(); }\n```\n"
        tests = self.root / "tests/docs"
        tests.mkdir(parents=True)
        (tests / "enabled.txt").write_text("program page.md\n")
        self.assertEqual(self.followed(page), "")

    def test_a_page_that_needs_a_python_package_which_is_missing_is_skipped_with_the_reason(self):
        page = f"```sh\n{PNG}\n```\n\n{PICTURE}\n<!-- needs: no_such_package -->\n```sh\nfalse\n```\n"
        with self.assertRaisesRegex(tutorial.Skipped, "needs no_such_package for Python. Run ./dev check --peers"):
            self.follow(page)

    def test_a_diff_of_a_file_that_was_not_shown_is_found(self):
        self.assertIn("the diff changes other.yaml, which the page has not shown", self.followed("```diff\n# other.yaml\n-a\n+b\n```\n"))


if __name__ == "__main__":
    unittest.main()
