"""An archive as `./dev bundle` makes it, unpacked elsewhere and used with the LibTorch that Python finds.

  bundle_test.py SOURCES BUILD TORCH_ROOT PEERS [unittest's arguments]      PEERS: of ./dev bench --peers, if it is there
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, TORCH, PEERS = (pathlib.Path(sys.argv.pop(1)) for _ in range(4))
sys.path.insert(0, str(SOURCES / "tools"))
sys.dont_write_bytecode = True
import bundle

OWN_MOUNTS = SOURCES / "tests/support/own_mounts.sh"
SITE = PEERS if (PEERS / "torch/lib/libtorch_cpu.so").exists() else TORCH.parent  # a site-packages with torch
NAME = "levin-test-bundle"
SHORT = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=8", "--trainer.limit_val_batches=2",
         "--trainer.accelerator=cpu")
# glibc's libraries, and gcc's.
OF_THE_SYSTEM = re.compile(r"^(ld-linux-x86-64|lib(c|m|dl|pthread|rt|util|resolv|anl|stdc\+\+|gcc_s))\.so")

# A shell script: Debian's libraries are out of sight but for glibc and libstdc++.
ONLY_GLIBC = """
mkdir "$folder/libraries"
for name in ld-linux-x86-64 libc libm libdl libpthread librt libutil libresolv libanl libstdc++ libgcc_s; do
  cp -L /usr/lib/x86_64-linux-gnu/$name.so.* "$folder/libraries/" 2>/dev/null || true
