"""The steps of gpu_check.py, in their order: what must hold before what is slow. Each runs real programs and returns
nothing: its figures go to run.figures, and what does not hold is raised as Failed."""
import contextlib
import os
import shutil
import statistics
import subprocess
import threading
import time
from collections import namedtuple
from pathlib import Path

import gpu_figures as figures
import gpu_options
from gpu_runs import Failed, Fit, Skipped, differing_tensors, fit_words, strategy

Step = namedtuple("Step", "name limit what run")
STEPS = []
GB = 1e9
# Y. Wu, Training large models with your GPU (2021): gigabytes and minutes an epoch of XLM-R on a Quadro RTX 6000.
ARTICLE = {"base-8": (12.28, 70), "base-8-mixed": (10.95, 50), "base-16-mixed": (16.96, 40), "large-8": (None, None),
           "large-8-mixed": (23.5, 100), "large-8-mixed-recompute": (11.8, 110)}


def step(limit, what):
    def add(function):
        STEPS.append(Step(function.__name__, limit, what, function))
        return function
    return add


def expect(condition, message):
    if not condition:
        raise Failed(message)


# ---- runs of the tool --------------------------------------------------------------------------------------------

# The same numbers in every run; learning rates are exact in float32, in which a CUDA graph reads them.
TO_THE_BIT = ("--seed_everything=1", "--trainer.deterministic=warn", "--model.lr=0.0009765625",
              "--lr_scheduler.init_args.gamma=0.5")


def expect_same_tensors(run, what, one, other):
    lines = differing_tensors(run, one, other)
    run.figures[f"{what}: tensors that differ"] = len(lines)
    expect(not lines, f"{what}: {len(lines)} tensors of the checkpoints differ, first: {lines[:1]}")


def bench(run, name, words, result):
    """Runs a benchmark, whose targets must be met."""
    path = run.folder / f"build/bench/{result}.json"
    try:
        output = run.command([run.levin.program(f"bench_{name}"), *words], environment=run.peers())
    except Failed:
        with contextlib.suppress(OSError, ValueError):  # written after each table: what it had measured until then
            run.figures.update(figures.bench_figures(figures.read_json(path)))
        raise
    written = figures.read_json(path)
    run.figures.update(figures.bench_figures(written))
    for line in output.splitlines():
        if "left out" in line:
            run.figures.setdefault("left out", []).append(line.strip())
    missed = figures.bars_not_met(written)
    expect(not missed, "bars not met: " + "; ".join(missed))
    return written


# ---- the steps ---------------------------------------------------------------------------------------------------

@step(180, "the driver, LibTorch and Levin find a GPU, and a batch trains on it")
def device(run):
    began = time.monotonic()
    fitted = Fit(run, "fast", "fashion_mnist.yaml", "--trainer.fast_dev_run=true")
    run.figures["seconds of the process for one batch"] = time.monotonic() - began
    expect("Trained" in fitted.output, f"levin fit did not train: {fitted.output[-1000:]}")
    if shutil.which("nvidia-smi"):
        rows = smi(run)
        run.figures.update({"GPUs": [row["name"] for row in rows], "memory MiB": rows[0]["memory.total"]})


def smi(run):
    program = shutil.which("nvidia-smi")
    if program is None:
        raise Skipped("nvidia-smi was not found")
    return figures.smi_rows(run.command(smi_words(program)))


def smi_words(program, *more):
    return [program, f"--query-gpu={','.join(figures.SMI_FIELDS)}", "--format=csv,noheader,nounits", *more]


SECONDS_A_SUITE = 90


@step(240, "Levin's own tests on a GPU (tests/cuda)")
def tests(run):
    """Runs each suite in a separate process: after an illegal access or a failed assertion of a kernel, every later CUDA
    call in the process fails, too."""
    program = run.levin.program("cuda_test")
    passed, failed, skipped, ends = 0, [], 0, []
    for suite in figures.gtest_suites(run.command([program, "--gtest_list_tests"])):
        try:
            output = run.command([program, f"--gtest_filter={suite}.*"], allowed=(0, 1), limit=SECONDS_A_SUITE)
            counts = figures.gtest_counts(output)
        except (Failed, figures.Unreadable) as error:  # it crashed or hung
            failed.append(suite)
            ends.append(f"{suite}: {error}")
            continue
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
        if counts[1]:
            ends.append("\n".join(output.splitlines()[-60:]))
    run.figures.update({"passed": passed, "failed": failed, "skipped": skipped})
    expect(not failed, "\n".join([f"failed: {', '.join(failed)}", *ends]))
    expect(skipped == 0, f"{skipped} tests were skipped although there is a GPU")


