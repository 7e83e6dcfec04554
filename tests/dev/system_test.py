"""Tests of `./dev setup --system`: LibTorch where all users can read it, and which LibTorch builds use afterwards."""
import os
import re
import shutil
import stat
import subprocess
import unittest

from script import FAKE_PIP, SOURCES, ScriptTest


class System(ScriptTest):
    def setUp(self):
        super().setUp()
        self.system = self.root / "system/levin"
        self.home = self.root / ".cache/levin"
        del self.environment["LEVIN_HOME"]
        self.environment["LEVIN_SYSTEM_HOME"] = str(self.system)
        self.root.chmod(0o755)
        self.program("python3", FAKE_PIP)

    def torch(self, place, kind="cpu"):
        return place / f"libtorch-2.11.0-{kind}"

    def used_by_a_build(self, **environment):
        """The LibTorch that is passed to CMake; "" if CMake finds one itself."""
        self.program("cmake", f'#!/bin/sh\necho "$LEVIN_TORCH_DIR" > {self.calls}\n')
        self.program("ninja", "#!/bin/sh\n")
        status, output = self.dev("build", **environment)
        self.assertEqual(status, 0, output)
        return self.calls.read_text().strip()

    def test_all_users_can_read_libtorch_regardless_of_the_umask(self):
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        status, output = self.dev("setup", "--system")
        self.assertEqual(status, 0, output)
        self.assertIn(f"LibTorch for all users: {self.system}", output)
        self.assertFalse(self.torch(self.home).exists())
        library = self.torch(self.system) / "torch/lib/libtorch_cpu.so"
        self.assertTrue(library.stat().st_mode & stat.S_IROTH)
        for folder in library.parents:
            if folder == self.root.parent:
                break
            self.assertTrue(folder.stat().st_mode & stat.S_IXOTH, folder)

    def test_python_packages_for_tests_are_not_fetched(self):
        shutil.copy(SOURCES / "cmake/python-packages.txt", self.checkout / "cmake")
        status, output = self.dev("setup", "--system")
        self.assertEqual(status, 0, output)
        self.assertNotIn("python-packages.txt", self.calls.read_text())
        self.assertNotIn("Python packages", output)

    def test_builds_take_it_and_fetch_no_other(self):
        self.assertEqual(self.dev("setup", "--system")[0], 0)
        self.assertEqual(self.used_by_a_build(), str(self.torch(self.system)))
        self.assertFalse(self.torch(self.home).exists())
        self.assertEqual(self.used_by_a_build(LEVIN_HOME=str(self.root / "own")), "")
        self.assertTrue(self.torch(self.root / "own").exists())

    def test_a_build_that_was_configured_with_a_private_one_is_configured_again(self):
        build = self.checkout / "build/release"
        build.mkdir(parents=True)
        self.assertEqual(self.dev("setup")[0], 0)
        found = f"LEVIN_TORCH_INCLUDE:PATH={self.torch(self.home)}/torch/include\n"

        def is_configured(**environment):
            self.calls.write_text("no")
            (build / "build.ninja").touch()
            (build / "CMakeCache.txt").write_text("LEVIN_ALL_PARTS:BOOL=ON\n" + found)
            return self.used_by_a_build(**environment)

        self.assertEqual(is_configured(), "no")
        self.assertEqual(self.dev("setup", "--system")[0], 0)
        self.assertEqual(is_configured(), str(self.torch(self.system)))
        found = f"LEVIN_TORCH_INCLUDE:PATH={self.torch(self.system)}/torch/include\n"
        self.assertEqual(is_configured(), "no")
        begin = str(self.torch(self.system))[:-1]  # of its name, which is the name of a different folder
        self.assertEqual(is_configured(LEVIN_TORCH_DIR=begin), begin)

    def test_a_private_libtorch_with_cuda_goes_before_a_common_one_without(self):
        self.assertEqual(self.dev("setup", "--system")[0], 0)
        self.assertEqual(self.dev("setup", "--cuda")[0], 0)
        self.assertEqual(self.used_by_a_build(), "")  # CMake prefers a LibTorch with CUDA
        self.assertEqual(self.used_by_a_build(LEVIN_CUDA="1"), str(self.torch(self.home, "cuda")))

    def found_by_cmake(self, **environment):
        """The LibTorch that the real CMake finds by itself."""
        project = self.root / "project"
        project.mkdir(exist_ok=True)
        (project / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.25)\nset(CMAKE_CXX_COMPILER_WORKS TRUE)\nproject(x CXX)\n"
            f"include({SOURCES}/cmake/LevinTorch.cmake)\n")
        done = subprocess.run([shutil.which("cmake"), "-G", "Ninja", "-S", project, "-B", project / "build", "--fresh"],
                              env={**self.environment, **environment}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.search(r"LibTorch [^:]*: (.*)/torch\n", done.stdout)[1]

    def test_cmake_alone_finds_the_same(self):
        self.assertEqual(self.dev("setup")[0], 0)
        self.assertEqual(self.found_by_cmake(), str(self.torch(self.home)))
        self.assertEqual(self.dev("setup", "--system")[0], 0)
        self.assertEqual(self.found_by_cmake(), str(self.torch(self.system)))
        self.assertEqual(self.found_by_cmake(LEVIN_HOME=str(self.home)), str(self.torch(self.home)))
        self.assertEqual(self.dev("setup", "--cuda")[0], 0)
        self.assertEqual(self.found_by_cmake(), str(self.torch(self.home, "cuda")))

    def test_with_cuda(self):
        self.assertEqual(self.dev("setup", "--cuda", "--system")[0], 0)
        self.assertEqual(self.used_by_a_build(LEVIN_CUDA="1"), str(self.torch(self.system, "cuda")))

    def test_a_different_requested_folder_is_a_contradiction(self):
        for name in ("LEVIN_HOME", "LEVIN_TORCH_DIR"):
            status, output = self.dev("setup", "--system", **{name: "/else/where"})
            self.assertEqual(status, 2, output)
            self.assertIn(f"setup --system puts LibTorch into {self.system}, but {name}=/else/where selects", output)
            self.assertIn(f"Unset {name}, or leave --system out", output)
        self.assertFalse(self.system.exists())

    def test_a_folder_that_cannot_be_written_needs_root(self):
        self.system.parent.write_text("a file, which stops root too")
        status, output = self.dev("setup", "--system")
        self.assertEqual(status, 3, output)
        self.assertIn(f"cannot write to {self.system}", output)
        self.assertIn("sudo ./dev setup --system", output)
        self.assertNotIn("pip", self.calls.read_text())

    def test_a_folder_that_others_cannot_reach_is_refused(self):
        self.system.mkdir(parents=True)
        self.system.parent.chmod(0o700)
        status, output = self.dev("setup", "--system")
        self.assertEqual(status, 3, output)
        self.assertIn(f"only the owner may enter\ndev: {self.system.parent}. Open it (chmod a+x {self.system.parent}), or", output)
        self.assertIn("LEVIN_SYSTEM_HOME", output)
        self.assertEqual(list(self.system.iterdir()), [])

    def test_too_little_disk_space_names_the_folder(self):
        self.program("df", "#!/bin/sh\nprintf 'head\\n/dev/x 1 1 77 1%% /\\n'\n")
        status, output = self.dev("setup", "--system")
        self.assertEqual(status, 3, output)
        self.assertIn(f"MB free in {self.system} for", output)
        self.assertIn("set LEVIN_SYSTEM_HOME to a folder on another disk", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
