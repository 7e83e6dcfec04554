"""An install by root as a different user sees it. Run by root; the other user is nobody.

  other_user_test.py CMAKE BUILD LIBTORCH [unittest's arguments]

Access to LibTorch is opened or closed only in a mount namespace: the machine's own folders stay unchanged.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, TORCH = (pathlib.Path(sys.argv.pop(1)) for _ in range(3))
OWN_MOUNTS = pathlib.Path(__file__).resolve().parent.parent / "support/own_mounts.sh"
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
SKIPPED = 77

# Shell scripts, with LibTorch as $torch.
CLOSED = 'mount -t tmpfs -o mode=700 levin-test "$torch/lib"'
OPEN = """
closed=
path=$torch
while [ "$path" != / ]; do
  find "$path" -maxdepth 0 -perm -o=x | grep -q . || closed=$path
  path=$(dirname "$path")
done
if [ -n "$closed" ]; then  # an empty folder of that name with LibTorch in it and, next to it, what its wheel needs
  kept=$prefix/kept
  nvidia=$(dirname "$torch")/nvidia
  mkdir -p "$kept/torch" "$kept/nvidia"
  mount --bind "$torch" "$kept/torch"
  [ ! -d "$nvidia" ] || mount --bind "$nvidia" "$kept/nvidia"
  mount -t tmpfs -o mode=755 levin-test "$closed"
  mkdir -p "$torch" "$nvidia"
  mount --bind "$kept/torch" "$torch"
  mount --bind "$kept/nvidia" "$nvidia"
fi
"""


def missing():
    """Returns why nothing can be tested here, or ""."""
    if os.geteuid() != 0:
        return "only root can become another user"
    if not shutil.which("setpriv"):
        return "setpriv is not installed (Debian: util-linux)"
    for arguments in ([str(OWN_MOUNTS), "true"], [*NOBODY.split(), "true"]):
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{' '.join(arguments)}: {done.stderr.strip()}"
    return ""


class OtherUser(unittest.TestCase):
    def setUp(self):
        # Not below the build, which may be in a folder of root's own.
        folder = tempfile.TemporaryDirectory(prefix="levin-other-user-", dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name)
        self.prefix.chmod(0o755)

    def where(self, torch, command):
        """Returns (exit status, output) of a command after the script `torch` has changed access to LibTorch."""
        script = f"set -e; umask 022; torch=$1 cmake=$2 build=$3 prefix=$4; cd /; {torch}\n{command}"
        done = subprocess.run([str(OWN_MOUNTS), "sh", "-c", script, "sh", str(TORCH), str(CMAKE), str(BUILD),
                               str(self.prefix)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120)
        return done.returncode, " ".join(done.stdout.split())

    def install(self, torch):
        status, output = self.where(torch, '"$cmake" --install "$build" --prefix "$prefix"')
        self.assertEqual(status, 0, output)
        return output

    def test_where_libtorch_is_closed_to_others_the_install_warns_and_the_tool_names_the_remedy(self):
        output = self.install(CLOSED)
        self.assertIn(f"Other users cannot start what was installed in {self.prefix}: LibTorch is in {TORCH}/lib, and "
                      "they have no access to ", output)
        self.assertRegex(output, r"For an install for all users, run as root: \./dev setup (--cuda )?--system && ")
        status, output = self.where(CLOSED, f'{NOBODY} "$prefix/bin/levin" --version')
        self.assertEqual(status, 1, output)
        self.assertIn("error: levin cannot be loaded: libtorch_cpu.so: cannot open shared object file", output)
        self.assertIn(f"LibTorch is in {TORCH}/lib, and this user has no access to /", output)
        self.assertIn("as root, ./dev setup --system && ./dev build, then cmake --install", output)

    def test_where_libtorch_is_open_to_all_another_user_can_start_it(self):
        self.install(CLOSED)
        status, output = self.where(OPEN, f'{NOBODY} "$prefix/bin/levin" --version')
        self.assertEqual(status, 0, output)
        self.assertRegex(output, r"^levin [0-9.]+, LibTorch [0-9.]+")

    def test_a_libtorch_that_has_gone_is_named(self):
        self.install(CLOSED)
        status, output = self.where('mount -t tmpfs levin-test "$torch/lib"', '"$prefix/bin/levin" --version')
        self.assertEqual(status, 1, output)
        self.assertIn(f"LibTorch is no longer in {TORCH}/lib: restore it (./dev setup), or build and install Levin again",
                      output)


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
