"""The Debian packages of a build, installed in a bare Debian 12: a project is built there with them, and a run is started.

  packages_test.py SOURCES BUILD TORCH_ROOT [unittest's arguments]
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, TORCH = (pathlib.Path(sys.argv.pop(1)) for _ in range(3))
sys.dont_write_bytecode = True
import fresh_debian

INSTALL = "apt-get install -y -q --no-install-recommends"


def setUpModule():
    global debian, postinst
    if not shutil.which("dpkg-shlibdeps") or not shutil.which("file") or not shutil.which("patchelf"):
        print("dpkg-dev, file or patchelf is not installed")
        sys.exit(77)
    debian = fresh_debian.FreshDebian().__enter__()
    unittest.addModuleCleanup(debian.__exit__)
    debian.environment["DEBIAN_FRONTEND"] = "noninteractive"
    made = tempfile.mkdtemp(prefix="levin-packages-", dir="/var/tmp")
    unittest.addModuleCleanup(shutil.rmtree, made)
    done = subprocess.run(["cpack", "--config", BUILD / "CPackConfig.cmake", "-B", made], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    for path in pathlib.Path(made).glob("*.deb"):
        shutil.copy(path, debian.root / "root")
    for path in ("tests/consumer/installed", "tests/consumer/pkgconfig"):
        shutil.copytree(SOURCES / path, debian.root / "root" / pathlib.Path(path).name)
        shutil.copy(SOURCES / "tests/consumer/main.cpp", debian.root / "root" / pathlib.Path(path).name)
    debian.run("apt-get update -q")
    postinst = debian.run(f"{INSTALL} ./levin-core.deb ./levin-dev.deb")
    debian.run(f"{INSTALL} g++ cmake make pkg-config")
    debian.mount(TORCH.parent, f"/usr/local/lib/levin/{TORCH.parent.name}")  # as ./dev setup --system has it


class Packages(unittest.TestCase):
    def test_1_without_libtorch_it_says_how_to_get_one(self):
        self.assertIn(f"Levin needs LibTorch 2.11.0 in /usr/local/lib/levin/{TORCH.parent.name}.", postinst)
        self.assertTrue((debian.root / "usr/share/levin/libtorch-cpu.txt").exists())

    def test_2_a_project_with_cmake_is_built_with_core_alone(self):
        debian.run("cmake -S installed -B build -DCMAKE_CXX_FLAGS=-O0 && cmake --build build", timeout=1200)
        self.assertIn("consumer: 200 steps, loss is low", debian.run("./build/app"))
        self.assertEqual([*(debian.root / "usr/lib").glob("liblevin_text.so.*")], [])  # the link without a version is in levin-dev

    def test_3_a_project_with_pkg_config_is_built(self):
        debian.run("make -C pkgconfig CXXFLAGS=-O0", timeout=1200)
        self.assertIn("consumer: 200 steps, loss is low", debian.run("./pkgconfig/app"))

    def test_4_the_tool_brings_the_parts_that_it_needs_and_others_are_added(self):
        debian.run(f"{INSTALL} ./levin-tools.deb ./levin-models.deb ./levin-tracking.deb ./levin-text.deb ./levin-downloads.deb")
        self.assertRegex(debian.run("levin --version"), r"levin [0-9.]+, LibTorch 2\.11")
        shutil.copy(SOURCES / "configs/fashion_mnist.yaml", debian.root / "root")
        with self.assertRaisesRegex(AssertionError, "install the package levin-images"):
            debian.run("levin fit --config fashion_mnist.yaml --data.class_path=ImageFolderData")
        with self.assertRaisesRegex(AssertionError, "install the package levin-images"):
            debian.run("levin help ImageFolderData")
        debian.run(f"{INSTALL} ./levin-images.deb ./levin-arrays.deb dataset-fashion-mnist")
        self.assertIn("ImageFolderData", debian.run("levin help ImageFolderData"))
        self.assertIn("Trained 1 epoch, 8 steps", debian.run(
            "levin fit --config fashion_mnist.yaml --trainer.max_epochs=1 --trainer.limit_train_batches=8 "
            "--trainer.limit_val_batches=2"))

    def test_5_they_can_be_removed(self):
        debian.run("apt-get remove -y -q 'levin-*'")
        self.assertEqual([path.name for path in (debian.root / "usr/lib").glob("liblevin*")], [])


if __name__ == "__main__":
    fresh_debian.main("__main__")
