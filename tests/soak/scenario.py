"""A seed gives a scenario: what is run, and how each of its starts is disturbed. The same seed gives the same scenario.

A fit is a run file, with $root for the folder of the run and $data for the samples (sample_data.py). A start is a list of
pairs (when, what), in their order; see disturbance.py. The last start is never disturbed.
"""
import dataclasses
import json
import random

SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]
FOLDER_LOGGERS = ["CSVLogger", "JSONLinesLogger", "TensorBoardLogger"]  # whose version_N holds the run's files


@dataclasses.dataclass
class Scenario:
    seed: int
    kind: str  # fit, sweep, loop (an example program over Fabric) or ranked_loop (rank_program over Fabric)
    program: str
    arguments: list
    files: dict  # name: contents
    ranks: int
    starts: list
    busy: bool  # a busy neighbour
    features: list
    evaluates: bool = False  # a validation after each disturbed start

    def text(self):
        return json.dumps(dataclasses.asdict(self), indent=1)


def make_scenario(seed):
    chance = random.Random(seed)
    kind = chance.choices(["fit", "sweep", "loop", "ranked_loop"], weights=[80, 8, 5, 7])[0]
    scenario = {"fit": _fit, "sweep": _sweep, "loop": _loop, "ranked_loop": _ranked_loop}[kind](seed, chance)
    scenario.busy = chance.random() < 0.15
    one_file = {"SQLiteLogger", "PrometheusLogger"}  # to which a validation would add
    scenario.evaluates = kind == "fit" and chance.random() < 0.2 and not ({"numbers"} | one_file) & set(scenario.features)
    scenario.features += [kind] + ["busy neighbour"] * scenario.busy + ["evaluations"] * scenario.evaluates
    scenario.features += sorted({what[0] + (f" {what[1]}" if what[0] in ("kill", "signal") else "")
                                 for start in scenario.starts for _, what in start})
    return scenario


def _class(name, **options):
    return {"class_path": name, "init_args": options}


# ---- what is run ---------------------------------------------------------------------------------------------------

def _image_model(chance, channels=1, classes=10):
    if channels == 3 or chance.random() < 0.2:
        return _class("ResNet", in_channels=channels, width=4, first_stride=2, blocks=[1, 1], num_classes=classes)
    return chance.choice([
        _class("Classifier", arch="mlp", hidden=chance.choice([16, 64]), dropout=chance.choice([0, 0.2])),
        _class("Classifier", arch="cnn", hidden=32, dropout=0.2),
        _class("PaddleMlp", hidden=32),
        _class("ThousandLayers", layers=12, width=16)])


def _model_and_data(chance):
    """(model, data, batches of an epoch, metric to monitor)"""
    workers = chance.choice([0, 1, 2])
    kind = chance.choice(["images", "images", "table", "arrays", "photos", "text", "tokens", "sentences", "numbers"])
    if kind == "images":
        data = _class("FashionMnist", root="$data/images", val_size=256, batch_size=32, num_workers=workers,
                      **chance.choice([{}, {"crop_padding": 2, "flip": True}, {"drop_last": True}]))
        return kind, _image_model(chance), data, 38
    if kind in ("table", "arrays"):
        model = _class("Classifier", arch="mlp", hidden=16, dropout=chance.choice([0, 0.3]))
        if kind == "table":
            return kind, model, _class("CsvData", path="$data/table.csv", target="class", target_is_class=True,
                                       batch_size=8, num_workers=workers), 20
        return kind, model, _class("NpyData", inputs="$data/x.npy", targets="$data/y.npy", val_fraction=0.2, batch_size=8,
                                   num_workers=workers), 32
    if kind == "photos":
        return kind, _image_model(chance, 3, 4), _class("ImageFolderData", train="$data/photos", size=28, resize=28,
                                                        batch_size=4, num_workers=workers), 27
    if kind == "sentences":
        model = _class("TextClassifier", architecture="bert_base", num_hidden_layers=1, hidden_size=16, num_attention_heads=2,
                       intermediate_size=32, vocab_size=260, max_position_embeddings=40, pad_token_id=1, lr=1e-3)
        return kind, model, _class("TextCsv", path="$data/text.csv", max_length=32, batch_size=8, num_workers=workers), 27
    if kind == "numbers":
        return kind, _class("EightWeights", lr=0.01, momentum=0.9), _class("EightNumbers", batch_size=2), 4
    block = chance.choice([16, 32])
    model = chance.choice([
        _class("GPT", n_layer=2, n_head=2, n_embd=16, block_size=block, dropout=0.1, lr=0.002, warmup_steps=10,
               **({} if kind == "text" else {"vocab_size": 256})),
        _class("MaskedLM", architecture="bert_base", num_hidden_layers=1, hidden_size=16, num_attention_heads=2,
               intermediate_size=32, vocab_size=257)])
    if kind == "text":
        return kind, model, _class("TextFile", path="$data/text.txt", block_size=block, batch_size=16, num_workers=workers), 40
    return kind, model, _class("TokenFileData", path="$data/tokens.bin", block_size=block, batch_size=8, val_fraction=0.1,
                               num_workers=workers), 60


