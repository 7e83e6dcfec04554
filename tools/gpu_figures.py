"""Parsers for the output of programs that gpu_check.py runs: tables, traces, nvidia-smi's CSV, benchmark results."""
import csv
import json
import re
from collections import namedtuple

Interval = namedtuple("Interval", "start end stream bytes")


class Unreadable(Exception):
    """A program's output is not as expected; the message names what is missing."""


def number(text):
    """The number in the text, or None ("[N/A]", "", "None")."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


# ---- levin -------------------------------------------------------------------------------------------------------

def test_metrics(output):
    """Returns {name: value} of the lines after "test metrics:"."""
    _, found, rest = output.partition("\ntest metrics:\n")
    metrics = {}
    for line in rest.splitlines():
        row = re.fullmatch(r"  (\S+) +(\S+)", line)
        if not row:
            break
        metrics[row[1]] = float(row[2])
    if not found or not metrics:
        raise Unreadable("levin fit printed no test metrics")
    return metrics


def fit_seconds(output):
    """The seconds in "Trained 8 epochs, 6880 steps, in 11.1 s: …"."""
    found = re.search(r"^Trained .*, in ([^:]+):", output, re.M)
    if not found:
        raise Unreadable('levin fit printed no line "Trained …, in …"')
    return seconds(found[1])


def seconds(text):
    """The seconds in "778 ms", "11.1 s", "7 min 54 s", "1 h 2 min"."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"([\d.]+) (us|ms|s|min|h|d)\b", text)
    if not parts:
        raise Unreadable(f'"{text}" is not a duration')
    return sum(float(count) * units[unit] for count, unit in parts)


def size(text):
    """The number of bytes in "83.2 MiB"."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    found = re.fullmatch(r"([\d.]+) (B|KiB|MiB|GiB|TiB)", text)
    if not found:
        raise Unreadable(f'"{text}" is not a size')
    return float(found[1]) * units[found[2]]


def predicted_peaks(output):
    """Returns {plan: bytes} of the table of `levin plan memory`."""
    _, found, rest = output.partition("\nplan  ")
    peaks = {}
    for line in rest.splitlines()[1:]:
        row = re.match(r"(\S.*?) +\d+ +([\d.]+ \w+) ", line)
        if not row:
            break
        peaks[row[1]] = size(row[2])
    if not found or not peaks:
        raise Unreadable("levin plan memory printed no table of plans")
    return peaks


def differing_tensors(output):
    """The lines of levin checkpoint diff about tensors; its other lines are about values, such as options and paths."""
    return [line.strip() for line in output.splitlines() if line.strip().startswith("tensor ")]


def column(path, name):
    """The numbers of one column of a metrics.csv, in order."""
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        if name not in (rows.fieldnames or []):
            raise Unreadable(f"{path} has no column {name}")
        return [float(row[name]) for row in rows if row[name] not in (None, "")]


# ---- NVIDIA's programs -------------------------------------------------------------------------------------------

SMI_FIELDS = ("index", "name", "driver_version", "memory.total", "memory.used", "memory.reserved", "utilization.gpu",
              "temperature.gpu", "power.draw")
SMI_TEXTS = ("name", "driver_version")


def smi_rows(text):
    """[{field: value}] of nvidia-smi --query-gpu=SMI_FIELDS --format=csv,noheader,nounits; None where it has none."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(SMI_FIELDS):
            continue  # "No devices were found", a message of the driver
        row = dict(zip(SMI_FIELDS, cells))
        rows.append({key: value if key in SMI_TEXTS else number(value) for key, value in row.items()})
    if not rows:
        raise Unreadable(f"nvidia-smi printed no row: {text.strip()[:200]}")
    return rows


def smi_column(rows, field):
    """A field of the rows that have it, memory in bytes. NVML's first interface, which Levin uses, includes the memory
    that the driver has reserved for itself; nvidia-smi reports that separately."""
    if not field.startswith("memory"):
        return [row[field] for row in rows if row[field] is not None]
    reserved = (lambda row: row["memory.reserved"] or 0) if field == "memory.used" else (lambda row: 0)
    return [(row[field] + reserved(row)) * 2**20 for row in rows if row[field] is not None]


def sanitizer_errors(output):
    """The number in "========= ERROR SUMMARY: 0 errors", summed over processes."""
    found = re.findall(r"^=+ ERROR SUMMARY: (\d+) error", output, re.M)
    if not found:
        raise Unreadable("compute-sanitizer printed no summary")
    return sum(map(int, found))


