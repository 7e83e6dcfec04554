"""Scenarios (README.md) drawn from a seed, valid in Lightning and in Levin."""
import math
import random

OPTIMIZERS = {
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.02}, {"lr": 0.05, "momentum": 0.9},
            {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01},
            {"lr": 0.05, "momentum": 0.5, "dampening": 0.2}, {"lr": 0.01, "maximize": True}],
    "Adam": [{"lr": 0.02}, {"lr": 0.05, "betas": [0.8, 0.95], "weight_decay": 0.02}, {"lr": 0.03, "amsgrad": True},
             {"lr": 0.01, "maximize": True}, {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}],
    "AdamW": [{"lr": 0.02}, {"lr": 0.03, "weight_decay": 0.1, "amsgrad": True}],
    "Adamax": [{"lr": 0.02}, {"lr": 0.02, "weight_decay": 0.02}],
    "NAdam": [{"lr": 0.02}, {"lr": 0.02, "weight_decay": 0.05, "decoupled_weight_decay": True}],
    "RAdam": [{"lr": 0.02}, {"lr": 0.05, "weight_decay": 0.05},
              {"lr": 0.05, "weight_decay": 0.05, "decoupled_weight_decay": True}],
    "Adagrad": [{"lr": 0.1}, {"lr": 0.1, "lr_decay": 0.02, "weight_decay": 0.01, "initial_accumulator_value": 0.1}],
    "Adadelta": [{"lr": 1.0}, {"lr": 0.5, "rho": 0.8, "weight_decay": 0.01}],
    "RMSprop": [{"lr": 0.01}, {"lr": 0.01, "alpha": 0.9, "momentum": 0.5, "centered": True}],
    "Adafactor": [{"lr": 0.05}, {"lr": 0.1, "beta2_decay": -0.5, "d": 2.0, "weight_decay": 0.05}],
}
# Optimizers that are drawn less often, because they exclude other options (draw_optimizer).
OF_MATRICES = {"Muon": [{"lr": 0.02}, {"lr": 0.05, "weight_decay": 0.0, "momentum": 0.8, "nesterov": False},
                        {"lr": 0.05, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}]}
WITH_CLOSURE = {"LBFGS": [{"lr": 0.3, "max_iter": 3}, {"lr": 0.1, "max_iter": 2, "history_size": 1},
                          {"max_iter": 4, "line_search_fn": "strong_wolfe", "tolerance_grad": 1e-3}]}


class Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def one(self, *choices):
        return self.random.choice(choices)

    def between(self, low, high):
        return self.random.randint(low, high)


