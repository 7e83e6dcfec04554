#!/usr/bin/env python3
"""Makes files of one version of Levin, which later versions must read: tests/upgrades/VERSION.

    tests/upgrades/make_fixtures.py build/release/bin/levin tests/upgrades/0.3.0

Run it with the program of a release, once, and commit the folder; upgrades_test.py tests every folder that is there. It trains a
tiny GPT on a text of two kilobytes, in a folder whose path no file may depend on:

    run.yaml, sweep.yaml, text.txt   the run file, the sweep's file and the data
    single/, ddp/, fsdp/             runs with one and two ranks: checkpoints, files of all loggers, run.json
    sweep/                           a sweep of two trials
    expected.json                    numbers that this version has measured with the checkpoints
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

RUN = """\
seed_everything: 7
trainer:
  max_epochs: 2
  accelerator: cpu
  num_threads: 1
  num_sanity_val_steps: 0
  limit_train_batches: 4
  log_every_n_steps: 1
  enable_model_summary: false
  default_root_dir: .
  logger:
    - {class_path: CSVLogger, init_args: {name: single, version: run}}
    - {class_path: JSONLinesLogger, init_args: {name: single, version: run}}
    - {class_path: TensorBoardLogger, init_args: {name: single, version: run}}
    - {class_path: SQLiteLogger, init_args: {path: single/runs.sqlite}}
  callbacks:
    - {class_path: ModelCheckpoint, init_args: {monitor: val_loss, filename: best, save_last: true}}
    - {class_path: LearningRateMonitor}
    - {class_path: EarlyStopping, init_args: {monitor: val_loss}}
    - {class_path: EMAWeightAveraging, init_args: {decay: 0.9}}
model:
  class_path: GPT
  init_args: {block_size: 8, n_layer: 1, n_head: 1, n_embd: 4, dropout: 0.1, max_new_tokens: 8, warmup_steps: 2}
data: {class_path: TextFile, init_args: {path: text.txt, block_size: 8, batch_size: 4, test_fraction: 0.1}}
"""

SWEEP = """\
run: run.yaml
folder: sweep
metric: val_loss
max_trials: 2
cores_per_slot: 1
search: {method: random}
space:
  model.lr: {log_uniform: [0.001, 0.1]}
"""

CSV_LOGGER = '[{"class_path": "CSVLogger", "init_args": {"name": "%s", "version": "run"}}]'
RUNS = {
    "single": [],
    "ddp": ["--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.logger=" + CSV_LOGGER % "ddp"],
    "fsdp": ["--trainer.devices=2", "--trainer.strategy.class_path=fsdp", "--trainer.strategy.init_args.state_dict_type=sharded",
             "--trainer.logger=" + CSV_LOGGER % "fsdp"],
}


class Levin:
    """Runs the program in a folder."""

    def __init__(self, program, folder):
        self.program, self.folder = str(pathlib.Path(program).resolve()), pathlib.Path(folder)

    def __call__(self, *arguments, status=0):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(["levin", *arguments], executable=self.program, cwd=self.folder, env=environment, timeout=600,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != status:
            raise RuntimeError(f"levin {' '.join(arguments)}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    def measure(self, name, checkpoint):
        """Returns what `levin validate` measures with a checkpoint of the run NAME."""
        shutil.rmtree(self.folder / "measured", ignore_errors=True)
        logger = json.dumps([{"class_path": "JSONLinesLogger", "init_args": {"name": "measured", "version": "run"}}])
        self("validate", "--config", "run.yaml", f"--trainer.logger={logger}", f"--ckpt_path={name}/run/checkpoints/{checkpoint}")
        lines = (self.folder / "measured/run/metrics.jsonl").read_text().splitlines()
        metrics = {}
        for line in map(json.loads, lines):
            metrics.update(line.get("metrics", {}))
        shutil.rmtree(self.folder / "measured")
        return metrics

    def go_on(self, name, epochs=3):
        """Continues the run NAME from last.ckpt, and returns the metrics of run.json at its end."""
        self("fit", "--config", "run.yaml", *RUNS[name], f"--trainer.max_epochs={epochs}",
             f"--ckpt_path={name}/run/checkpoints/last.ckpt")
        record = json.loads((self.folder / name / "run/run.json").read_text())
        return {key: value["last"] for key, value in record["metrics"].items()}


def make(levin):
    """Makes the files in the program's folder, and returns the expected numbers."""
    folder = levin.folder
    words = random.Random(3).choices(["levin", "trains", "models", "in", "one", "process", "or", "many"], k=350)
    (folder / "text.txt").write_text(" ".join(words) + "\n")
    (folder / "run.yaml").write_text(RUN)
    (folder / "sweep.yaml").write_text(SWEEP)
    expected = {"version": levin("--version").split()[1].rstrip(","), "runs": {}}
    for name, options in RUNS.items():
        levin("fit", "--config", "run.yaml", *options)
        expected["runs"][name] = {
            "last": levin.measure(name, "last.ckpt"), "best": levin.measure(name, "best.ckpt")}
    levin("sweep", "sweep.yaml")
    expected["sweep"] = json.loads(levin("sweep", "status", "sweep", "--json"))
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True, symlinks=True)
        for name in RUNS:
            expected["runs"][name]["continued"] = Levin(levin.program, copy).go_on(name)
    return expected


def make_folder(program, folder):
    """Makes the folder, complete or not at all, and returns the program's version."""
    with tempfile.TemporaryDirectory(prefix="levin_fixtures_") as made:
        expected = make(Levin(program, made))
        (pathlib.Path(made) / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        shutil.copytree(made, folder, symlinks=True)
    return expected["version"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the levin program of the version")
    parser.add_argument("folder", help="tests/upgrades/VERSION, which must not exist")
    arguments = parser.parse_args()
    if os.path.exists(arguments.folder):
        sys.exit(f"{arguments.folder} exists. Files of a released version are not made again; give another folder.")
    print(f"{arguments.folder}: files of Levin {make_folder(arguments.program, arguments.folder)}")


if __name__ == "__main__":
    main()
