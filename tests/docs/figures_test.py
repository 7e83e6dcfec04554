"""Pages with right and wrong numbers, and what figures.py reports about them."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import figures  # noqa: E402

OUTPUT = "no recomputation   83.2 MiB   455 ms   10\nval_acc 0.8491, val_acc 0.8624\nweights: 0.9472 -0.25 4.47035e-08\n"


class Figures(unittest.TestCase):
    def check(self, keys, text, output=OUTPUT):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"# A page\n\n<!-- figures\nrun: program\n{keys}-->\n\n{text}", encoding="utf-8")
            return list(figures.check_page(page, lambda commands: output))

    def block(self, keys, *lines):
        return self.check(keys, "```\n" + "\n".join(lines) + "\n```\n")

    def test_lines_that_the_program_prints_pass(self):
        self.assertEqual(self.block("", "weights: 0.9472 -0.25 4.47035e-08"), [])
        self.assertEqual(self.block("skip: \\d+ ms\n", "no recomputation  83.2 MiB   9 ms  10"), [])
        self.assertEqual(self.block("drop: ^best\n", "best: h.1", "…", "weights: 0.9472 -0.25 4.47035e-08"), [])

    def test_another_number_is_found(self):
        (wrong,) = self.block("", "weights: 0.9473 -0.25 4.47035e-08")
        self.assertIn("page.md:3: the output does not have 'weights: 0.9473", wrong)
        self.assertEqual(len(self.block("skip: \\d+ ms\n", "no recomputation  83.4 MiB   9 ms  10")), 1)
        self.assertEqual(len(self.block("skip: \\d+ ms\n", "no recomputation  83.2 MiB   9 ms  11")), 1)

    def test_the_tolerance_is_a_share_of_the_number(self):
        line = "no recomputation  84.0 MiB   455 ms  10"
        self.assertEqual(self.block("tolerance: 2 %\n", line), [])
        self.assertEqual(len(self.block("tolerance: 0.5 %\n", line)), 1)

    def test_other_words_are_found(self):
        self.assertEqual(len(self.block("", "weight: 0.9472 -0.25 4.47035e-08")), 1)

    def test_units_are_compared_as_bytes(self):
        self.assertEqual(self.block("tolerance: 1 %\n", "no recomputation  0.0813 GiB   455 ms  10"), [])
        self.assertEqual(len(self.block("tolerance: 1 %\n", "no recomputation  83.2 GiB   455 ms  10")), 1)

    def test_what_is_found_in_the_output_must_be_in_the_text(self):
        keys = "find: val_acc ([\\d.]+)\n"
        self.assertEqual(self.check(keys, "Both reach 0.849 and 0.8624.\n"), [])
        (wrong,) = self.check(keys, "Both reach 0.849 and 0.87.\n")
        self.assertIn("the page has no 0.8624", wrong)
        self.assertEqual(len(self.check(keys, "Both reach 0.849.\n\n## Next\n\n0.8624\n")), 1)
        self.assertEqual(self.check(keys + "last: 1\n", "| `0.8624` |\n"), [])

    def test_a_comment_or_page_that_compares_nothing_is_found(self):
        self.assertEqual(len(self.block("", "…")), 1)
        self.assertEqual(len(self.check("", "no block\n")), 1)
        self.assertEqual(len(self.check("find: gone ([\\d.]+)\n", "1\n")), 1)
        self.assertEqual(len(self.block("tolerence: 2 %\n", "weights: 0.9472 -0.25 4.47035e-08")), 1)


if __name__ == "__main__":
    unittest.main()
