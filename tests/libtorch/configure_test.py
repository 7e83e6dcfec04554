"""Tests of cmake/LevinTorch.cmake: which LibTorch it accepts, and what it says about others.

  configure_test.py SOURCES CMAKE [unittest's arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(sys.argv.pop(1)).resolve()
CMAKE = sys.argv.pop(1)

NEW_STRING = b"\0_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0"
OLD_STRING = b"\0_ZN3c105ErrorC1ENS_14SourceLocationESs\0"


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin torch ")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def make_torch(self, version, symbols=NEW_STRING, lib="lib", folder="torch"):
        """A LibTorch that CMake finds, with nothing in it but a version and the names of its functions."""
        torch = self.root / folder
        header = torch / "include/torch/csrc/api/include/torch/torch.h"
        header.parent.mkdir(parents=True)
        header.write_text("")
        major, minor = version.split(".")
        (header.parent / "version.h").write_text(
            f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n")
        (torch / lib).mkdir(parents=True)
        for name in ("torch_cpu", "c10"):
            (torch / lib / f"lib{name}.so").write_bytes(b"\x7fELF" + symbols)
        return torch

    def configure(self, torch):
        project = self.root / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nset(CMAKE_CXX_COMPILER_WORKS TRUE)\nproject(x CXX)\n"
            f"include({SOURCES}/cmake/LevinTorch.cmake)\nmessage(STATUS \"libraries: ${{LEVIN_TORCH_LIB}}\")\n")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEVIN_")}
        done = subprocess.run([CMAKE, "-S", project, "-B", project / "build", f"-DLEVIN_TORCH_DIR={torch}"],
                              env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, " ".join(done.stderr.split())

    def test_accepts_the_tested_versions_silently(self):
        for version in ("2.6", "2.9", "2.11", "2.15"):
            with self.subTest(version):
                self.setUp()
                torch = self.make_torch(version)
                status, said, problems = self.configure(torch)
                self.assertEqual((status, problems), (0, ""))
                self.assertIn(f"LibTorch {version}: {torch}\n", said)
                self.assertIn(f"libraries: {torch}/lib\n", said)

    def test_refuses_an_old_version(self):
        torch = self.make_torch("2.5")
        status, _, problems = self.configure(torch)
        self.assertNotEqual(status, 0)
        self.assertIn(f"LibTorch in {torch} is 2.5, and Levin needs 2.6 or newer. Run ./dev setup", problems)

    def test_warns_of_a_version_that_was_not_tested(self):
        torch = self.make_torch("2.16")
        status, _, problems = self.configure(torch)
        self.assertEqual(status, 0, problems)
        self.assertIn("CMake Warning", problems)
        self.assertIn(f"LibTorch in {torch} is 2.16, and Levin was tested with 2.6 to 2.15 only.", problems)

    def test_refuses_the_old_abi(self):
        torch = self.make_torch("2.6", OLD_STRING)
        status, _, problems = self.configure(torch)
        self.assertNotEqual(status, 0)
        self.assertIn(f"LibTorch 2.6 in {torch} has the C++ ABI from before GCC 5", problems)
        self.assertIn("use a wheel of 2.7 or newer, Debian's libtorch-dev, or the zip named libtorch-cxx11-abi", problems)

    def test_finds_the_libraries_where_debian_has_them(self):
        architecture = subprocess.run(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"], capture_output=True, text=True,
                                      check=False).stdout.strip() if Path("/usr/bin/dpkg-architecture").exists() else ""
        if not architecture:
            self.skipTest("dpkg-architecture is not installed")
        torch = self.make_torch("2.6", lib=f"lib/{architecture}", folder="usr")
        status, said, problems = self.configure(torch)
        self.assertEqual((status, problems), (0, ""))
        self.assertIn(f"libraries: {torch}/lib/{architecture}\n", said)


if __name__ == "__main__":
    unittest.main()
