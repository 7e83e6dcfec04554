#!/usr/bin/env python3
"""Makes an archive of a build that runs with any LibTorch of the same version: `./dev bundle` calls it.

    bundle.py BUILD NAME OUTPUT.tar.xz [--cuda] [--tests] [--peers FOLDER] [--level 0-9]

  bin/levin             a script that finds LibTorch and starts libexec/levin; with --tests also bench_X, cuda_test,
                        gpu-check
  lib/                  Levin's libraries, what they open, and the libraries of Debian that it needs
  include/, lib/cmake/  for find_package(levin)
  share/levin/          run files, bundle.json (what is in it and what it needs), licences; with --tests data sets and
                        peers

glibc, libstdc++ and LibTorch itself are the machine's: the first two no older than Debian 12's. Every program and
library searches its own folders first ($ORIGIN), so that nothing of the bundle is seen by other programs.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCES / "tools/dev"))
import torch_headers  # noqa: E402

MOST_MB = 60  # of an archive with tests: it is carried to machines that take no more
GLIBC, GLIBCXX = (2, 36), (3, 4, 30)  # Debian 12's
# Part of every system that LibTorch itself runs on.
SYSTEM = re.compile(r"^(ld-linux-[\w-]+|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnsl|libstdc\+\+"
                    r"|libgcc_s)\.so")
LIGHTNING = ("lightning", "lightning_utilities", "torchmetrics", "fsspec", "packaging", "tqdm", "yaml",
             "typing_extensions.py")
TOOLS = ("cmake", "strip", "ldd", "readelf", "patchelf", "dpkg-query", "tar", "xz")
DATA = {"fashion-mnist": "/usr/share/datasets/fashion-mnist", "bible.data": "/usr/lib/bible.data"}


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bundle: {' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_tools():
    missing = [name for name in TOOLS if not shutil.which(name)]
    if missing:
        sys.exit(f"bundle: {', '.join(missing)} not found. Bundles are made on Debian, with patchelf, binutils and "
                 "xz-utils.")


def cached(build, name):
    found = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    return found[1] if found else ""


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(root):
    return sorted(path for folder in ("lib", "libexec") for path in (root / folder).rglob("*")
                  if path.is_file() and not path.is_symlink() and is_elf(path))


# ---- contents ----------------------------------------------------------------------------------------------------

def install(build, root, cuda):
    run("cmake", "--install", build, "--prefix", root, "--strip")
    (root / "libexec").mkdir()
    (root / "bin/levin").rename(root / "libexec/levin")
    (root / "lib/liblevin_arrow.so").unlink(missing_ok=True)  # needs Arrow's libraries, 100 MB
    if not cuda:
        (root / "lib/liblevin_cuda.so").unlink(missing_ok=True)
    (root / "share/levin").mkdir(parents=True, exist_ok=True)
    shutil.copytree(SOURCES / "configs", root / "share/levin/configs")
    (root / "share/levin/torch_version").write_text(torch_version(build) + "\n")


def torch_root(build):
    return Path(re.sub(r"/include/torch/csrc/api/include$", "", cached(build, "LEVIN_TORCH_INCLUDE")))


def torch_version(build):
    """Returns the version of the build's LibTorch, such as 2.11."""
    include = torch_root(build) / "include"
    version = torch_headers.torch_version(include)
    if not version:
        sys.exit(f"bundle: no version.h of LibTorch in {include}, with which {build} was configured. Configure it again.")
    return ".".join(map(str, version))