def draw(seed):
    d = Draw(seed)
    data, batches, val_loaders = draw_data(d)
    trainer = draw_trainer(d, batches, val_loaders)
    if "train_mode" in data and isinstance(trainer.get("limit_train_batches"), float):  # in Lightning of each loader
        trainer["limit_train_batches"] = batches_of(trainer, batches)
    per_epoch = batches_of(trainer, batches)
    module = draw_optimizer(d, data, trainer)
    module["log"] = draw_log(d, val_loaders)
    scheduler = draw_scheduler(d, module, per_epoch, trainer)
    searches_line = "line_search_fn" in module.get("optimizer", {}).get("init_args", {})
    if scheduler and not searches_line:  # PyTorch divides by a learning rate that has become 0
        module["lr_scheduler"] = scheduler
    if d.chance(0.15):
        module["stop"] = {"hook": d.one("training_step", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end"),
                          "batch": d.between(1, 3 * per_epoch)}
    takes_no_loss = trainer.get("gradient_clip_algorithm") != "value" and not is_lbfgs(module)
    if d.chance(0.05) and takes_no_loss:  # PyTorch clips no values without gradients
        module["skip_every"] = d.between(2, 4)
    callbacks = draw_callbacks(d, module, trainer, val_loaders)
    scenario = {"name": f"seed_{seed}", "data": data, "trainer": trainer, "module": module, "callbacks": callbacks,
                "phases": [{"run": "fit"}]}
    draw_phases(d, scenario)
    keep_rounding_small(scenario)
    return scenario


def keep_rounding_small(scenario):
    """Adafactor's means are rounded differently here and there, and one bit more or less of a weight is 2^15 when it is cast."""
    module = scenario["module"]
    if "Adafactor" in {one["class_path"] for one in [module.get("optimizer", {"class_path": ""}), *module.get("optimizers", [])]}:
        for trainer in [scenario["trainer"], *(phase.get("trainer", {}) for phase in scenario["phases"])]:
            if trainer.get("precision") == "bf16-mixed":
                trainer["precision"] = "64-true"


def optimizer_from(d, kinds):
    name = d.one(*kinds)
    return {"class_path": name, "init_args": dict(d.one(*kinds[name]))}


def is_lbfgs(module):
    return module.get("optimizer", {}).get("class_path") == "LBFGS"


def draw_optimizer(d, data, trainer):
    module = {}
    if d.chance(0.8):
        module["optimizer"] = optimizer_from(d, OPTIMIZERS)
    if d.chance(0.15):
        module["param_groups"] = [{"params": "weight"}, {"params": "bias", "lr": 0.02, "weight_decay": 0.0}]
    elif d.chance(0.06) and trainer.get("precision") != "bf16-true":  # Muon's iterations amplify rounding
        module["optimizer"], module["param_groups"] = optimizer_from(d, OF_MATRICES), [{"params": "weight"}]
    elif d.chance(0.06) and "accumulate_grad_batches" not in trainer and data["batch_size"] > 1:
        # LBFGS takes one group, and a window of one batch. It divides by differences of gradients, which may be rounding alone,
        # and ends a line search by rounding if the gradients are clipped and contradict the loss. After some twenty searches
        # even the rounding of float64 shows.
        module["optimizer"] = optimizer_from(d, WITH_CLOSURE)
        trainer["precision"] = "64-true"
        trainer["max_epochs"] = min(trainer["max_epochs"], 1)
        if "max_steps" in trainer:
            trainer["max_steps"] = min(trainer["max_steps"], 8)
        for key in ("gradient_clip_val", "gradient_clip_algorithm", "min_epochs", "min_steps", "max_time"):
            trainer.pop(key, None)
    return module


def draw_data(d):
    size, batches = d.between(1, 5), d.between(2, 8)
    data = {"batch_size": size, "train": size * batches - (d.between(0, size - 1) if d.chance(0.4) else 0)}
    if d.chance(0.2):
        data["drop_last"] = True
        batches = data["train"] // size
    if d.chance(0.1):  # several training loaders; with max_size the longest comes first
        samples = [d.between(size, size * 6) for _ in range(d.between(1, 2))] + [data["train"]]
        data["train"] = sorted(samples, reverse=True) if d.chance(0.6) else samples
        longest_first = data["train"][0] == max(data["train"])
        data["train_mode"] = d.one("min_size", "max_size_cycle", *(["max_size"] if longest_first else []))
        each = [count // size if data.get("drop_last") else math.ceil(count / size) for count in data["train"]]
        batches = min(each) if data["train_mode"] == "min_size" else max(each)
    kind = d.between(0, 9)
    if kind == 0:
        data["val"] = 0
    elif kind <= 2:
        data["val"] = [d.between(1, 12) for _ in range(d.between(1, 3))]
    else:
        data["val"] = d.between(1, 14)
    loaders = len(data["val"]) if isinstance(data["val"], list) else int(data["val"] > 0)
    if d.chance(0.1):
        data["in_features"] = d.between(1, 6)
    return data, batches, loaders


def batches_of(trainer, batches):
    limit = trainer.get("overfit_batches") or trainer.get("limit_train_batches", 1.0)
    if isinstance(limit, float):
        return int(batches * limit)
    return min(limit, batches)


def draw_trainer(d, batches, val_loaders):
    trainer = {"max_epochs": d.between(1, 4)}
    if d.chance(0.25):
        fraction = d.between(math.ceil(100 / batches), 100) / 100
        trainer["limit_train_batches"] = d.between(1, batches + 1) if d.chance(0.5) else fraction
    elif d.chance(0.06):
        trainer["overfit_batches"] = d.between(1, batches)
    if d.chance(0.2) and not trainer.get("overfit_batches"):
        trainer["limit_val_batches"] = d.one(0, 1, 2, 0.5, 1.0, 3)
        if trainer["limit_val_batches"] == 0.5:
            del trainer["limit_val_batches"]  # a loader of one batch would have none
    per_epoch = batches_of(trainer, batches)
    if d.chance(0.35):
        trainer["accumulate_grad_batches"] = d.between(2, 5)
    steps = math.ceil(per_epoch / trainer.get("accumulate_grad_batches", 1))
    if d.chance(0.25):
        trainer["max_steps"] = d.between(1, steps * trainer["max_epochs"] + 2)
        if d.chance(0.3):
            trainer["max_epochs"] = -1
    if d.chance(0.15):
        trainer["min_epochs"] = d.between(1, max(1, trainer["max_epochs"]))
    if d.chance(0.15):
        trainer["min_steps"] = d.between(1, trainer.get("max_steps", steps * max(1, trainer["max_epochs"])))
    if d.chance(0.3) and ("min_steps" in trainer or "min_epochs" in trainer):
        trainer["max_time"] = "00:00:00:00"  # stops as soon as these allow it; a time later than 0 would not be exact
    if d.chance(0.3):
        trainer["gradient_clip_val"] = d.one(0.05, 0.2, 0.5)
        if d.chance(0.5):
            trainer["gradient_clip_algorithm"] = d.one("norm", "value")
    kind = d.between(0, 9)
    if kind <= 2:
        trainer["val_check_interval"] = d.between(1, per_epoch)
    elif kind == 3:
        trainer["val_check_interval"] = d.between(5, 100) / 100
    elif kind == 4:
        trainer["val_check_interval"] = d.between(1, 2 * per_epoch + 1)
        trainer["check_val_every_n_epoch"] = None
    if "check_val_every_n_epoch" not in trainer and d.chance(0.2):
        trainer["check_val_every_n_epoch"] = d.between(2, 3)
    if d.chance(0.4):
        trainer["num_sanity_val_steps"] = d.one(0, 1, 3, -1)
    if d.chance(0.6):
        trainer["log_every_n_steps"] = d.between(1, 4)
    if d.chance(0.1):
        trainer["precision"] = d.one("64-true", "bf16-mixed", "bf16-true")
    if d.chance(0.1):
        trainer["reload_dataloaders_every_n_epochs"] = d.between(1, 2)
    return trainer


def draw_log(d, val_loaders):
    entries = []

    def add(stage, name, value, **flags):
        entry = {"name": name, "stage": stage, "value": value, **flags}
        if value == "table":
            entry["values"] = [d.between(1, 20) / 10 for _ in range(d.between(2, 5))]
        entries.append(entry)

    for number in range(d.between(0, 3)):
        flags = {}
        if d.chance(0.5):
            flags["on_step"], flags["on_epoch"] = d.one((True, False), (False, True), (True, True))
        if d.chance(0.2) and flags.get("on_epoch"):
            flags["reduce_fx"] = d.one("min", "max", "sum", "mean")
        add("train", f"t{number}", d.one("loss", "loss", "index", "epoch", "step"), **flags, **other_flags(d))
    for number in range(d.between(0, 3)):
        flags = {}
        if d.chance(0.3):
            flags["on_step"], flags["on_epoch"] = d.one((True, False), (False, True), (True, True))
        if d.chance(0.2):
            flags["reduce_fx"] = d.one("min", "max", "sum", "mean")
        add("val", f"v{number}", d.one("loss", "loss", "index", "table", "table", "neg_epoch"), **flags, **other_flags(d))
    for hook in ("on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end",
                 "on_validation_epoch_start", "on_validation_epoch_end"):
        if d.chance(0.08):
            add(hook, f"h_{hook[3:]}", d.one("epoch", "step", "table"), **other_flags(d))
    return entries


def other_flags(d):
    flags = {}
    if d.chance(0.1):
        flags["logger"] = False
    if d.chance(0.1):
        flags["prog_bar"] = True
    if d.chance(0.1):
        flags["batch_size"] = d.between(1, 9)
    return flags


def monitors(module, val_loaders, stages=("train", "val")):
    """The names under which callbacks find the epoch's metrics."""
    names = []
    for entry in module["log"]:
        epoch = entry.get("on_epoch", entry["stage"] in ("val", "on_train_epoch_end", "on_validation_epoch_end"))
        if entry["stage"] not in stages or not epoch or (entry["stage"] == "val" and not val_loaders):
            continue
        names.append(entry["name"] + ("/dataloader_idx_0" if entry["stage"] == "val" and val_loaders > 1 else ""))
    return names


def draw_scheduler(d, module, per_epoch, trainer):
    if not d.chance(0.5):
        return None
    interval = d.one("epoch", "step")
    many = interval == "step"
    simple = {
        "StepLR": lambda: {"step_size": d.between(1, 4), "gamma": d.one(0.5, 0.8)},
        "MultiStepLR": lambda: {"milestones": sorted(d.random.sample(range(1, 10 if many else 5), 2)), "gamma": 0.5},
        "ConstantLR": lambda: {"factor": 0.5, "total_iters": d.between(1, 6)},
        "LinearLR": lambda: {"start_factor": d.one(0.1, 0.5), "end_factor": d.one(1.0, 0.7), "total_iters": d.between(1, 6)},
        "ExponentialLR": lambda: {"gamma": 0.9 if many else d.one(0.9, 0.5)},  # rounding decides once the weights stay
        "PolynomialLR": lambda: {"total_iters": d.between(2, 12), "power": d.one(1.0, 2.0)},
        "CosineAnnealingLR": lambda: {"T_max": d.between(2, 12), "eta_min": d.one(0.0, 0.001)},
        "CosineAnnealingWarmRestarts": lambda: {"T_0": d.between(1, 4), "T_mult": d.between(1, 2)},
        "SWALR": lambda: {"swa_lr": d.one(0.05, 0.2), "anneal_epochs": d.between(0, 6),
                          "anneal_strategy": d.one("cos", "linear")},
    }
    kind = d.between(0, 13)
    if kind <= 8:
        name = d.one(*simple)
        schedule = {"class_path": name, "init_args": simple[name]()}
    elif kind <= 10:
        schedule = draw_cycle(d, module, per_epoch * abs(trainer["max_epochs"]) if "max_steps" not in trainer else 200)
    elif kind == 11:
        names = [d.one("ConstantLR", "LinearLR", "ExponentialLR", "StepLR") for _ in range(2)]
        inner = [{"class_path": name, "init_args": simple[name]()} for name in names]
        schedule = d.one({"class_path": "SequentialLR", "init_args": {"schedulers": inner, "milestones": [d.between(1, 5)]}},
                         {"class_path": "ChainedScheduler", "init_args": {"schedulers": inner}})
    else:
        schedule = {"class_path": "ReduceLROnPlateau",
                    "init_args": {"patience": d.between(0, 1), "factor": 0.5, "mode": d.one("min", "max"),
                                  "cooldown": d.between(0, 1), **d.one({}, {"min_lr": 0.03}),
                                  **d.one({}, {"threshold": 0.2, "threshold_mode": "abs"})}}
    if schedule["class_path"] == "ReduceLROnPlateau":
        names = monitors(module, 1)
        if not names:
            return None
        schedule["monitor"] = d.one(*names)
        schedule["strict"] = False
        if d.chance(0.5):
            return schedule
    schedule["interval"] = interval
    if d.chance(0.25):
        schedule["frequency"] = d.between(2, 3)
    return schedule


WITHOUT_MOMENTUM = ("Adagrad", "Adadelta", "Adafactor", "LBFGS")


def draw_cycle(d, module, steps):
    """OneCycleLR of enough steps, or CyclicLR; with cycles of momentum where the optimizer has one."""
    name = module.get("optimizer", {"class_path": "SGD"})["class_path"]
    cycle = {"cycle_momentum": name not in WITHOUT_MOMENTUM and d.chance(0.6)}
    if cycle["cycle_momentum"]:
        cycle |= d.one({}, {"base_momentum": 0.6, "max_momentum": 0.8})
    if d.chance(0.5):
        cycle |= {"max_lr": 0.1, "total_steps": max(25, steps + d.between(1, 10)), "pct_start": d.one(0.3, 0.1, 0.6),
                  "anneal_strategy": d.one("cos", "linear"), "three_phase": d.chance(0.3), **d.one({}, {"div_factor": 5.0})}
        return {"class_path": "OneCycleLR", "init_args": cycle}
    cycle |= {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": d.between(1, 4),
              "mode": d.one("triangular", "triangular2", "exp_range"), **d.one({}, {"step_size_down": d.between(1, 4)})}
    if cycle["mode"] == "exp_range":
        cycle["gamma"] = 0.9
    return {"class_path": "CyclicLR", "init_args": cycle}


def draw_callbacks(d, module, trainer, val_loaders):
    callbacks = []

    def add(name, **arguments):
        callbacks.append({"class_path": name, "init_args": arguments})

    names = monitors(module, val_loaders if trainer.get("limit_val_batches") != 0 else 0)
    if names and d.chance(0.25):
        add("EarlyStopping", monitor=d.one(*names), patience=d.between(1, 2), mode=d.one("min", "max"), strict=False)
    if d.chance(0.12):
        add("EMAWeightAveraging", decay=d.one(0.5, 0.9))
    elif d.chance(0.08) and trainer["max_epochs"] > 1:
        add("StochasticWeightAveraging", swa_lrs=0.05, swa_epoch_start=1, annealing_epochs=d.between(1, 3))
    if "accumulate_grad_batches" not in trainer and d.chance(0.1) and not is_lbfgs(module):
        add("GradientAccumulationScheduler", scheduling={"0": d.between(1, 3), str(d.between(1, 2)): d.between(1, 4)})
    if d.chance(0.15):
        add("LearningRateMonitor", **d.one({}, {"logging_interval": "step"}, {"logging_interval": "epoch"}))
    used = set()
    for _ in range(d.one(0, 1, 1, 2)):
        arguments = draw_checkpoint(d, names)
        steps = arguments.get("every_n_train_steps", 0)
        key = (arguments.get("monitor"), arguments.get("mode", "min"), steps, arguments.get("every_n_epochs", int(not steps)))
        if key not in used:
            used.add(key)
            add("ModelCheckpoint", **arguments)
    return callbacks


def draw_checkpoint(d, names):
    arguments = {}
    if names and d.chance(0.5):
        arguments |= {"monitor": d.one(*names), "save_top_k": d.one(1, 1, 2, 3, -1)}
        if d.chance(0.5):
            arguments["mode"] = "max"
    elif d.chance(0.4):
        arguments["save_top_k"] = d.one(-1, 0, 1)
    kind = d.between(0, 3)
    if kind == 1:
        arguments["every_n_train_steps"] = d.between(1, 5)
    if kind == 2:
        arguments["every_n_epochs"] = d.between(1, 2)
    if d.chance(0.4):
        arguments["save_last"] = d.one("with_top_k", "newest")
    if d.chance(0.15):
        arguments["save_on_train_epoch_end"] = d.one(True, False)
    if d.chance(0.15):
        arguments["save_weights_only"] = True
    if d.chance(0.15):
        arguments["filename"] = d.one("x", "{epoch:02d}", "{step}-of")
    return arguments


def draw_phases(d, scenario):
    """What follows the fit, and other kinds of runs."""
    kind = d.between(0, 19)
    if kind <= 3:
        resume(d, scenario)
    elif kind == 4:
        use_ranks(d, scenario)
    elif kind == 5:
        optimize_by_hand(d, scenario)
    elif kind <= 7:
        module, run = scenario["module"], d.one("validate", "test", "predict")
        if run == "validate" and scenario["data"]["val"] == 0:
            return
        scenario["data"]["test"] = d.one(7, 12, [5, 9])
        scenario["data"]["predict"] = d.one(3, 10)
        if run == "test":
            module["log"].append({"name": "s0", "stage": "test", "value": d.one("loss", "index"), **other_flags(d)})
        limit = {f"limit_{'val' if run == 'validate' else run}_batches": d.between(1, 3)} if d.chance(0.3) else {}
        phase = {"run": run, "trainer": limit}
        if d.chance(0.5):
            phase["ckpt_path"] = f"#{d.between(0, 5)}"
        scenario["phases"].append(phase)


def resume(d, scenario):
    """A second fit continues from a checkpoint of the first, with more epochs."""
    trainer = scenario["trainer"]
    if trainer["max_epochs"] == -1:
        return
    saved = [one["init_args"] for one in scenario["callbacks"] if one["class_path"] == "ModelCheckpoint"]
    if not saved:
        return
    for arguments in saved:
        arguments.pop("save_weights_only", None)
        if d.chance(0.5):
            arguments["save_top_k"] = -1
    for key in ("max_steps", "min_steps", "max_time"):
        trainer.pop(key, None)
    lengthen_cycle(scenario)
    first = next(one for one in scenario["callbacks"] if one["class_path"] == "ModelCheckpoint")
    scenario["callbacks"] = [one for one in scenario["callbacks"] if one["class_path"] != "ModelCheckpoint" or one is first]
    scenario["phases"][0]["trainer"] = trainer
    later = {**trainer, "max_epochs": trainer["max_epochs"] + d.between(1, 2)}
    scenario["phases"].append({"run": "fit", "trainer": later, "ckpt_path": f"#{d.between(0, 5)}", "continues": True})


def lengthen_cycle(scenario):
    """The run has become longer, and OneCycleLR must not end before it."""
    schedule = scenario["module"].get("lr_scheduler", {})
    if schedule.get("class_path") == "OneCycleLR":
        schedule["init_args"]["total_steps"] = 200


def use_ranks(d, scenario):
    """Two ranks, with as many batches on both."""
    data, size = scenario["data"], scenario["data"]["batch_size"]
    data["train"] = 2 * size * d.between(2, 5)
    data.pop("drop_last", None)
    data.pop("train_mode", None)
    lengthen_cycle(scenario)
    if data["val"]:
        data["val"] = 2 * size * d.between(1, 3)
    kept = ("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "log_every_n_steps",
            "check_val_every_n_epoch", "num_sanity_val_steps", "precision")
    scenario["trainer"] = {"max_epochs": d.between(1, 3), "strategy": "ddp", "devices": 2,
                           **{key: value for key, value in scenario["trainer"].items() if key in kept}}
    if scenario["trainer"].get("check_val_every_n_epoch", 1) is None:
        del scenario["trainer"]["check_val_every_n_epoch"]
    for key in ("skip_every", "stop", *(["optimizer"] if is_lbfgs(scenario["module"]) else [])):
        scenario["module"].pop(key, None)  # LBFGS: each rank decides by its own loss, and Lightning's ranks wait forever
    scenario["callbacks"] = [one for one in scenario["callbacks"] if one["class_path"] != "StochasticWeightAveraging"]
    for given in (scenario["module"].get("lr_scheduler", {}), *(one["init_args"] for one in scenario["callbacks"])):
        if "monitor" in given:
            given["monitor"] = given["monitor"].removesuffix("/dataloader_idx_0")  # there is one loader now
    for entry in scenario["module"]["log"]:
        if not entry.get("on_step", entry["stage"] == "train") and entry["stage"] in ("val", "train"):
            entry["sync_dist"] = True  # of an epoch's value: a step's is reduced where it is written (docs/differences.md)


def optimize_by_hand(d, scenario):
    """Manual optimization, of one optimizer or of one for each parameter."""
    module, trainer = scenario["module"], scenario["trainer"]
    for key in ("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "max_steps", "min_steps", "max_time"):
        trainer.pop(key, None)
    trainer["max_epochs"] = abs(trainer["max_epochs"])
    for key in ("skip_every", "lr_scheduler", "param_groups"):
        module.pop(key, None)
    module["manual"] = True
    module["manual_every"] = d.between(1, 3)
    if is_lbfgs(module):  # it needs a closure
        del module["optimizer"]
    if d.chance(0.5):
        of_weight = OPTIMIZERS if trainer.get("precision") == "bf16-true" else OPTIMIZERS | OF_MATRICES
        module["optimizers"] = [optimizer_from(d, of_weight), optimizer_from(d, OPTIMIZERS)]
    elif module.get("optimizer", {}).get("class_path") in OF_MATRICES:
        del module["optimizer"]
    scenario["callbacks"] = [one for one in scenario["callbacks"] if one["class_path"] in ("EarlyStopping", "ModelCheckpoint")]
