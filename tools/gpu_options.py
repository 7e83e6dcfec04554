"""Short runs of gpu_check.py, many at once: what a run file can name trains on a GPU, and what must not change a number
ends with the same bits.

Each is a pair of runs, whose weights and optimizers must end the same, or one run, which must end well."""
import concurrent.futures
import json
import os
from collections import namedtuple

import gpu_figures as figures
from gpu_runs import Failed, Fit, differing_tensors, strategy

Pair = namedtuple("Pair", "name config steps options others")  # others: of the second run, besides
Alone = namedtuple("Alone", "name config steps options")

MLP, RESNET, GPT = "fashion_mnist.yaml", "fashion_mnist_resnet.yaml", "gpt.yaml"
LR = 2.0**-10  # exact in float32, in which a CUDA graph reads it
COMMON = ("--seed_everything=1", "--trainer.deterministic=warn", "--trainer.limit_val_batches=2", "--test_after_fit=false",
          "--lr_scheduler=null")
SMALL_GPT = ("--model.n_layer=2", "--data.batch_size=4", f"--model.lr={LR}", "--model.warmup_steps=0")
RECORDED = ("--trainer.record_steps=true",)
BLOCKS_AGAIN = ('--trainer.recompute.modules=["h.*"]',)
STEPPED_BY_ITSELF = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adafactor", "Adamax", "LAMB", "LARS", "Muon",
                     "NAdam", "RAdam", "RMSprop", "ScheduleFreeAdamW")
WRAPPING = ("Lookahead", "SAM")
CALLBACKS = {"EMAWeightAveraging": {}, "WeightAveraging": {}, "StochasticWeightAveraging": {"swa_lrs": 0.01},
             "MixUp": {"num_classes": 10}, "CutMix": {"num_classes": 10}, "LearningRateFinder": {"num_training": 30},
             "GradientCentralization": {}, "SpikeDetection": {}, "ThroughputMonitor": {}}


def callbacks(*entries):
    return ("--trainer.callbacks=" + json.dumps([{"class_path": name, "init_args": args} for name, args in entries]),)


def optimizer(name, **args):
    return (f"--optimizer.class_path={name}", *(f"--optimizer.init_args.{key}={value}" for key, value in args.items()))


def pairs(backend):
    accumulating = ("--trainer.accumulate_grad_batches=2", "--trainer.gradient_clip_val=0.5")
    for name in STEPPED_BY_ITSELF:
        yield Pair(f"{name}, recorded", MLP, 60, (*optimizer(name, lr=LR), *accumulating), RECORDED)
    for precision in ("bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"):
        yield Pair(f"{precision}, recorded", MLP, 60,
                   (f"--trainer.precision={precision}", *optimizer("SGD", lr=LR)), RECORDED)
    yield Pair("channels_last, recorded", RESNET, 30,
               ("--model.width=8", "--trainer.channels_last=true", *optimizer("SGD", lr=LR)), RECORDED)
    yield Pair("GPT in bf16-mixed, recorded", GPT, 30, (*SMALL_GPT, "--trainer.precision=bf16-mixed"), RECORDED)
    yield Pair("blocks computed again, with dropout", GPT, 20, (*SMALL_GPT, "--model.dropout=0.125"), BLOCKS_AGAIN)
    yield Pair("their inputs kept by the host", GPT, 20, (*SMALL_GPT, *BLOCKS_AGAIN),
               ("--trainer.recompute.offload=true",))
    yield Pair("fsdp in bf16-mixed", GPT, 20, (*SMALL_GPT, "--trainer.precision=bf16-mixed"),
               strategy("fsdp", process_group_backend=backend))
    yield Pair("dp_balanced", MLP, 60, (), ("--trainer.strategy=dp_balanced",))
    yield Pair("nonfinite_loss: skip", MLP, 60, (), ("--trainer.nonfinite_loss=skip",))
    yield Pair("nonfinite_loss: rollback", MLP, 60, (), ("--trainer.nonfinite_loss=rollback",))
    yield Pair("detect_anomaly", MLP, 30, (), ("--trainer.detect_anomaly=true",))
    yield Pair("deterministic, again", RESNET, 20, ("--model.width=8", "--trainer.deterministic=true"), ())


def single(backend):
    for name in WRAPPING:
        yield Alone(name, MLP, 20, optimizer(name, **{"optimizer.class_path": "SGD", "optimizer.init_args.lr": 0.01}))
    yield Alone("LBFGS", MLP, 10, optimizer("LBFGS"))
    for name, args in CALLBACKS.items():
        yield Alone(name, MLP, 200, callbacks((name, args)))
    for quantize in ("none", "int8", "nf4"):
        yield Alone(f"LoRA, weights in {quantize}", GPT, 20,
                    (*SMALL_GPT, *callbacks(("LoRA", {"target_modules": ["h.*.c_fc"], "r": 4, "quantize": quantize}))))
    yield Alone("fsdp, cpu_offload", GPT, 20,
                (*SMALL_GPT, *strategy("fsdp", process_group_backend=backend, cpu_offload="true")))
    yield Alone("micro_batch_size: auto", MLP, 10, ("--trainer.micro_batch_size=auto", "--data.batch_size=4096"))
    yield Alone("TensorFloat-32, benchmark", RESNET, 30,
                ("--trainer.benchmark=true", "--trainer.float32_matmul_precision=high"))
    for profiler in ("nvtx", "simple"):
        yield Alone(f"profiler {profiler}", MLP, 20, (f"--trainer.profiler={profiler}",))


def everything(accelerator):
    backend = "nccl" if accelerator == "gpu" else "gloo"
    return [*pairs(backend), *single(backend)]


def fit(run, one, which, options):
    """Removes the run files' callbacks, which need validation metrics; a run of a few steps has none."""
    folder = "".join(letter if letter.isalnum() else "_" for letter in f"{one.name} {which}")
    unless_named = () if any(word.startswith("--trainer.callbacks") for word in options) else ("--trainer.callbacks=[]",)
    return Fit(run, folder, one.config, f"--trainer.max_steps={one.steps}", *COMMON, *unless_named, *options)


def saved(fitted):
    return max((fitted.folder / "checkpoints").glob("*.ckpt"))


def outcome(run, one):
    """Runs one check and returns its result as text. Raises Failed if it does not hold."""
    first = fit(run, one, 1, one.options)
    if isinstance(one, Alone):
        return "trained"
    second = fit(run, one, 2, (*one.options, *one.others))
    differing = differing_tensors(run, saved(first), saved(second))
    if differing:
        raise Failed(f"{len(differing)} tensors of the checkpoints differ, first: {differing[0]}")
    return "bitwise identical"


def attempt(run, one):
    """Returns (result, reason of the failure)."""
    try:
        return outcome(run, one), ""
    except (Failed, figures.Unreadable, OSError, ValueError) as error:
        return "failed", f"{one.name}: {error}"


def carry_out(run, wanted):
    """Runs `wanted` and returns the reasons of failed runs."""
    pool = concurrent.futures.ThreadPoolExecutor(max(1, min(12, (os.cpu_count() or 1) - 1)))
    try:
        done = list(pool.map(lambda one: attempt(run, one), wanted))
    except BaseException:  # the check is ended: so is what the other threads wait for
        run.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    run.figures.update({one.name: said for one, (said, _) in zip(wanted, done)})
    return [why for _, why in done if why]
