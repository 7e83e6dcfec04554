"""Processes that tests start: the environment they get, and finding those that are left."""
import os
from pathlib import Path

# Variables that another launcher or the machine's owner has set must not reach a test's programs.
CLEAN = {name: value for name, value in os.environ.items()
         if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
         and not name.startswith(("SLURM_", "OMPI_", "TORCHELASTIC_", "LSB_", "JSM_", "PMI_", "PET_", "JOB_COMPLETION_INDEX",
                                  "LEVIN_LAUNCH", "LEVIN_SECRET"))}
CLEAN["OMP_NUM_THREADS"] = "1"


def children(pid):
    """Returns the processes, by id, that this one has started, such as the ranks of a launcher, in their order."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def marked_processes(mark):
    """Returns the processes, by id, that were started with this environment variable (NAME=VALUE), and their command lines."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found[int(entry)] = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:  # it has just ended
                pass
    return {pid: command for pid, command in found.items() if command}  # a zombie has none