def gtest_suites(output):
    """Returns ["GpuGraph", …] from the output of --gtest_list_tests."""
    suites = re.findall(r"^(\w+)\.(?:$| )", output, re.M)
    if not suites:
        raise Unreadable("the tests did not list themselves")
    return suites


def gtest_counts(output):
    """Returns (passed, [names of failed tests], skipped)."""
    passed = re.search(r"^\[  PASSED  \] (\d+) test", output, re.M)
    skipped = re.search(r"^\[  SKIPPED \] (\d+) test", output, re.M)
    failed = re.findall(r"^\[  FAILED  \] (\w+\.\w+)(?:,|$| \()", output, re.M)
    if not passed:
        raise Unreadable("the tests ended without a summary")
    return int(passed[1]), sorted(set(failed)), int(skipped[1]) if skipped else 0


# ---- traces ------------------------------------------------------------------------------------------------------

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cuStreamSynchronize",
         "cuEventSynchronize", "cuCtxSynchronize")


def read_trace(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def _intervals(events, category, part_of_name=""):
    return sorted(Interval(float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0)),
                           event.get("args", {}).get("stream", event.get("tid")), event.get("args", {}).get("bytes", 0))
                  for event in events if event.get("ph") == "X" and event.get("cat") == category
                  and part_of_name in str(event.get("name", "")))


def copies_to_device(events, least_bytes=0):
    """The copies to the device among Kineto's events, sorted by start; copies of unknown size are included."""
    return [copy for copy in _intervals(events, "gpu_memcpy", "HtoD") if not copy.bytes or copy.bytes >= least_bytes]


def kernels(events):
    return _intervals(events, "kernel")


def overlapped_share(copies, others):
    """The fraction of the copies' time during which one of the others, on a different stream, was running."""
    total = sum(copy.end - copy.start for copy in copies)
    if not total:
        raise Unreadable("the trace holds no copies to the GPU")
    shared = 0.0
    for copy in copies:
        at = copy.start
        for other in others:  # sorted by start: what is counted already ends at `at`
            if other.stream == copy.stream or other.end <= at or other.start >= copy.end:
                continue
            begin, end = max(at, other.start), min(copy.end, other.end)
            shared += end - begin
            at = end
    return shared / total


def idle_share(spans):
    """The fraction of the time between the first and the last interval, sorted by start, during which none was active."""
    if not spans:
        raise Unreadable("the trace holds no kernels")
    busy, end = 0.0, spans[0].start
    for span in spans:
        busy += max(0.0, span.end - max(span.start, end))
        end = max(end, span.end)
    return 1 - busy / (end - spans[0].start)


def waits_a_step(events):
    """The median over the traced steps of how often the host waited for the GPU."""
    steps = [(float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in events
             if event.get("ph") == "X" and str(event.get("name", "")).startswith("ProfilerStep#")
             and event.get("cat") != "gpu_user_annotation"]
    waits = [float(event["ts"]) for event in events if event.get("ph") == "X"
             and event.get("cat") in ("cuda_runtime", "cuda_driver") and event["name"] in WAITS]
    if not steps:
        raise Unreadable("the trace holds no step")
    counts = sorted(sum(begin <= at < end for at in waits) for begin, end in steps)
    half = len(counts) // 2
    return counts[half] if len(counts) % 2 else (counts[half - 1] + counts[half]) / 2


# ---- benchmarks --------------------------------------------------------------------------------------------------

def bench_figures(result):
    """The named numbers of a benchmark's JSON, and the medians of its tables as "row (unit)"."""
    figures = {key: value for key, value in result.items()
               if isinstance(value, (int, float)) and key not in ("cores", "threads")}
    for title, table in result.get("tables", {}).items():
        for row, values in table["figures"].items():
            figures[f"{title}: {row} ({table['unit']})"] = values["median"]
    return figures


def bars_not_met(result):
    """["to_raw_pytorch_1 is 0.9, at least 1"] of a benchmark's JSON."""
    lines = []
    for key, bar in result.get("bars", {}).items():
        if bar["met"]:
            continue
        kind = next(kind for kind in ("at most", "at least") if kind in bar)
        lines.append(f"{key} is {bar['value']:.3g}, {kind} {bar[kind]:g}")
    return lines


def read_json(path):
    with open(path) as file:
        return json.load(file)