def _optimizer(chance, strategy):
    names = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax"]
    if strategy != "fsdp":  # these need all of a weight in one step
        names += ["LARS", "LAMB", "Adafactor", "Muon", "ScheduleFreeAdamW", "Lookahead", "SAM"]
    name = chance.choice(names)
    if name in ("Lookahead", "SAM"):
        return _class(name, optimizer=_class("SGD", lr=0.01, momentum=0.9))
    return _class(name, lr=0.003, **({"momentum": 0.9} if name == "SGD" else {}))


def _schedule(chance):
    name, options, interval = chance.choice([
        ("OneCycleLR", {"max_lr": 0.01, "cycle_momentum": False}, "step"), ("ExponentialLR", {"gamma": 0.7}, "epoch"),
        ("StepLR", {"step_size": 7, "gamma": 0.5}, "step"), ("CosineWithWarmup", {"warmup": 5}, "step")])
    return {**_class(name, **options), "interval": interval}


def _strategy(chance, model):
    """(ranks, options of the trainer)"""
    kind = chance.choices(["single", "ddp", "fsdp", "dp", "dp_balanced", "ModelParallel"], weights=[42, 22, 18, 6, 6, 6])[0]
    if kind == "ModelParallel" and model["init_args"].get("arch") != "cnn":
        kind = "single"
    ranks = chance.choice([1, 2, 2, 2, 3]) if kind in ("ddp", "fsdp") else 1
    if kind == "single":
        return kind, 1, {"accelerator": "cpu", "devices": 1}
    if kind in ("dp", "dp_balanced"):
        return kind, 1, {"strategy": kind, "devices": ["cpu", "cpu"]}
    if kind == "ModelParallel":
        placement = {"net.[0-6]": 0, "net.[7-9]": 1, "net.1[01]": 1}
        pipeline = chance.choice([{}, {"pipeline": {"micro_batches": 2}}])
        return kind, 1, {"strategy": _class(kind, placement=placement, **pipeline), "devices": ["cpu", "cpu"]}
    options = {"process_group_backend": chance.choice(["auto", "gloo", "shm"])}
    if kind == "ddp":
        options.update(chance.choice([{}, {}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001},
                                      {"find_unused_parameters": True}, {"comm_hook": "bf16_compress"}]))
    else:
        options.update(stage=chance.choice([1, 2, 3]), unit_mb=chance.choice([0.001, 25.0]),
                       state_dict_type=chance.choice(["full", "sharded"]))
    return kind, ranks, {"accelerator": "cpu", "devices": ranks, "strategy": _class(kind, **options), "oversubscribe": True}


