"""Faults of the machine and its processes, and faults of a user's code with each strategy: makes each fault of
system_faults.json and strategy_faults.json in the phase that a cell names, and asserts the cell's outcome.

  system_faults.py FAULT_PROGRAM [--nightly] NAME… [unittest's arguments]

runs the cells of the faults or groups NAME: those of every day, or with --nightly the others.

fault_program waits in the phase for the file `go`, so a fault from outside meets it there and nowhere else; faults that
begin inside of it need no waiting, and most of their runs are forked from a process that has loaded LibTorch. Of every
run that fails it is asserted that it ends within a time, with the cell's exit status and words; that no process and no
file in the temporary folder or in /dev/shm is left; and that the same run, continued by auto_resume, ends with the weights
and the checkpoints of an undisturbed run.
"""
import contextlib
import ctypes
import ctypes.util
import dataclasses
import errno
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable

from matrix import FOLDER, Part

sys.path.insert(0, str(FOLDER.parent / "support"))
from forked_runs import ForkedRuns  # noqa: E402
from ports import free_port  # noqa: E402
from processes import CLEAN, marked_processes  # noqa: E402
from waiting import state, wait_until  # noqa: E402

OWN_MOUNTS = FOLDER.parent / "support/own_mounts.sh"
SKIPPED = 77  # what CTest takes for a skipped test
MARK = "LEVIN_TEST_CELL"  # in the environment of every process of a run, to find processes that are left
WITH_RANKS = ("ddp", "fsdp")
EVALUATIONS = ("validate", "test", "predict")
DEADLINE = 40  # seconds that a run may take, of which loading LibTorch on a busy machine is the most
FROZEN_TIMEOUT = 2  # seconds after which the ranks that wait for a frozen one give up
END_OF_OTHERS = 3 + 10  # the launcher's grace time for ranks that have not ended, and what a busy machine may need
PARTS = ("system_faults.json", "strategy_faults.json")

PROGRAM = ""
FORKED = None  # ForkedRuns of PROGRAM


def processes_of(mark):
    """Returns the live processes that have the mark in their environment."""
    return list(marked_processes(f"{MARK}={mark}"))


def arguments_of(cell, out, *more):
    task = cell.phase if cell.phase in EVALUATIONS else "fit"
    return [f"out={out}", f"strategy={cell.strategy}", f"task={task}", "auto_resume", *more]


def faulty_rank(cell):
    return cell.expected.get("rank", 1 if cell.strategy in WITH_RANKS else 0)


