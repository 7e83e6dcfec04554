"""Plants sleeps in a tree of tests, and sees sleeps.py name them."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import sleeps

SCRIPT = Path(__file__).with_name("sleeps.py")


class Sleeps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, (count, _) in sleeps.KNOWN.items():
            self.plant(name, "time.sleep(1)\n" * count)

    def plant(self, name, text):
        path = self.root / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self):
        done = subprocess.run([sys.executable, "-B", SCRIPT, self.root], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_known_sleeps_and_programs_that_hang_are_in_order(self):
        self.plant("core/a_test.cpp", 'run("sleep 600");\nrun("sleep 30");\n// It may sleep.\nwait_until(is_so);\n')
        self.assertEqual(self.check(), (0, "sleeps: every one has its reason\n"))

    def test_each_kind_is_found(self):
        for line in ("std::this_thread::sleep_for(20ms);", "std::this_thread::sleep_until(end);", "::usleep(10);", "::sleep(1);",
                     "nanosleep(&time, nullptr);", "        time.sleep(0.5)", "COMMAND sleep 2", 'f"echo $$; sleep 0.05"', "sleep $N"):
            self.plant("core/a_test.py", "first\n" + line + "\n")
            status, output = self.check()
            self.assertEqual(status, 1, line)
            self.assertTrue(output.startswith("tests/core/a_test.py:2: 1 sleeps, and 0 are known. Wait for the event "), output)

    def test_another_sleep_in_a_file_of_the_list_is_found_and_one_that_has_gone(self):
        name, (count, _) = next(iter(sleeps.KNOWN.items()))
        self.plant(name, "time.sleep(1)\n" * (count + 1))
        self.assertIn(f"tests/{name}:1,2: 2 sleeps, and 1 are known.", self.check()[1])
        self.plant(name, "")
        self.assertEqual(self.check(), (1, f"tests/layers/sleeps.py: {name} has 0 sleeps, not {count}. Correct the list.\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
