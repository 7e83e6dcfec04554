#!/usr/bin/env python3
"""Converts the weights of a PyTorch or Lightning checkpoint (.ckpt, .pt, .pth, .bin) to a safetensors file for Levin.

    tools/convert_checkpoint.py lightning.ckpt weights.safetensors
    tools/convert_checkpoint.py run.pt weights.safetensors --key model --rename module.=

Requires only Python 3.9. A checkpoint is a pickle, and a pickle may call any function; this reader allows the few that
make tensors and rejects all others, so that no code from the file runs. Load the result with `weights: {path:
weights.safetensors}` in a run file.
"""
import argparse
import collections
import io
import json
import os
import pickle
import sys
import tempfile
import zipfile

from output_path import output_path

# safetensors' name and bytes per element, by torch's name.
DTYPES = {
    "float64": ("F64", 8), "float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2),
    "int64": ("I64", 8), "int32": ("I32", 4), "int16": ("I16", 2), "int8": ("I8", 1), "uint8": ("U8", 1),
    "uint16": ("U16", 2), "uint32": ("U32", 4), "uint64": ("U64", 8), "bool": ("BOOL", 1), "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1), "float8_e5m2": ("F8_E5M2", 1), "float8_e8m0fnu": ("F8_E8M0", 1),
}
STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "UntypedStorage": "uint8",
}
MAX_PICKLE_BYTES = 1 << 30


class Refused(Exception):
    """The file cannot be converted; the message gives the reason and a remedy."""


Dtype = collections.namedtuple("Dtype", "name")
Storage = collections.namedtuple("Storage", "dtype key")
Tensor = collections.namedtuple("Tensor", "storage dtype offset shape stride")  # offset and stride in elements


