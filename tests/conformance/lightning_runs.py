#!/usr/bin/env python3
"""Runs scenarios (README.md) in PyTorch Lightning and writes what happened, in the form of levin_conformance.

usage: lightning_runs.py SCENARIO.json OUT.json
       lightning_runs.py serve        reads runs from standard input: support/forked_runs.py

It needs the packages of `./dev bench --peers`. Lightning is changed where Levin differs on purpose (lightning_models.py).
"""
import csv
import json
import logging
import math
import os
import pathlib
import sys
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, TensorDataset

import lightning_models
from forked_runs import serve_runs

torch.set_num_threads(1)


def rounded(value):
    value = float(value)
    return round(value, 6) if math.isfinite(value) else value


class Trace:
    def __init__(self):
        self.hooks, self.losses, self.lrs, self.global_step_after_batch, self.validations_at = [], [], [], [], []


def noting(prefix, name, base):
    """The hook `name` of a class, which notes each call and then calls the base class."""
    def hook(self, *args, **kwargs):
        self.trace.hooks.append(f"{prefix}.{name}")
        after = getattr(self, f"after_{name}", None)
        result = base(self, *args, **kwargs)
        if after is not None:
            after()
        return result
    return hook


def with_traced_hooks(prefix, names):
    def decorate(cls):
        for name in names:
            setattr(cls, name, noting(prefix, name, getattr(cls, name)))
        return cls
    return decorate


STAGE_HOOKS = [f"on_{stage}_{when}" for stage in ("train", "validation", "test", "predict")
               for when in ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")]
STEP_HOOKS = ["on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step"]
FILE_HOOKS = ["on_save_checkpoint", "on_load_checkpoint"]


def optimizer_of(given, parameters):
    return getattr(torch.optim, given["class_path"])(parameters, **given.get("init_args", {}))


def scheduler_of(given, optimizer):
    arguments = dict(given.get("init_args", {}))
    if "schedulers" in arguments:
        arguments["schedulers"] = [scheduler_of(inner, optimizer) for inner in arguments["schedulers"]]
    if given["class_path"] == "ChainedScheduler":
        return torch.optim.lr_scheduler.ChainedScheduler(arguments["schedulers"], optimizer=optimizer)
    if given["class_path"] == "SWALR":
        return torch.optim.swa_utils.SWALR(optimizer, **arguments)
    return getattr(torch.optim.lr_scheduler, given["class_path"])(optimizer, **arguments)


@with_traced_hooks("module", ["configure_callbacks", "configure_model", "prepare_data", "setup", "teardown", "on_fit_start",
                              "on_fit_end", *STAGE_HOOKS, *STEP_HOOKS, *FILE_HOOKS, "configure_optimizers", "training_step",
                              "validation_step", "test_step", "predict_step"])
class ScenarioModule(pl.LightningModule):
    def __init__(self, scenario, trace):
        super().__init__()
        self.options, self.trace = scenario.get("module", {}), trace
        features = scenario.get("data", {}).get("in_features", 4)
        self.layer = torch.nn.Linear(features, 1)
        with torch.no_grad():
            self.layer.weight[0] = torch.tensor([0.01 * (j + 1) for j in range(features)])
            self.layer.bias.zero_()
        self.automatic_optimization = not self.options.get("manual", False)
        self.batches = 0

    def loss_of(self, batch):
        several = not isinstance(batch[0], torch.Tensor)  # training loaders; None of one that has ended
        return sum((self.layer(x) - y).pow(2).mean() for x, y in (filter(None, batch) if several else [batch]))

    def log_all(self, stage, loss=None, batch_idx=0):
        for entry in self.options.get("log", []):
            if entry["stage"] != stage:
                continue
            flags = {key: value for key, value in entry.items() if key not in ("stage", "name", "value", "values")}
            kind, epoch = entry.get("value", "loss"), self.current_epoch
            value = {"loss": loss, "index": float(batch_idx), "epoch": float(epoch), "neg_epoch": float(-epoch)}.get(kind)
            if kind == "step":
                value = float(self.global_step)
            if kind == "table":
                value = float(entry["values"][min(epoch, len(entry["values"]) - 1)])
            self.log(entry["name"], value, **flags)

    def training_step(self, batch, batch_idx):
        loss = self.loss_of(batch)
        if self.options.get("nan_at_step") == self.global_step:
            loss = loss * math.nan
        self.trace.losses.append(rounded(loss))
        self.log_all("train", loss, batch_idx)
        self.stop_in("training_step")
        every = self.options.get("skip_every", 0)
        if every and (batch_idx + 1) % every == 0:
            return None
        if not self.automatic_optimization:
            self.manual_backward(loss)
            if (batch_idx + 1) % self.options.get("manual_every", 1) == 0:
                optimizers = self.optimizers()
                for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
                    optimizer.step()
                    optimizer.zero_grad()
                schedulers = self.lr_schedulers()
                if schedulers is not None and self.options.get("manual_schedule", True):
                    for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
                        scheduler.step()
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log_all("val", self.loss_of(batch), batch_idx)

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        self.log_all("test", self.loss_of(batch), batch_idx)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self.layer(batch[0])

    def configure_optimizers(self):
        given = self.options.get("optimizer", {"class_path": "SGD", "init_args": {"lr": 0.1}})
        if self.options.get("optimizers"):
            optimizers = [optimizer_of(one, [parameter]) for one, parameter in
                          zip(self.options["optimizers"], (self.layer.weight, self.layer.bias))]
            return optimizers
        if self.options.get("param_groups"):
            parameters = [{**group, "params": [getattr(self.layer, group["params"])]} for group in self.options["param_groups"]]
        else:
            parameters = self.parameters()
        optimizer = optimizer_of(given, parameters)
        if "lr_scheduler" not in self.options:
            return optimizer
        schedule = self.options["lr_scheduler"]
        config = {key: schedule[key] for key in ("interval", "frequency", "monitor", "strict") if key in schedule}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler_of(schedule, optimizer), **config}}

    def lr_scheduler_step(self, scheduler, metric):
        super().lr_scheduler_step(scheduler, lightning_models.of_rank_zero(self.trainer, metric))

    def stop_in(self, hook):
        stop = self.options.get("stop")
        if stop and stop["hook"] == hook and self.batches + (hook == "training_step") >= stop["batch"]:
            self.trainer.should_stop = True

    def after_on_train_batch_end(self):
        self.batches += 1
        optimizers = self.optimizers()
        optimizer = optimizers[0] if isinstance(optimizers, list) else optimizers
        self.trace.lrs.append(rounded(optimizer.param_groups[0]["lr"]))
        self.trace.global_step_after_batch.append(self.global_step)

    def after_on_validation_start(self):
        if not self.trainer.sanity_checking:
            self.trace.validations_at.append([self.current_epoch, self.global_step])