def rank_variables(strategy, temporary):
    """Returns the variables that a launcher sets, for each process of a run."""
    if strategy not in WITH_RANKS:
        return [{"TMPDIR": str(temporary)}]
    shared = {"TMPDIR": str(temporary), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
              "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


class Run:
    """A run of fault_program in its own session, all of which ends with the `with` block."""

    def __init__(self, cell, folder, *more, at=True, waits=True, env=None, within=()):
        self.cell, self.folder = cell, folder
        self.out, self.signs, self.temporary = folder / "out", folder / "signs", folder / "tmp"
        for path in (self.out, self.signs, self.temporary):
            path.mkdir(exist_ok=True)
        for path in self.signs.iterdir():
            path.unlink()
        self.rank = faulty_rank(cell)
        self.mark = f"{os.getpid()}.{time.monotonic_ns()}"
        where = [f"at={cell.phase}", f"rank={self.rank}"] if at else []
        wait = [f"signs={self.signs}"] if at and waits else []
        command = [*within, PROGRAM, *arguments_of(cell, self.out, *where, *wait, *more)]
        env = {**CLEAN, "TMPDIR": str(self.temporary), MARK: self.mark, **(env or {})}
        self.process = subprocess.Popen(command, env={name: value for name, value in env.items() if value is not None},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        errors="replace", start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in processes_of(self.mark):
            os.kill(pid, signal.SIGKILL)
        if not self.process.stdout.closed:
            self.process.communicate()

    def ended(self):
        return self.process.poll() is not None

    def report(self):
        """Ends the run, and returns its output."""
        for pid in processes_of(self.mark):
            os.kill(pid, signal.SIGKILL)
        return self.process.communicate()[0]

    def wait_for_phase(self):
        """Returns once the rank waits in the phase."""
        sign = self.signs / f"waits.{self.rank}"
        wait_until(sign.exists, f"the run came to {self.cell.phase}", self, DEADLINE)
        self.waiting = int(sign.read_text())  # its process ID

    def go(self):
        (self.signs / "go").touch()

    def end(self, seconds):
        """Returns (exit status as a shell shows it, output) of the run, which must end now."""
        try:
            if self.process.stdout.closed:
                self.process.wait(seconds)
                output = ""
            else:
                output = self.process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            for pid in processes_of(self.mark):
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"the run did not end within {seconds} s:\n{self.process.communicate()[0]}") from None
        status = self.process.returncode
        return (status if status >= 0 else 128 - status), output


# ---- the faults ----------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Fault:
    """What happens to a run that waits in a phase, and how it is made undone before the run is continued."""
    make: Callable[[Run], None] = Run.go
    arguments: tuple = ()        # of the run that meets it
    environment: dict = dataclasses.field(default_factory=dict)  # None: the variable is not set
    prepare: Callable[[pathlib.Path], None] = lambda folder: None  # the folder of the cell, before the run
    change: Callable[[pathlib.Path], None] | None = None  # the folder of an earlier run that was killed in training
    cure: Callable[[Run], None] = lambda run: None
    waits: bool = True           # False: the fault is there from the start, and make is not called
    inside: bool = False         # True: the arguments make it in the phase, and nothing waits


def command(*words):
    subprocess.run([str(word) for word in words], check=True)


def send(number, to_launcher=False):
    def make(run):
        os.kill(run.process.pid if to_launcher else run.waiting, number)
        run.go()
    return make


def stop_for_a_second(run):
    os.kill(run.waiting, signal.SIGSTOP)
    run.go()
    time.sleep(1)
    os.kill(run.waiting, signal.SIGCONT)


def work_of(pids):
    """Returns the clock ticks that the processes have used, and whether a thread of them runs or wants to run."""
    ticks, runs = [], False
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
                fields = stat.read_text().rpartition(")")[2].split()
                ticks.append(sum(map(int, fields[11:13])))
                runs = runs or fields[0] not in "SZ"
    return ticks, runs


def suspend(run):
    """Stops all processes of the run for longer than FROZEN_TIMEOUT, as a scheduler does, once the others wait for the one
    that is held. The others go on first, and have seen for how long they waited before the one that is held goes on."""
    pids = processes_of(run.mark)
    others = [pid for pid in pids if pid != run.waiting]

    def nobody_works():
        before = work_of(others)
        time.sleep(0.3)
        return not before[1] and work_of(others) == before

    wait_until(nobody_works, "the others wait", run)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(state(pid) == "T" for pid in pids), "all processes are stopped", run)
    run.go()
    time.sleep(3)
    for pid in others:
        os.kill(pid, signal.SIGCONT)
    wait_until(nobody_works, "the others wait again, or have ended", seconds=DEADLINE)
    with contextlib.suppress(ProcessLookupError):  # the launcher has ended it
        os.kill(run.waiting, signal.SIGCONT)


def mount_small_disk(folder):
    (folder / "out").mkdir(exist_ok=True)
    command("mount", "-t", "tmpfs", "-o", "size=4m", "levin_disk", folder / "out")


def fill_disk(run):
    with open(run.out / "filler", "wb", buffering=0) as file:
        try:
            for size in (4096, 1):
                while file.write(bytes(size)):
                    pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    run.go()


def make_read_only(run):
    """Covers the folder with a read-only view of itself, since files that are open for writing forbid the change."""
    command("mount", "--bind", run.out, run.out)
    command("mount", "-o", "remount,bind,ro", run.out)
    run.go()


def remove_folder(run):
    while run.out.exists():  # the run may be writing to it
        shutil.rmtree(run.out, ignore_errors=True)
    run.go()