done
rm -f "$folder"/libraries/*.py
mount --bind "$folder/libraries" /usr/lib/x86_64-linux-gnu
"""


def setUpModule():
    global folder, root, archive
    if not shutil.which("patchelf") or not shutil.which("xz"):
        print("patchelf or xz is not installed (Debian: patchelf, xz-utils)")
        sys.exit(77)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="levin-bundle-", dir="/tmp"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / "made/levin.tar.xz"
    archive.parent.mkdir()
    done = subprocess.run([sys.executable, "-B", SOURCES / "tools/bundle.py", BUILD, NAME, archive, "--level", "0"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    (folder / "elsewhere").mkdir()
    subprocess.run(["tar", "-C", folder / "elsewhere", "-xf", archive], check=True)
    root = folder / "elsewhere" / NAME


class Making(unittest.TestCase):
    def test_one_with_tests_that_is_too_large_is_refused_with_its_size(self):
        part, output = folder / "large.part", folder / "large.tar.xz"
        with open(part, "wb") as file:
            file.truncate(60_100_000)
        with self.assertRaisesRegex(SystemExit, r"^bundle: large.tar.xz would be 60.1 MB, and may be 60 MB at most.$"):
            bundle.keep(part, output, tests=True)
        self.assertFalse(part.exists() or output.exists())
        with open(part, "wb") as file:
            file.truncate(60_100_000)
        self.assertEqual(bundle.keep(part, output, tests=False), 60.1)
        self.assertTrue(output.exists())

    def test_the_stated_libtorch_is_that_of_the_build(self):
        build, include = folder / "other-build", folder / "torch/include"
        build.mkdir()
        (build / "CMakeCache.txt").write_text(f"LEVIN_TORCH_INCLUDE:PATH={include}/torch/csrc/api/include\n")
        for path in ("torch/csrc/api/include/torch", "torch/headeronly"):
            (include / path).mkdir(parents=True)
        (include / "torch/csrc/api/include/torch/version.h").write_text("#include <torch/headeronly/version.h>\n")
        with self.assertRaisesRegex(SystemExit, f"^bundle: no version.h of LibTorch in {include}, .* Configure it again.$"):
            bundle.torch_version(build)
        version = "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR {}\n#define TORCH_VERSION_PATCH 0\n"
        (include / "torch/headeronly/version.h").write_text(version.format(15))
        self.assertEqual(bundle.torch_version(build), "2.15")
        (include / "torch/csrc/api/include/torch/version.h").write_text(version.format(6))  # as LibTorch had it first
        self.assertEqual(bundle.torch_version(build), "2.6")

    def test_missing_tools_are_named(self):
        done = subprocess.run([sys.executable, "-B", SOURCES / "tools/bundle.py", BUILD, "name", folder / "a.tar.xz"],
                              env={"PATH": "/nonexistent"}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^bundle: cmake, .*patchelf.* not found. Bundles are made on Debian")

    def test_a_build_without_the_cuda_component_cannot_be_bundled_with_it(self):
        if (BUILD / "lib/liblevin_cuda.so").exists():
            self.skipTest("this build has the CUDA component")
        done = subprocess.run([sys.executable, "-B", SOURCES / "tools/bundle.py", BUILD, "levin-test-cuda",
                               folder / "a.tar.xz", "--cuda"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("this build has no CUDA component. Make it with LEVIN_CUDA=1 ./dev build", done.stderr)


class Bundle(unittest.TestCase):
    def levin(self, *arguments, program="levin", **environment):
        """Returns (exit status, output) of a run with these environment variables alone."""
        own = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LEVIN_PYTHON": sys.executable, **environment}
        done = subprocess.run([root / "bin" / program, *arguments], env=own, cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        return done.returncode, done.stdout

    def test_it_runs_with_the_torch_that_python_finds(self):
        status, output = self.levin("--version", PYTHONPATH=str(SITE))
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"^levin \d+\.\d+\.\d+, LibTorch 2\.11")

    def test_it_runs_below_another_command(self):
        status, output = self.levin("fit", "a b", LEVIN_TORCH_DIR=str(SITE), LEVIN_LAUNCH_WITH="printf <%s>")
        self.assertEqual((status, output), (0, f"<{root}/libexec/levin><fit><a b>"))

    def test_it_trains_from_there(self):
        status, output = self.levin("fit", "--config", root / "share/levin/configs/fashion_mnist.yaml", *SHORT,
                                    LEVIN_TORCH_DIR=str(SITE))
        self.assertEqual(status, 0, output)
        self.assertIn("Trained 1 epoch, 8 steps", output)
        self.assertRegex(output, r"test_acc +0\.\d+")

    def test_it_trains_where_debians_libraries_are_missing(self):
        if os.geteuid() != 0:
            self.skipTest("only root can hide libraries from a process")
        tried = subprocess.run([OWN_MOUNTS, "true"], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"no mounts of its own: {tried.stderr.strip()}")
        fit = " ".join(["fit", "--config", str(root / "share/levin/configs/fashion_mnist.yaml"), *SHORT])
        script = (f"set -e; folder={folder}; {ONLY_GLIBC}\n"
                  "if ls /usr/lib/x86_64-linux-gnu/libyaml-cpp.so.*; then exit 9; fi\n"
                  f"cd {folder}; exec env -i PATH=/usr/bin:/bin HOME={folder} LEVIN_TORCH_DIR={SITE} {root}/bin/levin {fit}")
        done = subprocess.run([OWN_MOUNTS, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Trained 1 epoch, 8 steps", done.stdout)

    def test_every_library_is_its_own_torchs_or_glibcs(self):
        own, torch = str(root.resolve()), SITE.resolve()
        environment = {**os.environ, "LD_LIBRARY_PATH": str(torch / "torch/lib")}
        checked = [root / "libexec/levin", *(root / "lib").glob("liblevin*.so")]  # which need all the others
        self.assertEqual(len(checked), 13)
        for path in checked:
            output = subprocess.run(["ldd", path], env=environment, capture_output=True, text=True).stdout
            self.assertNotIn("not found", output, path)
            for name, place in re.findall(r"^\s+(\S+) => (\S+)", output, re.M):
                real = os.path.realpath(place)
                self.assertTrue(OF_THE_SYSTEM.match(name) or real.startswith((own, str(torch), os.path.realpath(torch / "torch"))),
                                f"{path.name} would load {name} from {place}")

    def test_data_sets_below_levin_home_come_before_debians(self):
        home = folder / "home"
        (home / "datasets").mkdir(parents=True)
        (home / "datasets/bible.data").write_bytes(b"\x1f\x9d\x91")
        status, output = self.levin("fit", "--config", root / "share/levin/configs/gpt.yaml", LEVIN_TORCH_DIR=str(SITE),
                                    LEVIN_HOME=str(home))
        self.assertEqual(status, 1, output)
        self.assertIn(f"{home}/datasets/bible.data: byte 2", output)

    def test_what_is_missing_is_reported_before_it_starts(self):
        status, output = self.levin("--version", PYTHONPATH="/nonexistent", LEVIN_PYTHON="/bin/false")
        self.assertEqual(status, 3)
        self.assertIn("levin: no LibTorch: /bin/false has no torch. Install it (pip install torch==2.11.*)", output)
        status, output = self.levin("--version", LEVIN_TORCH_DIR=str(folder))
        self.assertEqual(status, 3)
        self.assertIn(f"LEVIN_TORCH_DIR={folder} holds no lib/libtorch_cpu.so", output)

    def test_another_version_of_torch_is_refused(self):
        other = folder / "other/torch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "version.py").write_text("from typing import Optional\n__version__ = '2.9.1+cu128'\n")
        status, output = self.levin("--version", LEVIN_TORCH_DIR=str(other.parent))
        self.assertEqual(status, 3)
        self.assertIn(f"LibTorch in {other} is 2.9.1+cu128, and this Levin was built for 2.11.", output)

    def test_it_reports_what_it_needs_and_whose_libraries_it_holds(self):
        about = json.loads((root / "share/levin/bundle.json").read_text())
        self.assertEqual((about["torch"], about["cuda"]), ("2.11", False))
        self.assertLessEqual(tuple(map(int, about["needs"]["GLIBC"].split("."))), (2, 36))
        self.assertIn("libyaml-cpp.so.0.7", about["libraries"])
        for package in about["libraries"].values():
            self.assertTrue((root / f"share/doc/levin/libraries/{package.split()[0]}.copyright").stat().st_size > 0)
        self.assertTrue((root / "share/doc/levin/LICENSE").exists())
        self.assertTrue((root / "include/levin/levin.h").exists())

    def test_it_holds_the_scripts_for_weights_and_models_of_python(self):
        tools = root / "share/levin/tools"
        help_text = subprocess.run([sys.executable, "-B", tools / "convert_checkpoint.py", "--help"], capture_output=True,
                                   text=True, check=True).stdout
        self.assertIn("convert_checkpoint.py", help_text)
        self.assertTrue((tools / "export_model.py").exists() and (tools / "compile_step.py").exists())

    def test_it_holds_neither_torch_nor_the_cuda_component_nor_the_benchmarks(self):
        names = {path.name for path in root.rglob("*")}
        self.assertFalse({"libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libc.so.6", "liblevin_cuda.so", "bench_gpt"} & names)


if __name__ == "__main__":
    unittest.main(verbosity=2)
