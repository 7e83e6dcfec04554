"""A Slurm of two nodes, n1 and n2, on this machine: real daemons, with configuration, key, state and ports of their own,
so that neither a Slurm of the machine nor another test is in the way. All of it ends with stop().

    cluster = Cluster()                # starts munged, slurmctld and two slurmd
    cluster.run("sinfo")
    cluster.stop()

Debian: slurmctld slurmd slurm-client munge. Root, as a slurmd has to be.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from ports import free_ports  # noqa: E402
from waiting import wait_until  # noqa: E402

OWN_MOUNTS = str(pathlib.Path(__file__).resolve().parent.parent / "support/own_mounts.sh")
PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol"]

CONFIGURATION = """\
ClusterName=levin
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
# A job that is started again waits until its old credentials have expired.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
MailProg=/bin/true
ReturnToService=2
MpiDefault=none
JobRequeue=1
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=500
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=500
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""

# Nothing here uses cgroups, yet slurmd looks for them, and a container or chroot may have none.
CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint={folder}/cgroup
"""


def missing():
    """Returns why a cluster cannot run here; "" if it can."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    lacking = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if lacking:
        return f"{', '.join(lacking)}: not installed (./dev check installs Slurm where it is root)"
    if os.geteuid() != 0:
        return "the daemons of Slurm want root"
    made = subprocess.run([OWN_MOUNTS, "true"], capture_output=True, text=True)
    return "" if made.returncode == 0 else f"this machine makes no mount namespaces: {made.stderr.strip()}"


class Cluster:
    def __init__(self):
        self._temporary = tempfile.TemporaryDirectory(prefix="levin-slurm-")
        self.folder = pathlib.Path(self._temporary.name).resolve()
        self.folder.chmod(0o755)  # munged wants a socket that all can reach
        self.daemons = []
        for name in ("state", "n1", "n2"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.configuration = self.folder / "slurm.conf"
        self.configuration.write_text(
            CONFIGURATION.format(host=socket.gethostname(), folder=self.folder, ports=free_ports(3)))
        (self.folder / "cgroup.conf").write_text(CGROUPS.format(folder=self.folder))
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        self._daemon("munged", "--foreground", f"--key-file={self.folder}/munge.key",
                     f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                     f"--log-file={self.folder}/munged.messages", f"--seed-file={self.folder}/munge.seed")
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon("slurmctld", "-D", "-i", "-f", self.configuration)
        # The nodes know each other by name, as machines of a cluster do; this machine's own list is unchanged.
        names = self.folder / "hosts"
        names.write_text(pathlib.Path("/etc/hosts").read_text() + "\n127.0.0.1 n1 n2\n")
        for node in ("n1", "n2"):
            start = f"mount --bind {names} /etc/hosts && exec slurmd -D -N {node} -f {self.configuration}"
            self._daemon(OWN_MOUNTS, "sh", "-c", start, log=node)
        self._wait(lambda: self.run("sinfo", "-h", "-N", "-o", "%t", check=False).split() == ["idle", "idle"],
                   "two idle nodes")

    def _daemon(self, *arguments, log=None):
        name = log or arguments[0]
        with open(self.folder / f"{name}.log", "wb") as output:
            self.daemons.append(subprocess.Popen(
                [str(argument) for argument in arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=self.environment, start_new_session=True))

    def _wait(self, is_so, what, seconds=60):
        wait_until(is_so, what, self, seconds)

    def ended(self):
        """Returns the daemons that have ended, which none should."""
        return [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]

    def report(self):
        return f"ended: {self.ended()}\n{self.logs()}"

    def logs(self):
        return "\n".join(f"== {log.name}\n" + "".join(log.read_text(errors="replace").splitlines(True)[-15:])
                         for log in sorted(self.folder.glob("*.log")))

    def run(self, *arguments, check=True, timeout=120, **more):
        """Returns the standard output of a Slurm command."""
        done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, **{"env": self.environment, **more})
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def state_of(self, job):
        """PENDING, RUNNING, COMPLETED, FAILED …; of an array, of each task."""
        text = self.run("scontrol", "-o", "show", "job", job)
        return [word.split("=")[1] for word in text.split() if word.startswith("JobState=")]

    def field_of(self, job, name):
        text = self.run("scontrol", "-o", "show", "job", job)
        return next(word.split("=", 1)[1] for word in text.split() if word.startswith(name + "="))

    def wait_for(self, job, states, seconds=120, output=None):
        """Waits until all tasks of the job are in one of `states`; a failure shows what the job wrote to `output`."""
        try:
            self._wait(lambda: all(state in states for state in self.state_of(job)), f"job {job} is {states}", seconds)
        except AssertionError as error:
            text = pathlib.Path(output).read_text() if output and pathlib.Path(output).exists() else ""
            raise AssertionError(f"job {job} is {self.state_of(job)}\n{text}\n{error}") from None

    def stop(self):
        if len(self.daemons) == 4:
            self.run("scancel", "--signal=KILL", "--full", "-u", "root", check=False)
            self.run("scancel", "-u", "root", check=False)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.run("squeue", "-h", check=False).strip(), "the end of all jobs", seconds=10)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        # What a daemon has started knows its configuration; nobody else does.
        mark = f"SLURM_CONF={self.configuration}".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                left = mark in (process / "environ").read_bytes().split(b"\0") and int(process.name) != os.getpid()
                if left:
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ValueError):
                pass
        self._temporary.cleanup()
