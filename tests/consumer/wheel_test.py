"""A wheel as `./dev wheel` makes it, installed into an environment, and used with the torch there.

  wheel_test.py SOURCES BUILD TORCH_ROOT PEERS [unittest's arguments]      PEERS: of ./dev bench --peers, if it is there
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, TORCH, PEERS = (pathlib.Path(sys.argv.pop(1)) for _ in range(4))
SITE = PEERS if (PEERS / "torch/lib/libtorch_cpu.so").exists() else TORCH.parent  # a site-packages with torch
SHORT = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=8", "--trainer.limit_val_batches=2",
         "--trainer.accelerator=cpu")


def run(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stdout}")
    return done.stdout


def setUpModule():
    global folder, packages
    pip = [sys.executable, "-m", "pip"]
    if not shutil.which("patchelf") or subprocess.run([*pip, "--version"], capture_output=True).returncode != 0:
        print("patchelf or pip is not installed (Debian: patchelf, python3-pip)")
        sys.exit(77)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="levin-wheel-", dir="/tmp"))
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    run(sys.executable, "-B", SOURCES / "tools/wheel.py", BUILD, folder)
    wheel, = folder.glob("levin-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    run(*pip, "--python", folder / "venv/bin/python3", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir",
        "--disable-pip-version-check", wheel)
    packages, = folder.glob("venv/lib/python3*/site-packages")


class Wheel(unittest.TestCase):
    def levin(self, *arguments, torch=None):
        """Returns (exit status, output) of the environment's levin, where `torch` is a folder that holds torch/."""
        (packages / "torch.pth").write_text(f"{torch}\n" if torch else "")
        done = subprocess.run([folder / "venv/bin/levin", *arguments], env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
                              cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120)
        return done.returncode, done.stdout

    def test_it_trains_with_the_torch_of_the_environment(self):
        status, output = self.levin("fit", "--config", packages / "levin/share/levin/configs/fashion_mnist.yaml", *SHORT,
                                    torch=SITE)
        self.assertEqual(status, 0, output)
        self.assertIn("Trained 1 epoch, 8 steps", output)
        self.assertRegex(output, r"test_acc +0\.\d+")

    def test_without_torch_it_reports_how_to_install_one(self):
        status, output = self.levin("--version")
        self.assertEqual(status, 3)
        self.assertEqual(output, f"levin: no LibTorch: {folder}/venv/bin/python3 has no torch. Install it (pip install "
                                 "torch==2.11.*), activate its environment, or set LEVIN_PYTHON or LEVIN_TORCH_DIR.\n")

    def test_another_version_of_torch_is_refused(self):
        other = folder / "other/torch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "__init__.py").write_text("raise RuntimeError('imported')\n")
        (other / "version.py").write_text("__version__ = '2.9.1+cu128'\n")
        status, output = self.levin("--version", torch=other.parent)
        self.assertEqual(status, 3)
        self.assertIn(f"LibTorch in {other} is 2.9.1+cu128, and this Levin was built for 2.11. Install torch==2.11.*", output)

    def test_what_it_needs_is_stated_and_what_it_has_is_complete(self):
        about, = packages.glob("levin-*.dist-info")
        metadata = (about / "METADATA").read_text()
        self.assertIn("\nRequires-Dist: torch==2.11.*\n", metadata)
        self.assertRegex(metadata, r"^Metadata-Version: 2\.4\n(?s:.*)\nLicense-Expression: Apache-2\.0\nLicense-File: LICENSE\n")
        self.assertTrue((about / "licenses/LICENSE").exists())
        names = [line.split(",")[0] for line in (about / "RECORD").read_text().splitlines()]
        self.assertEqual([name for name in names if not (packages / name).exists()], [])
        libraries = {path.name for path in (packages / "levin/lib").iterdir()}
        self.assertLessEqual({"liblevin_core.so.0.2", "liblevin_images.so.0.2", "liblevin_tool.so", "libyaml-cpp.so.0.7"}, libraries)
        self.assertFalse([name for name in libraries if re.match(r"lib(torch|c10|stdc|c\.so)", name)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
