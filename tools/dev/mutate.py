"""mutate.py BUILD WORK FOLDER N SEED, in the root of the tree: makes N single changes to the C++ files of a folder, and tells
which of them the folder's tests catch. ./dev mutate builds BUILD before.

All mutants are in one build: the files that they change are compiled once more, in WORK, from copies in which the variable
LEVIN_MUTANT chooses the mutant that runs, and are linked before BUILD's objects. The tests run as CTest would run them, with
WORK's library in place of BUILD's; the tree itself is never changed. A first run of all tests records which mutants each of
them reaches, and only these tests then run for a mutant, the quickest first. A test that fails, crashes or takes
too long has caught the mutant.

Mutants in tests/mutation/equivalent.txt change nothing that a test could see, and are not drawn. Exit status: 1 if fewer
than 90 % are caught.
"""
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants import changed_lines, find_mutants, switchable_source
from steps import exit_on_signals, group, status_of

WANTED_PERCENT = 90
EQUIVALENT = "tests/mutation/equivalent.txt"
# CTests of folders with other names, too. A folder is also tested by programs with several ranks or devices, or with faults.
OTHER_TESTS = {"checkpoint": r"(checkpoint|io_faults)\.", "data/loading": r"data\.", "precision": r"(precision|device)\.",
               "strategies": r"(strategies|shm_backend|several_devices|io_faults|ranks)\.",
               "trainer": r"(trainer|gpu_paths|several_devices|ranks)\.|conformance$"}
DEBIANS_PYTHON = "/usr/bin/python3"
HEADER = r"""// Which mutant runs; see tools/dev/mutate.py.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace levin_mutation {

inline int chosen() {
  const char* number = std::getenv("LEVIN_MUTANT");
  return number ? std::atoi(number) : 0;
}

// One byte for each mutant, which becomes 1 where it is reached; null unless this is recorded.
inline char* reached() {
  const char* path = std::getenv("LEVIN_MUTANTS_REACHED");
  const int file = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return nullptr;
  void* memory = ::mmap(nullptr, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

__attribute__((visibility("hidden"))) inline bool is(int number) {
  static const int the_chosen = chosen();
  static char* const the_reached = reached();
  if (the_reached) the_reached[number] = 1;
  return number == the_chosen;
}

}  // namespace levin_mutation
"""
Unit = namedtuple("Unit", "source command folder output files")  # `files`: the folder's own
Test = namedtuple("Test", "name command environment folder seconds skipped")


def tests_of(folder):
    """A regular expression for the names of the CTests of a folder."""
    return f"^({OTHER_TESTS.get(folder, re.escape(folder) + '[.]')})"


# ---- the build with all mutants ----------------------------------------------------------------------------------

def read_units(root, build, folder):
    """The compiled units that have files of the folder."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["directory"], entry["file"])
        names = [source]
        if "/Unity/" in str(source) and source.exists():
            names = [Path(name) for name in re.findall(r'^#include "(.+\.cpp)"', source.read_text(), re.M)]
        files = [name for name in names if name.is_relative_to(root / folder)]
        if files:
            output = re.search(r" -o (\S+) -c ", entry["command"])[1]
            yield Unit(source, entry["command"], Path(entry["directory"]), output, files)


def write_unit(work, root, unit, numbered, count):
    """Writes a unit of the files that these mutants change, and returns (source, object file)."""
    (work / "levin_mutation.h").write_text(HEADER.replace("COUNT", str(count + 1)))
    lines = [f'#include "{work}/levin_mutation.h"\n']
    for file in unit.files:
        name = str(file.relative_to(root))
        mine = {number: mutant for number, mutant in numbered.items() if mutant.file == name}
        if not mine:
            continue
        copy = work / "src" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(switchable_source(file.read_bytes(), mine))
        lines.append(f'#include "{copy}"\n')
    source = work / "units" / (unit.output.replace("/", "_") + ".cpp")
    source.parent.mkdir(exist_ok=True)
    source.write_text("".join(lines))
    return source, source.with_suffix(".o")


def refused(work, output, numbered, sources):
    """The mutants in the lines that the compiler's errors name."""
    named = set()
    for part in re.split(r"(?m)^(?=In file included from|\S+: In |\S+: error)", output):
        if " error: " in part:
            named |= set(re.findall(rf"^{re.escape(str(work))}/src/(\S+?):(\d+):", part, re.M))
    found = set()
    for number, mutant in numbered.items():
        source = sources[mutant.file]
        at = [edit.start for edit in mutant.edits] + [edit.end for edit in mutant.edits]
        if mutant.constexpr is not None:
            at.append(mutant.constexpr)
        lines = range(source.count(b"\n", 0, min(at)) + 1, source.count(b"\n", 0, max(at)) + 2)
        if any(name == mutant.file and int(line) in lines for name, line in named):
            found.add(number)
    return found


