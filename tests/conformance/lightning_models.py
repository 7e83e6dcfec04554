"""Lightning, changed where docs/differences.md says that Levin differs on purpose. Each change is named in
documented_differences.py, and notes its name in USED when it has an effect."""
import copy

from lightning.pytorch import callbacks
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loops import evaluation_loop, fit_loop, training_epoch_loop
from lightning.pytorch.loops.optimization import automatic
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors import checkpoint_connector
from lightning.pytorch.trainer.connectors.logger_connector import logger_connector
from torch.optim import lbfgs

USED = set()
STATES = {}  # checkpoint -> the states of all ModelCheckpoints once everything that belongs to its batch or epoch was done
LOADED = {}  # "path": the checkpoint that a run starts from; "point": where an uninterrupted run stands for one that continues;
             # "marks": of such a run
SAVED_AT = {}  # checkpoint -> (training batches done, what was done last: a batch, a validation or an epoch)


def callback_class(name):
    changed = {"EarlyStopping": FreshEarlyStopping, "ModelCheckpoint": FreshModelCheckpoint, "EMAWeightAveraging": UpdatedEMA,
               "StochasticWeightAveraging": AveragedAtTheEnd, "LearningRateMonitor": OneRowMonitor}
    return changed.get(name) or getattr(callbacks, name)


def replaces(owner, name):
    """The function replaces a method of a class; its first argument is the replaced method."""
    def decorate(function):
        plain = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: function(plain, *args, **kwargs))
        return function
    return decorate


# ---- training ------------------------------------------------------------------------------------------------------

