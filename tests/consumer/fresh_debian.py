"""A bare Debian in a folder, in which root runs commands: a chroot that debootstrap makes and that ends with the process."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def missing():
    """Returns why none can be made here, or ""."""
    if os.geteuid() != 0:
        return "only root can make a chroot"
    if not shutil.which("debootstrap"):
        return "debootstrap is not installed"
    if not mirror():
        return "no mirror of Debian in /etc/apt/sources.list.d"
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "--bind", folder, folder], stderr=subprocess.DEVNULL).returncode != 0:
            return "this machine lets nobody mount a folder"
        subprocess.run(["umount", "--lazy", folder], check=True)
    return ""


def mirror():
    """Returns where this machine's apt gets Debian's packages."""
    for path in sorted(glob.glob("/etc/apt/sources.list.d/*.sources")):
        found = re.search(r"^URIs: *(\S+)", pathlib.Path(path).read_text(), re.M)
        if found:
            return found[1]
    return ""


def shell(command, before=(), **options):
    """Returns the output of a shell command, which must succeed. `before`: words that start the shell."""
    done = subprocess.run([*before, "sh", "-ec", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode} of: {command}\n{done.stdout[-6000:]}")
    return done.stdout


class FreshDebian:
    """For `with`: makes it, and removes it with all that was mounted there."""

    def __init__(self, suite="bookworm"):
        self.suite, self.environment = suite, {"HOME": "/root", "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                               "LANG": "C.UTF-8", "PIP_CERT": CERTIFICATES}
        self.root, self.mounted = pathlib.Path(tempfile.mkdtemp(prefix="levin-debian-", dir="/var/tmp")), []

    def __enter__(self):
        try:
            subprocess.run(["debootstrap", "--variant=minbase", "--include=ca-certificates", self.suite, self.root, mirror()],
                           check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for path in (CERTIFICATES, "/etc/resolv.conf", "/etc/hosts"):
                shutil.copy(path, self.root / path.lstrip("/"))
            for name in ("/proc", "/dev"):
                self.mount(name, name)
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise AssertionError(f"{error.cmd}: {error.stdout}") from None
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for place in reversed(self.mounted):
            subprocess.run(["umount", "--lazy", place], check=True)
        self.mounted.clear()
        subprocess.run(["rm", "-rf", "--one-file-system", self.root], check=True)

    def mount(self, source, target):
        """Shows a folder of this machine there."""
        place = self.root / str(target).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, place], check=True)
        self.mounted.append(place)

    def run(self, command, folder="/root", timeout=600):
        """Returns the output of a shell command, which must succeed."""
        return shell(command, ["chroot", self.root, "env", "-i", f"--chdir={folder}",
                               *[f"{name}={value}" for name, value in self.environment.items()]], timeout=timeout)


def main(module):
    """Runs a module's tests, or skips all of them."""
    import unittest
    if missing():
        print(f"skipped: {missing()}")
        sys.exit(77)
    unittest.main(module=module, verbosity=2)
