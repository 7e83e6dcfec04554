#!/usr/bin/env python3
"""Writes files with NumPy and h5py for data/npy_test.cpp and data/hdf5_test.cpp, which read them back: arrays.json holds
files and values as hexadecimal digits.

  python3 tests/data/reference/arrays.py        needs numpy and h5py
"""
import io
import json
from pathlib import Path

import h5py
import numpy as np

RANDOM = np.random.default_rng(11)
TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
         "complex64", "complex128")


def values(name, shape):
    """Every bit of a number is used; no NaN, which equals nothing."""
    if name == "bool":
        return RANDOM.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(name)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return RANDOM.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    if dtype.kind == "c":
        return (RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)).astype(dtype)
    return RANDOM.normal(size=shape).astype(dtype)


def case(name, array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return {"name": name, "dtype": array.dtype.name, "sizes": array.shape, "file": file.getvalue().hex(),
            "values": np.ascontiguousarray(array).tobytes().hex()}


class Hdf5File:
    """A file of several data sets, and what they hold."""

    def __init__(self, **options):
        self.bytes = io.BytesIO()
        self.h5 = h5py.File(self.bytes, "w", **options)
        self.cases = []

    def add(self, name, array, mapped, stored=None, **options):
        """`mapped`: whether the file holds the values as memory does. `stored`: the type in the file, if it is different."""
        self.h5.create_dataset(name, data=array, dtype=stored, **options)
        self.cases.append({"name": name, "dtype": array.dtype.name, "sizes": array.shape, "mapped": mapped,
                           "values": array.tobytes().hex()})

    def written(self):
        self.h5.close()
        return {"file": self.bytes.getvalue().hex(), "cases": self.cases}


def hdf5_good():
    file = Hdf5File()
    for name in TYPES:
        if not name.startswith("complex"):
            file.add(f"types/{name}", values(name, (4, 3)), True)
    file.add("row", values("int16", (5,)), True)
    file.add("cube", values("int8", (2, 3, 4)), True)
    file.add("chunked", values("float32", (7, 3)), False, chunks=(2, 2))
    file.add("gzip", values("int64", (40, 3)), False, chunks=(16, 3), compression="gzip", shuffle=True)
    file.add("checksum", values("float16", (7, 3)), False, chunks=(3, 3), fletcher32=True)
    file.add("chunked bools", values("bool", (9, 2)), False, chunks=(4, 2))
    file.add("big-endian", values("int32", (4, 3)), False, stored=">i4")
    file.add("big-endian floats", values("float16", (4, 3)), False, stored=">f2")
    return file.written()


def hdf5_with_user_block():
    file = Hdf5File(userblock_size=512)
    file.add("values", values("int16", (3, 2)), True)
    return file.written()


def hdf5_bad():
    file = Hdf5File()
    file.add("complex", values("complex64", (2, 2)), False)
    file.add("scalar", values("int8", ()), False)
    file.add("no rows", values("int8", (0, 3)), False)
    file.h5.create_dataset("text", data=["text", "another"])
    return file.written()


def main():
    good = [case(name, values(name, (4, 3))) for name in TYPES]
    good += [case(f"shape {shape}", values("int16", shape)) for shape in ((5,), (2, 3, 4), (), (0,), (3, 0, 2), (1, 1))]
    good += [case(f"version {version}", values("float32", (3, 2)), version) for version in ((1, 0), (2, 0), (3, 0))]
    bad = [case("fortran", np.asfortranarray(values("float32", (3, 2)))),
           case("big-endian", values("float32", (3, 2)).astype(">f4")), case("text", np.array(["a", "b"])),
           case("date", np.array(["2020-01-01"], dtype="datetime64[D]")),
           case("record", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4")]))]
    objects = io.BytesIO()
    np.save(objects, np.array([None, {}], dtype=object), allow_pickle=True)
    bad.append({"name": "object", "file": objects.getvalue().hex()})
    text = json.dumps({"made_with": {"numpy": np.__version__, "h5py": h5py.__version__}, "good": good, "bad": bad,
                       "hdf5": {"good": hdf5_good(), "user_block": hdf5_with_user_block(), "bad": hdf5_bad()}}, indent=1)
    Path(__file__).with_name("arrays.json").write_text(text + "\n")


main()
