"""A copy of ./dev in a separate folder, for tests. They are started as X_test.py SOURCES [unittest's arguments].

If a machine must lack something, small programs with the same names come before the real ones on PATH (id prints 1000, df
reports a full disk); everything else is real.
"""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

# Replaces `python3 -m pip download`: makes wheels that contain what setup looks for.
FAKE_PIP = r"""#!/usr/bin/env bash
[ "$3" = --version ] && exit 0
echo "$*" >> "$CALLS"
while [ $# -gt 1 ]; do [ "$1" = --dest ] && dest=$2; shift; done
exec /usr/bin/env -u CALLS "$REAL_PYTHON" - "$dest" <<'PY'
import sys, zipfile
files = ["torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1", "torch/lib/libtorch_global_deps.so",
         "torch/lib/libshm.so", "torch/include/torch/csrc/api/include/torch/torch.h", "torch/share/cmake/a.cmake",
         "torch/version.py", "torch-2.11.0.dist-info/METADATA", "torch/lib/libtorch_cuda.so", "torch/nn/a.py"]
with zipfile.ZipFile(sys.argv[1] + "/torch-2.11.0.whl", "w") as wheel:
    for file in files:
        wheel.writestr(file, "x")
with zipfile.ZipFile(sys.argv[1] + "/nvidia_cuda_runtime.whl", "w") as wheel:
    wheel.writestr("nvidia/cu13/lib/libcudart.so.13", "x")
PY
"""

# Replaces the Python for which the peers are installed: it handles pip install, its own path and the last check.
FAKE_PEERS_PYTHON = r"""#!/usr/bin/env bash
case "$*" in
  *'import sys, pip'*) exit 0 ;;
  *'print(sys.executable)'*) echo "$0"; exit 0 ;;
  *'import lightning'*) [ "$PYTHONPATH" = "$(dirname "$0")" ] && ls "$PYTHONPATH/torch" && echo "2.6.6 2.11.0"; exit ;;
esac
echo "$*" >> "$CALLS"
while [ $# -gt 1 ]; do [ "$1" = --target ] && target=$2; shift; done
mkdir -p "$target"/torch/{lib,include} "$target/nvidia/cu13/include"
head -c 2000000 /dev/zero > "$target/torch/lib/libtorch_cpu.so"
head -c 2000000 /dev/zero | tr '\\0' 1 > "$target/torch/lib/libtorch_cuda.so"
exit "${FAIL:-0}"
"""

ALL_INSTALLED = """#!/usr/bin/env bash
for word; do case $word in -*|*'$'*) ;; *) echo "installed $word" ;; esac; done
"""


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.checkout = self.root / "checkout"
        (self.checkout / "cmake").mkdir(parents=True)
        (self.checkout / "bench").mkdir()
        (self.checkout / "bench/main.cpp").write_text('    {"overhead", bench::overhead::run_program},\n')
        shutil.copy(SOURCES / "dev", self.checkout)
        shutil.copytree(SOURCES / "tools/dev", self.checkout / "tools/dev", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(SOURCES / "cmake/debian-packages.txt", self.checkout / "cmake")
        (self.checkout / "tests/support").mkdir(parents=True)
        shutil.copy(SOURCES / "tests/support/test_summary.py", self.checkout / "tests/support")
        shutil.copytree(SOURCES / "cmake/libtorch", self.checkout / "cmake/libtorch")
        for kind in ("cpu", "cuda"):
            shutil.copy(SOURCES / f"cmake/libtorch-{kind}.txt", self.checkout / "cmake")
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.home = self.root / "home"
        self.calls = self.root / "calls"
        self.calls.touch()
        self.environment = {"PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin", "LEVIN_HOME": str(self.home),
                            "LEVIN_SYSTEM_HOME": str(self.root / "system"),
                            "HOME": str(self.root), "CALLS": str(self.calls), "REAL_PYTHON": sys.executable}
        self.program("dpkg-query", ALL_INSTALLED)

    def program(self, name, text):
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def tool(self, name, code):
        """Makes a script of the tree that records how it was called, and then runs `code`."""
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"import os, sys\nopen({str(self.calls)!r}, 'a').write(' '.join(sys.argv) + '\\n')\n{code}\n")

    def dev(self, *arguments, **environment):
        return self.run_script("dev", *arguments, **environment)

    def run_script(self, script, *arguments, **environment):
        """Returns (exit status, output)."""
        done = subprocess.run([self.checkout / script, *arguments], env={**self.environment, **environment},
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    def left_in_home(self):
        return sorted(p.name for p in self.home.iterdir() if p.name not in ("logs", ".setup.lock"))

    def make_torch(self):
        torch = self.home / "libtorch-2.11.0-cpu/torch"
        for file in ("lib/libtorch_cpu.so", "include/torch/csrc/api/include/torch/torch.h"):
            (torch / file).parent.mkdir(parents=True)
            (torch / file).touch()

    def pretend_to_build(self):
        """Makes cmake, ninja and ctest that record how they were called, and a complete LibTorch."""
        self.make_torch()
        for name in ("cmake", "ninja", "ctest"):
            self.program(name, f'#!/bin/sh\necho {name} "$@" >> {self.calls}\n')

    def make_peers_lists(self):
        (self.checkout / "bench/peers").mkdir()
        shutil.copy(SOURCES / "bench/peers/requirements.txt", self.checkout / "bench/peers")
        self.program("peers_python", FAKE_PEERS_PYTHON)
        self.program("python3", FAKE_PIP)
        self.environment["LEVIN_PYTHON"] = str(self.bin / "peers_python")