def _callbacks(chance, strategy, monitor, epochs, is_image):
    """The callbacks that save, and others. Nothing measures time: the checkpoints of two runs would differ."""
    every = chance.choice([{"every_n_train_steps": chance.choice([5, 7])}, {"every": "0.5ep"}, {"every_n_epochs": 1}])
    keep = chance.choice([{"save_top_k": -1, "save_last": True}, {"save_top_k": -1}, {"save_top_k": 1, "save_last": True},
                          *([{"monitor": monitor, "save_top_k": 2, "save_last": True}] * 2 if monitor else [])])
    callbacks = [_class("ModelCheckpoint", **every, **keep, **chance.choice([{}, {}, {"async_save": False}]))]
    if chance.random() < 0.15:
        callbacks.append(_class("ModelCheckpoint", save_weights_only=True, every_n_train_steps=11, filename="small-{epoch}"))
    if chance.random() < 0.15:
        callbacks.append(_class("ModelCheckpoint", dirpath="$root/elsewhere", every_n_train_steps=6,
                                **({"monitor": monitor, "save_top_k": 2} if monitor else {})))
    average = chance.choice([_class("EMAWeightAveraging", decay=0.9), _class("WeightAveraging"),
                             _class("StochasticWeightAveraging", swa_lrs=0.01, swa_epoch_start=max(1, epochs - 1))])
    others = [[_class("LearningRateMonitor")], [average],
              [_class("GradientAccumulationScheduler", scheduling={1: 2})],
              [_class("OnExceptionCheckpoint", dirpath="$root/on_exception")], [_class("ModelSummary", max_depth=-1)]]
    if strategy != "fsdp":
        others.append([_class("GradientCentralization")])
    if monitor:
        others.append([_class("EarlyStopping", monitor=monitor, patience=50)])
    if is_image:
        others += [[_class("MixUp", num_classes=10)], [_class("CutMix", num_classes=10)]]
    for more in chance.sample(others, chance.choice([0, 1, 1, 2])):
        callbacks += more
    return callbacks


def _loggers(chance):
    loggers = chance.sample(FOLDER_LOGGERS, chance.choice([1, 1, 2, 3]))
    loggers += [name for name in ("SQLiteLogger", "PrometheusLogger") if chance.random() < 0.15]
    options = {"CSVLogger": {"flush_logs_every_n_steps": chance.choice([1, 3, 100])},
               "JSONLinesLogger": {"flush_secs": chance.choice([0.0, 1.0])},
               "TensorBoardLogger": {"flush_secs": chance.choice([0.0, 120.0])},
               "SQLiteLogger": {"path": "$root/runs.sqlite"}, "PrometheusLogger": {"path": "$root/run.prom", "every": "0.1s"}}
    return [_class(name, **options[name]) for name in loggers]