def logging_hook(name):
    """Logs the entries whose stage is the hook `name`, and stops there if the scenario does."""
    previous = getattr(ScenarioModule, f"after_{name}", None)

    def after(self):
        if previous:
            previous(self)
        if not self.trainer.sanity_checking:
            self.stop_in(name)
        self.log_all(name)
    return after


for hook_name in ("on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end",
                  "on_validation_epoch_start", "on_validation_epoch_end", "on_validation_end"):
    setattr(ScenarioModule, f"after_{hook_name}", logging_hook(hook_name))


@with_traced_hooks("callback", ["setup", "teardown", "on_fit_start", "on_fit_end", "on_sanity_check_start",
                                "on_sanity_check_end", *STAGE_HOOKS, *STEP_HOOKS, "on_exception", *FILE_HOOKS])
class TracingCallback(pl.Callback):
    def __init__(self, trace):
        self.trace = trace


class Marks(pl.Callback):
    """What the trace held at each point at which a run may continue: {(batches done, what was done last): counts}. It is
    the first callback of a run."""
    def __init__(self, trace):
        self.trace, self.marks = trace, {}

    def mark(self, trainer, *points):
        if trainer.sanity_checking:
            return
        rows = pathlib.Path(trainer.log_dir, "metrics.csv")
        count = len(rows.read_text().splitlines()) - 1 if rows.exists() else 0
        for point in points:
            self.marks.setdefault((len(self.trace.lrs), point),
                                  (len(self.trace.hooks), len(self.trace.validations_at), len(self.trace.losses), max(0, count)))

    def on_train_epoch_end(self, trainer, pl_module):
        self.mark(trainer, "batch", "validation")

    def on_train_epoch_start(self, trainer, pl_module):
        self.mark(trainer, "epoch")

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.mark(trainer, "batch", "validation")


class ResumableLoader(DataLoader):
    """A loader that a run resumed inside an epoch continues with the next batch, as Levin's loaders do."""
    given = first = 0

    def __iter__(self):
        first, self.first = self.first, 0
        for number, batch in enumerate(super().__iter__()):
            self.given = number + 1
            if number >= first:
                yield batch

    def state_dict(self):
        return {"given": self.given % len(self)}

    def load_state_dict(self, state):
        self.first = state["given"]


