"""The steps of packaging/Dockerfile, in a bare Debian 12: it downloads LibTorch and builds Levin, which takes long.

  dockerfile_test.py SOURCES BUILD TORCH_ROOT [unittest's arguments]

With LEVIN_TEST_DOCKER_TORCH set, LibTorch is this machine's instead of a download.
"""
import json
import os
import pathlib
import re
import shutil
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


class Dockerfile(unittest.TestCase):
    def test_its_steps_lead_to_a_tool_that_trains(self):
        (_, image), *between, (last, entry) = steps()
        self.assertEqual((image, last), ("debian:12", "ENTRYPOINT"))
        with fresh_debian.FreshDebian() as debian:
            if os.environ.get("LEVIN_TEST_DOCKER_TORCH"):
                debian.mount(TORCH.parent, f"/usr/local/lib/levin/{TORCH.parent.name}")
            folder = "/"
            for instruction, argument in between:
                folder = run(debian, instruction, argument, folder)
            command = " ".join(json.loads(entry))
            self.assertIn("Trained 1 epoch, 8 steps", debian.run(
                f"{command} fit --config /opt/levin/configs/fashion_mnist.yaml --trainer.max_epochs=1 "
                "--trainer.limit_train_batches=8 --trainer.limit_val_batches=2", folder))


if __name__ == "__main__":
    fresh_debian.main("__main__")
