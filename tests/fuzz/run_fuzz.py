#!/usr/bin/env python3
"""Builds and runs the fuzz targets; `./dev fuzz` and the CTests labelled `fuzz` call it.

  run_fuzz.py build                        configures and builds build/fuzz; exit status 77 without clang
  run_fuzz.py run TARGET SECONDS [--fresh] fuzzes one target; what it learns stays in build/fuzz/corpus/TARGET, unless
                                           --fresh: from the seeds alone, always the same way
  run_fuzz.py planted TARGET               passes if a planted finding is found and reported

Prints what was executed and, with a finding, the file and how to run it again. Exit status: 1 with a finding.
"""
import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz"
COMPILER = "clang++-14"
SKIPPED = 77

# Bytes of an input at most. What a reader may take: 5 s an input, 64 MB in one piece, both far above what is needed.
TARGETS = {"checkpoint": 16384, "exported": 32768, "tokenizer": 16384, "yaml": 8192}
LIMITS = ["-timeout=5", "-malloc_limit_mb=64", "-rss_limit_mb=1500"]
SANITIZERS = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:quarantine_size_mb=16:allocator_may_return_null=0",
              "UBSAN_OPTIONS": "print_stacktrace=1"}


def build(torch):
    if shutil.which(COMPILER) is None:
        print(f"fuzz: {COMPILER} is not installed (apt packages clang-14 and libclang-rt-14-dev), nothing was fuzzed.")
        return SKIPPED
    configure = ["cmake", "--preset", "fuzz"] + ([f"-DLEVIN_TORCH_DIR={torch}"] if torch else [])
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".build.lock", "w") as lock:  # ./dev fuzz and ctest may both build here at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (configure, ["cmake", "--build", "--preset", "fuzz"]):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  pass_fds=[lock.fileno()])  # a compiler that outlives this script still holds the lock
            if done.returncode != 0:
                print(f"fuzz: failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
                return 1
    return 0


def make_corpus(target, fresh, scratch):
    """(folder that libFuzzer reads and adds to, folder for findings)."""
    subprocess.run([BUILD / "bin/fuzz_seeds", scratch / "seeds"], check=True, env={**os.environ, **SANITIZERS})
    if target == "yaml":
        for config in ROOT.glob("configs/*.yaml"):
            shutil.copy(config, scratch / "seeds/yaml")
    if fresh:
        return scratch / "seeds" / target, BUILD / "findings" / target
    shutil.copytree(scratch / "seeds" / target, BUILD / "corpus" / target, dirs_exist_ok=True)
    return BUILD / "corpus" / target, BUILD / "findings" / target


def fuzz(target, seconds, fresh, planted=False):
    """(exit status of libFuzzer, its output)."""
    program = BUILD / f"bin/fuzz_{target}"
    with tempfile.TemporaryDirectory(prefix="levin-fuzz-") as folder:
        scratch = Path(folder)
        corpus, findings = make_corpus(target, fresh, scratch)
        if planted:
            findings = scratch / "findings"
        findings.mkdir(parents=True, exist_ok=True)
        command = [program, corpus, f"-max_total_time={seconds}", f"-max_len={TARGETS[target]}", *LIMITS,
                   f"-dict={ROOT}/tests/fuzz/{target}.dict", f"-artifact_prefix={findings}/", "-print_final_stats=1"]
        if fresh:
            command.append("-seed=1")
        environment = {**os.environ, **SANITIZERS, "OMP_NUM_THREADS": "1"}
        if planted:
            environment["LEVIN_FUZZ_PLANTED"] = "1"
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds + 120)
        return done.returncode, done.stdout


def report(target, status, output):
    """Prints the summary; True if all is well."""
    executed = re.search(r"stat::number_of_executed_units: (\d+)", output)
    covered = re.findall(r"cov: (\d+)", output)
    counts = re.search(r"levin: (\d+) inputs, (\d+) past the header's checksum, (\d+) read whole", output)
    line = f"fuzz {target}: {executed[1] if executed else 'unknown'} executions, {covered[-1] if covered else 0} edges"
    if counts:
        line += f", {counts[2]} inputs past the header's checksum, {counts[3]} read whole"
    artifact = re.search(r"Test unit written to (\S+)", output)
    if status != 0 or artifact or not executed:
        print(output[-6000:])
        print(line)
        print(f"fuzz {target}: FINDING in {artifact[1] if artifact else 'no file'} (libFuzzer's exit status {status})")
        if artifact:
            print(f"replay: {BUILD}/bin/fuzz_{target} {artifact[1]}\n"
                  f"smaller: {BUILD}/bin/fuzz_{target} -minimize_crash=1 -max_total_time=60 {artifact[1]}")
        return False
    print(line + ", no finding")
    if counts and (int(counts[2]) * 4 < int(counts[1]) or int(counts[3]) < 10):
        print(f"fuzz {target}: too few inputs came past the checksum or were whole: the parser was hardly reached")
        return False
    return True


def planted(target):
    status, output = fuzz(target, 60, fresh=True, planted=True)
    if status != 0 and "planted, to be found" in output and "Test unit written to" in output:
        print(f"fuzz {target}: found what was planted")
        return 0
    print(output[-3000:])
    print(f"fuzz {target}: did not find what was planted in 60 s")
    return 1


def main():
    parser = argparse.ArgumentParser()
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    subcommands.add_parser("build").add_argument("--torch", default="")
    run = subcommands.add_parser("run")
    run.add_argument("target", choices=TARGETS)
    run.add_argument("seconds", type=int)
    run.add_argument("--fresh", action="store_true")
    subcommands.add_parser("planted").add_argument("target", choices=TARGETS)
    arguments = parser.parse_args()
    if arguments.subcommand == "build":
        return build(arguments.torch)
    if not (BUILD / f"bin/fuzz_{arguments.target}").exists():
        print("fuzz: the targets are not built (run_fuzz.py build says why), nothing was fuzzed.")
        return SKIPPED
    if arguments.subcommand == "planted":
        return planted(arguments.target)
    return 0 if report(arguments.target, *fuzz(arguments.target, arguments.seconds, arguments.fresh)) else 1


if __name__ == "__main__":
    sys.exit(main())
