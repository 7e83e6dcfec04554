#!/usr/bin/env python3
"""Builds and runs the fuzz targets; `./dev fuzz` and the CTests labelled `fuzz` call it.

  run_fuzz.py build                        configures and builds build/fuzz; exit status 77 without clang
  run_fuzz.py run TARGET SECONDS [--fresh] fuzzes one target; what it learns stays in build/fuzz/corpus/TARGET, unless
                                           --fresh: from the seeds alone, always the same way
  run_fuzz.py planted TARGET               passes if a planted finding is found and reported
  run_fuzz.py keep TARGET                  merges build/fuzz/corpus/TARGET into tests/fuzz/corpora/TARGET.tar.gz: the
                                           smallest inputs that reach all that the corpus reaches beyond the seeds
  run_fuzz.py unpack FOLDER                unpacks the corpora to FOLDER/TARGET, for replay.cpp

Prints what was executed and, with a finding, the file and how to run it again. Exit status: 1 with a finding.
"""
import argparse
import fcntl
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz"
CORPORA = ROOT / "tests/fuzz/corpora"
COMPILER = "clang++-14"
SKIPPED = 77
MAX_CORPUS_BYTES = 200_000  # of an archive: a clone of the repository holds them all

# Bytes of an input at most. What a reader may take: 5 s an input, 64 MB in one piece, both far above what is needed.
TARGETS = {"checkpoint": 16384, "data": 16384, "exported": 32768, "images": 8192, "loggers": 32768, "mlflow": 8192,
           "onnx": 32768, "ranks": 4096, "runs": 16384, "streams": 32768, "sweep": 32768, "tokenizer": 16384, "weights": 16384, "yaml": 8192}
# A second thread frees memory after an input has ended, which libFuzzer would take for a leak and search for, each time.
THREADED = {"mlflow"}
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


def unpack(target, folder):
    """Writes the kept inputs of a target; their names tell replay.cpp to run them unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = CORPORA / f"{target}.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                (folder / Path(member.name).name).write_bytes(packed.extractfile(member).read())


def pack(target, inputs):
    """Writes the same archive for the same inputs, the smallest first, as many as MAX_CORPUS_BYTES hold."""
    while True:
        text = io.BytesIO()
        with gzip.GzipFile(fileobj=text, mode="wb", filename="", mtime=0) as zipped:
            with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as packed:
                for content in inputs:
                    member = tarfile.TarInfo(f"case_{hashlib.sha256(content).hexdigest()[:16]}")
                    member.size = len(content)
                    packed.addfile(member, io.BytesIO(content))
        if len(text.getvalue()) <= MAX_CORPUS_BYTES:
            CORPORA.mkdir(exist_ok=True)
            (CORPORA / f"{target}.tar.gz").write_bytes(text.getvalue())
            return len(inputs), len(text.getvalue())
        inputs = inputs[:len(inputs) * 9 // 10]


def keep(target):
    with tempfile.TemporaryDirectory(prefix="levin-fuzz-") as folder:
        scratch = Path(folder)
        seeds, _ = make_corpus(target, fresh=True, scratch=scratch)
        known = {file.read_bytes() for file in seeds.iterdir() if not file.name.startswith("case_")}
        found = BUILD / "corpus" / target
        (scratch / "merged").mkdir()
        command = [BUILD / f"bin/fuzz_{target}", "-merge=1", f"-max_len={TARGETS[target]}", *LIMITS, scratch / "merged",
                   seeds, *([found] if found.is_dir() else [])]
        done = subprocess.run(command, env={**os.environ, **SANITIZERS, "OMP_NUM_THREADS": "1"}, capture_output=True)
        if done.returncode != 0:
            print(done.stderr.decode(errors="replace")[-3000:])
            return 1
        merged = {file.read_bytes() for file in (scratch / "merged").iterdir()} - known
        count, size = pack(target, sorted(merged, key=lambda content: (len(content), content)))
        print(f"fuzz {target}: kept {count} of {len(merged)} inputs in {size} bytes")
    return 0


def make_corpus(target, fresh, scratch):
    """(folder that libFuzzer reads and adds to, folder for findings)."""
    subprocess.run([BUILD / "bin/fuzz_seeds", scratch / "seeds"], check=True, env={**os.environ, **SANITIZERS})
    if target == "yaml":
        for config in ROOT.glob("configs/*.yaml"):
            shutil.copy(config, scratch / "seeds/yaml")
    unpack(target, scratch / "seeds" / target)
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
        if target in THREADED:
            command.append("-detect_leaks=0")
        environment = {**os.environ, **SANITIZERS, "OMP_NUM_THREADS": "1"}
        if os.access("/dev/shm", os.W_OK):
            environment.setdefault("TMPDIR", "/dev/shm")  # a disk would be what is measured
        if planted:
            environment["LEVIN_FUZZ_PLANTED"] = "1"
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds + 120)
        return done.returncode, done.stdout


def report(target, status, output):
    """Prints the summary; True if all is well."""
    executed = re.search(r"stat::number_of_executed_units: (\d+)", output)
    covered = re.findall(r"cov: (\d+)", output)
    counts = re.search(r"levin: (\d+) inputs, (\d+) past the header's checksum, (\d+) read whole(.*)", output)
    line = f"fuzz {target}: {executed[1] if executed else 'unknown'} executions, {covered[-1] if covered else 0} edges"
    if counts:
        line += f", {counts[2]} inputs past the header's checksum, {counts[3]} read whole{counts[4]}"
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
    subcommands.add_parser("keep").add_argument("target", choices=TARGETS)
    subcommands.add_parser("unpack").add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.subcommand == "build":
        return build(arguments.torch)
    if arguments.subcommand == "unpack":
        for archive in CORPORA.glob("*.tar.gz"):
            unpack(archive.name.removesuffix(".tar.gz"), arguments.folder / archive.name.removesuffix(".tar.gz"))
        return 0
    if not (BUILD / f"bin/fuzz_{arguments.target}").exists():
        print("fuzz: the targets are not built (run_fuzz.py build says why), nothing was fuzzed.")
        return SKIPPED
    if arguments.subcommand == "planted":
        return planted(arguments.target)
    if arguments.subcommand == "keep":
        return keep(arguments.target)
    return 0 if report(arguments.target, *fuzz(arguments.target, arguments.seconds, arguments.fresh)) else 1


if __name__ == "__main__":
    sys.exit(main())
