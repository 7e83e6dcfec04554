#!/usr/bin/env python3
"""tidy_database_test.py SOURCES BUILD: clang takes every flag of the database that cmake/tidy_database.py makes of this build's."""
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES, BUILD = Path(sys.argv[1]), Path(sys.argv[2])


class TidyDatabase(unittest.TestCase):
    @unittest.skipIf(shutil.which("clang++-14") is None, "clang++-14 is not installed")
    def test_clang_takes_every_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-B", SOURCES / "cmake/tidy_database.py", BUILD, folder], check=True)
            entries = json.loads(Path(folder, "compile_commands.json").read_text())
        flags = {word for entry in entries for word in shlex.split(entry["command"]) if word.startswith(("-f", "-O", "-W", "-m", "-s", "--"))}
        self.assertIn("-O2", flags)
        result = subprocess.run(["clang++-14", "-fsyntax-only", "-x", "c++", *sorted(flags), "/dev/null"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