class Ignored:
    """Replaces an object of a class that is not needed (--allow-unknown)."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, _):
        pass

    def append(self, _):
        pass

    def __setitem__(self, _, __):
        pass


def rebuild_tensor(storage, offset, shape, stride, *_):
    return Tensor(storage, storage.dtype, offset, tuple(shape), tuple(stride))


def rebuild_tensor_with_dtype(storage, offset, shape, stride, _requires_grad, _hooks, dtype, *_):
    return Tensor(storage, dtype.name, offset, tuple(shape), tuple(stride))


KNOWN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): rebuild_tensor_with_dtype,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch._utils", "_rebuild_parameter_with_state"): lambda tensor, *_: tensor,
    ("torch", "Size"): tuple,
    ("torch", "device"): lambda *where: ":".join(map(str, where)),
    ("torch.jit._pickle", "restore_type_tag"): lambda value, _: value,
}


class Reader(pickle.Unpickler):
    def __init__(self, text, allow_unknown):
        super().__init__(io.BytesIO(text), encoding="utf-8")
        self.allow_unknown = allow_unknown

    def find_class(self, module, name):
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        if module in ("torch", "torch.storage") and name in STORAGES:
            return Storage(STORAGES[name], None)
        if module == "torch" and name in DTYPES:
            return Dtype(name)
        if self.allow_unknown:
            return type(str(name), (Ignored,), {})
        raise Refused(f"it requires {module}.{name}, which is not part of a tensor, so it is not opened. If you trust the "
                      "file's source, --allow-unknown skips such objects (their code does not run either).")

    def persistent_load(self, saved_id):
        if not isinstance(saved_id, tuple) or len(saved_id) < 3 or saved_id[0] != "storage":
            raise Refused(f"it refers to an object that is not a tensor's storage: {saved_id!r:.80}")
        kind, key = saved_id[1], saved_id[2]
        if not isinstance(kind, Storage):
            raise Refused(f"it has a storage of an unknown type: {kind!r:.80}")
        return Storage(kind.dtype, str(key))


class Archive:
    """The zip file that torch.save writes: data.pkl and one file of bytes for each storage, in one folder."""

    def __init__(self, path):
        file = open(path, "rb")  # open until the process ends
        if not zipfile.is_zipfile(file):
            raise Refused("it is not a zip archive: torch.save used another format before PyTorch 1.6. Load it with "
                          "PyTorch and save it again.")
        self.zip = zipfile.ZipFile(file)
        names = self.zip.namelist()
        pickles = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused("it contains no data.pkl, so it was not written by torch.save.")
        self.folder = pickles[0][:-len("data.pkl")]
        if any(name.startswith(self.folder + "code/") for name in names):
            raise Refused("it is a TorchScript archive: a program, not weights. Save the module's state_dict instead.")
        if self.folder + "byteorder" in names and self.zip.read(self.folder + "byteorder").strip() != b"little":
            raise Refused("its numbers are big-endian.")
        if self.zip.getinfo(pickles[0]).file_size > MAX_PICKLE_BYTES:
            raise Refused("its data.pkl is larger than 1 GiB.")

    def load(self, allow_unknown):
        return Reader(self.zip.read(self.folder + "data.pkl"), allow_unknown).load()

    def storage(self, key):
        """The bytes; zipfile checks their CRC-32."""
        return self.zip.read(f"{self.folder}data/{key}")


def check_tensor(name, tensor):
    whole = all(isinstance(n, int) and n >= 0 for n in (tensor.offset, *tensor.shape, *tensor.stride))
    if not whole or len(tensor.shape) != len(tensor.stride):
        raise Refused(f'tensor "{name}" has an invalid shape, stride or offset.')
    if tensor.dtype not in DTYPES:
        raise Refused(f'tensor "{name}" has the type {tensor.dtype}, which safetensors does not support.')


def data_of(name, tensor, storage):
    """The tensor's bytes, dense and row by row."""
    width = DTYPES[tensor.dtype][1]
    shape, stride = tensor.shape, tensor.stride
    if 0 in shape:
        return b""
    last = tensor.offset + sum((n - 1) * s for n, s in zip(shape, stride))
    if (last + 1) * width > len(storage):
        raise Refused(f'tensor "{name}" extends beyond the end of its storage: the file is damaged.')
    dense, count = True, 1  # count: elements of the dimensions already seen, last first
    for n, s in zip(reversed(shape), reversed(stride)):
        dense = dense and (n == 1 or s == count)
        count *= n
    if dense:
        return storage[tensor.offset * width:(tensor.offset + count) * width]
    # Integers of the same width are used for all elements, including complex64.
    elements = memoryview(storage)[:len(storage) // width * width].cast({1: "B", 2: "H", 4: "I", 8: "Q"}[width])
    rows = [tensor.offset]
    for n, s in zip(shape[:-1], stride[:-1]):
        rows = [row + i * s for row in rows for i in range(n)]
    n, s = shape[-1], stride[-1]
    if s == 0:
        return b"".join(elements[row:row + 1].tobytes() * n for row in rows)
    return b"".join(elements[row:row + (n - 1) * s + 1:s].tobytes() for row in rows)


def state_dict_of(saved, key):
    """The names and tensors: Lightning's state_dict, the map at `key`, or the whole file."""
    found = saved
    parts = key.split(".") if key else ["state_dict"] if isinstance(saved, dict) and "state_dict" in saved else []
    for part in parts:
        if not isinstance(found, dict) or part not in found:
            raise Refused(f'there is no "{part}" in it. Known: {", ".join(map(str, found)) if isinstance(found, dict) else "none"}.')
        found = found[part]
    if not isinstance(found, dict):
        raise Refused(f"it contains a {type(found).__name__} where a map from names to tensors was expected.")
    tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        inside = [str(name) for name, value in found.items()
                  if isinstance(value, dict) and any(isinstance(each, Tensor) for each in value.values())]
        raise Refused("it contains no tensors" + (f" except in: {', '.join(inside)}. Choose with --key." if inside else "."))
    return tensors, [str(name) for name in found if str(name) not in tensors]


def write_safetensors(path, tensors, archive):
    # Wide elements first, so that each is aligned; tensors that share a storage are adjacent, so that it is read once.
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype][1], tensors[name].storage.key, name))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        word, width = DTYPES[tensors[name].dtype]
        end = at + width
        for n in tensors[name].shape:
            end = at + (end - at) * n
        header[name] = {"dtype": word, "shape": list(tensors[name].shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = output_path(path, Refused)
    folder = os.path.dirname(path)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=os.path.basename(path) + ".tmp-", delete=False) as file:
        try:
            file.write(len(text).to_bytes(8, "little") + text)
            key, storage = None, b""
            for name in order:
                if tensors[name].storage.key != key:
                    key = tensors[name].storage.key
                    storage = archive.storage(key)
                data = data_of(name, tensors[name], storage)
                first, last = header[name]["data_offsets"]
                if len(data) != last - first:
                    raise Refused(f'tensor "{name}" does not match its shape: the file is damaged.')
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def rename_all(tensors, rules):
    renamed = {}
    for name, tensor in tensors.items():
        new = next((to + name[len(start):] for start, to in rules if name.startswith(start)), name)
        if new in renamed:
            raise Refused(f'two tensors would be called "{new}". Change --rename.')
        renamed[new] = tensor
    return renamed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="the checkpoint")
    parser.add_argument("output", help="the safetensors file to write")
    parser.add_argument("--key", default="", help="where the weights are in it: \"model\", \"ema.model\" "
                        "(default: state_dict if there is one, otherwise the top level)")
    parser.add_argument("--rename", action="append", default=[], metavar="START=NEW",
                        help="replace the start of names; the first rule that matches is applied")
    parser.add_argument("--allow-unknown", action="store_true", help="skip objects of unknown classes")
    args = parser.parse_args()
    rules = [tuple(rule.split("=", 1)) for rule in args.rename]
    if any(len(rule) != 2 for rule in rules):
        parser.error("write --rename START=NEW")
    try:
        archive = Archive(args.input)
        tensors, left_out = state_dict_of(archive.load(args.allow_unknown), args.key)
        tensors = rename_all(tensors, rules)
        for name, tensor in tensors.items():
            check_tensor(name, tensor)
        write_safetensors(args.output, tensors, archive)
    except Refused as error:
        sys.exit(f"{args.input}: {error}")
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        sys.exit(f"{args.input}: {error}")
    except (pickle.UnpicklingError, ValueError, TypeError, IndexError, AttributeError, EOFError, RecursionError,
            MemoryError, OverflowError) as error:
        sys.exit(f"{args.input}: its pickle is damaged: {error}")
    print(f"{args.output}: {len(tensors)} tensors" + (f"; skipped, not tensors: {', '.join(left_out)}" if left_out else ""))


if __name__ == "__main__":
    main()
