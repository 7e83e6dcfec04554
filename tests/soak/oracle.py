"""What must hold after a start, and after the last one. Each function returns a list of faults, as sentences."""
import contextlib
import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import time
from pathlib import Path

from runs import differences, files_below

from processes import marked_processes

# ---- what a start prints and how it ends -----------------------------------------------------------------------------

# Text of a C++ library that is not meant for users.
INTERNALS = [r"terminate called", r"what\(\):", r"\bstd::(?!max\b|min\b)\w+", r"\bbad_alloc\b", r"basic_string", r"vector::_M",
             r"\bmap::at\b", r"filesystem error", r"Segmentation fault", r"[Aa]ssertion .* failed", r"core dumped",
             r"Traceback \(", r"frame #\d", r"Exception raised from", r"\bc10::", r"\bat::(?!\d)", r"INTERNAL ASSERT",
             r"^\[[WEF]\d{3}", r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer",
             r"runtime error:", r"0x[0-9a-f]{8,}", r"double free",
             r"corrupted", r"stack smashing", r"Resource temporarily unavailable$"]
# LibTorch's own: a network without names, and an option that a scenario sets although its model does not need it.
# Lines of LibTorch itself. Of them, the last one tells of a rank that was killed before it had connected; Levin's error names
# that rank. oneDNN does not check for memory: Levin's error about a rank that this ended names the limit.
KNOWN = re.compile(r"The hostname of the client socket cannot be retrieved|find_unused_parameters=True was specified in DDP|"
                   r"Gloo connectFullMesh failed with|Its memory is limited \(ulimit -v, -d\)")
# What LibTorch logs of its store when a rank ends that others connect to, with a stack; Levin's error names that rank.
STORE = re.compile(r"(?m)^\[[WE]\d+ \S+ TCPStore\w*\.cpp:\d+\] \[c10d\].*\n(?:Exception raised from .*\n)?(?:frame #.*\n)*\n?")
# Words with which a message gives a remedy, or states that none is needed.
REMEDY = re.compile(
    r"(?im)(?:^|[.;:,(] |\bor |\band |\bto )(?:continue|use|set|give|free|check|restore|remove|raise|lower|reduce|start|try|"
    r"write|choose|keep|make|see|wait|call|name|put|let)\b|can be continued|continues|starts? again|retried|is repeated|"
    r"Nothing was trained|interrupted by|There is no checkpoint|was killed by signal|has ended\b")
# What a message is about: a path, an option, a rank, a process, a number.
SUBJECT = re.compile(r"/|\w+\.\w+|\w+_\w+|\brank\b|\bprocess\b|\d|Ctrl-C|SIG\w+")
SIGNAL_NAMES = {signal.SIGINT: "Ctrl-C|SIGINT|Interrupt", signal.SIGTERM: "SIGTERM|Terminated", signal.SIGHUP: "SIGHUP|Hangup",
                signal.SIGUSR1: "SIGUSR1|User defined signal 1"}


def faults_of_output(status, output, statuses):
    """`statuses`: with which the start may end."""
    faults = []
    output = STORE.sub("", output)
    if status not in statuses:
        faults.append(f"the exit status is {status}, expected one of {sorted(statuses)}")
    for pattern in INTERNALS:
        for line in output.splitlines():
            if re.search(pattern, line) and not KNOWN.search(line):
                faults.append(f"an unclear message (it has {pattern}): {line}")
    errors = re.findall(r"(?m)^(?:rank \d+: )?error: (.*(?:\n(?!\w+: ).+)*)", output)
    if status > 0 and not errors:
        faults.append(f"no error message explains the exit status {status}")
    for number, name in SIGNAL_NAMES.items():
        if status == 128 + number and not re.search(name, output):
            faults.append(f"the exit status {status} is a signal's, and no message names {name}")
    if errors:
        whole = "\n".join(errors)
        for part, pattern in [("what it is about", SUBJECT), ("how to fix it", REMEDY)]:
            if not pattern.search(whole):
                faults.append(f"an error does not say {part}: {whole}")
        faults += [f"an empty error: {error!r}" for error in errors if len(error.strip()) < 10]
    return faults


# ---- what a start leaves ---------------------------------------------------------------------------------------------

def listening_ports():
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        ports |= {int(line.split()[1].rsplit(":", 1)[1], 16) for line in lines if line.split()[3] == "0A"}
    return ports


