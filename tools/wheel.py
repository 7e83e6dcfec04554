#!/usr/bin/env python3
"""Makes a wheel of a build, which runs with the torch of the environment it is installed in: `./dev wheel` calls it.

    wheel.py BUILD FOLDER        writes FOLDER/levin-VERSION-py3-none-manylinux_2_36_MACHINE.whl

It has what an archive of bundle.py has, without headers, and a `levin` command (wheel_main.py) that finds torch.
"""
import argparse
import base64
import hashlib
import platform
import shutil
import sys
import zipfile
from pathlib import Path

import bundle

TAG = "py3-none-manylinux_{}_{}_{}".format(*bundle.GLIBC, platform.machine())
METADATA = """Metadata-Version: 2.4
Name: levin
Version: {version}
Summary: A trainer framework for LibTorch: the levin program
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.10
Requires-Dist: torch=={torch}.*
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: levin\nRoot-Is-Purelib: false\nTag: {TAG}\n"
ENTRY_POINTS = "[console_scripts]\nlevin = levin.__main__:main\n"


def without_links(root):
    """Gives each library the one name that it is opened by, since a wheel has no symbolic links."""
    for path in (root / "lib").glob("liblevin_*.so.*.*.*"):
        path.replace(path.with_suffix(""))  # liblevin_core.so.0.2
    for path in root.rglob("*"):
        if path.is_symlink():
            path.unlink()


def fill(build, root, version):
    bundle.install(build, root, cuda=False)
    for name in ("include", "lib/cmake", "lib/pkgconfig"):
        shutil.rmtree(root / name)
    without_links(root)
    bundle.make_launchers(root)
    added = bundle.add_libraries(root, bundle.torch_root(build))
    bundle.set_search_paths(root)
    bundle.newest_versions(root)
    bundle.add_licences(root, added)
    shutil.copy2(bundle.SOURCES / "tools/wheel_main.py", root / "__main__.py")
    (root / "__init__.py").write_text(f'__version__ = "{version}"\n')
    about = root.parent / f"levin-{version}.dist-info"
    (about / "licenses").mkdir(parents=True)
    shutil.copy2(bundle.SOURCES / "LICENSE", about / "licenses")
    (about / "METADATA").write_text(METADATA.format(version=version, torch=bundle.torch_version(build)))
    (about / "WHEEL").write_text(WHEEL)
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return about.name


def pack(folder, about, output):
    """Writes the archive and, as its last file, the list of the others with their hashes."""
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, content, mode):
            info = zipfile.ZipInfo(name)  # of 1980, so that equal builds make equal wheels
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(info, content)

        record = ""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            add(name, content, 0o755 if path.stat().st_mode & 0o100 else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(content)}\n"
        add(f"{about}/RECORD", record + f"{about}/RECORD,,\n", 0o644)


def main():
    parser = argparse.ArgumentParser(description="Makes a wheel of a build.")
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    bundle.check_tools()
    build, version = options.build.resolve(), bundle.cached(options.build, "CMAKE_PROJECT_VERSION")
    staging = build / "wheel"
    shutil.rmtree(staging, ignore_errors=True)
    (staging / "levin").mkdir(parents=True)
    try:
        about = fill(build, staging / "levin", version)
        options.folder.mkdir(parents=True, exist_ok=True)
        output = options.folder / f"levin-{version}-{TAG}.whl"
        part = output.with_name(output.name + ".part")
        pack(staging, about, part)
        part.replace(output)
    finally:
        shutil.rmtree(staging)
    print(f"wheel: {output}, {output.stat().st_size / 1e6:.1f} MB; needs torch {bundle.torch_version(build)}")


if __name__ == "__main__":
    sys.exit(main())
