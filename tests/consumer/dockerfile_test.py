"""The steps of packaging/Dockerfile, in a bare Debian 12.

  dockerfile_test.py SOURCES BUILD TORCH_ROOT [unittest's arguments]

LibTorch is this machine's, at the same place, and so is the cache of ccache: what BUILD has compiled with the same
compiler is not compiled again. With LEVIN_TEST_DOCKER_ALONE set, nothing is shared, which takes long.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCES, BUILD, TORCH = (pathlib.Path(sys.argv.pop(1)) for _ in range(3))
sys.dont_write_bytecode = True
import fresh_debian


def steps():
    """Returns (instruction, arguments) of each."""
    text = re.sub(r"^#.*\n", "", (SOURCES / "packaging/Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def run(debian, instruction, argument, folder):
    """Carries one out, and returns the folder of the next."""
    if instruction == "COPY":
        source, target = argument.split()
        ignored = (SOURCES / "packaging/Dockerfile.dockerignore").read_text().split()
        shutil.copytree(SOURCES / source, debian.root / target.lstrip("/"), symlinks=True,
                        ignore=lambda path, names: set(ignored) & set(names) if path == str(SOURCES / source) else set())
    elif instruction == "WORKDIR":
        (debian.root / argument.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return argument
    elif instruction == "RUN":
        print(f"RUN {argument}", flush=True)
        debian.run(argument, folder, timeout=6000)
    else:
        raise AssertionError(f"{instruction} is not an instruction that this test knows")
    return folder


def share(debian):
    """Shows LibTorch and ccache's cache there: compiler's commands name LibTorch's folder, and are the same then."""
    home = TORCH.parent.parent
    debian.mount(TORCH.parent, TORCH.parent)
    for folder in home.parents:
        debian.run(f"chmod a+x {folder}")  # as ./dev asks for, of a LibTorch for all users
    debian.environment["LEVIN_SYSTEM_HOME"] = str(home)
    if shutil.which("ccache"):
        cache = subprocess.run(["ccache", "--get-config", "cache_dir"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        debian.mount(cache, "/ccache")
        debian.environment["CCACHE_DIR"] = "/ccache"


class Dockerfile(unittest.TestCase):
    def test_its_steps_lead_to_a_tool_that_trains(self):
        (_, image), *between, (last, entry) = steps()
        self.assertEqual((image, last), ("debian:12", "ENTRYPOINT"))
        with fresh_debian.FreshDebian() as debian:
            if not os.environ.get("LEVIN_TEST_DOCKER_ALONE"):
                share(debian)
            folder = "/"
            for instruction, argument in between:
                folder = run(debian, instruction, argument, folder)
            command = " ".join(json.loads(entry))
            self.assertIn("Trained 1 epoch, 8 steps", debian.run(
                f"{command} fit --config /opt/levin/configs/fashion_mnist.yaml --trainer.max_epochs=1 "
                "--trainer.limit_train_batches=8 --trainer.limit_val_batches=2", folder))


if __name__ == "__main__":
    fresh_debian.main("__main__")