def shared_memory():
    """Only files that Levin and LibTorch name: without a mount of its own, /dev/shm belongs to all processes, and another
    test's folder for temporary files may be there."""
    is_own = "LEVIN_SOAK_ISOLATED" in os.environ
    return {path.name for path in Path("/dev/shm").iterdir()
            if is_own or (path.is_file() and re.search("levin|torch|gloo|nccl", path.name))}


def stacks(pid):
    """The stacks of a process that hangs, by gdb if it is there."""
    try:
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        return "\n".join(line for line in done.stdout.splitlines() if line.startswith(("#", "Thread")))
    except (OSError, subprocess.TimeoutExpired):
        return "\n".join(f"thread {task.name}: {(task / 'wchan').read_text()}" for task in Path(f"/proc/{pid}/task").iterdir())


class Before:
    """What is no leftover of a start: the ports and shared memory that other programs had before, and the locks of killed
    starts, until one gets as far as the folder."""

    def __init__(self, folder=None):
        self.ports, self.memory = listening_ports(), shared_memory()
        self.locks = set(folder.rglob("run.lock")) if folder else set()


def leftovers(mark, before, folder, temporary, was_killed, has_one_folder=True, seconds=15.0):
    """`folder`: of the run; `temporary`: its TMPDIR. A killed process cannot remove its files, all else must be gone.
    `has_one_folder`: every start continues in the same folder, and so removes what a killed one left there."""
    end = time.monotonic() + seconds
    is_isolated = "LEVIN_SOAK_ISOLATED" in os.environ

    def open_ports():
        return listening_ports() - before.ports if is_isolated else set()

    while (marked_processes(mark) or open_ports()) and time.monotonic() < end:
        time.sleep(0.02)
    faults = [f"process {pid} is left over: {command}\n{stacks(pid)}" for pid, command in marked_processes(mark).items()]
    faults += [f"port {port} is still open" for port in open_ports()]
    faults += [f"/dev/shm/{name} is left over" for name in sorted(shared_memory() - before.memory)]
    if not was_killed:
        for name in sorted(path.name for path in temporary.iterdir()):
            faults.append(f"a file in TMPDIR is left over: {name}")
        for path in folder.rglob("*"):
            if ".tmp-" in path.name or path.name == "run.lock" and has_one_folder and path not in before.locks:
                faults.append(f"a temporary file is left over: {path}")
    faults += [f"a core file: {path}" for path in folder.parent.glob("core*")]
    return faults


# ---- what all starts together leave ----------------------------------------------------------------------------------

def faults_of_files(undisturbed, disturbed, compared="files", recorded=False):
    """Compares what an undisturbed and a disturbed run left. `compared`: files, bitwise (those with times in them by their
    contents); weights, of the newest checkpoint, where saves failed while the disk was full and training went on; or its steps.
    `recorded`: some steps may have been replayed, which checkpoints within an accumulation window tell."""
    if compared != "files":
        return _faults_of_newest(undisturbed, disturbed, compared == "weights")
    holds_times = re.compile(r"events\.out\.|metrics\.jsonl$|\.sqlite(-\w+)?$|\.prom$|/saved-")
    by_content = recorded or any(re.search(r"metrics\.jsonl$|events\.out|\.sqlite$|shard-", path)
                                 for path in files_below(undisturbed))
    checkpoints = re.compile(r"\.ckpt(/.*)?$")
    text = differences(undisturbed, disturbed,
                       ignored=lambda name: holds_times.search("/" + name) or by_content and checkpoints.search(name))
    faults = [text] if text else []
    if by_content:  # the state of these loggers, with lengths and names of files, is in the checkpoints
        faults += _faults_of_checkpoints(undisturbed, disturbed)
    for name, read in [("metrics.jsonl", _json_lines), ("event files", _events), ("runs.sqlite", _sqlite_rows),
                       ("run.prom", _prometheus)]:
        expected, actual = read(undisturbed), read(disturbed)
        if name == "run.prom":  # a last start that had nothing to train has logged no metric
            expected = [line for line in expected if line in actual or "levin_metric" not in line]
        if expected != actual:
            faults.append(f"{name}: {_first(expected, actual)}")
    return faults


