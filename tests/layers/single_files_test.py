"""Plants a file that uses what another file of its unit includes, and sees single_files.py name it."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parent / "single_files.py"
ONE = "#include <string>\nstd::string one() { return {}; }\n"
OTHER = "int other() { return static_cast<int>(std::string().size()); }\n"


class SingleFiles(unittest.TestCase):
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
            return done.returncode, done.stdout.replace(folder, "")

    def test_a_file_that_needs_another_ones_include_is_named(self):
        status, output = self.run_on(ONE, OTHER)
        self.assertEqual(status, 1)
        self.assertRegex(output, r"^/other.cpp does not compile alone:\n/other.cpp:1:\d+: error: .*\bstring\b")
        self.assertNotIn("/one.cpp does not", output)

    def test_files_that_include_what_they_use_are_in_order(self):
        self.assertEqual(self.run_on(ONE, "#include <string>\n" + OTHER), (0, "units: each file compiles alone\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
