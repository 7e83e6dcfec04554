"""What the tests of this folder share: run files, runs of the tool that are watched and disturbed, and the comparison of
what two runs left behind.
"""
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from few_images import few_images  # noqa: E402
from levin_runs import run_levin  # noqa: E402
from waiting import catches, wait_until  # noqa: E402

LEVIN = str(Path(sys.argv.pop(1)).resolve())
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}

# {root}: default_root_dir; the others: see run_file. Validation is a good part of the time, and there are steps between
# the last save of an epoch and its validation.
RUN = """\
seed_everything: 7
trainer:
  max_epochs: {epochs}
  auto_resume: {auto_resume}
  default_root_dir: {root}
  limit_train_batches: 60
  limit_val_batches: {val_batches}
  val_check_interval: {val_every}
  num_sanity_val_steps: {sanity}
  log_every_n_steps: 5
  enable_model_summary: false
  logger: {{class_path: CSVLogger, init_args: {{flush_logs_every_n_steps: {flush}}}}}
  callbacks:
    - {{class_path: ModelCheckpoint, init_args: {{every_n_train_steps: {save_every}, {checkpoint}}}}}
    - LearningRateMonitor
model: {{class_path: Classifier, init_args: {{arch: {arch}, hidden: {hidden}, dropout: 0.2}}}}
data: {{class_path: FashionMnist, init_args: {{root: {data}, val_size: 2560, batch_size: {batch}, num_workers: 2}}}}
optimizer: {{class_path: Adam, init_args: {{lr: 0.001}}}}
lr_scheduler: {{class_path: OneCycleLR, init_args: {{max_lr: 0.005, total_steps: 600}}, interval: step}}
"""

SAVE_EVERY = 7  # steps
KEEP_ALL = "save_top_k: -1, save_last: true"
KEEP_BEST = "monitor: val_loss, save_top_k: 2, save_last: true"


def run_file(root, **wanted):
    options = dict(epochs=3, auto_resume="true", val_batches=20, val_every=1.0, sanity=2, flush=100, save_every=SAVE_EVERY,
                   checkpoint=KEEP_ALL, arch="mlp", hidden=64, batch=128)
    unknown = wanted.keys() - options
    if unknown:
        raise TypeError(f"no options of a run file: {unknown}")
    return RUN.format(root=root, data=few_images(), **{**options, **wanted})


class Run:
    """A running tool, or another program, in its own process group, which ends with the `with` block. `process`: more options
    of Popen."""

    def __init__(self, *arguments, ignore_ctrl_c=False, program=LEVIN, env=ENVIRONMENT, **process):
        def before_start():
            if ignore_ctrl_c:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        self.command = " ".join(map(str, [Path(program).name, *arguments]))
        self.output_file = tempfile.TemporaryFile()
        wait_until(lambda: os.access(program, os.X_OK), f"{program}, which is being linked", seconds=120)
        self.process = subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=self.output_file,
                                        stderr=subprocess.STDOUT, env=env, preexec_fn=before_start,
                                        start_new_session=True, **process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.output_file.close()

    def ended(self):
        return self.process.poll() is not None

    def catches(self, number):
        """Returns true if the process handles the signal now, instead of being ended by it."""
        return catches(self.process.pid, number)

    def send(self, number):
        self.process.send_signal(number)

    def status(self, seconds=120):
        """Returns the return code as in subprocess: -N is death by signal N."""
        return self.process.wait(seconds)

    def output(self):
        return os.pread(self.output_file.fileno(), 1 << 24, 0).decode(errors="replace")

    def report(self):
        return f"$ {self.command}\n{self.output()}(status {self.process.poll()})"


def levin(*arguments, status=0):
    """Runs the tool to its end; returns its output."""
    done = finished(*arguments)
    if done.returncode != status:
        raise AssertionError(f"expected exit status {status}\n{report(done)}")
    return done.stdout


def finished(*arguments):
    """Runs the tool to its end, undisturbed."""
    return run_levin([LEVIN, *arguments], env=ENVIRONMENT, timeout=120)


def report(done):
    return f"$ {' '.join(['levin', *done.args[1:]])}\n{done.stdout}(status {done.returncode})"


# ---- checkpoints ---------------------------------------------------------------------------------------------------

def read_checkpoint(path):
    """Returns the checkpoint's values, and each tensor's bytes."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    values = json.loads(header.pop("__metadata__")["levin.values"])
    data = content[8 + length:]
    return values, {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


def weights(path):
    return {name: data for name, data in read_checkpoint(path)[1].items() if name.startswith("model.")}


def global_step(path):
    return read_checkpoint(path)[0]["global_step"]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-len(content) // 4] ^= 0x10  # in the tensors' data
    path.write_bytes(content)


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


# ---- comparing -----------------------------------------------------------------------------------------------------

def files_below(folder):
    tells_the_time = re.compile(r"run(\.rank\d+)?(\.\d+)?\.log|run\.json|\.rank\d+\.json")  # and how often it was begun
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and not tells_the_time.fullmatch(p.name)}


def checkpoints_in(folder):
    return sorted(p for p in folder.glob("*.ckpt") if p.is_file())


def first_difference(name, expected, actual, folders):
    if name.endswith(".ckpt"):
        return report(finished("checkpoint", "diff", folders[0] / name, folders[1] / name))
    old, new = expected.decode(errors="replace").splitlines(), actual.decode(errors="replace").splitlines()
    for number, (a, b) in enumerate(zip(old, new), 1):
        if a != b:
            return f"line {number}:\n  undisturbed: {a}\n  disturbed:   {b}"
    return f"{len(old)} lines undisturbed, {len(new)} disturbed; as far as both go they are equal"


def differences(undisturbed, disturbed, more=(), ignored=lambda name: False):
    """Describes how the folders' files differ; "" if they are bitwise identical. `more`: files only the second has.
    `ignored`: returns true for the names of files that are not compared."""
    expected, actual = ({name: content for name, content in files_below(folder).items() if not ignored(name)}
                        for folder in (undisturbed, disturbed))
    problems = [f"missing: {name}" for name in expected.keys() - actual.keys()]
    problems += [f"left over: {name}" for name in actual.keys() - expected.keys() - set(more)]
    for name in expected.keys() & actual.keys():
        if expected[name] != actual[name]:
            problems.append(f"{name} differs, " +
                            first_difference(name, expected[name], actual[name], (undisturbed, disturbed)))
    return "\n".join(sorted(problems))