@step(60, "fashion_mnist in float32, bf16-mixed and 16-mixed: the same accuracy")
def fit(run):
    accuracies = {}
    for precision in ("32-true", "bf16-mixed", "16-mixed"):
        fitted = Fit(run, precision, "fashion_mnist.yaml", f"--trainer.precision={precision}")
        accuracies[precision] = run.figures[f"{precision}: test_acc"] = fitted.metrics()["test_acc"]
        run.figures[f"{precision}: seconds of the fit"] = fitted.seconds()
    for precision, accuracy in accuracies.items():
        expect(accuracy > 0.87, f"{precision}: test_acc {accuracy} is not above 0.87")
        expect(abs(accuracy - accuracies["32-true"]) < 0.015,
               f"{precision}: test_acc {accuracy} is not within 0.015 of float32's")


@step(60, "steps replayed as CUDA graphs train with bitwise identical results")
def cuda_graph(run):
    options = (*TO_THE_BIT, "--trainer.max_epochs=3")
    eager = Fit(run, "eager", "fashion_mnist.yaml", *options)
    graph = Fit(run, "graph", "fashion_mnist.yaml", *options, "--trainer.record_steps=true")
    run.figures.update({"eager: seconds": eager.seconds(), "graph: seconds": graph.seconds(),
                        "graph to eager": graph.seconds() / eager.seconds()})
    expect_same_tensors(run, "graph and eager", eager.last, graph.last)
    expect(eager.metrics() == graph.metrics(), f"test metrics differ: {eager.metrics()} and {graph.metrics()}")


RANDOM_RUNS = "1000:150"


@step(180, "random runs end bitwise identical with and without CUDA graphs")
def recorded(run):
    """LEVIN_RANDOM_RUNS=FIRST:COUNT selects other runs."""
    runs = os.environ.get("LEVIN_RANDOM_RUNS", RANDOM_RUNS)
    output = run.command([run.levin.program("cuda_test"), "--gtest_filter=GpuRecorded.*"],
                         environment={"LEVIN_RANDOM_RUNS": runs})
    passed, failed, skipped = figures.gtest_counts(output)
    run.figures.update({"seeds": runs, "passed": passed, "failed": failed, "skipped": skipped})
    expect(passed == 1, f"the comparison was not made: {output[-1000:]}")


# Without validation, and without the checkpoint of the best validation.
UNWATCHED = ("--trainer.limit_val_batches=0", "--trainer.callbacks=[]")

# A step of ten milliseconds: the loader is faster than the GPU, so that there is always a batch to copy, and so is the
# host, which a trace slows down, so that the GPU computes whenever a copy begins.
TRACED = ("--model.width=128", "--model.first_stride=1", "--data.batch_size=512", "--data.num_workers=4",
          "--data.crop_padding=0", "--data.flip=false", "--trainer.max_steps=26", *UNWATCHED,
          "--test_after_fit=false", "--trainer.profiler.class_path=trace",
          "--trainer.profiler.init_args.wait=12", "--trainer.profiler.init_args.warmup=2",
          "--trainer.profiler.init_args.active=8")


def trace(run, name, *options):
    fitted = Fit(run, name, "fashion_mnist_resnet.yaml", *TRACED, *options)
    found = sorted(fitted.folder.glob("fit-trace-rank0-*.json"))
    expect(found, f"no trace in {fitted.folder}")
    return figures.read_trace(found[0])