def add_programs(build, root, cuda):
    """Adds benchmarks, GPU tests, and gpu-check."""
    for name in ["levin_bench", *(["cuda_test"] if cuda else [])]:
        shutil.copy2(build / "bin" / name, root / "libexec" / name)
        run("strip", root / "libexec" / name)
    for link in sorted((build / "bin").glob("bench_*")):
        (root / "libexec" / link.name).symlink_to("levin_bench")
    if cuda:
        shutil.copytree(build / "tests/nvidia", root / "libexec/stand_in", symlinks=True)
    tools = root / "share/levin/tools"
    tools.mkdir(exist_ok=True)
    for path in sorted((SOURCES / "tools").glob("gpu_*.py")):
        shutil.copy2(path, tools)
    check = root / "bin/gpu-check"
    check.write_text('#!/bin/sh\nroot=$(dirname "$(dirname "$(readlink -f "$0")")")\n'
                     'exec "${LEVIN_PYTHON:-python3}" -B "$root/share/levin/tools/gpu_check.py" --root "$root" "$@"\n')
    check.chmod(0o755)
    shutil.copytree(SOURCES / "bench/peers", root / "share/levin/peers", ignore=shutil.ignore_patterns("__pycache__"))


def add_data(root):
    (root / "share/levin/datasets").mkdir()
    for name, path in DATA.items():
        copy = shutil.copytree if Path(path).is_dir() else shutil.copy2
        copy(path, root / "share/levin/datasets" / name)


def add_lightning(root, peers):
    """Adds Lightning and its imports except torch and numpy, all pure Python; the environment's own packages come first."""
    target = root / "share/levin/peers-python"
    target.mkdir()
    for name in LIGHTNING:
        source = peers / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        elif source.exists():
            shutil.copy2(source, target / name)
    for metadata in peers.glob("*.dist-info"):
        if metadata.name.split("-")[0] in LIGHTNING or metadata.name.startswith(("pyyaml", "typing_extensions")):
            shutil.copytree(metadata, target / metadata.name)


def make_launchers(root):
    script = root / "bin/levin"
    shutil.copy2(SOURCES / "tools/launcher.sh", script)
    script.chmod(0o755)
    for program in sorted((root / "libexec").iterdir()):
        if program.name not in ("levin", "levin_bench") and not program.is_dir():
            (root / "bin" / program.name).symlink_to("levin")


# ---- libraries ---------------------------------------------------------------------------------------------------

def needed(path):
    """Returns {name: path or None} of all libraries that the loader would load."""
    found = {}
    for line in run("ldd", path).splitlines():
        row = re.match(r"\s+(\S+) => (not found|/\S+)", line)
        if row:
            found[row[1]] = None if row[2] == "not found" else Path(row[2])
    return found


def add_libraries(root, torch_root):
    """Copies the libraries that programs need besides LibTorch and the system's. Returns {name: Debian's file}."""
    own = {path.name for path in (root / "lib").iterdir()}
    foreign = (torch_root.resolve(), torch_root.resolve().parent / "nvidia")
    added = {}
    for path in elf_files(root):
        for name, place in needed(path).items():
            if SYSTEM.match(name) or name in own or name in added:
                continue
            if place is None:
                if name.startswith(("liblevin", "libtorch", "libc10", "libcu", "libnv", "libnccl")):
                    continue  # found next to it, or next to LibTorch
                sys.exit(f"bundle: {path} needs {name}, which is not found")
            if any(folder in place.resolve().parents for folder in foreign):
                continue
            added[name] = place
    for name, place in added.items():
        shutil.copy2(place.resolve(), root / "lib" / name)
        (root / "lib" / name).chmod(0o755)
    return added


def set_search_paths(root):
    """Sets DT_RPATH rather than DT_RUNPATH, because it also applies to indirect dependencies."""
    for path in elf_files(root):
        up = os.path.relpath(root / "lib", path.parent)
        place = "$ORIGIN" if up == "." else f"$ORIGIN/{up}"
        run("patchelf", "--force-rpath", "--set-rpath", place, path)


def newest_versions(root):
    """Returns the newest symbol versions of glibc and libstdc++ that any file in the bundle needs."""
    newest = {"GLIBC": (0,), "GLIBCXX": (0,)}
    for path in elf_files(root):
        for kind, version in re.findall(r"Name: (GLIBC|GLIBCXX)_([\d.]+)", run("readelf", "-V", "-W", path)):
            newest[kind] = max(newest[kind], tuple(map(int, version.split("."))))
    for kind, most in (("GLIBC", GLIBC), ("GLIBCXX", GLIBCXX)):
        if newest[kind] > most:
            sys.exit(f"bundle: it needs {kind}_{'.'.join(map(str, newest[kind]))}, which is newer than Debian 12's. "
                     "Build it there.")
    return {kind: ".".join(map(str, version)) for kind, version in newest.items()}


