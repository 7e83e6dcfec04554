#!/usr/bin/env python3
"""Builds Levin without each of its parts in turn, and trains with what is left.

  parts_off_test.py SOURCES BUILD CMAKE

The build's folder lies beside BUILD and has its options, so that ccache, where there is one, knows most of the files.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, CMAKE = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
FOLDER = BUILD.parent / "without-a-part"

sys.dont_write_bytecode = True
import levin_parts

NEEDS = levin_parts.needs(SOURCES)


def without(part):
    """The parts that cannot be built without a part, and the part itself."""
    return {part}.union(*(without(other) for other, needed in NEEDS.items() if part in needed))


def option(name):
    """The value of a variable in the cache of BUILD."""
    return re.search(rf"(?m)^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text())[1]


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "LEVIN_TORCH_DIR": str(pathlib.Path(option("LEVIN_TORCH_INCLUDE")).parents[4])})
    return done.returncode, done.stdout


class WithoutAPart(unittest.TestCase):
    def configure(self, left_out):
        same = [f"-D{name}={option(name)}" for name in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS_RELEASE", "CMAKE_CXX_COMPILER")]
        return run(CMAKE, "-G", "Ninja", "-S", SOURCES, "-B", FOLDER, *same, "-DLEVIN_BUILD_TOOL=" + ("OFF" if "tools" in left_out else "ON"),
                   *[f"-DLEVIN_{part.upper()}={'OFF' if part in left_out else 'ON'}" for part in NEEDS])

    def test_each_part_can_be_left_out(self):
        for part in NEEDS:
            with self.subTest(part):
                left_out = without(part)
                status, output = self.configure(left_out)
                self.assertEqual(status, 0, output)
                self.assertRegex(output, r"Parts left out: .*\b" + part)
                status, output = run("ninja", "-C", FOLDER, "-j", len(os.sched_getaffinity(0)))
                self.assertEqual(status, 0, output[-4000:])
                built = {re.search(r"liblevin_(\w+)\.so$", path.name)[1] for path in (FOLDER / "lib").glob("liblevin_*.so")
                         if path.exists()} & NEEDS.keys()
                for leftover in left_out & built:
                    for path in (FOLDER / "lib").glob(f"liblevin_{leftover}.so*"):
                        path.unlink()  # of the build before
                self.assertLessEqual(NEEDS.keys() - left_out, built)
                with tempfile.TemporaryDirectory() as folder:
                    status, output = run("env", f"LD_LIBRARY_PATH={FOLDER / 'lib'}", BUILD / "bin/parts_program", "train", folder)
                self.assertEqual(status, 0, output)
                self.assertIn("8 steps", output)

    def test_a_part_without_one_that_it_needs_is_refused(self):
        for part in NEEDS:
            if without(part) != {part}:
                with self.subTest(part):
                    status, output = self.configure({part})
                    self.assertNotEqual(status, 0)
                    self.assertRegex(" ".join(output.split()), rf"levin_\w+ needs levin_{part}: pass -DLEVIN_{part.upper()}=ON, or -DLEVIN_\w+=OFF\.")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