def _fit(seed, chance):
    kind, model, data, batches = _model_and_data(chance)
    strategy, ranks, trainer = _strategy(chance, model)
    epochs = chance.choice([2, 3, 4]) if batches > 10 else 12
    per_rank = max(2, batches // (1 if trainer.get("devices") in (1, ["cpu", "cpu"]) else ranks))
    monitor = "" if kind == "numbers" else "val_acc" if model["class_path"] in ("PaddleMlp", "ThousandLayers") else "val_loss"
    trainer.update({
        "max_epochs": epochs, "auto_resume": True, "default_root_dir": "$root", "num_sanity_val_steps": chance.choice([0, 2]),
        "log_every_n_steps": chance.choice([1, 5]), "enable_model_summary": False, "logger": _loggers(chance),
        "precision": chance.choices(["32-true", "64-true", "bf16-true", "bf16-mixed", "16-mixed", "MixedPrecision"],
                                    weights=[50, 10, 8, 14, 8, 10])[0]})
    if trainer["precision"] == "MixedPrecision":
        trainer["precision"] = _class("MixedPrecision", dtype="float16", scaler={"init_scale": 1024.0, "growth_interval": 8})
    chosen = []
    if monitor and chance.random() < 0.5:
        trainer["val_check_interval"] = chance.choice([max(1, per_rank // 3), 0.5])
    if chance.random() < 0.3:
        trainer["accumulate_grad_batches"] = chance.choice([2, 3])
    elif strategy in ("single", "ddp") and chance.random() < 0.15:
        trainer["micro_batch_size"] = 2
    if chance.random() < 0.3:
        trainer["gradient_clip_val"] = 0.5
    optimizer = _optimizer(chance, strategy) if kind not in ("numbers", "photos") and chance.random() < 0.6 else None
    if optimizer and optimizer["class_path"] == "SAM" and model["class_path"] == "MaskedLM":  # it weighs its losses
        optimizer = optimizer["init_args"]["optimizer"]
    if strategy in ("single", "ddp") and chance.random() < 0.35:
        trainer["record_steps"] = "auto"
        chosen.append("recorded steps")
    if chance.random() < 0.25 and strategy != "ModelParallel" and model["class_path"] in ("Classifier", "GPT", "ThousandLayers"):
        names = {"Classifier": ["net"], "GPT": ["h.*"], "ThousandLayers": ["layers"]}[model["class_path"]]
        trainer["recompute"] = {"modules": names, **({} if names == ["h.*"] else {"segments": 2})}
        chosen.append("recompute")
    if chance.random() < 0.1:
        trainer["profiler"] = "simple"
    trainer["callbacks"] = _callbacks(chance, strategy, monitor, epochs, kind == "images" and model["class_path"] == "Classifier")
    if any(each["class_path"] == "GradientAccumulationScheduler" for each in trainer["callbacks"]):
        trainer.pop("accumulate_grad_batches", None)
        chosen.append("accumulation")
    if "accumulate_grad_batches" in trainer:
        chosen.append("accumulation")
    run = {"seed_everything": chance.randrange(1000), "trainer": trainer, "model": model, "data": data}
    if optimizer:
        run["optimizer"] = optimizer
        if chance.random() < 0.5 and optimizer["class_path"] not in ("ScheduleFreeAdamW",):
            run["lr_scheduler"] = _schedule(chance)
    # SAM evaluates each batch twice, accumulates none, and refuses a scaled loss.
    if optimizer and optimizer["class_path"] == "SAM":
        if trainer["precision"] == "16-mixed" or isinstance(trainer["precision"], dict):
            trainer["precision"] = "bf16-mixed"
        for key in ("accumulate_grad_batches", "micro_batch_size"):
            trainer.pop(key, None)
        trainer["callbacks"] = [each for each in trainer["callbacks"] if each["class_path"] != "GradientAccumulationScheduler"]
        chosen = [name for name in chosen if name != "accumulation"]
    # An average of the optimizer's own is refused together with a callback's, and these models have no test_step.
    if optimizer and optimizer["class_path"] == "ScheduleFreeAdamW":
        trainer["callbacks"] = [each for each in trainer["callbacks"] if "Averaging" not in each["class_path"]]
    has_test = kind == "images" and chance.random() < 0.2 and model["class_path"] not in ("PaddleMlp", "ThousandLayers")
    if has_test:
        run["test_after_fit"] = True
    if ranks > 1 and chance.random() < 0.3:
        trainer["max_restarts"] = 3
        chosen.append("restarts")
    precision = trainer["precision"] if isinstance(trainer["precision"], str) else "float16"
    features = [kind, strategy, f"{ranks} ranks", precision, model["class_path"],
                *(each["class_path"] for each in trainer["logger"]), *chosen]
    return Scenario(seed, "fit", "levin", ["fit", "--config", "run.yaml"], {"run.yaml": json.dumps(run, indent=1)}, ranks,
                    _starts(chance, ranks, "max_restarts" in trainer), False, features)


def _sweep(seed, chance):
    run = {"seed_everything": 7, "trainer": {
        "max_epochs": 4, "accelerator": "cpu", "num_sanity_val_steps": 0, "limit_train_batches": 6, "limit_val_batches": 2,
        "log_every_n_steps": 1, "enable_model_summary": False,
        "callbacks": [_class("ModelCheckpoint", monitor="val_loss", save_last=True)]},
        "model": _class("Classifier", hidden=4, dropout=0.2),
        "data": _class("FashionMnist", root="$data/images", val_size=256, batch_size=16),
        "optimizer": _class("SGD", lr=0.1, momentum=0.9)}
    search, slots, trials = chance.choice([({"method": "random"}, 2, 4), ({"method": "sobol"}, 1, 3),
                                           ({"method": "asha", "reduction_factor": 2}, 1, 4)])
    sweep = {"run": "run.yaml", "folder": "$root/sweep", "metric": "val_loss", "cores_per_slot": 1, "slots": slots,
             "max_trials": trials, "max_retries": 20, "search": search,
             "space": {"optimizer.lr": {"log_uniform": [0.001, 0.5]}, "model.hidden": {"choice": [4, 8]}}}
    starts = []
    for _ in range(chance.choice([1, 2])):
        when = ("checkpoint", chance.randint(1, 4), chance.randint(0, 300))
        what = chance.choice([("kill", "main"), ("kill", "all"), ("kill", "rank"), ("signal", chance.choice(SIGNALS), "main")])
        starts.append([(when, what)])
    return Scenario(seed, "sweep", "levin", ["sweep", "sweep.yaml"],
                    {"run.yaml": json.dumps(run, indent=1), "sweep.yaml": json.dumps(sweep, indent=1)}, 1, starts, False,
                    [search["method"]])


def _loop(seed, chance):
    """An example's own loop over Fabric saves and prints every few steps, and has no handlers of signals."""
    program = chance.choice(["splat", "surrogate", "self_play"])
    starts = [[(("output", chance.randint(1, 3), chance.randint(0, 200)), ("kill", "main"))]
              for _ in range(chance.choice([1, 2]))]
    return Scenario(seed, "loop", program, [], {}, 1, starts, False, [program])


def _ranked_loop(seed, chance):
    ranks = chance.choice([1, 2, 2, 3])
    arguments = ["out=$root", "samples=120", "batch=2", "shuffle", "fabric=steps", "continue", "oversubscribe",
                 f"devices={ranks}",
                 *chance.choice([[], ["accumulate=2"]]),
                 *chance.choice([["strategy=ddp"], ["strategy=fsdp", f"stage={chance.choice([1, 2, 3])}", "unit_mb=0.0001"]])]
    victims = ["main", "all", *(["rank"] if ranks > 1 else [])]
    starts = [[(("checkpoint", chance.randint(1, 8), chance.randint(0, 30)), ("kill", chance.choice(victims)))]
              for _ in range(chance.choice([1, 2]))]
    return Scenario(seed, "ranked_loop", "rank_program", arguments, {}, ranks, starts, False, [f"{ranks} ranks", "Fabric"])


# ---- how it is disturbed -------------------------------------------------------------------------------------------

def _when(chance):
    late = chance.randint(0, 40)  # milliseconds after the event
    return chance.choices([("started", 0, chance.randint(0, 1500)), ("handler", 0, late), ("output", chance.randint(1, 4), late),
                           ("checkpoint", chance.randint(1, 4), late), ("writing", chance.randint(1, 3), 0),
                           ("rows", chance.randint(1, 6), late)], weights=[10, 8, 8, 40, 18, 16])[0]


def _starts(chance, ranks, restarts):
    starts = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        target = chance.choice(["main", "group", *(["rank"] if ranks > 1 else [])])
        victim = chance.choice(["main", "all", *(["rank"] * 2 if ranks > 1 else [])])
        kind = chance.choices(["kill", "signal", "twice", "signal then kill", "pause", "stop", "save", "full disk",
                               "little memory"], weights=[30, 24, 4, 6, 8, 5, 4, 10, 7])[0]
        when = _when(chance)
        number = chance.choice(SIGNALS)
        if kind == "kill":
            starts.append([(when, ("kill", victim))])
        elif kind == "signal":
            starts.append([(when, ("signal", number, target))])
        elif kind == "twice":  # a later one than half a second is a second request
            starts.append([(when, ("signal", number, "main")), (("now", 0, 700), ("signal", number, "main"))])
        elif kind == "signal then kill":
            starts.append([(when, ("signal", number, target)), (("now", 0, chance.randint(0, 60)), ("kill", "all"))])
        elif kind == "pause":
            starts.append([(when, ("pause", chance.choice(["all", "rank"] if ranks > 1 else ["all"]), chance.randint(50, 1500)))])
        elif kind in ("stop", "save"):
            starts.append([(when, ("file", kind))])
        elif kind == "full disk":
            after = chance.choice([[], [(("now", 0, chance.randint(0, 800)), ("kill", victim))],
                                   [(("now", 0, chance.randint(0, 800)), ("disk", "free", 0))]])
            starts.append([(when, ("disk", "fill", chance.choice([0, 0, 4, 64]))), *after])
        else:
            if when[0] == "started":  # LibTorch's own initialization does not report it
                when = ("checkpoint", 1, 0)
            starts.append([(when, ("memory", chance.choice([1, 4, 16])))])
    if restarts:  # a rank that dies again and again ends the job
        starts.append([(("checkpoint", 1, chance.randint(0, 40)), ("kill", "rank"))])
    return starts
