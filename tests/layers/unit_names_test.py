"""Plants a call that another file of the unit answers, and sees unit_names.py name both places."""
import sys
import unittest

from planted_unit import run_on_unit

ONE = """namespace levin { namespace {
int percent(double share) { return static_cast<int>(share * 100); }
}
int one() { return percent(0.5); }
}
"""
OTHER = """namespace levin {
int percent(float share);
int other() { return percent(0.25); }
}
"""


class UnitNames(unittest.TestCase):
    def run_on(self, one, other):
        status, output = run_on_unit("unit_names.py", one, other)
        if status == 77:
            print(output)
            sys.exit(77)
        return status, output

    def test_a_call_that_a_different_files_function_answers_is_named(self):
        status, output = self.run_on(ONE, OTHER)
        self.assertEqual((status, output), (1, "/other.cpp:3: percent is the one in the unnamed namespace of /one.cpp:2, "
                                               "which is compiled in the same unit. Rename one of the two.\n"))

    def test_names_that_do_not_meet_are_in_order(self):
        status, output = self.run_on(ONE, OTHER.replace("percent", "part"))
        self.assertEqual((status, output), (0, "units: no file uses a name of another file's unnamed namespace\n"))

    def test_what_cannot_be_read_is_an_error(self):
        status, output = self.run_on(ONE, "int other() { return missing; }")
        self.assertEqual(status, 1)
        self.assertIn("undeclared identifier 'missing'", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
