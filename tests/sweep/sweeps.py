"""What the tests of levin sweep share: a run of a tiny model, and calls of the tool in a separate folder."""
import csv
import glob
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

SUPPORT = str(pathlib.Path(__file__).resolve().parents[1] / "support")
sys.path.insert(0, SUPPORT)
from few_images import few_images  # noqa: E402
from levin_runs import run_levin  # noqa: E402
from waiting import wait_until  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
CASE = sys.argv.pop(1)

RUN = """\
seed_everything: 7
trainer:
  max_epochs: 4
  accelerator: cpu
  num_sanity_val_steps: 0
  limit_train_batches: 3
  limit_val_batches: 2
  log_every_n_steps: 1
  enable_model_summary: false
  callbacks:
    - {class_path: ModelCheckpoint, init_args: {monitor: val_loss, save_last: true}}
model: {class_path: Classifier, init_args: {hidden: 4, dropout: 0.2}}
data: {class_path: FashionMnist, init_args: {root: IMAGES, batch_size: 16}}
optimizer: {class_path: SGD, init_args: {lr: 0.1, momentum: 0.9}}
lr_scheduler: {class_path: ExponentialLR, init_args: {gamma: 0.7}}
""".replace("IMAGES", str(few_images()))
SPACE = """\
space:
  optimizer.lr: {log_uniform: [0.001, 1]}
  model.hidden: {choice: [4, 8]}
  model.dropout: {uniform: [0, 0.5]}
"""


def weights(path):
    """The tensors of a safetensors file, by name, as bytes."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"}


class Base(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin sweep ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.write("run.yaml", RUN)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def sweep_file(self, head="", search="{method: random}", space=SPACE, name="s.yaml", run="run.yaml"):
        self.write(name, f"run: {run}\nmetric: val_loss\ncores_per_slot: 1\nsearch: {search}\n{head}\n{space}")

    def levin(self, *arguments, status=0, env=None, timeout=500):
        done = run_levin([LEVIN, *arguments], cwd=self.folder, env={**self.env, **(env or {})}, timeout=timeout)
        self.assertEqual(done.returncode, status, f"levin {arguments}:\n{done.stdout}")
        return done.stdout

    def sweep(self, *arguments, **more):
        return self.levin("sweep", *arguments, **more)

    def state(self, folder="s"):
        return json.loads(self.sweep("status", folder, "--json"))

    def best(self, folder="s"):
        return json.loads(self.sweep("best", folder, "--json"))

    def start(self, *arguments):
        process = subprocess.Popen([LEVIN, "sweep", *arguments], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for_checkpoints(self, count):
        wait_until(lambda: len(list(self.folder.glob("s/trials/*/**/last.ckpt"))) == count, f"{count} trials with a checkpoint",
                   seconds=120)

    def kill_trials(self, folder="s"):
        for trial in self.state(folder)["trials"]:
            if trial["state"] == "running" and trial["pid"] > 0:
                try:
                    os.killpg(trial["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def val_loss(self, folder):
        """The last val_loss that a run wrote."""
        (path,) = glob.glob(f"{glob.escape(str(folder))}/**/metrics.csv", recursive=True)
        with open(path, newline="", encoding="utf-8") as file:
            return [float(row["val_loss"]) for row in csv.DictReader(file) if row.get("val_loss")][-1]


def main(cases):
    names = sys.argv[1:]
    loader = unittest.defaultTestLoader
    suite = (loader.loadTestsFromNames(names, cases[CASE]) if names else loader.loadTestsFromTestCase(cases[CASE]))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.testsRun and len(result.skipped) == result.testsRun:
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
