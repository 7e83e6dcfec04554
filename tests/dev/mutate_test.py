"""Tests of tools/dev/mutate.py and tools/dev/coverage.py with a small project of one library, which the real compiler builds.

  mutate_test.py SOURCES [unittest's arguments]
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(SOURCES / "tests/support"))
from waiting import wait_until  # noqa: E402

HOME = Path(os.environ.get("LEVIN_HOME") or Path(os.environ.get("HOME") or "/root", ".cache/levin"))

LIBRARY = """
#include "calc/calc.h"
#include <algorithm>
#include <stdexcept>
#include <string>
namespace {
constexpr int kLimit = 10;
int counted = 0;
void count() { ++counted; }
}
int limited(int value) {
  count();  // nobody asks for it: … … … … … … … … … … … … … … … … … … … … … …
  if (value < 0) throw std::runtime_error("negative: " + std::to_string(value + 1) + " < " + std::to_string(0));
  // if (value < 3) a comment is not code
  return value >= kLimit ? kLimit : value;
}
int first_seven(const int* values, int count) {
  int found = -1;
  for (int i = 0; i < std::max(count, found); ++i) {
    if (values[i] == 7) {
      found = i;
      break;
    }
  }
  return found;
}
"""
HEADER = "#pragma once\nint limited(int value);\nint first_seven(const int* values, int count);\n"
PROGRAM = """
#include "calc/calc.h"
#include <cstdio>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
int main() {
  const int values[] = {1, 7, 3, 7, 7};
  bool thrown = false;
  try { limited(-1); } catch (const std::runtime_error&) { thrown = true; }
  // This child ends as Levin's programs do. Its lines count.
  if (fork() == 0) _exit(limited(11) == 10 && limited(10) == 10 && limited(9) == 9 && limited(1) == 1 ? 0 : 1);
  int status = 1;
  wait(&status);
  const bool right = thrown && status == 0 && first_seven(values, 4) == 1 && first_seven(values, 1) == -1 &&
                     first_seven(values + 1, 1) == 0 && limited(0) == 0;
  return right ? 0 : 1;
}
"""
CMAKE = f"""
cmake_minimum_required(VERSION 3.25)
project(levin LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${{PROJECT_BINARY_DIR}}/lib")
include("{SOURCES}/cmake/LevinWarnings.cmake")
add_library(calc SHARED calc/calc.cpp)
set_target_properties(calc PROPERTIES VERSION 1.2.3 SOVERSION 1.2)
target_include_directories(calc PUBLIC "${{PROJECT_SOURCE_DIR}}")
target_link_libraries(calc PRIVATE levin_warnings)
add_executable(program tests/program.cpp)
target_link_libraries(program PRIVATE calc levin_warnings)
target_link_options(program PRIVATE LINKER:--enable-new-dtags)
enable_testing()
add_test(NAME calc.program COMMAND program)
"""
# What the program above cannot notice.
EQUIVALENT = """
calc/calc.cpp
-return value >= kLimit ? kLimit : value;
+return value > kLimit ? kLimit : value;
At the limit both are the limit.
"""


class SmallProject(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "checkout"
        for name, text in (("calc/calc.cpp", LIBRARY), ("calc/calc.h", HEADER), ("tests/program.cpp", PROGRAM),
                           ("CMakeLists.txt", CMAKE), ("tests/mutation/equivalent.txt", EQUIVALENT)):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copytree(SOURCES / "tools/dev", self.root / "tools/dev", ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "tests/support").mkdir()
        shutil.copy(SOURCES / "tests/support/coverage_dump.cpp", self.root / "tests/support")

    def build(self, *options):
        for command in (["cmake", "-G", "Ninja", "-B", "build", *options], ["ninja", "-C", "build"]):
            done = subprocess.run(command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)

    def files(self):
        return {path: path.read_bytes() for name in ("calc", "tests", "tools") for path in (self.root / name).rglob("*.*")}

    def run_tool(self, *command, **environment):
        done = subprocess.run([sys.executable, "-B", *command], cwd=self.root, text=True, env={**os.environ, **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        return done.returncode, done.stdout


class Mutate(SmallProject):
    COMMAND = ("tools/dev/mutate.py", "build", "build/mutate/calc", "calc", "100", "1")

    def setUp(self):
        super().setUp()
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        check = [python, "-c", "import clang.cindex; clang.cindex.Index.create()"]
        if subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("Python's clang module is missing; Debian has it as python3-clang-14")

    def test_survivors_are_listed_as_a_diff_and_equivalent_changes_do_not_count(self):
        self.build()
        before = self.files()
        status, output = self.run_tool(*self.COMMAND)
        self.assertEqual(self.files(), before)
        for number, text in enumerate(LIBRARY.splitlines(), 1):
            if "found = i;" in text or text.startswith("  //"):
                self.assertNotIn(f"calc.cpp:{number}:", output)
        # A loop that does not break finds the last 7; one that is caught by a wrong limit; a crash or a wrong child.
        for caught in ("drop break", "inverted condition", "number + 1", "number - 1", "early return", "== becomes !="):
            self.assertRegex(output, rf" caught   calc/calc.cpp:\d+: {'[+]'.join(caught.split('+'))} \(calc.program failed\)")
        # Nothing asks how often count() was called, and nothing else survives.
        self.assertRegex(output, r"-count\(\);  // nobody asks for it: .*\n\+;  // nobody asks for it: ")
        survived = [line for line in output.splitlines() if "SURVIVED" in line]
        self.assertEqual({line.split(": ")[-1] for line in survived},
                         {"dropped call", "early return", "++ becomes --", "number + 1"}, output)
        self.assertNotIn(">= becomes >", output)
        self.assertNotIn("swapped arguments", output)  # of std::max
        copied = (self.root / "build/mutate/calc/src/calc/calc.cpp").read_text()
        self.assertIn('throw std::runtime_error("negative: " + std::to_string(value + 1) + " < " + std::to_string(0));', copied)
        self.assertRegex(output.splitlines()[-2],
                         r"^mutate calc: \d+ of \d+ mutants caught \(\d\d\.\d %, at least 90 % wanted\), seed 1;")
        self.assertEqual(status, 1, output)

    def test_a_folder_whose_tests_notice_enough_succeeds(self):
        path = self.root / "calc/calc.cpp"
        path.write_text(re.sub(r"(?m)^.*(\bcounted|\bcount\(\)).*\n", "", LIBRARY))
        self.build()
        status, output = self.run_tool(*self.COMMAND)
        self.assertEqual(status, 0, output)

    def test_a_change_that_hangs_is_caught_and_its_processes_end(self):
        program = self.root / "tests/program.cpp"
        # Without the 7 it waits for ever, with a child that has left its group.
        program.write_text("""
#include "calc/calc.h"
#include <csignal>
#include <unistd.h>
int main() {
  const int values[] = {7};
  if (first_seven(values, 1) == 0 && limited(3) == 3) return 0;
  if (fork() == 0) setsid();
  for (;;) pause();
}
""")
        self.build()
        tool = self.root / "tools/dev/mutate.py"
        tool.write_text(tool.read_text().replace("max(30, 5 * seconds)", "1"))
        status, output = self.run_tool(*self.COMMAND, LEVIN_JOBS="8")
        self.assertIn("(calc.program too long)", output)
        running = [path for path in Path("/proc").glob("[0-9]*/exe") if self.runs(path)]
        self.assertEqual(running, [])

    def runs(self, path):
        try:
            return os.readlink(path).startswith(str(self.root))
        except OSError:
            return False

    def test_an_interrupt_leaves_the_tree_unchanged_and_no_process(self):
        self.build()
        before = self.files()
        process = subprocess.Popen([sys.executable, "-B", *self.COMMAND], cwd=self.root, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if "caught" in line:
                break
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 130)
        self.assertEqual(self.files(), before)
        wait_until(lambda: not any(self.runs(path) for path in Path("/proc").glob("[0-9]*/exe")), "its processes ended")

    def test_a_folder_without_compiled_files_is_refused(self):
        self.build()
        status, output = self.run_tool(*self.COMMAND[:3], "tests/mutation", "5", "1")
        self.assertEqual((status, output), (1, f"mutate: tests/mutation has no C++ file that is compiled in {self.root}/build\n"))


class Coverage(SmallProject):
    def setUp(self):
        super().setUp()
        packages = HOME / "python"
        if not (packages / "gcovr").is_dir():
            self.skipTest("gcovr is missing; ./dev setup installs it")
        self.environment = {"PYTHONPATH": str(packages)}

    def test_lines_of_processes_that_end_by_underscore_exit_count(self):
        self.build("-DLEVIN_COVERAGE=ON", "-DCMAKE_BUILD_TYPE=Debug")
        subprocess.run([self.root / "build/program"], check=True)
        status, output = self.run_tool("tools/dev/coverage.py", "build", **self.environment)
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"(?m)^calc +\d+ 100\.0 %$")
        self.assertNotRegex(output, "(?m)^tests")
        self.assertTrue((self.root / "build/report/index.html").exists())

    def test_lines_that_no_test_runs_are_missing(self):
        with open(self.root / "calc/calc.cpp", "a") as file:
            file.write("int never(int value) {\n  value += 1;\n  return value;\n}\n")
        self.build("-DLEVIN_COVERAGE=ON", "-DCMAKE_BUILD_TYPE=Debug")
        subprocess.run([self.root / "build/program"], check=True)
        status, output = self.run_tool("tools/dev/coverage.py", "build", "calc", **self.environment)
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"(?m)^calc/calc\.cpp +\d+ +[78]\d\.\d %  below$")
        self.assertRegex(output.splitlines()[-1], r"^coverage: [78]\d\.\d % of the \d+ lines of calc \(at least 92 % wanted\)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