@with_traced_hooks("datamodule", ["prepare_data", "setup", "teardown"])
class ScenarioData(pl.LightningDataModule):
    def __init__(self, scenario, trace):
        super().__init__()
        self.data, self.trace = scenario.get("data", {}), trace

    def loader(self, samples, drop_last=False, kind=DataLoader):
        i, j = torch.arange(samples).unsqueeze(1), torch.arange(self.data.get("in_features", 4)).unsqueeze(0)
        x = (((7 * i + 3 * j) % 17).double() / 17 - 0.5).float()
        y = ((i % 5).double() / 5).float()
        return kind(TensorDataset(x, y), batch_size=self.data.get("batch_size", 4), drop_last=drop_last)

    def train_dataloader(self):
        self.trace.hooks.append("datamodule.train_dataloader")
        sizes, drop_last = self.data.get("train", 24), self.data.get("drop_last", False)
        if not isinstance(sizes, list):
            return self.loader(sizes, drop_last, ResumableLoader)
        return CombinedLoader([self.loader(size, drop_last) for size in sizes], self.data.get("train_mode", "max_size_cycle"))

    def evaluation(self, stage):
        self.trace.hooks.append(f"datamodule.{stage}_dataloader")
        sizes = self.data.get(stage, 16)
        return [self.loader(size) for size in sizes] if isinstance(sizes, list) else self.loader(sizes)

    def test_dataloader(self):
        return self.evaluation("test")

    def predict_dataloader(self):
        return self.evaluation("predict")


class ScenarioDataWithValidation(ScenarioData):
    def val_dataloader(self):
        return self.evaluation("val")


def csv_rows(path):
    with open(path, newline="") as file:
        return [{key: rounded(cell) for key, cell in row.items() if cell != ""} for row in csv.DictReader(file)]


def relative(path, folder):
    return os.path.relpath(path, folder) if path else ""


def checkpoint_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.ckpt"))


def contents(folder, file):
    """What the checkpoint holds: its step and the weights."""
    state = torch.load(folder / file, weights_only=False)
    weights = state["state_dict"]
    return {"global_step": state["global_step"],
            "weight": [rounded(value) for value in weights["layer.weight"].flatten()], "bias": rounded(weights["layer.bias"])}


def callbacks_of(scenario, phase, folder):
    made, checkpoints = [], 0
    for given in phase.get("callbacks", scenario.get("callbacks", [])):
        arguments = dict(given.get("init_args", {}))
        if given["class_path"] == "ModelCheckpoint":
            arguments.setdefault("dirpath", str(folder / f"ckpt{checkpoints}"))
            saved = phase.get("saved_in") == f"ckpt{checkpoints}"  # and so does not save because it never did
            checkpoints += 1
        if given["class_path"] == "GradientAccumulationScheduler":
            arguments["scheduling"] = {int(epoch): count for epoch, count in arguments["scheduling"].items()}
        made.append(lightning_models.callback_class(given["class_path"])(**arguments))
        if given["class_path"] == "ModelCheckpoint":
            made[-1].has_saved, made[-1].continues = saved, saved and lightning_models.STATES[phase["continued"]]
    return made, checkpoints


def continued(scenario, phase, folder):
    """What is expected of a run that continues from a checkpoint: the rest of a run that was never interrupted. Lightning's
    own continued runs differ from that (docs/differences.md, "resuming")."""
    files = checkpoint_files(folder)
    if not files:
        return run_phase(scenario, {**phase, "ckpt_path": ""}, folder)
    file = files[int(phase["ckpt_path"][1:]) % len(files)]
    point = lightning_models.SAVED_AT[str(folder / file)]
    lightning_models.USED.add("resuming")
    whole = {**phase, "ckpt_path": "", "saved_in": file.split("/")[0], "continued": str(folder / file), "point": point}
    out = run_phase(scenario, whole, folder.parent / "uninterrupted")
    hooks, validations, losses, rows = out.pop("marks")[point]
    out["hooks"] = out["hooks"][hooks:]
    out["validations_at"] = out["validations_at"][validations:]
    out["losses"] = out["losses"][losses:]
    for key in ("lrs", "global_step_after_batch"):
        out[key] = out[key][point[0]:]
    if "metrics_csv" in out:
        out["metrics_csv"] = out["metrics_csv"][rows:]
        if not out["metrics_csv"]:
            del out["metrics_csv"]
    for key in ("checkpoints", "checkpoint_contents", "model_checkpoint"):  # the first phase may have saved others
        out.pop(key, None)
    return {"continues": True, **out}