def add_licences(root, added):
    """Copies the copyright files of the Debian packages that contain the libraries."""
    folder = root / "share/doc/levin/libraries"
    folder.mkdir(parents=True)
    packages = {}
    for name, place in sorted(added.items()):
        owner = ""
        for path in (place.resolve(), place, Path("/usr") / str(place.resolve()).lstrip("/")):
            done = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True)
            owner = owner or done.stdout.split(":")[0]
        source = Path(f"/usr/share/doc/{owner}/copyright")
        if not owner or not source.exists():
            sys.exit(f"bundle: no Debian package, or no copyright file of it, for {place}")
        shutil.copy2(source.resolve(), folder / f"{owner}.copyright")
        version = run("dpkg-query", "-W", "-f", "${Version}", owner)
        packages[name] = f"{owner} {version}"
    return packages


def pack(root, part, level):
    made = subprocess.Popen(["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", str(root.parent),
                             "-cf", "-", root.name], stdout=subprocess.PIPE)
    with open(part, "wb") as file:
        status = subprocess.run(["xz", f"-{level}", "-T0"], stdin=made.stdout, stdout=file).returncode
    made.stdout.close()
    if made.wait() != 0 or status != 0:
        part.unlink()
        sys.exit("bundle: tar or xz failed")


def keep(part, output, tests):
    """Renames the archive and returns its size in MB; removes an archive with tests that is too large."""
    size = part.stat().st_size / 1e6
    if tests and size > MOST_MB:
        part.unlink()
        sys.exit(f"bundle: {output.name} would be {size:.1f} MB, and may be {MOST_MB} MB at most.")
    part.replace(output)
    return size


def fill(build, root, options):
    """Puts everything into the folder; returns the contents of bundle.json."""
    install(build, root, options.cuda)
    if options.tests:
        add_programs(build, root, options.cuda)
        add_data(root)
        if options.peers and options.peers.exists():
            add_lightning(root, options.peers)
    make_launchers(root)
    added = add_libraries(root, torch_root(build))
    set_search_paths(root)
    about = {"name": options.name, "version": cached(build, "CMAKE_PROJECT_VERSION"), "torch": torch_version(build),
             "cuda": options.cuda, "needs": newest_versions(root), "libraries": add_licences(root, added)}
    (root / "share/levin/bundle.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main():
    parser = argparse.ArgumentParser(description="Makes an archive of a build.")
    parser.add_argument("build", type=Path)
    parser.add_argument("name")
    parser.add_argument("output", type=Path)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("--peers", type=Path, help="whose Lightning goes in, with --tests")
    parser.add_argument("--level", type=int, choices=range(10), default=6, help="of xz")
    options = parser.parse_args()
    check_tools()
    build, root = options.build.resolve(), options.build.resolve() / "bundle" / options.name
    if options.cuda and not (build / "lib/liblevin_cuda.so").exists():
        sys.exit("bundle: this build has no CUDA component. Make it with LEVIN_CUDA=1 ./dev build, or leave --cuda "
                 "out.")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        about = fill(build, root, options)
        part = options.output.with_name(options.output.name + ".part")
        pack(root, part, options.level)
        size = keep(part, options.output, options.tests)
    finally:
        shutil.rmtree(root)
    needs = about["needs"]
    print(f"bundle: {options.output}, {size:.1f} MB, {len(about['libraries'])} libraries; needs glibc {needs['GLIBC']}, "
          f"libstdc++ with GLIBCXX_{needs['GLIBCXX']}, LibTorch {about['torch']}")


if __name__ == "__main__":
    main()