def compile_unit(work, root, unit, numbered, sources, count):
    """Compiles a unit with its mutants, and removes mutants that the compiler refuses from `numbered`. Returns the object."""
    while True:
        source, target = write_unit(work, root, unit, numbered, count)
        words = shlex.split(unit.command)
        words = [*words[:words.index("-o")], "-w", "-o", str(target), "-c", str(source)]
        with group(words, cwd=unit.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                   env={**os.environ, "LC_ALL": "C"}) as process:
            output = process.stdout.read().decode(errors="replace")
            status = status_of(process)
        if status == 0:
            return target
        wrong = refused(work, output, numbered, sources)
        if not wrong:
            sys.exit(f"mutate: {target.name} cannot be compiled:\n{output[-4000:]}")
        kinds = Counter(numbered.pop(number).kind for number in wrong)
        print("mutate: not taken by the compiler:", ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items())))


def link(work, build, objects):
    """Links the libraries that have the given objects {name in the build: new file}, into WORK/lib."""
    libraries = work / "lib"
    libraries.mkdir()
    for file in (build / "lib").glob("*.so*"):
        (libraries / file.name).symlink_to(os.readlink(file) if file.is_symlink() else file)
    linked = set()
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "all"], stdout=subprocess.PIPE, text=True).stdout
    for command in commands.splitlines():
        made = re.search(r" -shared .* -o (lib/\S+) ", command)
        words = command.removeprefix(": && ").removesuffix(" && :").split(" && ")[0].split()
        if not made or not any(name in words for name in objects):
            continue
        linked |= objects.keys() & set(words)
        target = libraries / Path(made[1]).name
        target.unlink(missing_ok=True)
        first = words.index(next(word for word in words if word in objects))
        words[words.index("-o") + 1] = str(target)
        # Of two definitions the linker takes the first.
        words[first:first] = ["-Wl,--allow-multiple-definition", *(str(objects[word]) for word in words if word in objects)]
        subprocess.run(["sh", "-c", " ".join(words)], cwd=build, check=True)
    if linked != objects.keys():
        sys.exit(f"mutate: no library is linked with {', '.join(objects.keys() - linked)}")
    return libraries


# ---- tests -------------------------------------------------------------------------------------------------------

