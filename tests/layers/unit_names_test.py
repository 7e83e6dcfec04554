"""Plants a call that another file of the unit answers, and sees unit_names.py name both places."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parent / "unit_names.py"
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
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder, "Unity/unity_0_cxx.cxx")
            unit.parent.mkdir()
            for name, text in (("one.cpp", one), ("other.cpp", other)):
                Path(folder, name).write_text(text)
            unit.write_text("".join(f'#include "{folder}/{name}"\n' for name in ("one.cpp", "other.cpp")))
            Path(folder, "compile_commands.json").write_text(json.dumps(
                [{"directory": folder, "file": str(unit), "command": f"c++ -std=c++20 -O2 -o a.o -c {unit}"}]))
            done = subprocess.run([sys.executable, "-B", SCRIPT, folder], stdout=subprocess.PIPE, text=True)
            if done.returncode == 77:
                print(done.stdout)
                sys.exit(77)
            return done.returncode, done.stdout.replace(folder, "")

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
