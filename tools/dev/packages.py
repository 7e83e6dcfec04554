"""Installs what Levin needs: apt packages, LibTorch, and Python packages in folders apart from the user's Python."""
import contextlib
import filecmp
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from steps import Failed, StepError, die, lock, replaced_folder, step
from torch_headers import torch_version

HOME = Path(os.environ.get("LEVIN_HOME") or Path(
    os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or "/root", ".cache"), "levin"))
SYSTEM_HOME = Path(os.environ.get("LEVIN_SYSTEM_HOME") or "/usr/local/lib/levin")  # as in cmake/LevinTorch.cmake
LOGS = HOME / "logs"
# The version is pinned only in this list.
TORCH_VERSION = re.search(r"^torch==([0-9.]+) ", Path("cmake/libtorch-cpu.txt").read_text(), re.M)[1]
PEERS = HOME / f"peers-{TORCH_VERSION}"
PEERS_LISTS = ("cmake/libtorch-cuda.txt", "bench/peers/requirements.txt")
OWN_LIBRARIES = {"x86_64": (), "aarch64": ("libarm_compute*", "libnvpl*", "libgfortran*")}  # that libtorch_cpu.so needs
SITE_PACKAGES, SITE_LIST = HOME / "docs-python", "docs/site/requirements.txt"
PIP_INSTALL = ["-m", "pip", "install", "--progress-bar", "off", "--no-cache-dir", "--disable-pip-version-check",
               "--root-user-action", "ignore", "--no-deps", "--only-binary", ":all:", "--require-hashes"]


# ---- apt ---------------------------------------------------------------------------------------------------------

def sections():
    """The packages of each section of cmake/debian-packages.txt."""
    found, name = {}, ""
    for line in Path("cmake/debian-packages.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            name = line.strip("[]")
        elif line:
            found.setdefault(name, []).extend(line.split())
    return found


def is_root():
    return subprocess.run(["id", "-u"], capture_output=True, text=True).stdout.strip() == "0"


def apt_packages(label, *names):
    """Installs the packages of these sections that are missing. Prints the command for root if this is another user."""
    listed = sections()
    wanted = [package for name in names for package in listed[name]]
    if shutil.which("dpkg-query") is None:
        print(f"{label}: not a Debian machine, nothing installed; the build needs: {' '.join(wanted)}")
        return
    query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *wanted], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    installed = {line.split()[1] for line in query.splitlines() if line.startswith("installed ")}
    missing = sorted(set(wanted) - installed)
    if not missing:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends"]
    if not is_root():
        die(3, f"{len(missing)} apt packages are missing and only root can install them. "
            "Run this, then call ./dev again:",
            f"  sudo apt-get update && sudo {' '.join(install + missing)}")
    wait = ["-o", "DPkg::Lock::Timeout=300"]
    with without_daemons():
        step(f"{label}: installing {len(missing)} ({missing[0]} …)", LOGS / "apt.log",
             [["apt-get", "update", *wait], [*install, *wait, *missing]], {"DEBIAN_FRONTEND": "noninteractive"})


@contextlib.contextmanager
def without_daemons():
    """Keeps apt from starting daemons: the packages are for builds and tests."""
    policy = Path("/usr/sbin/policy-rc.d")
    made = False
    with contextlib.suppress(OSError):
        with open(policy, "x") as file:
            made = True
            file.write("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        yield
    finally:
        if made:
            policy.unlink()


def make_munge_key():
    """Makes munge's key unless it exists: its package does so as a separate user, who may lack access in a chroot."""
    key = Path("/etc/munge/munge.key")
    if is_root() and not key.exists():
        with contextlib.suppress(OSError):
            key.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(1024))


# ---- LibTorch ----------------------------------------------------------------------------------------------------

def wants_cuda():
    return os.environ.get("LEVIN_CUDA", "0") not in ("", "0")


def torch_is_complete(folder):
    return all((folder / "torch" / file).is_file()
               for file in ("lib/libtorch_cpu.so", "include/torch/csrc/api/include/torch/torch.h"))


def torch_folder(home, kind, version=TORCH_VERSION):
    return home / f"libtorch-{version}-{kind}"


def other_torches():
    """The versions that `check --torch` takes, the newest last."""
    return sorted((path.stem for path in Path("cmake/libtorch").glob("*.txt")), key=lambda name: int(name[2:]))


def other_torch(version):
    """The list of wheels and the full number of a version that `check --torch` takes."""
    if version not in other_torches():
        pinned = TORCH_VERSION.rpartition(".")[0]
        die(2, f'check --torch takes one of {", ".join(other_torches())}, not "{version}"; '
            f"without --torch the pinned {pinned} is checked.")
    wheels = Path("cmake/libtorch", f"{version}.txt")
    return wheels, re.search(r"^torch==([0-9.]+) ", wheels.read_text(), re.M)[1]