def _first(expected, actual):
    for k, (one, other) in enumerate(zip(expected, actual)):
        if one != other:
            return f"item {k} is {other} instead of {one}"
    return f"{len(actual)} items instead of {len(expected)}, which begin alike"


def saved_state(path):
    """Returns (values, tensors) of a file of a checkpoint, without the loggers' state."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    values = json.loads(metadata.get("levin.values", "{}"))
    for name in ("unread_loss", "loss_weights"):  # a loss that is not judged yet, which a replay may have been
        values.get("progress", {}).pop(name, None)
    return ({name: value for name, value in values.items() if not name.startswith("loggers.") and name != "sharded"},
            {name: content[8 + length:][slice(*entry["data_offsets"])] for name, entry in header.items()
             if not name.startswith("loggers.")})


SHARD_ID = re.compile(r"(?<=shard-\d-of-\d)\.\w+(?=\.safetensors)")  # of the save; its parts have the same


def _checkpoint_files(folder):
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and re.search(r"\.ckpt(/.*)?$", str(path)) and "saved-" not in str(path.relative_to(folder)):
            found[SHARD_ID.sub("", str(path.relative_to(folder)))] = path
    return found


def _faults_of_checkpoints(undisturbed, disturbed):
    expected, actual = _checkpoint_files(undisturbed), _checkpoint_files(disturbed)
    faults = [f"missing: {name}" for name in sorted(expected.keys() - actual.keys())]
    faults += [f"left over: {name}" for name in sorted(actual.keys() - expected.keys())]
    for name in sorted(expected.keys() & actual.keys()):
        if not name.endswith((".ckpt", ".safetensors")):
            continue
        one, other = saved_state(expected[name]), saved_state(actual[name])
        for old, new in zip(one, other):
            differ = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            if differ:
                faults.append(f"{name} differs in {', '.join(differ[:5])}")
    return faults


def _newest(folder):
    states = [saved_state(path) for path in _checkpoint_files(folder).values() if path.name.endswith(".ckpt")]
    states = [state for state in states if "global_step" in state[0]]
    return max(states, key=lambda state: state[0]["global_step"], default=None)


def _faults_of_newest(undisturbed, disturbed, with_weights):
    expected, actual = _newest(undisturbed), _newest(disturbed)
    if expected is None:
        return []  # sharded: its parts differ in their names alone
    if actual is None:
        return ["no checkpoint is left"]
    old, new = ({name: data for name, data in state[1].items() if name.startswith("model.")} for state in (expected, actual))
    if expected[0]["global_step"] != actual[0]["global_step"]:
        return [f"the newest checkpoint is of step {actual[0]['global_step']} instead of {expected[0]['global_step']}"]
    return [] if old == new or not with_weights else ["the weights of the newest checkpoint differ"]


def _json_lines(folder):
    lines = []
    for path in sorted(folder.rglob("metrics.jsonl")):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            event.pop("time", None)
            if "hparams" not in event:  # every start adds its own
                lines.append(event)
    return lines


def _fields(data):
    """The fields of a message in protobuf's format: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        yield key >> 3, value


def _events(folder):
    """The scalars of all event files: (tag, step, the value's bytes)."""
    scalars = []
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = dict(_fields(data[at + 12:at + 12 + size]))
            at += size + 16
            for number, value in _fields(event.get(5, b"")):
                if number == 1:
                    parts = dict(_fields(value))
                    if 2 in parts:
                        scalars.append((parts[1].decode(), event.get(2, 0), parts[2].hex()))
    return sorted(scalars)


def _sqlite_rows(folder):
    """Of the newest run: one that was killed before its first checkpoint starts over as another."""
    rows = []
    for path in sorted(folder.rglob("runs.sqlite")):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
            ((run, uuid, status),) = file.execute("SELECT id, uuid, status FROM runs ORDER BY id DESC LIMIT 1").fetchall()
            rows.append(status)
            rows += file.execute("SELECT metric, step, value FROM curves WHERE run = ? ORDER BY metric, step, value", (uuid,))
            rows += file.execute("SELECT name, value FROM final_metrics WHERE run = ? ORDER BY name", (run,))
    return rows


def _prometheus(folder):
    lasting = re.compile(r"levin_(metric|step|epoch|global_step|active|status|skipped_steps)\b")
    return sorted(line for path in folder.rglob("*.prom") for line in path.read_text().splitlines() if lasting.match(line))