@step(60, "batches are copied while the GPU computes, and the host's waits do not keep the GPU idle")
def copies_ahead(run):
    events = trace(run, "default")
    copies = figures.copies_to_device(events, least_bytes=2**20)
    kernels = figures.kernels(events)
    share = figures.overlapped_share(copies, kernels)
    streams = {copy.stream for copy in copies}, {kernel.stream for kernel in kernels}
    waits = figures.waits_a_step(events)
    unchecked = trace(run, "unchecked", "--trainer.nonfinite_loss=ignore")
    free = figures.waits_a_step(unchecked)
    idle, least_idle = figures.idle_share(kernels), figures.idle_share(figures.kernels(unchecked))
    run.figures.update({"copies of batches": len(copies), "fraction of their time that overlaps with kernels": share,
                        "host waits a step": waits, "host waits a step, nonfinite_loss: ignore": free,
                        "GPU idle": idle, "GPU idle, nonfinite_loss: ignore": least_idle})
    expect(not streams[0] & streams[1], f"copies and kernels share streams {streams[0] & streams[1]}")
    expect(share > 0.5, f"only {share:.0%} of the copies' time overlaps with kernels")
    expect(waits <= 1, f"the host waits {waits:g} times a step")
    expect(free == 0, f"with nonfinite_loss: ignore the host still waits {free:g} times a step")
    expect(idle <= least_idle + 0.01, f"the GPU is idle {idle:.1%} of the time, without the check {least_idle:.1%}")


@step(60, "a run that is resumed on the GPU ends bitwise identical")
def resume(run):
    whole = Fit(run, "whole", "fashion_mnist.yaml", *TO_THE_BIT, "--trainer.max_epochs=4")
    half = Fit(run, "half", "fashion_mnist.yaml", *TO_THE_BIT, "--trainer.max_epochs=2")
    rest = Fit(run, "rest", "fashion_mnist.yaml", *TO_THE_BIT, "--trainer.max_epochs=4", f"--ckpt_path={half.last}")
    expect_same_tensors(run, "resumed and whole", whole.last, rest.last)
    expect(whole.metrics() == rest.metrics(), f"test metrics differ: {whole.metrics()} and {rest.metrics()}")


@step(60, "running out of memory is reported with the step, the allocator and the largest users")
def out_of_memory(run):
    fitted = Fit(run, "greedy", "gpt.yaml", *UNWATCHED, "--model.n_embd=1024", "--model.n_head=8",
                 "--model.block_size=1024", "--data.block_size=1024", "--data.batch_size=4000", allowed=range(1, 256))
    report = next((line for line in fitted.output.splitlines() if "out of memory in forward on cuda:0" in line), "")
    run.figures["report"] = report
    expect(report, f"no report of the memory that ran out: {fitted.output[-2000:]}")
    for part in ("training_step, epoch 0, batch 0, global step 0", "more were asked for", "are reserved"):
        expect(part in fitted.output, f'the report lacks "{part}": {report}')
    expect("Largest users: parameters" in fitted.output, f"the report names no users: {report}")


NVML = (("memory.total", "memory_total_bytes", 0.01), ("memory.used", "memory_used_bytes", 0.15),
        ("utilization.gpu", "utilization_percent", None), ("temperature.gpu", "temperature_celsius", 0.15),
        ("power.draw", "power_watts", 0.35))


def watched_fit(run, program):
    """A fit, and nvidia-smi's report of its GPU while it runs."""
    rows, done = [], threading.Event()

    def watch():
        words = smi_words(program, "-i", visible_gpu())
        while not done.wait(0.5):
            with contextlib.suppress(subprocess.TimeoutExpired, figures.Unreadable):
                said = subprocess.run(words, capture_output=True, text=True, timeout=5)
                if said.returncode == 0:
                    rows.extend(figures.smi_rows(said.stdout))

    run.commands.append(" ".join(smi_words(program, "-i", visible_gpu())) + "  # every half second")
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        fitted = Fit(run, "watched", "gpt.yaml", "--trainer.max_steps=2500", *UNWATCHED,
                     "--trainer.log_every_n_steps=20", "--trainer.callbacks+=DeviceStatsMonitor")
    finally:
        done.set()
        thread.join()
    return fitted, rows