def torch_home(kind):
    """The home of LibTorch: the one for all users if LibTorch is complete there."""
    for_all = not os.environ.get("LEVIN_HOME") and torch_is_complete(torch_folder(SYSTEM_HOME, kind))
    return SYSTEM_HOME if for_all else HOME


def pip_python():
    """A Python with pip. Its version does not matter for LibTorch: pip only downloads, for Python 3.11."""
    for python in ("python3", sys.executable):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
                return python
    die(3, "python3 has no pip, which is required to download LibTorch. Install python3-pip, or set LEVIN_TORCH_DIR "
           "to a LibTorch.")


def require_space(folder, needed_mb, what, variable):
    table = subprocess.run(["df", "-Pm", folder], capture_output=True, text=True).stdout
    free_mb = int(table.splitlines()[1].split()[3])
    if free_mb < needed_mb:
        die(3, f"{what.format(mb=needed_mb, folder=folder)}, but only {free_mb} MB are free.",
            f"Free some space, or set {variable} to a folder on another disk.")


def fetch_torch(wheel_list, all_libraries, staging, for_all_users, machine):
    """Downloads the wheels, unpacks the files that a C++ build needs, and checks them."""
    root, torch, wheels = staging / "root", staging / "root/torch", staging / "wheels"
    wheels.mkdir()
    minors = (28, 27, 26, 25, 24, 18, 17, 12, 5)
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in minors] + [f"manylinux2014_{machine}"]
    yield [pip_python(), "-m", "pip", "download", "--progress-bar", "off", "--no-cache-dir", "--no-deps",
           "--only-binary", ":all:", "--require-hashes", "--retries", "5", "--python-version", "3.11", "--implementation", "cp",
           "--abi", "cp311", "--abi", "abi3", "--abi", "none",
           *[word for platform in platforms for word in ("--platform", platform)],
           "--requirement", wheel_list, "--dest", wheels]
    libraries = ("*",) if all_libraries else (
        "libc10.so", "libtorch_cpu.so", "libgomp*", "libtorch_global_deps.so", "libshm.so", *OWN_LIBRARIES[machine])
    files = ["torch/include/*", "torch/share/cmake/*", "torch/version.py", "torch-*.dist-info/METADATA",
             *[f"torch/lib/{name}" for name in libraries]]
    for wheel in sorted(wheels.glob("*.whl")):
        yield ["unzip", "-q", "-o", wheel, *(files if wheel.name.startswith("torch-") else []), "-d", root]
        wheel.unlink()
    if not torch_is_complete(root):
        raise StepError("the wheels do not contain libtorch_cpu.so and torch/torch.h")
    if machine != platform.machine():
        return  # a cross compiler's; the loader here cannot read them
    # The loader reports whether every required library is present.
    needed = subprocess.run(["ldd", torch / "lib/libtorch_cpu.so"], env={**os.environ, "LD_LIBRARY_PATH": ""},
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    if "not found" in needed:
        raise StepError("\n".join(line for line in needed.splitlines() if "not found" in line))
    if for_all_users:
        yield ["chmod", "-R", "a+rX,go-w", root]


def set_up_torch(label, kind, for_all_users, version=TORCH_VERSION, wheel_list=None, machine=platform.machine()):
    home, variable = (SYSTEM_HOME, "LEVIN_SYSTEM_HOME") if for_all_users else (torch_home(kind), "LEVIN_HOME")
    target = torch_folder(home, kind if machine == platform.machine() else f"{kind}-{machine}", version)
    if torch_is_complete(target):
        return target
    known = machine in OWN_LIBRARIES if kind == "cpu" and wheel_list is None else machine == "x86_64"
    if platform.system() != "Linux" or not known:
        die(3, f"LibTorch {version} ({kind}) cannot be fetched for {platform.system()} on {machine}.",
            f"Install LibTorch {version} for this machine yourself and set LEVIN_TORCH_DIR to its folder.")
    make_home(home)
    with set_up_lock(home):
        if torch_is_complete(target):
            return target
        require_space(home, 7000 if kind == "cuda" else 1300,
                      "LibTorch needs {mb} MB free in {folder} for download and unpacking", variable)
        try:
            with replaced_folder(target) as staging:
                step(f"{label}: fetching", LOGS / f"libtorch-{kind}.log",
                     fetch_torch(wheel_list or f"cmake/libtorch-{kind}.txt", kind == "cuda", staging, for_all_users, machine),
                     {"TMPDIR": str(staging / "tmp"), "PIP_ROOT_USER_ACTION": "ignore",
                      "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        except Failed:
            die(3, f"LibTorch {version} could not be fetched (see above). Call ./dev again to retry,",
                "or set LEVIN_TORCH_DIR to your own LibTorch.")
    if wheel_list is None and machine == platform.machine():
        for build in Path("build").glob("*/build.ninja"):
            build.unlink()  # builds that were configured with another LibTorch search for it again
    return target


def make_home(home):
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        die(3, f"cannot create {home}. Set LEVIN_HOME to a folder that can be written.")


def set_up_lock(home):
    """Of two set-ups at once, the second waits and finds the work done."""
    return lock(home / ".setup.lock", f"{home}: waiting for another set-up")


def check_system_home():
    """Reports problems with a LibTorch for all users before anything is downloaded."""
    for name in ("LEVIN_HOME", "LEVIN_TORCH_DIR"):
        if os.environ.get(name):
            die(2, f"setup --system puts LibTorch into {SYSTEM_HOME}, but {name}={os.environ[name]} selects another.",
                f"Unset {name}, or leave --system out.")
    umask = os.umask(0o022)
    try:
        with contextlib.suppress(OSError):
            SYSTEM_HOME.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(umask)
    if not (SYSTEM_HOME.is_dir() and os.access(SYSTEM_HOME, os.W_OK)):
        die(3, f"cannot write to {SYSTEM_HOME}, where setup --system puts LibTorch for all users. Run it as root:",
            "  sudo ./dev setup --system")
    closed = next((folder for folder in (SYSTEM_HOME, *SYSTEM_HOME.absolute().parents)
                   if not folder.stat().st_mode & stat.S_IXOTH), None)
    if closed:
        die(3, f"setup --system puts LibTorch into {SYSTEM_HOME} for all users, but only the owner may enter",
            f"{closed}. Open it (chmod a+x {closed}), or set LEVIN_SYSTEM_HOME to another folder.")


def uses_debians_torch():
    """Whether libtorch-dev is installed in a version that Levin takes, and no LibTorch that this script has fetched."""
    fetched = (torch_folder(home, kind) for home in (SYSTEM_HOME, HOME) for kind in ("cpu", "cuda"))
    version = torch_version(Path("/usr/include"))
    if not version:
        return False
    oldest = re.search(r"_levin_torch_oldest (\d+)\.(\d+)", Path("cmake/LevinTorch.cmake").read_text())
    return version >= [int(number) for number in oldest.groups()] and not any(map(torch_is_complete, fetched))


def set_up(for_all_users=False, parts=("parts",)):
    """What a build needs: of everything, or, with `parts` empty, of the first example."""
    kind = "cuda" if wants_cuda() else "cpu"
    own = os.environ.get("LEVIN_TORCH_DIR")
    debians = not own and kind == "cpu" and not for_all_users and uses_debians_torch()
    apt_packages("[1/4] apt packages", "build", *parts, *(["openblas"] if debians else []))
    if not own and not debians:
        set_up_torch(f"[2/4] LibTorch {TORCH_VERSION} ({kind})", kind, for_all_users)


# ---- Python packages ---------------------------------------------------------------------------------------------

def is_installed(target, *lists):
    """Whether a folder holds the packages of these lists: their contents are in its installed.txt."""
    try:
        return (target / "installed.txt").read_bytes() == b"".join(Path(name).read_bytes() for name in lists)
    except OSError:
        return False


def install(label, python, target, *lists, finish=lambda root: (), pip_options=()):
    """Installs lists of Python packages into a folder. `finish(root)` yields further commands of the step."""
    def commands(staging):
        requirements = [word for name in lists for word in ("--requirement", name)]
        yield [python, *PIP_INSTALL, *pip_options, *requirements, "--target", staging / "root"]
        yield from finish(staging / "root")
        (staging / "root/installed.txt").write_bytes(b"".join(Path(name).read_bytes() for name in lists))

    make_home(HOME)
    with set_up_lock(HOME):
        if not is_installed(target, *lists):
            with replaced_folder(target) as staging:
                step(f"{label}: fetching", LOGS / f"{target.name}.log", commands(staging),
                     {"TMPDIR": str(staging / "tmp")})


def set_up_python(label="Python packages for tests", packages="cmake/python-packages.txt", target=HOME / "python"):
    """Installs packages for tests. Tests without their packages are skipped, so a failure is only reported."""
    if Path(packages).exists() and not is_installed(target, packages):
        try:
            install(label, pip_python(), target, packages)
        except Failed:
            print(f"{label}: not installed (see above); the tests that need them are skipped.")


def set_up_site():
    """Installs Sphinx and its theme."""
    if not is_installed(SITE_PACKAGES, SITE_LIST):
        try:
            install("Sphinx", pip_python(), SITE_PACKAGES, SITE_LIST)
        except Failed:
            die(3, "Sphinx could not be installed (see above). Run ./dev docs again to retry.")


def finish_peers(root, python):
    """Shares large files with LibTorch, and makes root/python3, which runs with these packages."""
    for include in root.glob("nvidia/*/include"):  # torch/include stays: torch.compile compiles with it
        shutil.rmtree(include)
    for libtorch in HOME.glob(f"libtorch-{TORCH_VERSION}-*"):
        for file in libtorch.rglob("*.so*"):
            twin = root / file.relative_to(libtorch)
            if file.is_file() and not file.is_symlink() and file.stat().st_size > 1 << 20 and twin.is_file() \
                    and filecmp.cmp(file, twin, shallow=False):
                twin.unlink()
                os.link(file, twin)
    executable = subprocess.run([python, "-c", "import sys; print(sys.executable)"], stdout=subprocess.PIPE, text=True)
    (root / "python3").symlink_to(executable.stdout.strip())
    yield ["env", f"PYTHONPATH={root}", root / "python3", "-B", "-c",
           "import lightning, torch, torchvision; print(lightning.__version__, torch.__version__)"]


def set_up_peers():
    """Installs the packages that a user gets from PyPI: torch with all of NVIDIA's libraries, because they affect the
    memory and the start-up time that benchmarks compare, and a GPU needs them."""
    if is_installed(PEERS, *PEERS_LISTS):
        print(f"peers: in place ({PEERS})")
        return
    for python in (os.environ.get("LEVIN_PYTHON") or "/usr/bin/python3", "python3"):  # Debian's own is the faster build
        check = [python, "-c", "import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))"]
        with contextlib.suppress(OSError):
            if subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0:
                break
    else:
        die(3, "The peers need CPython 3.11 with pip (Debian 12: python3 and python3-pip).")
    make_home(HOME)
    require_space(HOME, 10000, "The peers need {mb} MB free in {folder} while they are installed", "LEVIN_HOME")
    try:
        install("peers", python, PEERS, *PEERS_LISTS, pip_options=["--retries", "5"],
                finish=lambda root: finish_peers(root, python))
    except Failed:
        die(3, "The peers could not be installed (see above). Call ./dev bench --peers again to retry;",
            "benchmarks leave them out meanwhile, and tests with torchrun are skipped.")
    print(f"peers: installed in {PEERS}")


def set_up_models():
    set_up_python("Hugging Face's packages for tests", "cmake/model-packages.txt", HOME / "models-python")


def set_up_formats():
    """Installs the libraries that write and read shards, for the benchmark `streams` and the shards of the tests. One of them
    imports transformers."""
    set_up_models()
    set_up_python("Libraries of shards", "cmake/format-packages.txt", HOME / "formats-python")


def set_up_arrow():
    """Installs Apache Arrow, which the build must find to make the library that reads Parquet files."""
    target, packages = HOME / "arrow-python", "cmake/arrow-packages.txt"
    if is_installed(target, packages):
        return
    set_up_python("Apache Arrow for tests", packages, target)
    for build in Path("build").glob("*/build.ninja"):
        build.unlink()  # builds that were configured without it search again


def set_up_for_tests(with_peers):
    """Installs packages that only tests need. Tests whose packages cannot be installed are skipped, with the reason."""
    if is_root():
        make_munge_key()
        apt_packages("apt packages for tests", "launchers", "languages", "search", "loggers", "editors", "browser", "bundle", "packages", "debian")
        with continues_without("clang 14, which this Debian may not have; fuzzing and other tests with it are skipped."):
            apt_packages("apt packages for tests with clang", "fuzz")
    set_up_python()
    set_up_python("The S3 server for tests", "cmake/storage-packages.txt", HOME / "storage-python")
    if not with_peers:
        return
    set_up_python("MLflow's packages for tests", "cmake/mlflow-packages.txt", HOME / "mlflow")
    set_up_models()
    wheels, version = other_torch(other_torches()[-1])
    with continues_without("the newest LibTorch; its tests are skipped."):
        set_up_torch(f"LibTorch {version} (cpu) for tests", "cpu", False, version, wheels)
    with continues_without("PyTorch for Python; the tests with torchrun are skipped."):
        set_up_peers()


@contextlib.contextmanager
def continues_without(what):
    try:
        yield
    except SystemExit as error:
        if error.code != 3 and not isinstance(error, Failed):
            raise
        print(f"check: continues without {what}")
