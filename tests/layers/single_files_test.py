"""Plants a file that uses what another file of its unit includes, and sees single_files.py name it."""
import unittest

from planted_unit import run_on_unit

ONE = "#include <string>\nstd::string one() { return {}; }\n"
OTHER = "int other() { return static_cast<int>(std::string().size()); }\n"


class SingleFiles(unittest.TestCase):
    def run_on(self, one, other):
        return run_on_unit("single_files.py", one, other)

    def test_a_file_that_needs_another_ones_include_is_named(self):
        status, output = self.run_on(ONE, OTHER)
        self.assertEqual(status, 1)
        self.assertRegex(output, r"^/other.cpp does not compile alone:\n/other.cpp:1:\d+: error: .*\bstring\b")
        self.assertNotIn("/one.cpp does not", output)

    def test_files_that_include_what_they_use_are_in_order(self):
        self.assertEqual(self.run_on(ONE, "#include <string>\n" + OTHER), (0, "units: each file compiles alone\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