def read_tests(build, folder):
    """The tests that CTest would run, except nightly ones; one for each suite of a GoogleTest program."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-R", tests_of(folder)],
                           stdout=subprocess.PIPE, check=True)
    tests = []
    for test in json.loads(shown.stdout)["tests"]:
        properties = {each["name"]: each["value"] for each in test["properties"]}
        if "nightly" in properties.get("LABELS", []):
            continue
        environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
        *front, last = test["command"]
        suites = last.removeprefix("--suites=").split(":") if last.startswith("--suites=") else [None]
        program = Path(front[0]).name if front else last
        for suite in suites:
            tests.append(Test(f"{program}.{suite}" if suite else test["name"], [*front, f"--suites={suite}" if suite else last],
                              environment, properties.get("WORKING_DIRECTORY", str(build)), properties.get("TIMEOUT", 600),
                              properties.get("SKIP_RETURN_CODE", 0)))
    return tests


def run_test(test, libraries, work, seconds, **environment):
    """Returns (how it ended: "passed", "skipped", "failed", "too long"; seconds; the end of its output)."""
    folder = tempfile.mkdtemp(prefix="test-", dir=work)
    os.chmod(folder, 0o755)  # some tests become nobody
    full = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "GOMP_SPINCOUNT": "0", **test.environment, **environment,
            "TMPDIR": folder}
    start = time.monotonic()
    end = "too long"
    try:
        with open(f"{folder}/.output", "wb+") as output, \
                group(test.command, cwd=test.folder, env=full, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                process.wait(seconds)
                status = status_of(process)
                end = "passed" if status == 0 else "skipped" if status == test.skipped else "failed"
            except subprocess.TimeoutExpired:
                pass
            end_group(process)
            output.seek(0)
            text = output.read()[-3000:].decode(errors="replace")
    finally:
        end_processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return end, time.monotonic() - start, text


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def end_processes_of(folder):
    """Ends the processes of a test that have left its group; they have its TMPDIR."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TMPDIR={folder}".encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            pass


def first_runs(tests, libraries, work, count, pool):
    """Runs each test without a mutant. Yields (test, seconds, numbers of the mutants it reaches) for each test that passes."""
    def run(numbered):
        number, test = numbered
        record = work / f"reached-{number}"
        record.write_bytes(bytes(count + 1))
        end, seconds, output = run_test(test, libraries, work, test.seconds, LEVIN_MUTANT="0", LEVIN_MUTANTS_REACHED=str(record))
        return test, end, seconds, output, {at for at, byte in enumerate(record.read_bytes()) if byte}

    for test, end, seconds, output, reached in pool.map(run, enumerate(tests)):
        if end == "passed":
            yield test, seconds, reached
        elif end != "skipped":
            print(f"mutate: {test.name} {end} without any mutant, and is left out:", *output.splitlines()[-15:], sep="\n  ")


def try_mutant(number, runs, libraries, work):
    """Returns (name of the test that catches the mutant, how), or None."""
    for test, seconds, reached in runs:
        if number in reached:
            end, _, _ = run_test(test, libraries, work, max(30, 5 * seconds), LEVIN_MUTANT=str(number))
            if end in ("failed", "too long"):
                return test.name, end
    return None


# ---- what is drawn, and the report ---------------------------------------------------------------------------------

def read_equivalent(path):
    """Entries of a line with the file, then its lines before (-) and after (+) the change, then the reason."""
    known, entry = {}, None
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith(("-", "+")) and entry:
            entry[1 if line[0] == "-" else 2].append(line[1:].strip())
        elif re.match(r"\S+\.cpp$", line):
            entry = (line, [], [], [])
        elif line.strip() and not line.startswith("#") and entry:
            entry[3].append(line.strip())
            known[(entry[0], tuple(entry[1]), tuple(entry[2]))] = " ".join(entry[3])
    return known


def show(mutant, source):
    line, before, after = changed_lines(source, mutant)
    return "\n".join([f"{mutant.file}:{line}: {mutant.kind}", *(f"-{text}" for text in before), *(f"+{text}" for text in after)])


def draw(root, units, equivalent, wanted, seed):
    """Returns ({number: mutant} in the order drawn, some more than wanted, {file: its source}, how many there are)."""
    everything, sources = [], {}
    for unit in units:
        everything += find_mutants(root, unit.command, unit.files)
        sources.update((str(file.relative_to(root)), file.read_bytes()) for file in unit.files)
    everything = sorted(set(everything), key=str)
    random.Random(seed).shuffle(everything)
    drawn = {}
    for mutant in everything:
        if len(drawn) == wanted + wanted // 2 + 5:  # the compiler refuses some
            break
        _, before, after = changed_lines(sources[mutant.file], mutant)
        if (mutant.file, before, after) not in equivalent:
            drawn[len(drawn) + 1] = mutant
    return drawn, sources, len(everything)