def limit_descriptors(run):
    """Lets the process open no file more; the limit is one of the numbers that descriptors have."""
    used = set()
    for link in pathlib.Path(f"/proc/{run.waiting}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "/checkpoints" not in os.readlink(link) and ".tmp-" not in os.readlink(link):  # closed after this write
                used.add(int(link.name))
    next_one = min(set(range(max(used) + 2)) - used)
    resource.prlimit(run.waiting, resource.RLIMIT_NOFILE, (next_one, next_one))
    run.go()


def pids_cgroup():
    """Returns the folder of a new control group whose number of threads can be limited; None if there can be none."""
    for base in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        folder = pathlib.Path(base) / f"levin_reliability_{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        if (folder / "pids.max").exists():
            return folder
        folder.rmdir()
    return None


def limit_threads(run):
    group = pids_cgroup()
    if group is None:
        raise unittest.SkipTest("this machine has no control group that limits threads")
    (group / "cgroup.procs").write_text(str(run.waiting))
    (group / "pids.max").write_text((group / "pids.current").read_text())
    run.go()


def remove_cgroup(run):
    group = pids_cgroup()
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the processes of the group ended")
    group.rmdir()


def stop_reading(run):
    run.process.stdout.close()
    run.go()


def date_older_checkpoints_later(run):
    """As if the clock had been set back between the saves, and kills the run."""
    paths = sorted((path for path in run.out.rglob("epoch=*.ckpt")), key=step_of)
    for k, path in enumerate(paths):
        at = time.time() + 86400 - 60 * k
        os.utime(path, (at, at))
    send(signal.SIGKILL)(run)


def checksum(data):
    """Returns XXH3 of the data, 16 hexadecimal digits, as checkpoints contain it."""
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    return f"{library.XXH3_64bits(bytes(data), ctypes.c_size_t(len(data))):016x}".encode()


def write_newer_format(out):
    """Gives every checkpoint of a run the format that a later Levin may have, and valid checksums."""
    for path in out.rglob("*.ckpt"):
        content = bytearray(path.read_bytes())
        content[:] = content.replace(b'"levin.format":"1"', b'"levin.format":"9"', 1)
        end = 8 + int.from_bytes(content[:8], "little")
        at = content.index(b'"levin.checksum":"') + len(b'"levin.checksum":"')
        content[at:at + 16] = b"0" * 16
        content[at:at + 16] = checksum(content[:end])
        path.with_suffix(".kept").write_bytes(path.read_bytes())
        path.write_bytes(content)


def restore_format(run):
    for path in run.out.rglob("*.kept"):
        path.replace(path.with_suffix(".ckpt"))


def end_last_rank(run):
    """Freezes a rank that is about to end, and asks the job to stop when all others have ended."""
    os.kill(run.waiting, signal.SIGSTOP)
    run.go()
    wait_until(lambda: set(processes_of(run.mark)) == {run.process.pid, run.waiting}, "the other ranks ended", seconds=DEADLINE)
    run.process.send_signal(signal.SIGTERM)


def step_of(path):
    return int(re.search(r"step=(\d+)", path.name)[1])


FAULTS = {
    "killed": Fault(send(signal.SIGKILL)),
    "killed_restarted": Fault(send(signal.SIGKILL), ("restarts=1",)),
    "crashed": Fault(send(signal.SIGSEGV)),
    "launcher_killed": Fault(send(signal.SIGKILL, to_launcher=True)),
    "frozen": Fault(send(signal.SIGSTOP), (f"timeout={FROZEN_TIMEOUT}",)),
    "frozen_last": Fault(end_last_rank, ("stop_grace=1",)),
    "slow": Fault(stop_for_a_second),
    "sigterm": Fault(send(signal.SIGTERM)),
    "sigint": Fault(send(signal.SIGINT)),
    "sighup": Fault(send(signal.SIGHUP)),
    "sigusr1": Fault(send(signal.SIGUSR1)),
    "sigquit": Fault(send(signal.SIGQUIT)),
    "suspended": Fault(suspend),
    "suspended_long": Fault(suspend, (f"timeout={FROZEN_TIMEOUT}",)),
    "disk_full": Fault(fill_disk, prepare=mount_small_disk, cure=lambda run: (run.out / "filler").unlink()),
    "disk_read_only": Fault(make_read_only, prepare=mount_small_disk, cure=lambda run: command("umount", run.out)),
    "folder_removed": Fault(remove_folder),
    "descriptors": Fault(limit_descriptors),
    "memory": Fault(arguments=("allocates=4096",), inside=True),
    "threads": Fault(limit_threads, cure=remove_cgroup),
    "output_closed": Fault(stop_reading),
    "clock_forward": Fault(arguments=("clock=86400",)),
    "clock_back": Fault(arguments=("clock=-86400",)),
    "dates_wrong": Fault(date_older_checkpoints_later),
    "no_home": Fault(environment={"HOME": None, "XDG_CACHE_HOME": None, "USER": None}, waits=False),
    "no_term": Fault(environment={"TERM": None}, waits=False),
    "odd_locale": Fault(environment={"LC_ALL": "xx_XX.UTF-8", "LANG": "xx_XX.UTF-8"}, waits=False),
    "newer_checkpoint": Fault(change=write_newer_format, cure=restore_format, waits=False),
    "other_model": Fault(arguments=("width=16",), change=lambda out: None, waits=False),
    "other_precision": Fault(arguments=("precision=64-true",), change=lambda out: None, waits=False),
    "other_world": Fault(arguments=("strategy=single",), change=lambda out: None, waits=False),
    "mistake": Fault(arguments=("throws=config_error",), inside=True),
    **{name: Fault(arguments=(f"throws={name}",), inside=True) for name in
       ("runtime_error", "levin_error", "libtorch_error", "bad_alloc", "number")},
    **{f"{value}_{what}": Fault(arguments=(f"{'poison' if value == 'nan' else 'inf'}={what}",), inside=True)
       for value in ("nan", "inf") for what in ("loss", "gradient", "input", "weights", "metric")},
}


class Cable:
    """Two network namespaces with a cable between them, each kept by a process of its own."""
    ADDRESSES = ("10.231.78.1", "10.231.78.2")

    def __enter__(self):
        self.keepers = [subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE)
                        for _ in range(2)]
        for keeper in self.keepers:
            keeper.stdout.readline()  # the namespace is there
        pids = [str(keeper.pid) for keeper in self.keepers]
        command("ip", "link", "add", "levin0", "netns", pids[0], "type", "veth", "peer", "name", "levin0", "netns", pids[1])
        for node, address in enumerate(self.ADDRESSES):
            command(*self.enter(node), "ip", "address", "add", f"{address}/24", "dev", "levin0")
            command(*self.enter(node), "ip", "link", "set", "lo", "up")
            self.set("up", node)
        return self

    def __exit__(self, *_):
        for keeper in self.keepers:
            keeper.kill()
            keeper.communicate()

    def enter(self, node):
        return ["nsenter", f"--net=/proc/{self.keepers[node].pid}/ns/net", "--"]

    def set(self, state, node=1):
        command(*self.enter(node), "ip", "link", "set", "levin0", state)

    def start(self, cell, folder, *more, **options):
        """Returns the run of each node."""
        env = {"MASTER_ADDR": self.ADDRESSES[0], "MASTER_PORT": str(free_port())}
        return [Run(cell, folder, "nodes=2", *more, env={**env, "NODE_RANK": str(node)}, within=self.enter(node), **options)
                for node in range(2)]