def visible_gpu():
    """nvidia-smi's name for cuda:0; both number GPUs by PCI bus."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"


@step(60, "NVML's figures in metrics.csv against nvidia-smi's")
def nvml(run):
    program = shutil.which("nvidia-smi")
    if program is None:
        raise Skipped("nvidia-smi was not found")
    fitted, rows = watched_fit(run, program)
    expect(rows, "nvidia-smi gave no figures during the fit")
    busy = [row for row in rows if (row["utilization.gpu"] or 0) > 0] or rows
    for field, name, tolerance in NVML:
        compare_nvml(run, field, f"gpu_{name}", tolerance, figures.smi_column(busy, field),
                     fitted.column(f"DeviceStatsMonitor.on_train_batch_end/gpu_{name}"))


def compare_nvml(run, field, name, tolerance, theirs, own):
    if not theirs:
        run.figures[field] = "nvidia-smi has no figure"
        return
    ours = statistics.median(own)
    run.figures[name], run.figures[f"nvidia-smi: {field}"] = ours, statistics.median(theirs)
    if tolerance is None:
        expect(max(own) > 0, "NVML saw no utilization during a fit")
        return
    expect(min(theirs) * (1 - tolerance) <= ours <= max(theirs) * (1 + tolerance),
           f"{name} is {ours:g}, nvidia-smi's {field} {min(theirs):g} to {max(theirs):g}")


def ddp(run):
    return strategy("ddp", process_group_backend="nccl" if run.levin.accelerator == "gpu" else "gloo")


@step(60, "ddp over NCCL: one rank trains bitwise identically to a run without ranks, also recorded; two ranks if there are two GPUs")
def nccl(run):
    options = (*TO_THE_BIT, "--trainer.max_epochs=1")
    for name, words in (("one rank", ()), ("one rank, recorded", ("--trainer.record_steps=true",))):
        alone = Fit(run, f"without_{len(words)}", "fashion_mnist.yaml", *options, *words)
        one = Fit(run, f"with_{len(words)}", "fashion_mnist.yaml", *options, *words, *ddp(run))
        run.figures.update({f"{name}: seconds": one.seconds(), f"{name}: seconds without ddp": alone.seconds()})
        expect_same_tensors(run, f"{name} and none", alone.last, one.last)
    if run.levin.gpus() < 2:
        run.figures["two ranks"] = "skipped: there is one GPU"
        return
    for name, words in (("two ranks", ()), ("two ranks, recorded", ("--trainer.record_steps=true",))):
        two = Fit(run, f"two_{len(words)}", "fashion_mnist.yaml", "--trainer.devices=2", *ddp(run), *words)
        run.figures[f"{name}: test_acc"] = two.metrics()["test_acc"]
        expect(two.metrics()["test_acc"] > 0.87, f"{name}: test_acc {two.metrics()['test_acc']}")


def compare_with_one_device(run, options):
    """Runs on one device with a different strategy, {name: options}, must be bitwise identical to a run without one."""
    common = (*TO_THE_BIT, "--trainer.max_epochs=1")
    alone = Fit(run, "alone", "fashion_mnist.yaml", *common)
    run.figures["alone: seconds"] = alone.seconds()
    for name, words in options.items():
        fitted = Fit(run, name.replace(" ", "_"), "fashion_mnist.yaml", *common, *words)
        run.figures[f"{name}: seconds"] = fitted.seconds()
        expect_same_tensors(run, name, alone.last, fitted.last)


@step(60, "fsdp on one GPU, stages 1 to 3: bitwise identical to a run without")
def fsdp(run):
    compare_with_one_device(run, {f"stage {stage}": strategy("fsdp", stage=stage) for stage in (1, 2, 3)})


@step(60, "dp over one GPU: bitwise identical to a run without")
def dp(run):
    compare_with_one_device(run, {"dp": ["--trainer.strategy=dp"]})


@step(180, "optimizers, precisions, callbacks, quantized weights; recorded, recomputed and sharded runs are bitwise identical")
def options(run):
    failed = gpu_options.carry_out(run, gpu_options.everything(run.levin.accelerator))
    expect(not failed, "\n".join(failed))


@step(120, "recomputed blocks: memory and time compared with torch.utils.checkpoint")
def recompute(run):
    bench(run, "recompute", ["gpu", "--rounds", "3"], "recompute_gpu")


GPT_OF_THE_PLAN = ("--model.n_layer=8", "--model.n_embd=512", "--model.n_head=8", "--model.block_size=512",
                   "--data.block_size=512", "--data.batch_size=32")


@step(120, "the predicted peak of a step against max_memory_allocated, within 5 %")
def planner(run):
    output = run.command([run.levin.program("levin"), "plan", "memory", "--config", run.levin.config("gpt.yaml"),
                          "--trainer.accelerator=gpu", "--trainer.devices=1", *GPT_OF_THE_PLAN])
    predicted = figures.predicted_peaks(output)
    off = {}
    for plan, options in (("no recomputation", ()), ("each block", ('--trainer.recompute.modules=["h.*"]',))):
        fitted = Fit(run, plan.replace(" ", "_"), "gpt.yaml", *GPT_OF_THE_PLAN, *options, "--trainer.max_steps=8",
                     *UNWATCHED, "--trainer.log_every_n_steps=1",
                     "--trainer.callbacks+=DeviceStatsMonitor")
        measured = max(fitted.column("DeviceStatsMonitor.on_train_batch_end/allocated_bytes.all.peak"))
        off[plan] = predicted[plan] / measured - 1
        run.figures.update({f"{plan}: predicted MiB": predicted[plan] / 2**20,
                            f"{plan}: measured MiB": measured / 2**20, f"{plan}: off by": off[plan]})
    for plan, share in off.items():
        expect(abs(share) <= 0.05, f"{plan}: the prediction is off by {share:.1%}")


@step(120, "the Trainer's overhead against a hand-written CUDA loop, with and without record_steps")
def overhead(run):
    bench(run, "overhead", ["gpu", "--rounds", "7"], "overhead_gpu")


@step(120, "a step with real loading against one batch that is there already")
def loader(run):
    bench(run, "loader", ["gpu", "--rounds", "3"], "loader_gpu")


@step(420, "a small GPT, batches 1 to 8: with and without record_steps, PyTorch, torch.compile, Lightning in turns")
def gpt(run):
    bench(run, "gpt", ["gpu", "--rounds", "3"], "gpt_gpu")


@step(300, "GPT-2 small in bf16: the fraction of the GPU's peak, compared with PyTorch with FlashAttention")
def gpt_124m(run):
    bench(run, "gpt", ["gpu", "124m", "--rounds", "3"], "gpt_124m_gpu")


@step(400, "XLM-R's six columns next to the article's; recomputation at least halves the large model's memory")
def xlmr(run):
    """With the attention of the article's library, which is compared with the article, and with fused attention."""
    written = bench(run, "xlmr", ["gpu", "--rounds", "1"], "xlmr_gpu")
    for title, table in written["tables"].items():
        fused = ", fused" if "fused" in title else ""
        for name, values in table["figures"].items():
            memory, minutes = ARTICLE[name]
            if title.startswith("peak memory"):
                run.figures[f"{name}{fused}: GB"] = values["median"] * 2**20 / GB
                run.figures[f"{name}: GB in the article"] = memory or "out of memory on 24 GB"
            else:
                run.figures[f"{name}: minutes of the article's epoch"] = minutes
    share = written["memory_of_recomputation"]
    expect(share <= 0.5, f"recomputation leaves {share:.3f} of the large model's memory, in the article 0.50")


@step(240, "compute-sanitizer over a short fit")
def sanitizer(run):
    places = [shutil.which("compute-sanitizer"), *sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))]
    program = next((place for place in places if place and Path(place).exists()), None)
    if program is None:
        raise Skipped("compute-sanitizer is not installed")
    words = fit_words(run, run.folder / "short", "fashion_mnist.yaml", "--trainer.max_epochs=1",
                      "--trainer.limit_train_batches=6", "--trainer.limit_val_batches=1", "--test_after_fit=false")
    # The program itself, not the script that starts it.
    tool = [str(program), "--tool", "memcheck", "--report-api-errors", "no"]
    words, environment = run.levin.below(tool, words)
    output = run.command(words, allowed=range(256), environment=environment)
    errors = figures.sanitizer_errors(output)
    run.figures["errors"] = errors
    expect(errors == 0, f"{errors} errors:\n" + "\n".join(output.splitlines()[:60]))
    expect("Trained" in output, f"the fit did not train: {output[-1500:]}")


def order():
    return [one.name for one in STEPS]
