"""Tests of cmake/LevinTorch.cmake: which LibTorch it accepts, and what it says about others. And of what other files in cmake/
say about a LibTorch and about missing libraries.

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
    also_included = ()

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

    def find_levin_built_with(self, version, torch):
        """Searches an installed Levin that was built with this version of LibTorch, but with no library."""
        levin, project = self.root / "levin", self.root / "user"
        for folder in (levin, project / "modules"):
            folder.mkdir(parents=True)
        for name in ("LevinTorch.cmake", "libtorch-cpu.txt"):
            (levin / name).write_text((SOURCES / "cmake" / name).read_text())
        (project / "modules/CMakeFindDependencyMacro.cmake").write_text("macro(find_dependency)\nendmacro()\n")
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nset(CMAKE_CXX_COMPILER_WORKS TRUE)\nproject(x CXX)\n"
            f"set(LEVIN_TORCH_VERSION {version})\n"
            'set(PACKAGE_INIT "macro(check_required_components)\\nendmacro()")\n'
            f"configure_file({SOURCES}/cmake/levinConfig.cmake.in \"{levin}/levinConfig.cmake\" @ONLY)\n"
            "unset(LEVIN_TORCH_VERSION)\n"
            "set(CMAKE_MODULE_PATH ${CMAKE_CURRENT_SOURCE_DIR}/modules)\n"
            "find_package(levin REQUIRED)\n")
        done = subprocess.run([CMAKE, "-S", project, "-B", project / "build", f"-Dlevin_DIR={levin}",
                               f"-DLEVIN_TORCH_DIR={torch}"], env={**os.environ, "LEVIN_HOME": str(self.root / "home")},
                              capture_output=True, text=True, timeout=60)
        return done.returncode, " ".join(done.stderr.split())

    def configure(self, torch=None, *options, **environment):
        """Runs CMake in the same folder each time. `torch`: what -DLEVIN_TORCH_DIR= is followed by, unless it is None."""
        project = self.root / "project"
        project.mkdir(exist_ok=True)
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nset(CMAKE_CXX_COMPILER_WORKS TRUE)\nproject(x CXX)\n"
            f"include({SOURCES}/cmake/LevinTorch.cmake)\nmessage(STATUS \"libraries: ${{LEVIN_TORCH_LIB}}\")\n"
            + "".join(f"include({SOURCES}/cmake/{name}.cmake)\n" for name in self.also_included)
            + "message(STATUS \"Gloo: ${LEVIN_GLOO_INCLUDE}\")\n")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("LEVIN_")}
        named = [] if torch is None else [f"-DLEVIN_TORCH_DIR={torch}"]
        done = subprocess.run([CMAKE, "-S", project, "-B", project / "build", *named, *options],
                              env={**inherited, "LEVIN_HOME": str(self.root / "home"), **environment}, capture_output=True,
                              text=True, timeout=60)
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

    def test_an_installed_levin_refuses_another_version_than_its_own(self):
        torch = self.make_torch("2.13")
        status, problems = self.find_levin_built_with("2.11", torch)
        self.assertNotEqual(status, 0)
        self.assertIn(f"LibTorch in {torch} is 2.13, and this Levin was built with 2.11, which it needs. Set LEVIN_TORCH_DIR "
                      "to a folder with that version.", problems)
        self.setUp()
        status, problems = self.find_levin_built_with("2.13", self.make_torch("2.13"))
        self.assertEqual((status, problems), (0, ""))

    def test_refuses_an_old_version(self):
        torch = self.make_torch("2.5")
        status, _, problems = self.configure(torch)
        self.assertNotEqual(status, 0)
        self.assertIn(f"LibTorch in {torch} is 2.5, and Levin needs 2.6 or newer. Pass -DLEVIN_TORCH_DIR=FOLDER of a newer one, "
                      "or run ./dev setup and pass -DLEVIN_TORCH_DIR= without", problems)

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

    def expect(self, torch, result):
        """The configuration succeeded with this LibTorch, and with its libraries."""
        status, said, problems = result
        self.assertEqual(status, 0, problems)
        self.assertRegex(said, rf"LibTorch [0-9.]+: {torch}\n")
        self.assertIn(f"libraries: {torch}/lib\n", said)

    def test_the_remedies_of_a_refusal_work_in_the_same_folder(self):
        old, new = self.make_torch("2.5", folder="old"), self.make_torch("2.11", folder="new")
        self.make_torch("2.11", folder="home/libtorch-2.11.0-cpu/torch")
        self.assertNotEqual(self.configure(old)[0], 0)
        self.expect(new, self.configure(new))
        self.assertNotEqual(self.configure(old)[0], 0)
        self.expect(self.root / "home/libtorch-2.11.0-cpu/torch", self.configure(""))

    def test_a_refused_libtorch_of_the_environment_is_not_kept(self):
        self.make_torch("2.11", folder="home/libtorch-2.11.0-cpu/torch")
        self.assertNotEqual(self.configure(LEVIN_TORCH_DIR=str(self.make_torch("2.6", OLD_STRING, folder="old")))[0], 0)
        self.expect(self.root / "home/libtorch-2.11.0-cpu/torch", self.configure())

    def test_a_different_named_folder_replaces_the_first(self):
        first, second, third = (self.make_torch(version, folder=version) for version in ("2.11", "2.9", "2.13"))
        self.expect(first, self.configure(first))
        self.expect(second, self.configure(second))
        self.expect(second, self.configure(LEVIN_TORCH_DIR=str(third)))  # the variable goes before the environment
        self.expect(third, self.configure("", LEVIN_TORCH_DIR=str(third)))

    def test_a_later_run_without_the_environment_variable_keeps_what_was_found(self):
        named = self.make_torch("2.9", folder="named")
        self.make_torch("2.11", folder="home/libtorch-2.11.0-cpu/torch")
        self.expect(named, self.configure(LEVIN_TORCH_DIR=str(named)))
        self.expect(named, self.configure())

    def test_a_libtorch_that_has_moved_is_searched_for_again(self):
        torch = self.make_torch("2.11", folder="home/libtorch-2.11.0-cpu/torch")
        self.expect(torch, self.configure())
        cuda = torch.parent.with_name("libtorch-2.11.0-cuda")
        torch.parent.rename(cuda)
        self.expect(cuda / "torch", self.configure())

    def test_a_named_folder_goes_before_the_prefix_path(self):
        named, prefix = self.make_torch("2.9", folder="named"), self.make_torch("2.11", folder="prefix")
        self.expect(named, self.configure(named, f"-DCMAKE_PREFIX_PATH={prefix}"))
        self.expect(prefix, self.configure("", f"-DCMAKE_PREFIX_PATH={prefix}"))

    def test_refuses_a_named_folder_without_libtorch(self):
        self.make_torch("2.11", folder="home/libtorch-2.11.0-cpu/torch")
        for options in ({"torch": self.root}, {"LEVIN_TORCH_DIR": str(self.root)}):
            with self.subTest(options):
                status, _, problems = self.configure(**options)
                self.assertNotEqual(status, 0)
                self.assertIn(f"LEVIN_TORCH_DIR is {self.root}, which holds neither include/torch/csrc/api/include/torch/torch.h nor "
                              "torch/include/torch/csrc/api/include/torch/torch.h. Set it to a folder with include/ and lib/", problems)

    def test_refuses_headers_without_libraries(self):
        torch = self.make_torch("2.11", lib="elsewhere")
        status, _, problems = self.configure(torch)
        self.assertNotEqual(status, 0)
        self.assertIn(f"LibTorch in {torch} has headers, but libtorch_cpu.so or libc10.so is missing in its folder lib/. Set "
                      "LEVIN_TORCH_DIR to the folder of a complete one.", problems)

    def test_no_debian_packages_are_made_with_a_libtorch_that_no_folder_for_all_users_has(self):
        self.also_included = ("LevinPackages",)
        earlier = self.root / "project/build/CPackConfig.cmake"
        earlier.parent.mkdir(parents=True)
        earlier.touch()
        status, said, problems = self.configure(self.make_torch("2.9"))
        self.assertEqual(status, 0, problems)
        self.assertRegex(said, r"Debian packages: no, (LibTorch 2\.9 is neither \./dev setup's 2\.11\.0 nor|this is not) Debian")
        self.assertFalse(earlier.exists())

    def test_finds_gloos_headers_in_libtorch_first_and_reports_that_they_are_missing(self):
        self.also_included = ("LevinGloo",)
        torch, other = self.make_torch("2.11"), self.root / "other"
        nowhere = ["-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY", f"-DCMAKE_FIND_ROOT_PATH={self.root}/nothing"]
        status, _, problems = self.configure(torch, *nowhere)
        self.assertNotEqual(status, 0)
        self.assertIn(f"levin_core needs the headers of Gloo (gloo/algorithm.h), which LibTorch in {torch} does not have: install "
                      "Debian's libgloo-dev, or pass -DLEVIN_GLOO_INCLUDE=FOLDER, which holds gloo/.", problems)
        for folder, options in ((other, [f"-DLEVIN_GLOO_INCLUDE={other}"]), (torch / "include", ["-ULEVIN_GLOO_INCLUDE"])):
            (folder / "gloo").mkdir(parents=True)
            (folder / "gloo/algorithm.h").touch()
            status, said, problems = self.configure(None, *options)
            self.assertEqual(status, 0, problems)
            self.assertRegex(said, f"Gloo: {folder}/?\n")

    def test_reports_that_sentencepiece_is_missing(self):
        self.also_included = ("LevinSentencePiece",)
        status, _, problems = self.configure(self.make_torch("2.11"), "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY",
                                             f"-DCMAKE_FIND_ROOT_PATH={self.root}/nothing")
        self.assertNotEqual(status, 0)
        self.assertRegex(problems, r"levin_text .* needs SentencePiece, which was not found: install its development package .*, or "
                         "pass -DLEVIN_TEXT=OFF")

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