def report(drawn, caught, sources, there_are, folder, seed):
    kinds, by_kind = Counter(mutant.kind for mutant in drawn.values()), Counter(drawn[number].kind for number in caught)
    print(f"\n{'change':28} caught  of")
    for kind, count in sorted(kinds.items()):
        print(f"{kind:28} {by_kind[kind]:6} {count:3}")
    survivors = [number for number in drawn if number not in caught]
    for number in survivors:
        print(f"\nsurvived, LEVIN_MUTANT={number}: {show(drawn[number], sources[drawn[number].file])}")
    percent = 100 * len(caught) / len(drawn)
    print(f"\nmutate {folder}: {len(caught)} of {len(drawn)} mutants caught ({percent:.1f} %, "
          f"at least {WANTED_PERCENT} % wanted), seed {seed}; {there_are} places in all")
    if survivors:
        print(f"Write a test for each survivor, or its lines and the reason why it changes nothing into {EQUIVALENT}.")
    return int(percent < WANTED_PERCENT)


def main():
    sys.stdout.reconfigure(line_buffering=True)
    exit_on_signals()
    build, work, folder, wanted, seed = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), *sys.argv[3:]
    root, wanted = Path.cwd(), int(wanted)
    jobs = int(os.environ.get("LEVIN_JOBS") or len(os.sched_getaffinity(0)))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    units = list(read_units(root, build, folder))
    if not units:
        sys.exit(f"mutate: {folder} has no C++ file that is compiled in {build}")
    equivalent = read_equivalent(Path(__file__).resolve().parents[2] / EQUIVALENT)
    print(f"mutate: reading {sum(len(unit.files) for unit in units)} files of {folder} …")
    numbered, sources, there_are = draw(root, units, equivalent, wanted, seed)
    objects, count = {}, len(numbered)
    for unit in units:
        names = {str(file.relative_to(root)) for file in unit.files}
        mine = {number: mutant for number, mutant in numbered.items() if mutant.file in names}
        if not mine:
            continue
        print(f"mutate: compiling {Path(unit.output).name} with its mutants …")
        before = set(mine)
        objects[unit.output] = compile_unit(work, root, unit, mine, sources, count)
        for number in before - set(mine):
            del numbered[number]
    numbered = dict(list(numbered.items())[:wanted])
    if not numbered:
        sys.exit(f"mutate: {folder} has nothing to change")
    libraries = link(work, build, objects)
    tests = read_tests(build, folder)
    print(f"mutate: {len(numbered)} mutants; running {len(tests)} tests without any …")
    caught = {}
    with ThreadPoolExecutor(jobs) as pool:
        start = time.monotonic()
        runs = sorted(first_runs(tests, libraries, work, count, pool), key=lambda run: run[1])
        print(f"mutate: {len(runs)} tests pass, in {time.monotonic() - start:.0f} s")
        if not any(reached for _, _, reached in runs):
            sys.exit(f"mutate: no test of {folder} runs a line of it that was changed")
        start = time.monotonic()
        for number, found in zip(numbered, pool.map(lambda number: try_mutant(number, runs, libraries, work), numbered)):
            mutant = numbered[number]
            line = changed_lines(sources[mutant.file], mutant)[0]
            if found:
                caught[number] = found
            elif not any(number in reached for _, _, reached in runs):
                found = ("no test", "runs it")
            print(f"{number:4} {'caught  ' if number in caught else 'SURVIVED'} {mutant.file}:{line}: {mutant.kind}"
                  + (f" ({found[0]} {found[1]})" if found else ""))
        print(f"mutate: {(time.monotonic() - start) / len(numbered):.1f} s for each mutant")
    return report(numbered, caught, sources, there_are, folder, seed)


if __name__ == "__main__":
    try:
        import clang.cindex  # noqa: F401
    except ImportError:
        if os.path.realpath(sys.executable) != os.path.realpath(DEBIANS_PYTHON) and os.path.exists(DEBIANS_PYTHON):
            os.execv(DEBIANS_PYTHON, [DEBIANS_PYTHON, "-B", "-X", "utf8", *sys.argv])
        sys.exit("mutate: Python's clang module is missing; Debian has it as python3-clang-14")
    sys.exit(main())