class Cells(unittest.TestCase):
    maxDiff = None
    undisturbed_runs = {}  # by strategy

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_reliability_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def run_forked(self, cell, folder, *more):
        """Returns (exit status, output) of a run that nothing from outside disturbs."""
        out, temporary = folder / "out", folder / "tmp"
        for path in (out, temporary):
            path.mkdir(exist_ok=True)
        statuses, output = FORKED.run(arguments_of(cell, out, *more), rank_variables(cell.strategy, temporary), DEADLINE)
        self.assertEqual(os.listdir(temporary), [], f"the temporary folder is not empty:\n{output}")
        return max(statuses), output

    def undisturbed(self, cell):
        """Returns the result of a run of the cell's strategy that nothing disturbs."""
        if cell.strategy not in self.undisturbed_runs:
            folder = self.folder / "undisturbed"
            folder.mkdir()
            status, output = self.run_forked(dataclasses.replace(cell, phase="training"), folder)
            self.assertEqual(status, 0, output)
            self.undisturbed_runs[cell.strategy] = self.result(folder / "out")
        return self.undisturbed_runs[cell.strategy]

    def result(self, out):
        """Returns what a run has left: its weights, its metrics and the names of its checkpoints."""
        report = json.loads((out / "rank0.json").read_text())
        names = sorted(path.name for path in out.rglob("*") if ".ckpt" in path.name and ".tmp-" not in path.name)
        return report["weights"], report["global_step"], report.get("metrics"), names

    def expect_nothing_left(self, run, output):
        wait_until(lambda: not processes_of(run.mark), f"no process is left after\n{output}", seconds=10)  # some are not reaped yet
        self.assertEqual(os.listdir(run.temporary), [], f"the temporary folder is not empty:\n{output}")
        self.assertEqual(os.listdir("/dev/shm"), [], f"/dev/shm is not empty:\n{output}")

    def check_link(self, cell):
        """Two nodes, of which the second loses its link: for good, or for a second."""
        lost = cell.fault == "link_down"
        with contextlib.ExitStack() as ends:
            cable = ends.enter_context(Cable())
            nodes = [ends.enter_context(run) for run in cable.start(cell, self.folder, f"timeout={3 if lost else 30}")]
            nodes[1].wait_for_phase()
            cable.set("down")
            nodes[1].go()
            if not lost:
                time.sleep(1)
                cable.set("up")
            for run in nodes:
                status, output = run.end(DEADLINE)
                self.check_end(cell, status, output)
                self.expect_nothing_left(run, output)
            cable.set("up")
            again = [ends.enter_context(run) for run in cable.start(cell, self.folder, at=False)]
            self.assertEqual([run.end(DEADLINE)[0] for run in again], [0, 0])
            self.assertEqual(self.result(self.folder / "out"), self.undisturbed(cell))

    def check_frozen_alone(self, cell):
        """Ranks that a scheduler has started: one stands still until the other has ended, and then goes on."""
        variables = rank_variables(cell.strategy, self.folder / "tmp")
        with contextlib.ExitStack() as ends:
            first, frozen = [ends.enter_context(Run(cell, self.folder, f"timeout={FROZEN_TIMEOUT}", env=env))
                             for env in variables]
            frozen.wait_for_phase()
            os.kill(frozen.waiting, signal.SIGSTOP)
            frozen.go()
            status, output = first.end(FROZEN_TIMEOUT + END_OF_OTHERS)
            self.check_end(cell, status, output)
            self.assertEqual(state(frozen.waiting), "T")
            os.kill(frozen.waiting, signal.SIGCONT)
            status, output = frozen.end(FROZEN_TIMEOUT + END_OF_OTHERS)
            self.assertEqual(status, 1, output)
            for words in cell.expected["own_error"]:
                self.assertRegex(output, words)
            for run in (first, frozen):
                self.expect_nothing_left(run, output)
        if cell.phase not in EVALUATIONS:
            self.check_resumed(cell)

    def check_inside(self, cell, fault):
        """A fault that the program makes itself."""
        where = (f"at={cell.phase}", f"rank={faulty_rank(cell)}", *fault.arguments)
        if cell.strategy in WITH_RANKS:
            with Run(cell, self.folder, *fault.arguments, waits=False) as run:
                status, output = run.end(DEADLINE)
                self.expect_nothing_left(run, output)
        else:
            status, output = self.run_forked(cell, self.folder, *where)
        self.check_end(cell, status, output)

    def unmount(self):
        while os.path.ismount(self.folder / "out"):
            command("umount", self.folder / "out")

    def kill_in_training(self, cell):
        """Leaves the checkpoints of a run that was killed."""
        with Run(dataclasses.replace(cell, phase="training"), self.folder) as run:
            run.wait_for_phase()
            send(signal.SIGKILL)(run)
            run.end(DEADLINE)

    def check(self, cell):
        if cell.fault in ("link_down", "link_back"):
            return self.check_link(cell)
        if cell.fault == "frozen_alone":
            return self.check_frozen_alone(cell)
        fault = FAULTS[cell.fault]
        if fault.inside:
            self.check_inside(cell, fault)
        else:
            self.check_from_outside(cell, fault)
        if cell.phase not in EVALUATIONS and cell.expected.get("resumes", True):
            self.check_resumed(cell)

    def check_from_outside(self, cell, fault):
        fault.prepare(self.folder)
        if os.path.ismount(self.folder / "out"):
            self.addCleanup(self.unmount)
        if fault.change is not None:
            self.kill_in_training(cell)
            fault.change(self.folder / "out")
        with Run(cell, self.folder, *fault.arguments, at=fault.waits, env=fault.environment) as run:
            if fault.waits:
                run.wait_for_phase()
                fault.make(run)
            status, output = run.end(FROZEN_TIMEOUT + END_OF_OTHERS if cell.fault == "frozen" else DEADLINE)
            self.check_end(cell, status, output)
            self.expect_nothing_left(run, output)
            if not run.process.stdout.closed:
                run.process.stdout.close()
            fault.cure(run)

    def check_end(self, cell, status, output):
        self.assertEqual(status, cell.expected["status"], output)
        for words in cell.expected.get("error", []):
            self.assertRegex(output, words)
        for words in cell.expected.get("not_error", []):
            self.assertNotRegex(output, words)

    def check_resumed(self, cell):
        """The same run continues to the same end: by the same command after a kill, and forked after other faults."""
        if cell.fault == "killed":
            with Run(cell, self.folder, at=False) as run:
                status, output = run.end(DEADLINE)
        else:
            status, output = self.run_forked(cell, self.folder)
        self.assertEqual(status, 0, output)
        out = self.folder / "out"
        # Of weights, steps, metrics and checkpoints:
        kept = 2 if cell.expected.get("other_metrics", False) else 3 if cell.expected.get("loses_checkpoints", False) else 4
        self.assertEqual(self.result(out)[:kept], self.undisturbed(cell)[:kept], output)
        self.assertEqual(list(out.rglob("*.tmp-*")), [], output)