@replaces(automatic._AutomaticOptimization, "_training_step")
def training_step(plain, self, kwargs):
    """tail window: divides the loss of an epoch's last window by the batches that it holds."""
    window, batches = self.trainer.accumulate_grad_batches, self.trainer.num_training_batches
    held = min(window, batches - kwargs["batch_idx"] // window * window)
    result = plain(self, kwargs)
    if held < window and result.closure_loss is not None:
        USED.add("tail window")
        result.closure_loss = result.closure_loss * window / held
        result._clone_loss()
    return result


@replaces(training_epoch_loop._TrainingEpochLoop, "_update_learning_rates")
def update_learning_rates(plain, self, interval, update_plateau_schedulers):
    """scheduler frequency: counts the optimizer steps of the epoch. stale judgement: a plateau scheduler waits for a new
    value."""
    configs = self.trainer.lr_scheduler_configs
    try:
        if interval == "step":
            window = self.trainer.accumulate_grad_batches
            steps = -(-(self.batch_idx + 1) // window)
            for config in configs:
                config.given_frequency = config.frequency
                due = steps % config.frequency == 0
                if due != ((self.batch_idx + 1) % config.frequency == 0) and config.interval == "step":
                    USED.add("scheduler frequency")
                config.frequency = 1 if due else 10**9
        self.trainer.strategy.lr_scheduler_configs = [config for config in configs if not is_stale(self.trainer, config, interval,
                                                                                         update_plateau_schedulers)]
        plain(self, interval, update_plateau_schedulers)
    finally:
        self.trainer.strategy.lr_scheduler_configs = configs
        for config in configs:
            config.frequency = getattr(config, "given_frequency", config.frequency)


def is_stale(trainer, config, interval, update_plateau_schedulers):
    if not config.reduce_on_plateau or not update_plateau_schedulers or config.interval != interval:
        return False
    if config.frequency > 10**8 or (interval == "epoch" and (trainer.current_epoch + 1) % config.frequency):
        return False
    at = measured_at(trainer, config.monitor)
    stale = at is None or at == getattr(config, "judged_at", None)
    config.judged_at = at
    if stale and config.monitor in trainer.callback_metrics:
        USED.add("stale judgement")
    return stale and config.monitor in trainer.callback_metrics


@replaces(lbfgs, "_strong_wolfe")
def strong_wolfe(plain, *args, max_ls, **kwargs):
    """line search of LBFGS: max_eval does not end it."""
    if max_ls < 25:
        USED.add("line search of LBFGS")
    return plain(*args, max_ls=25, **kwargs)


class Batches(int):
    """validation after every batch: val_check_interval 1, which is not the 1.0 of a whole epoch."""
    def __eq__(self, other):
        if isinstance(other, float):
            USED.add("validation after every batch")
            return False
        return int(self) == other

    __hash__ = int.__hash__


@replaces(evaluation_loop._EvaluationLoop, "setup_data")
def setup_data(plain, self):
    """reloaded validation data: the count of evaluation batches continues."""
    before = getattr(self, "_seen_batches_per_dataloader", None)
    plain(self)
    if self.trainer.sanity_checking and not self.trainer.fit_loop.epoch_loop._should_check_val_epoch():
        USED.add("validation data of later epochs")
        self._last_val_dl_reload_epoch = self.trainer.current_epoch
    if before and before is not self._seen_batches_per_dataloader:
        USED.add("reloaded validation data")
        self._seen_batches_per_dataloader.update(before)


@replaces(fit_loop._FitLoop, "on_run_start")
def on_run_start(plain, self):
    """validation data of later epochs: its loader is made before training."""
    trainer = self.trainer
    if trainer.val_dataloaders is None and trainer.enable_validation and not self.epoch_loop._should_check_val_epoch():
        USED.add("validation data of later epochs")
        trainer.validating = True
        self.epoch_loop.val_loop.setup_data()
        trainer.training = True
    plain(self)


@replaces(fit_loop._FitLoop, "on_advance_end")
def on_advance_end(plain, self):
    """resuming: a run that had stopped after an epoch, and then continues, is not stopped there."""
    plain(self)
    if LOADED["point"] == (batches_done(self.trainer), "epoch"):
        self.trainer.should_stop = False


@replaces(CSVLogger, "log_metrics")
def log_metrics(plain, self, metrics, step=None):
    """no step yet: the first row has step 0."""
    if step == -1:
        USED.add("no step yet")
    plain(self, metrics, max(0, step) if step is not None else None)


# ---- metrics: when they were measured ------------------------------------------------------------------------------

MEASURED = {}  # name -> training batches done


def batches_done(trainer):
    return trainer.fit_loop.epoch_loop.batch_progress.total.ready


def note_measured(connector):
    """Notes the values that callbacks see for the first time."""
    if connector.trainer._results and not connector.trainer.sanity_checking and connector.trainer.state.fn == "fit":
        for name in connector.metrics["callback"]:
            MEASURED[name] = batches_done(connector.trainer)


for name in ("on_batch_end", "on_epoch_end", "update_eval_epoch_metrics"):
    @replaces(logger_connector._LoggerConnector, name)
    def connector_hook(plain, self):
        note_measured(self)
        return plain(self)


def measured_at(trainer, name):
    note_measured(trainer._logger_connector)
    return MEASURED.get(name)


def is_measured_now(trainer, name):
    return measured_at(trainer, name) == batches_done(trainer)


def of_rank_zero(trainer, value):
    """a metric of each rank: rank 0's decides, on all ranks."""
    if trainer.world_size == 1 or value is None:
        return value
    its = trainer.strategy.broadcast(value)
    if trainer.strategy.reduce_boolean_decision(bool(its != value), all=False):
        USED.add("a metric of each rank")
    return its


def has_validation(trainer):
    loaders = trainer.num_val_batches if trainer.enable_validation else []
    return sum(loaders if isinstance(loaders, list) else [loaders]) > 0


class FreshEarlyStopping(callbacks.EarlyStopping):
    """stale judgement: judges each value once, after the epoch or validation that measured it."""
    judged_at = None

    def checks_after_epochs(self, trainer):
        if self.given is None and not self._check_on_train_epoch_end and not has_validation(trainer):
            USED.add("without validation")
            return True
        return self._check_on_train_epoch_end

    def setup(self, trainer, pl_module, stage):
        self.given = self._check_on_train_epoch_end
        super().setup(trainer, pl_module, stage)

    def on_train_epoch_end(self, trainer, pl_module):
        if not self._should_skip_check(trainer) and (self.checks_after_epochs(trainer) or not self.given):
            self._run_early_stopping_check(trainer)

    def on_validation_end(self, trainer, pl_module):
        if not self._should_skip_check(trainer) and not self.checks_after_epochs(trainer):
            self._run_early_stopping_check(trainer)

    def _run_early_stopping_check(self, trainer):
        at = measured_at(trainer, self.monitor)
        if at is not None and at == self.judged_at:
            USED.add("stale judgement")
            return
        self.judged_at, self.trainer = at, trainer
        super()._run_early_stopping_check(trainer)

    def _evaluate_stopping_criteria(self, current):
        return super()._evaluate_stopping_criteria(of_rank_zero(self.trainer, current))


@replaces(call, "_call_callbacks_on_load_checkpoint")
def call_on_load_checkpoint(plain, trainer, checkpoint):
    """a file of weights alone: callbacks get it, too."""
    if checkpoint.get("callbacks") is None:
        USED.add("a file of weights alone")
        checkpoint = {**checkpoint, "callbacks": {}}
    plain(trainer, checkpoint)


REQUESTED = set()  # checkpoints whose batch or epoch is not over


def capture(trainer):
    checkpoints = [one for one in trainer.callbacks if isinstance(one, FreshModelCheckpoint)]
    states = {one.state_key: copy.deepcopy(one.state_dict()) for one in checkpoints}
    STATES.update((path, states) for path in REQUESTED)
    REQUESTED.clear()


for owner, name in ((evaluation_loop._EvaluationLoop, "run"), (training_epoch_loop._TrainingEpochLoop, "advance"),
                    (fit_loop._FitLoop, "on_advance_end"), (fit_loop._FitLoop, "on_run_end"), (fit_loop._FitLoop, "teardown")):
    @replaces(owner, name)
    def capturing(plain, self, *args):
        capture(self.trainer)
        if isinstance(self, evaluation_loop._EvaluationLoop) and LOADED.get("marks"):
            LOADED["marks"].mark(self.trainer, "batch")
        return plain(self, *args)


class FreshModelCheckpoint(callbacks.ModelCheckpoint):
    """stale monitor: a save that is due waits for a value of the present weights. save at the end: a run without a save
    point saves once. newest last: save_last "newest" is Levin's save_last: true."""
    def __init__(self, save_last=None, **arguments):
        self.newest = save_last == "newest"
        super().__init__(save_last=True if save_last else None, **arguments)
        self.waits, self.has_saved, self.step_seen, self.step_of_last = False, False, 0, 0

    def state_dict(self):
        return {**super().state_dict(), "step": self._last_global_step_saved, "step_of_last": self.step_of_last}

    def load_state_dict(self, state_dict):
        """state of a checkpoint: it names all files that were saved for the same batch or epoch."""
        state = STATES[LOADED["path"]][self.state_key]
        if any(state[key] != state_dict[key] for key in ("best_model_path", "best_model_score", "last_model_path")):
            USED.add("state of a checkpoint")
        super().load_state_dict(state)

    def _monitor_candidates(self, trainer):
        candidates = super()._monitor_candidates(trainer)
        if self.monitor in candidates:
            candidates[self.monitor] = of_rank_zero(trainer, candidates[self.monitor])
        return candidates

    def _save_checkpoint(self, trainer, filepath):
        super()._save_checkpoint(trainer, filepath)
        SAVED_AT[str(filepath)] = (batches_done(trainer), self.done)
        REQUESTED.add(str(filepath))

    def can_judge(self, trainer):
        fresh = self.monitor is None or self.save_top_k == 0 or is_measured_now(trainer, self.monitor)
        if not fresh:
            USED.add("stale monitor")
        return fresh

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        self.step_seen = trainer.global_step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if self._every_n_train_steps < 1:
            return
        self.done = "batch"
        stepped, self.step_seen = self.step_seen != trainer.global_step, trainer.global_step
        if self._should_skip_saving_checkpoint(trainer):
            return
        due = stepped and trainer.global_step % self._every_n_train_steps == 0
        if due or self.waits:
            self.save_or_wait(trainer, due and not self.validation_follows(trainer))

    def on_train_epoch_start(self, trainer, pl_module):
        if self.continues and LOADED["point"] == (batches_done(trainer), "epoch"):  # the end of the interrupted run saved here
            state = self.continues[self.state_key]
            self._last_global_step_saved, self.step_of_last = state["step"], state["step_of_last"]
            for key in ("best_k_models", "kth_best_model_path", "kth_value", "best_model_path", "best_model_score"):
                setattr(self, key, copy.deepcopy(state[key]))

    @staticmethod
    def may_still_be_measured(trainer):
        if trainer.fit_loop.epoch_progress.total.processed == 0:
            return True
        return has_validation(trainer) and not trainer.fit_loop.epoch_loop.val_loop._has_run

    @staticmethod
    def validation_follows(trainer):
        """Whether that is known without asking the other ranks whether they stop."""
        stops, trainer.should_stop = trainer.should_stop, False
        follows = trainer.enable_validation and trainer.fit_loop.epoch_loop._should_check_val_fx(trainer.fit_loop._data_fetcher)
        trainer.should_stop = stops
        return follows

    def on_validation_end(self, trainer, pl_module):
        if self._should_skip_saving_checkpoint(trainer):
            return
        self.done = "validation"
        due = not self._should_save_on_train_epoch_end(trainer) and self.epoch_is_due(trainer)
        if due or self.waits:
            self.save_or_wait(trainer, due)

    def on_train_epoch_end(self, trainer, pl_module):
        if self._should_skip_saving_checkpoint(trainer):
            return
        self.done = "epoch"
        due = self._should_save_on_train_epoch_end(trainer) and self.epoch_is_due(trainer)
        if due or self.waits:
            self.save_or_wait(trainer, True)

    def epoch_is_due(self, trainer):
        return self._every_n_epochs >= 1 and (trainer.current_epoch + 1) % self._every_n_epochs == 0

    def _should_save_on_train_epoch_end(self, trainer):
        if self._save_on_train_epoch_end is None and not has_validation(trainer):
            if not super()._should_save_on_train_epoch_end(trainer):
                USED.add("without validation")
            return True
        return super()._should_save_on_train_epoch_end(trainer)

    def save_or_wait(self, trainer, saves_last):
        self.waits = not self.can_judge(trainer)
        if self.waits and self.monitor not in MEASURED and not self.may_still_be_measured(trainer):
            raise RuntimeError(f"ModelCheckpoint: {self.monitor} was never logged.")
        if not self.waits:
            self.save(trainer)
        elif saves_last and self.newest and self.step_of_last != trainer.global_step:
            self.save_newest(trainer)

    def _save_none_monitor_checkpoint(self, trainer, monitor_candidates):
        """all checkpoints: are kept, also if their names are equal."""
        newest = self.best_model_path
        if self.save_top_k == -1 and self.format_checkpoint_name(dict(monitor_candidates)) == newest:
            USED.add("all checkpoints")
        if self.save_top_k == -1:
            self.best_model_path = ""
        super()._save_none_monitor_checkpoint(trainer, monitor_candidates)

    def save(self, trainer, epoch=None):
        candidates = self._monitor_candidates(trainer)
        if epoch is not None:
            candidates["epoch"] = candidates["epoch"] * 0 + epoch
        before = self._last_global_step_saved
        self._save_topk_checkpoint(trainer, candidates)
        top_k = self._last_global_step_saved == trainer.global_step and before != trainer.global_step
        if self.save_last and (top_k or self.newest):
            self.step_of_last = trainer.global_step
            self._save_last_checkpoint(trainer, candidates)
        self.has_saved = self.has_saved or self._last_global_step_saved == trainer.global_step

    def save_newest(self, trainer):
        USED.add("newest last")
        self.step_of_last = trainer.global_step
        before = self._last_global_step_saved
        self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
        self._last_global_step_saved = before  # a top-k file of this step may follow

    def on_train_end(self, trainer, pl_module):
        self.done = "epoch"
        wants = self.save_top_k != 0 or self.save_last
        if not self.has_saved and wants and trainer.global_step > 0 and not self._should_skip_saving_checkpoint(trainer):
            USED.add("save at the end")
            if not self.can_judge(trainer):
                self.step_of_last = trainer.global_step
                self.save_last, save_last, before = True, self.save_last, self._last_global_step_saved
                self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
                self.save_last, self._last_global_step_saved = save_last, before
            elif self.save_top_k == 0:
                self.save_newest(trainer)
            else:
                self.save(trainer, max(0, trainer.current_epoch - 1))
        if self.newest and self.step_of_last != trainer.global_step:
            self.save_newest(trainer)


@replaces(checkpoint_connector._CheckpointConnector, "dump_checkpoint")
def dump_checkpoint(plain, self, weights_only=None):
    """weights of an average: a file of weights alone holds the average, too."""
    checkpoint = plain(self, weights_only)
    if weights_only:
        for callback in self.trainer.callbacks:
            if isinstance(callback, UpdatedEMA):
                USED.add("weights of an average")
                callback.on_save_checkpoint(self.trainer, self.trainer.lightning_module, checkpoint)
    return checkpoint


class UpdatedEMA(callbacks.EMAWeightAveraging):
    """average before its first update: it is the current weights."""
    @property
    def state_key(self):
        return "EMAWeightAveraging"

    def has_average(self):
        updated = int(self._average_model.n_averaged) > 0
        if not updated:
            USED.add("average before its first update")
        return updated

    def _swap_models(self, pl_module):
        if self.has_average():
            super()._swap_models(pl_module)

    def _copy_average_to_current(self, pl_module):
        if self.has_average():
            super()._copy_average_to_current(pl_module)

    def on_save_checkpoint(self, trainer, pl_module, checkpoint):
        if self._average_model is None or self.has_average():
            super().on_save_checkpoint(trainer, pl_module, checkpoint)


class AveragedAtTheEnd(callbacks.StochasticWeightAveraging):
    """average of a run that stops early: the run ends with it."""
    def on_train_end(self, trainer, pl_module):
        if self.n_averaged is not None and trainer.current_epoch - 1 < self.swa_end:
            USED.add("average of a run that stops early")
            return self.transfer_weights(self._average_model, pl_module)
        return super().on_train_end(trainer, pl_module)


class OneRowMonitor(callbacks.LearningRateMonitor):
    """rows of LearningRateMonitor: one for a window, and one for an epoch of an optimizer without a scheduler, in the
    interval of the schedule that the run began with."""
    last_step = -1

    def on_train_start(self, trainer, *args):
        super().on_train_start(trainer, *args)
        self.first_interval = trainer.lr_scheduler_configs[0].interval if trainer.lr_scheduler_configs else "epoch"

    def _extract_stats(self, trainer, interval):
        configs = trainer.lr_scheduler_configs
        intervals = [config.interval for config in configs]
        for config in configs:
            if config.interval != self.first_interval:
                USED.add("rows of LearningRateMonitor")
            config.interval = self.first_interval
        stats = super()._extract_stats(trainer, interval)
        for config, its in zip(configs, intervals):
            config.interval = its
        return stats

    def on_train_batch_start(self, trainer, *args):
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        without_schedule = self.logging_interval is None and not trainer.lr_scheduler_configs
        if without_schedule or step == self.last_step:
            USED.add("rows of LearningRateMonitor")
            return
        if trainer._logger_connector.should_update_logs and self.logging_interval != "epoch":
            self.last_step = step
        super().on_train_batch_start(trainer, *args)
