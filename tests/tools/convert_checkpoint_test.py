"""Tests of tools/convert_checkpoint.py on hand-made archives in torch.save's documented format: a zip with a pickle
that refers to storages, which are files of bytes. (tests/checkpoint/convert_checkpoint_test.cpp has LibTorch write them.)

The modules called torch here are made up: pickle only needs their names.
"""
import collections
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile
from pathlib import Path

TOOL = Path(sys.argv.pop(1)).resolve() / "tools/convert_checkpoint.py"


def made_up(module, name, kind=type):
    if hasattr(sys.modules.get(module), name):
        return getattr(sys.modules[module], name)
    thing = type(name, (), {}) if kind is type else (lambda *_: None)
    thing.__module__, thing.__qualname__, thing.__name__ = module, name, name
    sys.modules.setdefault(module, types.ModuleType(module))
    setattr(sys.modules[module], name, thing)
    return thing


class Storage:
    def __init__(self, key, kind, data):
        self.key, self.kind, self.data = key, made_up("torch", kind), data


class Tensor:
    def __init__(self, storage, shape, stride, offset=0, dtype=None):
        self.what = (storage, offset, shape, stride, False, collections.OrderedDict())
        self.dtype = dtype

    def __reduce__(self):
        if self.dtype:
            return made_up("torch._utils", "_rebuild_tensor_v3", "function"), (*self.what, self.dtype, None)
        return made_up("torch._utils", "_rebuild_tensor_v2", "function"), self.what