def run_phase(scenario, phase, folder):
    trace = Trace()
    marks = [Marks(trace)] if folder.name == "uninterrupted" else []
    folder.mkdir(parents=True, exist_ok=True)
    lightning_models.MEASURED.clear()
    out = {"run": phase["run"]}
    module = ScenarioModule(scenario, trace)
    data = (ScenarioData if scenario.get("data", {}).get("val", 16) == 0 else ScenarioDataWithValidation)(scenario, trace)
    callbacks, checkpoints = callbacks_of(scenario, phase, folder)
    options = {"accelerator": "cpu", "devices": 1, **phase.get("trainer", scenario.get("trainer", {}))}
    if "min_steps" in options and "min_epochs" not in options:
        lightning_models.USED.add("least steps")
        options["min_epochs"] = 0
    if options.get("precision") == "bf16-true":
        lightning_models.USED.add("updates in bfloat16")
    if type(options.get("val_check_interval")) is int:
        options["val_check_interval"] = lightning_models.Batches(options["val_check_interval"])
    trainer = pl.Trainer(**options, logger=CSVLogger(folder, name="logs", flush_logs_every_n_steps=1),
                         callbacks=[*marks, *callbacks, TracingCallback(trace)], enable_checkpointing=checkpoints > 0,
                         enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
    ckpt_path = phase.get("ckpt_path") or None
    if ckpt_path and ckpt_path.startswith("#"):  # the n-th of the checkpoints that there are, or none
        files = checkpoint_files(folder)
        ckpt_path = files[int(ckpt_path[1:]) % len(files)] if files else None
    if ckpt_path not in (None, "best", "last"):
        ckpt_path = str(folder / ckpt_path)
    lightning_models.LOADED.update(path=ckpt_path, point=phase.get("point"), marks=marks and marks[0])
    run = phase["run"]
    try:
        if run == "fit":
            trainer.fit(module, datamodule=data, ckpt_path=ckpt_path, weights_only=False)
        elif run == "predict":
            results = trainer.predict(module, datamodule=data, ckpt_path=ckpt_path, weights_only=False)
            loaders = results if results and isinstance(results[0], list) else [results]
            out["predictions"] = [rounded(value) for loader in loaders for batch in loader for value in batch.flatten()]
        else:
            results = getattr(trainer, run)(module, datamodule=data, ckpt_path=ckpt_path, weights_only=False, verbose=False)
            out["results"] = [{key: rounded(value) for key, value in result.items()} for result in results]
    except Exception as error:
        out["error"] = f"{type(error).__name__}: {error}"[:200]
    out |= {"hooks": trace.hooks, "losses": trace.losses, "lrs": trace.lrs,
            "global_step_after_batch": trace.global_step_after_batch, "validations_at": trace.validations_at,
            "global_step": trainer.global_step, "current_epoch": trainer.current_epoch, "should_stop": trainer.should_stop,
            "weight": [rounded(value) for value in module.layer.weight.detach().flatten()],
            "bias": rounded(module.layer.bias.detach()),
            "callback_metrics": {key: rounded(value) for key, value in trainer.callback_metrics.items()}}
    if marks:
        out["marks"] = marks[0].marks
    out["checkpoints"] = checkpoint_files(folder)
    if trainer.global_rank == 0:  # another rank may find files that are about to be removed
        out["checkpoint_contents"] = {file: contents(folder, file) for file in out["checkpoints"]}
    for callback in trainer.callbacks:
        if isinstance(callback, EarlyStopping):
            out["early_stopping"] = {"stopped_epoch": callback.stopped_epoch, "wait_count": callback.wait_count}
        if isinstance(callback, ModelCheckpoint):
            score = callback.best_model_score
            out.setdefault("model_checkpoint", []).append(
                {"best_model_path": relative(callback.best_model_path, folder),
                 "best_model_score": None if score is None else rounded(score),
                 "last_model_path": relative(callback.last_model_path, folder)})
    rows = trainer.logger and trainer.log_dir and pathlib.Path(trainer.log_dir, "metrics.csv")
    if rows and rows.exists():
        out["metrics_csv"] = csv_rows(rows)
    return out


def run(arguments):
    try:
        return run_phases(arguments)
    except Exception:
        logging.disable(logging.NOTSET)
        logging.exception("%s", arguments)
        return 1


def run_phases(arguments):
    scenario = json.loads(pathlib.Path(arguments[0]).read_text())
    folder = pathlib.Path(arguments[1]).resolve().parent / "run"  # one for all ranks
    folder.mkdir(parents=True, exist_ok=True)
    phases = [(continued if phase.get("continues") else run_phase)(scenario, phase, folder) for phase in scenario["phases"]]
    out = {"phases": phases, "rules": sorted(lightning_models.USED)}
    if os.environ.get("RANK", "0") == "0":
        pathlib.Path(arguments[1]).write_text(json.dumps(out))
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve_runs(run)
    else:
        sys.exit(run(sys.argv[1:]))