def add_cells(names, nightly):
    """Makes a test of each cell of the faults and groups."""
    count = 0
    for part in (Part(FOLDER / name) for name in PARTS):
        groups = {fault["name"]: fault.get("group") for fault in part.content["faults"]}
        for cell in part.cells():
            if {cell.fault, groups[cell.fault]} & set(names) and cell.is_nightly == nightly:
                setattr(Cells, f"test_{cell.name}", lambda self, cell=cell: self.check(cell))
                count += 1
    if count == 0:
        sys.exit(f"no cells of {names}")


@contextlib.contextmanager
def folders_in_memory():
    """Lets temporary folders be in memory: the runs would wait for the disk for most of their time."""
    with tempfile.TemporaryDirectory(prefix="levin_reliability_") as folder:
        command("mount", "-t", "tmpfs", "levin_folders", folder)
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None
            command("umount", folder)


def main():
    global PROGRAM, FORKED
    if os.environ.get("LEVIN_TEST_OWN_MOUNTS") != "1":
        # So that a disk that is full or goes away, and what is left in /dev/shm, is this test's alone.
        if os.geteuid() != 0 or subprocess.run([OWN_MOUNTS, "true"], capture_output=True).returncode != 0:
            print("skipped: this user cannot mount file systems in a mount namespace of its own")
            sys.exit(SKIPPED)
        os.execvpe(str(OWN_MOUNTS), [str(OWN_MOUNTS), sys.executable, "-B", *sys.argv], {**os.environ, "LEVIN_TEST_OWN_MOUNTS": "1"})
    subprocess.run(["mount", "-t", "tmpfs", "levin_shm", "/dev/shm"], check=True)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    nightly = "--nightly" in sys.argv
    if nightly:
        sys.argv.remove("--nightly")
    names = []
    while len(sys.argv) > 1 and not sys.argv[1].startswith(("-", "Cells")):
        names.append(sys.argv.pop(1))
    add_cells(names, nightly)
    FORKED = ForkedRuns([PROGRAM, "serve"], CLEAN)
    with folders_in_memory():
        unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