def floats(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.a = Storage("0", "FloatStorage", floats(0, 1, 2, 3, 4, 5))

    def archive(self, value, extra=(), name="archive", byteorder="little"):
        text, kept = io.BytesIO(), {}

        class Pickler(pickle.Pickler):
            def persistent_id(self, thing):
                if not isinstance(thing, Storage):
                    return None
                kept[thing.key] = thing.data
                return "storage", thing.kind, thing.key, "cpu", len(thing.data)

        Pickler(text, protocol=2).dump(value)
        path = self.folder / "in.ckpt"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(f"{name}/data.pkl", text.getvalue())
            file.writestr(f"{name}/byteorder", byteorder)
            for key, data in kept.items():
                file.writestr(f"{name}/data/{key}", data)
            for each, data in extra:
                file.writestr(f"{name}/{each}", data)
        return path

    def convert(self, path, *options):
        done = subprocess.run([sys.executable, "-B", TOOL, path, self.folder / "out.safetensors", *options],
                              capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", done.stderr)
        if done.returncode != 0:
            self.assertFalse((self.folder / "out.safetensors").exists())
            self.assertEqual([p.name for p in self.folder.glob("*.tmp-*")], [])
            return done.stderr, None
        with open(self.folder / "out.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        tensors = {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])])
                   for name, e in header.items() if name != "__metadata__"}
        self.assertEqual(sum(len(t[2]) for t in tensors.values()), len(data))
        return done.stdout, tensors

    def refused(self, path, part, *options):
        output, tensors = self.convert(path, *options)
        self.assertIsNone(tensors)
        self.assertIn(part, output)
        self.assertIn(str(path), output)

    def test_a_lightning_checkpoint_gives_its_state_dict(self):
        weights = collections.OrderedDict()
        weights["net.weight"] = Tensor(self.a, (2, 3), (3, 1))
        weights["net.tied"] = Tensor(self.a, (2,), (1,), offset=4)
        weights["net.half"] = Tensor(Storage("1", "BFloat16Storage", b"\xc0\x3f\x40\xc0"), (2,), (1,))
        weights["steps"] = Tensor(Storage("2", "LongStorage", struct.pack("<q", -7)), (), ())
        weights["empty"] = Tensor(Storage("3", "ByteStorage", b""), (0, 4), (4, 1))
        weights["extra"] = 3
        weights._metadata = {"": {"version": 1}}
        output, tensors = self.convert(self.archive({"epoch": 3, "state_dict": weights, "callbacks": {}, "loops": [1.5]}))
        self.assertEqual(tensors, {"net.weight": ("F32", [2, 3], self.a.data), "net.tied": ("F32", [2], floats(4, 5)),
                                   "net.half": ("BF16", [2], b"\xc0\x3f\x40\xc0"), "empty": ("U8", [0, 4], b""),
                                   "steps": ("I64", [], struct.pack("<q", -7))})
        self.assertIn("5 tensors; skipped, not tensors: extra", output)

    def test_views_become_dense(self):
        _, tensors = self.convert(self.archive({
            "transposed": Tensor(self.a, (3, 2), (1, 3)), "column": Tensor(self.a, (2,), (3,), offset=1),
            "expanded": Tensor(self.a, (2, 2), (1, 0), offset=2), "one": Tensor(self.a, (1, 3), (77, 1), offset=3)}))
        self.assertEqual(tensors["transposed"][2], floats(0, 3, 1, 4, 2, 5))
        self.assertEqual(tensors["column"][2], floats(1, 4))
        self.assertEqual(tensors["expanded"][2], floats(2, 2, 3, 3))
        self.assertEqual(tensors["one"][2], floats(3, 4, 5))

    def test_newer_types_name_their_dtype_next_to_an_untyped_storage(self):
        raw = Storage("0", "UntypedStorage", b"\1\0\xff\xff")
        dtype = made_up("torch", "uint16")
        _, tensors = self.convert(self.archive({"x": Tensor(raw, (2,), (1,), dtype=dtype)}))
        self.assertEqual(tensors, {"x": ("U16", [2], b"\1\0\xff\xff")})

    def test_key_and_rename_choose_names(self):
        path = self.archive({"model": {"module.w": Tensor(self.a, (6,), (1,)), "module.b": Tensor(self.a, (1,), (1,))},
                             "optimizer": {"lr": 0.1}})
        self.refused(path, "Choose with --key")
        self.refused(path, 'no "modl"', "--key", "modl")
        _, tensors = self.convert(path, "--key", "model", "--rename", "module.b=bias", "--rename", "module.=net.")
        self.assertEqual(sorted(tensors), ["bias", "net.w"])
        (self.folder / "out.safetensors").unlink()
        self.refused(path, 'two tensors would be called "x"', "--key", "model", "--rename",
                     "module.w=x", "--rename", "module.b=x")

    def test_a_pickle_with_code_is_refused_and_not_run(self):
        witness = self.folder / "witness"

        class Attack:
            def __reduce__(self):
                import os
                return os.system, (f"touch {witness}",)

        path = self.archive({"state_dict": {"w": Tensor(self.a, (6,), (1,))}, "x": Attack()})
        self.refused(path, "posix.system")
        _, tensors = self.convert(path, "--allow-unknown")
        self.assertEqual(list(tensors), ["w"])
        self.assertFalse(witness.exists())
        for name in ("eval", "getattr", "__import__"):
            (self.folder / "out.safetensors").unlink(missing_ok=True)
            body = b"c" + b"builtins\n" + name.encode() + b"\n(X\x04\0\0\0" + b"1+1 " + b"tR."
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("archive/data.pkl", b"\x80\x02" + body)
            self.refused(path, f"builtins.{name}")

    def test_other_files_are_refused_with_what_they_are(self):
        path = self.folder / "in.pt"
        path.write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")  # how files before PyTorch 1.6 begin
        self.refused(path, "before PyTorch 1.6")
        self.refused(self.archive({"w": Tensor(self.a, (6,), (1,))}, extra=[("code/__torch__.py", "")]), "TorchScript")
        self.refused(self.archive({"w": Tensor(self.a, (6,), (1,))}, byteorder="big"), "big-endian")
        self.refused(self.archive([1, 2]), "contains a list")
        self.refused(self.archive({"a": 1}), "no tensors")
        self.refused(self.folder / "absent", "No such file")

    def test_the_output_replaces_no_fifo_and_a_link_stays(self):
        path = self.archive({"w": Tensor(self.a, (6,), (1,))})
        out = self.folder / "out.safetensors"
        os.mkfifo(self.folder / "pipe")
        out.symlink_to("pipe")
        done = subprocess.run([sys.executable, "-B", TOOL, path, out], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"the output {self.folder.resolve() / 'pipe'} is not a regular file, and is not replaced.", done.stderr)
        self.assertTrue((self.folder / "pipe").is_fifo())
        out.unlink()
        out.symlink_to("target.safetensors")
        self.assertEqual(set(self.convert(path)[1]), {"w"})
        self.assertTrue(out.is_symlink() and (self.folder / "target.safetensors").is_file())

    def test_damage_is_reported(self):
        self.refused(self.archive({"w": Tensor(self.a, (7,), (1,))}), "extends beyond the end")
        self.refused(self.archive({"w": Tensor(self.a, (2,), (-1,), offset=3)}), "invalid shape, stride or offset")
        self.refused(self.archive({"w": Tensor(Storage("9", "ComplexDoubleStorage", b""), (0,), (1,))}), "ComplexDouble")
        path = self.archive({"w": Tensor(self.a, (6,), (1,))})
        data = bytearray(path.read_bytes())
        at = data.find(self.a.data)
        data[at + 5] ^= 1
        path.write_bytes(data)
        self.refused(path, "CRC")


if __name__ == "__main__":
    unittest.main()
