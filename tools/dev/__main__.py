"""The commands of ./dev, which calls this in the root of the tree: __main__.py CALLER_FOLDER COMMAND [ARGUMENTS…]"""
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import packages
from mutate import tests_of
from packages import HOME, LOGS, PEERS, apt_packages, set_up, torch_folder, torch_home, torch_is_complete
from steps import Failed, die, exit_on_signals, group, lock, run, status_of, step, wait_with_signs_of_life

PRESETS = ("release", "dev", "asan", "tsan", "coverage")
FUZZ_TARGETS = ("checkpoint", "data", "exported", "images", "loggers", "mlflow", "onnx", "ranks", "runs", "streams", "sweep",
                "tokenizer", "weights", "yaml")
TOOL_TARGETS = ("bin/levin", "levin_sentencepiece")  # with all parts
FIRST_EXAMPLE = "bin/01_minimal"  # README's first command builds, and installs, what this program needs alone
CALLER = Path(sys.argv[1])  # relative paths in arguments of the tool start here
PYTHON = [sys.executable, "-B"]


def cores():
    return len(os.sched_getaffinity(0))


def jobs():
    """How many compilers to run: the largest units of the library take 2.5 GB, so one per core if memory allows."""
    available_kb = int(re.search(r"^MemAvailable: *(\d+)", Path("/proc/meminfo").read_text(), re.M)[1])
    return os.environ.get("LEVIN_JOBS") or str(max(1, min(cores(), available_kb // 2500000)))


def lock_build(folder):
    """Of two calls that write one folder below build/, the second waits: a compiler would read a precompiled header
    that the other call's compiler is still writing."""
    return lock(Path(f"build/.{folder}.lock"), f"build/{folder}: waiting for another call of ./dev in this tree")


def configure(preset, tree, parts):
    """`parts`: "ON" for all, or "OFF" for those of the first example."""
    wanted = os.environ.get("LEVIN_TORCH_DIR", "")
    if not wanted and packages.wants_cuda():
        wanted = str(torch_folder(torch_home("cuda"), "cuda"))
    elif not wanted and torch_home("cpu") != HOME and not torch_is_complete(torch_folder(HOME, "cuda")):
        wanted = str(torch_folder(torch_home("cpu"), "cpu"))
    if (tree / "build.ninja").is_file():
        # If LibTorch was removed, or LEVIN_TORCH_DIR has changed, it is searched for again.
        cache = (tree / "CMakeCache.txt").read_text()
        found = re.search(r"^LEVIN_TORCH_INCLUDE:PATH=(.*)$", cache, re.M)
        has_parts = f"LEVIN_ALL_PARTS:BOOL={parts}\n" in cache
        if found and os.path.isdir(found[1]) and found[1].startswith(wanted.rstrip("/") + "/") and has_parts:
            return
    step(f"[3/4] configure {tree.name}", tree / "configure.log",
         [["cmake", "--preset", preset, "-B", tree, f"-DLEVIN_ALL_PARTS={parts}", f"-DLEVIN_BUILD_TOOL={parts}",
           "-DLEVIN_DOWNLOADS=ON", "-U", "LEVIN_TORCH_INCLUDE"]],  # LibTorch is searched for again
         {"LEVIN_TORCH_DIR": wanted} if wanted else {})


def has_all_parts(tree):
    with contextlib.suppress(OSError):
        return "LEVIN_ALL_PARTS:BOOL=ON\n" in (tree / "CMakeCache.txt").read_text()
    return False


def build(preset, targets=(), tree=None, check=lambda: None):
    """`tree`: the folder to build in, unless it is the preset's own. `check` is called once that is configured."""
    tree = tree or Path("build", preset)
    is_first = list(targets) == [FIRST_EXAMPLE] and not has_all_parts(tree)
    set_up(parts=() if is_first else ("parts",))
    log = tree / "build.log"
    with lock_build(tree.name):
        configure(preset, tree, "OFF" if is_first else "ON")
        check()
        step(f"[4/4] build {tree.name}", log, [["ninja", "-C", tree, "-j", jobs(), *targets]])
    lines = log.read_text(errors="replace").splitlines()
    warnings = [line for number, line in enumerate(lines)  # with the three lines after each
                if any("warning:" in near for near in lines[max(0, number - 3):number + 1])]
    print(*[f"{line}\n" for line in warnings[:60]], sep="", end="")


def become(folder, *command):
    """Replaces this process by a program that runs in a folder."""
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.chdir(folder)
    os.environ["PWD"] = str(folder)
    try:
        os.execv(command[0], [str(part) for part in command])
    except OSError as error:
        die(127, f"cannot run {command[0]}: {error.strerror}")


def build_then_become(targets, folder, *command):
    """As become(), after a build that prints to standard error: standard output is the program's."""
    with contextlib.redirect_stdout(sys.stderr):
        if targets:
            build("release", targets)
    if packages.is_installed(PEERS, *packages.PEERS_LISTS):
        os.environ["LEVIN_PEERS"] = str(PEERS)
    become(folder, *command)


def value(option, arguments):
    """Removes the value of an option from the front of the arguments."""
    if not arguments or not arguments[0]:
        die(2, f"{option} needs a value.")
    return arguments.pop(0)


# ---- commands: each returns an exit status, or None for 0 --------------------------------------------------------

def do_setup(arguments):
    for option in arguments:
        if option not in ("--cuda", "--system"):
            die(2, f'setup takes --cuda and --system only, not "{option}".')
    if "--cuda" in arguments:
        os.environ["LEVIN_CUDA"] = "1"
    for_all_users = "--system" in arguments
    if for_all_users:
        packages.check_system_home()
    set_up(for_all_users)
    if not for_all_users:
        packages.set_up_python()
    note = f"; LibTorch for all users: {packages.SYSTEM_HOME}" if for_all_users else ""
    print(f"setup: everything is in place ({HOME}{note})")


def do_build(arguments):
    preset = "release"
    if arguments and arguments[0] in PRESETS:
        preset, *arguments = arguments
    elif arguments and arguments[0].startswith("-"):
        die(2, f'build takes a preset and targets, not "{arguments[0]}".')
    build(preset, arguments)
    print(f"build: build/{preset}/bin is up to date")


def do_levin(arguments):
    build_then_become(["bin/levin"], CALLER, Path.cwd() / "build/release/bin/levin", *arguments)


def build_and_set_up_for_tests(preset, tree, with_peers):
    """Fetches the packages for tests during the build, and prints the output after it. Returns the times taken."""
    start = time.monotonic()
    set_up()
    if with_peers:
        packages.set_up_arrow()
    took, start = f"setup {int(time.monotonic() - start)} s", time.monotonic()
    log = LOGS / "check-setup.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*PYTHON, "tools/dev", CALLER, "set-up-for-tests", *(["--peers"] * with_peers)]
    with open(log, "wb") as output, group(command, stdout=output, stderr=subprocess.STDOUT) as process:
        build(preset, tree=tree)
        built = int(time.monotonic() - start)
        if process.poll() is None:
            print("packages for tests …")
        status = wait_with_signs_of_life(process, "packages for tests", log)
    lines = log.read_text(errors="replace").splitlines(keepends=True)
    print(*[line for line in lines if " …" not in line], sep="", end="")
    if status != 0:
        raise Failed(status)
    waited = int(time.monotonic() - start) - built
    return f"{took}, build {built} s" + (f", packages for tests {waited} s" if waited >= 2 else "")


def do_check(arguments):
    preset, with_peers, lists_only, nightly, options, excluded, torch = "", False, False, False, [], [], ""
    while arguments:
        option = arguments.pop(0)
        name, equals, given = option.partition("=")
        if equals and name in ("--preset", "--label", "--torch"):
            option = name
            arguments.insert(0, given)
        if option == "--preset":
            preset = value(option, arguments)
        elif option == "--label":
            label = value(option, arguments)
            options += ["-L", label]
            nightly |= label == "nightly"
            if label == "cuda":
                os.environ["LEVIN_CUDA"] = "1"
        elif option == "--torch":
            torch = value(option, arguments)
        elif option == "--nightly":
            nightly = True
        elif option in ("-R", "--tests-regex"):
            options += [option, value(option, arguments)]
            nightly = True  # tests that are named run
        elif option in ("-LE", "--label-exclude"):
            excluded.append(value(option, arguments))
        elif option == "--peers":
            with_peers = True
        else:
            options.append(option)
            lists_only |= name in ("-N", "--show-only", "--print-labels")
    if preset not in ("", *PRESETS):
        die(2, f'unknown preset "{preset}". Known: {", ".join(PRESETS)}.')
    if torch and preset in ("asan", "tsan"):
        die(2, f"check --torch does not set the environment of the preset {preset}: leave one of the two out.")
    if not nightly:
        excluded.append("nightly")
    if excluded:
        options += ["-LE", "|".join(excluded)]
    preset = preset or ("torch" if torch else "release")
    tree = Path("build", preset)
    if torch:
        wheels, version = packages.other_torch(torch)
        folder = packages.set_up_torch(f"LibTorch {version} (cpu)", "cpu", False, version, wheels)
        os.environ["LEVIN_TORCH_DIR"] = str(folder)
        tree = Path(f"build/{preset}-{torch}")
        if not any(option in options for option in ("-L", "-R", "--tests-regex")):
            options += ["-L", "unit|multi_process"]
    took = build_and_set_up_for_tests(preset, tree, with_peers)
    tree = tree.absolute()
    ctest = ["ctest", *(["--test-dir", tree, "--output-on-failure"] if torch else ["--preset", preset])]
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # as in the presets
    if lists_only:
        return run([*ctest, *options])
    start = time.monotonic()
    tree.mkdir(parents=True, exist_ok=True)
    results, log = tree / "test-results.xml", tree / "check.log"
    results.unlink(missing_ok=True)
    # The tests take little memory, and one more than there are cores keeps all of them busy. Their outputs are kept
    # complete, since they report skipped tests.
    ctest = [*ctest, "-j", os.environ.get("LEVIN_JOBS") or str(cores() + 1), "--no-tests=error",
             "--test-output-size-passed", "4000000", "--test-output-size-failed", "4000000", "--test-output-truncation",
             "middle", "--output-junit", results, *options]
    with open(log, "wb") as copy, group(ctest, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for chunk in iter(lambda: process.stdout.read1(65536), b""):
            copy.write(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
        status = status_of(process)
    return run([*PYTHON, "tests/support/test_summary.py", results, log, status,
                f"{took}, tests {int(time.monotonic() - start)} s, preset {preset}" + f", LibTorch {torch}" * bool(torch)])


def do_flaky(arguments):
    """The busy processes run during the tests only, because a build does not become flaky."""
    times = arguments.pop(0) if arguments else "20"
    if not re.fullmatch("[1-9][0-9]*", times):
        die(2, f'flaky takes how many times each test runs, and options of check, not "{times}".')
    build_and_set_up_for_tests("release", None, False)
    with contextlib.ExitStack() as ended:
        for _ in range(cores()):
            busy = subprocess.Popen(["sh", "-c", f"while kill -0 {os.getpid()}; do :; done"])  # as long as this process lives
            ended.callback(busy.wait)
            ended.callback(busy.kill)
        return do_check([*arguments, "--repeat", f"until-fail:{times}"])


def do_soak(arguments):
    if not 1 <= len(arguments) <= 2 or not all(re.fullmatch("[0-9]+", each) for each in arguments):
        die(2, f'soak takes minutes and a seed, not "{" ".join(arguments)}".')
    build_then_become(["bin/levin", "levin_test_programs", "splat", "surrogate", "self_play"], CALLER, *PYTHON,
                      Path.cwd() / "tests/soak/soak.py", Path.cwd() / "build/release/bin/levin", Path.cwd() / "build/release/bin",
                      *arguments)


def folder_of(command, arguments):
    """Removes the folder from the front of the arguments."""
    folder = arguments.pop(0).rstrip("/")
    if not list(Path(folder).rglob("*.cpp")):
        die(2, f'{command} takes a folder of the library, not "{folder}".')
    return folder


def do_mutate(arguments):
    if len(arguments) not in (2, 3) or not all(re.fullmatch("[1-9][0-9]*", number) for number in arguments[1:]):
        die(2, f'mutate takes a folder, how many changes to make, and a seed (1), not "{" ".join(arguments)}".')
    folder = folder_of("mutate", arguments)
    apt_packages("clang's Python module", "fuzz")
    build_and_set_up_for_tests("release", None, False)
    with lock_build("mutate"):
        return run([*PYTHON, "tools/dev/mutate.py", "build/release", f"build/mutate/{folder}", folder, *(arguments + ["1"])[:2]])


def do_coverage(arguments):
    """The lines that failed tests have run count too."""
    folder = [folder_of("coverage", arguments)] if arguments else []
    if arguments:
        die(2, f'coverage takes a folder only, not "{arguments[0]}" too.')
    tree = Path("build/coverage")
    for counts in tree.rglob("*.gcda"):
        counts.unlink()
    tested = do_check(["--preset", "coverage", "-LE", "nightly", *(["-R", tests_of(folder[0])] if folder else [])])
    os.environ["PYTHONPATH"] = str(HOME / "python")
    return run([packages.pip_python(), "-B", "tools/dev/coverage.py", tree, *folder]) or tested


def do_differential(arguments):
    if not arguments or not all(re.fullmatch("[0-9]+", number) for number in arguments) or len(arguments) > 2:
        die(2, "differential takes how many random runs to compare, and the seed of the first one.")
    if not packages.is_installed(PEERS, *packages.PEERS_LISTS):
        die(3, "differential compares with Lightning. Install it with ./dev bench --peers.")
    return build_then_become(["levin_test_programs"], Path.cwd(), sys.executable, "-B", "tests/conformance/differential.py",
                             "build/release/bin/levin_conformance", *arguments)


def do_set_up_for_tests(arguments):
    packages.set_up_for_tests(with_peers="--peers" in arguments)


def list_names(kind, known, arguments):
    """For a command without a known name: prints the known ones. An unknown name is wrong usage."""
    if arguments:
        print(f'dev: no {kind} is called "{arguments[0]}".', file=sys.stderr)
    print(f"{kind}s:", *(known or ["none"]))
    return 2 if arguments else 0


def do_run(arguments):
    known = sorted(path.stem for path in Path("examples").glob("*.cpp"))
    if not arguments or arguments[0] not in known:
        return list_names("example", known, arguments)
    return build_then_become([f"bin/{arguments[0]}"], CALLER, Path.cwd() / f"build/release/bin/{arguments[0]}", *arguments[1:])


def do_bench(arguments):
    if arguments[:1] == ["--peers"]:
        if arguments[1:]:
            die(2, f'bench --peers takes no arguments, not "{arguments[1]}".')
        packages.set_up_peers()
        packages.set_up_formats()
        return 0
    known = re.findall(r'(?m)^ *\{"(\w+)", bench::', Path("bench/main.cpp").read_text())
    if not arguments or arguments[0] not in known:
        return list_names("benchmark", known, arguments)
    return build_then_become(["levin_bench"], Path.cwd(), f"build/release/bin/bench_{arguments[0]}", *arguments[1:])


def pack(kind, label, targets, command, check=lambda: None):
    """Builds targets, runs a command that packs them, and prints its last line."""
    log = Path(f"build/release/{kind}.log")
    apt_packages("apt packages for bundles", "bundle")
    build("release", targets, check=check)
    with lock_build("release"):
        try:
            step(label, log, [command])
        except Failed:
            return 1
    print(*log.read_text(errors="replace").splitlines()[-1:], sep="\n")
    return 0


def do_bundle(arguments):
    cuda, tests, output = False, False, ""
    while arguments:
        option = arguments.pop(0)
        if option == "--cuda":
            cuda = True
        elif option == "--tests":
            tests = True
        elif option == "--output":
            output = value(option, arguments)
        elif option.startswith("--output="):
            output = value("--output", [option.partition("=")[2]])
        else:
            die(2, f'bundle takes --cuda, --tests and --output FILE, not "{option}".')
    targets, options = [*TOOL_TARGETS], []
    if cuda:
        os.environ["LEVIN_CUDA"] = "1"
        targets.append("levin_cuda")
        options.append("--cuda")
    if tests:
        targets.append("levin_bench")
        options += ["--tests", "--peers", PEERS]
    if cuda and tests:
        targets += ["cuda_test", "levin_stand_in_nvidia"]
    version = re.search(r"^project\(levin VERSION ([0-9.]+) ", Path("CMakeLists.txt").read_text(), re.M)[1]
    name = f"levin-{version}-linux-{platform.machine()}" + "-cuda" * cuda + "-tests" * tests
    archive = CALLER / output if output else Path.cwd() / f"build/{name}.tar.xz"
    return pack("bundle", f"bundle {name}", targets,
                [*PYTHON, "tools/bundle.py", "build/release", name, archive, *options])


def do_wheel(arguments):
    if arguments:
        die(2, f'wheel takes no arguments, not "{arguments[0]}".')
    return pack("wheel", "wheel", TOOL_TARGETS, [*PYTHON, "tools/wheel.py", "build/release", "build"])


def check_that_packages_can_be_made():
    if not Path("build/release/CPackConfig.cmake").is_file():  # as cmake/LevinPackages.cmake decides
        die(3, f"Debian packages are made on Debian, with its libtorch-dev or with LibTorch {packages.TORCH_VERSION} of ./dev setup.",
            "Unset LEVIN_TORCH_DIR, remove build/release/CMakeCache.txt, and call ./dev packages again.")


def do_packages(arguments):
    if arguments:
        die(2, f'packages takes no arguments, not "{arguments[0]}".')
    apt_packages("apt packages for packages", "packages")
    targets = [*TOOL_TARGETS, *(["levin_cuda"] if packages.wants_cuda() else [])]
    return pack("packages", "Debian packages, in build/packages", targets,
                ["cpack", "--config", "build/release/CPackConfig.cmake", "-B", "build/packages"], check_that_packages_can_be_made)


def has_gpu_driver():
    if os.path.exists("/dev/nvidiactl"):
        return True
    with contextlib.suppress(OSError):
        return b"libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE).stdout
    return False


def do_gpu_check(arguments):
    targets = []
    if has_gpu_driver() and "--list" not in arguments:  # without a driver every step is skipped, and needs no build
        os.environ["LEVIN_CUDA"] = "1"
        targets = ["bin/levin", "levin_sentencepiece", "levin_cuda", "cuda_test", "levin_bench"]
    build_then_become(targets, CALLER, *PYTHON, Path.cwd() / "tools/gpu_check.py", *arguments)


def do_fuzz(arguments):
    """tests/fuzz/run_fuzz.py, which ctest also calls, configures, builds, runs and reports."""
    targets, seconds = FUZZ_TARGETS, "600"
    if arguments and arguments[0] in FUZZ_TARGETS:
        targets = (arguments.pop(0),)
    if arguments:
        seconds = arguments.pop(0)
        if not re.fullmatch("[1-9][0-9]*", seconds):
            die(2, f'fuzz takes a target and seconds, not "{seconds}". Targets: {" ".join(FUZZ_TARGETS)}.')
    if arguments:
        die(2, f'fuzz takes a target and seconds, not "{arguments[0]}" too.')
    apt_packages("clang with libFuzzer", "fuzz")
    set_up()
    step("build fuzz", "build/fuzz.log", [[*PYTHON, "tests/fuzz/run_fuzz.py", "build"]])
    status = 0
    for target in targets:
        print(f"fuzz {target}: {seconds} s …")
        status |= run([*PYTHON, "tests/fuzz/run_fuzz.py", "run", target, seconds]) != 0
    return status


def git(*arguments):
    """The lines that git prints; none if it fails."""
    done = subprocess.run(["git", *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.splitlines() if done.returncode == 0 else []


def sources():
    return git("ls-files", "--cached", "--others", "--exclude-standard", "--", "*.cpp", "*.h")


def do_format(arguments):
    if arguments not in ([], ["--check"]):
        die(2, f'format takes --check only, not "{arguments[-1]}".')
    apt_packages("clang-format", "format")
    files = sources()
    return run(["clang-format", *(["--dry-run", "--Werror"] if arguments else ["-i"]), *files]) if files else 0


def do_lint(arguments):
    apt_packages("clang-format, clang-tidy", "format", "lint")
    set_up()
    with lock_build("release"):
        configure("release", Path("build/release"), "ON")
    files, options = arguments, []
    if not arguments:
        head = "HEAD"
        base = (git("merge-base", head, "origin/main") or git("merge-base", head, "main") or git("rev-parse", head))[0]
        files = git("diff", "--name-only", "--diff-filter=d", base)
        files += git("ls-files", "--others", "--exclude-standard")
    print("lint: format")
    failed = do_format(["--check"]) != 0
    print("lint: layers")
    failed |= run([*PYTHON, "tests/layers/check_layers.py", "."]) != 0
    failed |= run([*PYTHON, "cmake/tidy_database.py", "build/release", "build/lint"]) != 0
    if arguments == ["--all"]:
        # The files that the build compiles as one, which takes a fifth of the time of single files.
        files = [entry["file"] for entry in json.loads(Path("build/lint/compile_commands.json").read_text())]
        options = [f"--header-filter=^{re.escape(os.getcwd())}/.*", "--checks=-bugprone-suspicious-include"]
    files = sorted({name for name in files if re.search(r"\.(cpp|cxx)$", name)})
    print(f"lint: clang-tidy over {len(files)} files")
    if files:
        Path("build/lint/files").write_text("".join(name + "\0" for name in files))
        tidy = ["clang-tidy", "--quiet", "-p", "build/lint", "--warnings-as-errors=*", *options]
        with group(["xargs", "-0", "-a", "build/lint/files", "-n", "1", "-P", jobs(), *tidy],
                   stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if not re.search("warnings? (generated|treated)", line):
                    print(line, end="", file=sys.stderr)
            failed |= status_of(process) != 0
    return int(failed)


def do_docs(arguments):
    if arguments:
        die(2, f'docs takes no arguments, not "{arguments[0]}".')
    if run([*PYTHON, "tests/docs/docs.py", "check", "."]) != 0:
        return 1
    apt_packages("Doxygen", "docs")
    packages.set_up_site()
    with lock_build("docs"):
        try:
            step("docs: building the site", "build/docs.log",
                 [[packages.pip_python(), "-B", "docs/site/build_site.py", ".", "build/docs"]],
                 {"PYTHONPATH": str(packages.SITE_PACKAGES)})
        except Failed:
            return 1
        if run([*PYTHON, "tests/docs/site_links.py", "build/docs"]) != 0:
            return 1
    print("docs: open build/docs/index.html")
    return 0


def main():
    sys.stdout.reconfigure(line_buffering=True)
    exit_on_signals()
    command, arguments = sys.argv[2], sys.argv[3:]
    try:
        return globals()["do_" + command.replace("-", "_")](arguments)
    except FileNotFoundError as error:
        die(127, f"{error.filename}: not found")
    except BrokenPipeError:  # nobody reads what is printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
