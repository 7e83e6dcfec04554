"""own_mounts.sh, which gives Slurm's nodes an /etc/hosts of their own: on this machine and in a chroot whose / is not a
mount, as debootstrap's are. Root.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

OWN_MOUNTS = pathlib.Path(__file__).resolve().parent / "own_mounts.sh"
SKIPPED = 77

# Folders of this machine, bound into an empty one: what a chroot needs for sh, mount and unshare.
CHROOT = """
for folder in bin sbin lib lib32 lib64 usr proc dev; do
  [ -e /$folder ] || continue
  mkdir -p "$1/$folder"
  mount --bind "/$folder" "$1/$folder"
done
mkdir -p "$1/tmp" "$1/etc" && echo as it was > "$1/etc/hosts" && cp "$2" "$1/own_mounts.sh"
exec chroot "$1" sh -c "$3"
"""
CHANGE = "echo changed > /tmp/hosts && {} sh -c 'mount --bind /tmp/hosts /etc/hosts && cat /etc/hosts' && cat /etc/hosts"


def missing():
    if os.geteuid() != 0:
        return "only root may mount"
    made = subprocess.run(["unshare", "--mount", "--propagation", "unchanged", "true"], capture_output=True, text=True)
    return "" if made.returncode == 0 else f"this machine makes no mount namespaces: {made.stderr.strip()}"


def run(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


class OwnMounts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin own mounts ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def in_a_chroot(self, command):
        return run(OWN_MOUNTS, "sh", "-ec", CHROOT, "chroot", self.folder, OWN_MOUNTS, command)

    def test_the_command_has_the_callers_folder_arguments_and_exit_status(self):
        code = "import os, sys; print(os.getcwd(), sys.argv[1:]); sys.exit(5)"
        done = subprocess.run([str(OWN_MOUNTS), sys.executable, "-c", code, "a b"], cwd=self.folder, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (5, f"{self.folder} ['a b']\n"), done.stderr)

    def test_nobody_else_sees_a_mount(self):
        here, mounted = self.folder / "here", self.folder / "mounted"
        here.mkdir()
        mounted.mkdir()
        (mounted / "file").touch()
        command = 'mount --bind "$1" "$2" && ls "$2"'
        self.assertEqual(run(OWN_MOUNTS, "sh", "-c", command, "sh", mounted, here), (0, "file\n"))
        self.assertEqual(list(here.iterdir()), [])

    def test_neither_in_a_chroot_without_a_mount_at_its_root(self):
        status, output = self.in_a_chroot(CHANGE.format("unshare --mount"))
        self.assertNotEqual(status, 0, f"unshare works in this chroot: {output}")
        self.assertEqual(self.in_a_chroot(CHANGE.format("sh /own_mounts.sh")), (0, "changed\nas it was\n"))


if __name__ == "__main__":
    if missing():
        print(f"skipped: {missing()}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
