"""Tests of cmake/compile.sh, with the real ccache and compiler: clones share what was compiled with a precompiled header.

  compile_test.py SOURCES COMPILER [unittest's arguments]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(sys.argv.pop(1)).resolve() / "cmake/compile.sh"
COMPILER = sys.argv.pop(1)
CCACHE = shutil.which("ccache")


@unittest.skipUnless(CCACHE, "ccache is not installed")
class Clones(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin compile ")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def clone(self, name, number=1):
        """A clone laid out like CMake's: a precompiled header includes the tree's headers by their full names."""
        root = self.folder / name
        (root / "build").mkdir(parents=True)
        (root / "number.h").write_text(f"#pragma once\ninline int number() {{ return {number}; }}\n")
        (root / "build/pch.hxx").write_text(f'#include "{root}/number.h"\n')
        (root / "program.cpp").write_text('int main() { return number(); }\n')
        self.compile(root, "-x", "c++-header", "-MD", "-MT", "pch.hxx.gch", "-MF", "pch.d", "-o", "pch.hxx.gch", "-c",
                     "pch.hxx")
        return root

    def compile(self, root, *arguments):
        environment = {**os.environ, "CCACHE_DIR": str(self.folder / "cache"), "CCACHE_BASEDIR": str(root),
                       "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}
        done = subprocess.run(["sh", SCRIPT, CCACHE, COMPILER, "-O1", "-fpch-preprocess", "-Winvalid-pch", *arguments],
                              cwd=root / "build", env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")

    def result(self, root):
        """Of the clone's program."""
        self.compile(root, "-include", f"{root}/build/pch.hxx", "-o", "program.o", "-c", f"{root}/program.cpp")
        subprocess.run([COMPILER, "program.o", "-o", "program"], cwd=root / "build", check=True, timeout=60)
        return subprocess.run([root / "build/program"], timeout=60).returncode

    def hits(self):
        output = subprocess.run([CCACHE, "--print-stats"], env={**os.environ, "CCACHE_DIR": str(self.folder / "cache")},
                              capture_output=True, text=True, timeout=60, check=True).stdout
        numbers = dict(line.split("\t") for line in output.splitlines())
        return int(numbers["direct_cache_hit"]) + int(numbers["preprocessed_cache_hit"])

    def test_a_clone_finds_what_another_has_compiled_with_a_precompiled_header(self):
        self.assertEqual((self.result(self.clone("one")), self.hits()), (1, 0))
        self.assertEqual((self.result(self.clone("other")), self.hits()), (1, 1))

    def test_a_clone_with_another_header_compiles_its_own(self):
        self.assertEqual(self.result(self.clone("one")), 1)
        self.assertEqual((self.result(self.clone("other", number=2)), self.hits()), (2, 0))

    def test_a_header_that_does_not_compile_is_an_error(self):
        root = self.clone("one")
        (root / "number.h").write_text("no header\n")
        with self.assertRaisesRegex(AssertionError, "no.* does not name a"):
            self.compile(root, "-x", "c++-header", "-MD", "-MF", "pch.d", "-o", "pch.hxx.gch", "-c", "pch.hxx")


if __name__ == "__main__":
    unittest.main(verbosity=2)
