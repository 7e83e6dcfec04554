#!/usr/bin/env python3
"""Writes small shards of every format with the Python packages themselves, and what these packages read back.

  make_fixtures.py FOLDER   creates FOLDER/NAME for each data set, with NAME/expected.json

It needs the packages of cmake/format-packages.txt, cmake/model-packages.txt (transformers, which mosaicml-streaming imports) and
bench/peers/requirements.txt, which `./dev bench --peers` installs:

  cd ~/.cache/levin; PYTHONPATH=$PWD/formats-python:$PWD/models-python:$PWD/peers-2.11.0 python3 make_fixtures.py FOLDER

The folders next to this file were made with their versions under Python 3.11. streams_test.cpp compares every sample:
expected.json holds the bytes of each tensor in hexadecimal.
"""
import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
from decimal import Decimal
from pathlib import Path

import litdata
import numpy as np
import streaming
import torch
import webdataset
import zstd
from litdata.streaming import Cache
from litdata.streaming.item_loader import TokensLoader
from PIL import Image
from streaming.base.compression import decompress
from streaming.base.format import reader_from_json

RANDOM = np.random.default_rng(46)


class Json:
    """A value that was read from JSON: Levin makes fields of its objects and tensors of its lists of numbers."""
    def __init__(self, value):
        self.value = value


def tensor(value):
    value = value.numpy() if isinstance(value, torch.Tensor) and value.dtype != torch.bfloat16 else value
    if isinstance(value, torch.Tensor):
        return {"dtype": "bfloat16", "shape": list(value.shape), "hex": value.view(torch.int16).numpy().tobytes().hex()}
    value = np.asarray(value)
    return {"dtype": str(value.dtype), "shape": list(value.shape), "hex": value.tobytes(order="C").hex()}


def image(value):
    return tensor(np.asarray(value.convert("RGB")).transpose(2, 0, 1))


def is_numbers(value):
    return isinstance(value, list) and all(is_numbers(one) or isinstance(one, (int, float)) for one in value)


def json_list(value):
    """The fields' content for a list of JSON: a tensor where NumPy makes one, a list of tensors where it is ragged."""
    kinds = set()

    def visit(one):
        for inner in one:
            visit(inner) if isinstance(inner, list) else kinds.add(bool if isinstance(inner, bool) else float)
    if not is_numbers(value):
        return None
    visit(value)
    if len(kinds) > 1:
        return None
    try:
        array = np.array(value)
        return tensor(array.astype(np.int64) if array.size == 0 else array)
    except ValueError:
        try:
            return {"list": [tensor(np.array(one)) for one in value]} if all(isinstance(one, list) for one in value) else None
        except ValueError:
            return None


def add(fields, name, value):
    """Adds (name, content) pairs for a value as Python has read it."""
    if isinstance(value, Json):
        value, is_json = value.value, True
    else:
        is_json = False
    if value is None:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            add(fields, f"{name}.{key}" if name else key, Json(inner) if is_json else inner)
    elif isinstance(value, (str, Decimal)):
        fields.append([name, {"text": str(value)}])
    elif isinstance(value, (bytes, memoryview)):
        fields.append([name, tensor(np.frombuffer(value, np.uint8))])
    elif isinstance(value, Image.Image):
        fields.append([name, image(value)])
    elif is_json and isinstance(value, list):
        content = json_list(value)
        fields.append([name, content or {"text": json.dumps(value, separators=(",", ":"), ensure_ascii=False)}])
    elif isinstance(value, list) and all(isinstance(one, (Image.Image, torch.Tensor)) for one in value):
        fields.append([name, {"list": [image(one) if isinstance(one, Image.Image) else tensor(one) for one in value]}])
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            add(fields, f"{name}.{index}" if name else str(index), inner)
    else:
        fields.append([name, tensor(value)])


def expect(folder, samples):
    """Writes expected.json: for each sample its id and its fields."""
    rows = []
    for key, sample in samples:
        fields = []
        add(fields, "" if isinstance(sample, (dict, list, tuple, Json)) else "0", sample)
        rows.append({"id": key, "fields": fields})
    (folder / "expected.json").write_text(json.dumps({"samples": rows}, ensure_ascii=False, indent=0) + "\n")


def pixels(height, width, channels=3):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return Image.fromarray(RANDOM.integers(0, 256, shape, np.uint8))


def smooth(height, width):
    rows, columns = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([rows * 9, columns * 11, rows * columns], 2).astype(np.uint8))


def jpeg(picture, quality=90):
    out = io.BytesIO()
    picture.save(out, format="JPEG", quality=quality)
    return out.getvalue()


def png(picture):
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return out.getvalue()


MDS_COLUMNS = {
    "a_bytes": "bytes", "a_str": "str", "an_int": "int", "any_array": "ndarray", "float_array": "ndarray:float32",
    "fixed_array": "ndarray:int16:2,3", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "f16": "float16", "f32": "float32", "f64": "float64",
    "digits": "str_int", "number": "str_float", "decimal": "str_decimal", "raw": "pil", "grey": "pil", "clear": "pil",
    "photo": "jpeg", "photos": "jpegarray", "drawing": "png", "raws": "list[pil]", "jpegs": "list[jpeg]",
    "pngs": "list[png]", "json": "json"}
ARRAY_TYPES = ["uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]


def mds_sample(i):
    number = RANDOM.integers(-2**62, 2**62)
    shape = [(3,), (2, 300), (1, 2, 3, 1), (2, 2)][i % 4]
    return {
        "a_bytes": bytes(range(i)), "a_str": ["", "plain", "naïve 文字 \U0001f600"][i % 3], "an_int": int(number),
        "any_array": (RANDOM.integers(-100, 100, shape)).astype(ARRAY_TYPES[i % len(ARRAY_TYPES)]),
        "float_array": RANDOM.standard_normal((i + 1, 2)).astype(np.float32),
        "fixed_array": RANDOM.integers(-2**15, 2**15, (2, 3)).astype(np.int16),
        "u8": np.uint8(250 + i % 5), "u16": np.uint16(65530), "u32": np.uint32(2**32 - 1 - i), "u64": np.uint64(2**64 - 1 - i),
        "i8": np.int8(-i), "i16": np.int16(-300 * i), "i32": np.int32(-2**31 + i), "i64": np.int64(-2**63 + i),
        "f16": np.float16([1.5, np.inf, np.nan][i % 3]), "f32": np.float32(1 / (i + 3)), "f64": np.float64(1e300 / (i + 3)),
        "digits": int(number) - i, "number": [0.1, -1e-320, float("inf"), float("nan")][i % 4], "decimal": Decimal("1.10") * i,
        "raw": pixels(3, 4 + i), "grey": pixels(2, 3, 1), "clear": pixels(2, 2, 4), "photo": smooth(9, 13 + i),
        "photos": [jpeg(smooth(8, 8)), jpeg(pixels(7, 5, 1))], "drawing": pixels(3, 3, 4),
        "raws": [pixels(2, 3), pixels(4, 1)], "jpegs": [smooth(16, 16)] * (i % 3), "pngs": [pixels(2, 2)],
        "json": [{"label": i, "box": [1.5, 2.0], "tags": ["a", "b"], "deep": {"ok": True, "none": None}},
                 [[1, 2], [3, 4]], [[1], [2, 3]], "text", 7, 2.5, True][i % 7]}


def read_mosaic(folder):
    """Every sample as mosaicml-streaming's reader returns it."""
    index = json.loads((folder / "index.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for file in folder.iterdir():
            shutil.copy(file, scratch)
        for entry in index["shards"]:
            key = (entry.get("zip_data") or entry["raw_data"])["basename"]
            for kind in ("data", "meta"):
                if entry.get(f"zip_{kind}"):
                    packed = (folder / entry[f"zip_{kind}"]["basename"]).read_bytes()
                    Path(scratch, entry[f"raw_{kind}"]["basename"]).write_bytes(decompress(entry["compression"], packed))
            reader = reader_from_json(scratch, "", entry)
            for i in range(len(reader)):
                sample = reader.get_item(i)
                if "json" in sample:
                    sample["json"] = Json(sample["json"])
                yield f"{key}:{i}", sample


def make_mosaic(folder, name, writer, columns, samples, **options):
    target = folder / name
    with writer(out=str(target), columns=columns, **options) as out:
        for sample in samples:
            out.write(sample)
    is_json = writer is streaming.JSONWriter
    expect(target, [(key, Json(sample) if is_json else sample) for key, sample in read_mosaic(target)])


def make_litdata(folder, name, samples, loader=None, as_json=(), **options):
    target = folder / name
    target.mkdir()
    cache = Cache(str(target), item_loader=loader, **options)
    for i, sample in enumerate(samples):
        cache[i] = sample
    cache.done()
    cache.merge()
    scratch = tempfile.TemporaryDirectory()  # the reader replaces compressed chunks
    shutil.copytree(target, scratch.name, dirs_exist_ok=True)
    reader = litdata.StreamingDataset(scratch.name, shuffle=False, item_loader=loader)
    index = json.loads((target / "index.json").read_text())
    keys = []
    for chunk in index["chunks"]:
        count = chunk["dim"] // loader._block_size if isinstance(loader, TokensLoader) else chunk["chunk_size"]
        keys += [f"{chunk['filename']}:{i}" for i in range(count)]
    rows = [reader[i] for i in range(len(reader))]
    scratch.cleanup()
    assert len(keys) == len(rows), (len(keys), len(rows))
    for row in rows:
        for key in as_json:
            row[key] = Json(row[key])
    expect(target, zip(keys, rows))
    for file in target.iterdir():
        if file.suffix not in (".bin", ".json"):
            file.unlink()


def lit_sample(i):
    return {
        "int": i - 3, "float": [0.1, float("nan"), -1e308][i % 3], "str": ["", "é 文"][i % 2], "bytes": bytes(range(i)),
        "bool": i % 2 == 0, "array": RANDOM.standard_normal((2, i + 1)).astype([np.float32, np.float64, np.float16][i % 3]),
        "row": RANDOM.integers(0, 99, i).astype(np.int32), "tensor": torch.arange(6 * i).reshape(2, 3, i).to(
            [torch.int64, torch.float32, torch.uint8][i % 3]),
        "vector": torch.arange(i, dtype=torch.float64), "scalar": torch.tensor(float(i)), "empty": torch.empty(0, 4),
        "mask": torch.tensor([[True, False]]), "nested": {"pair": (i, [np.float32(1).reshape(1, 1) * i, "x"])},
        "photo": Image.open(io.BytesIO(jpeg(smooth(9, 8 + i)))), "raw": pixels(2, 3),
        "photos": [Image.open(io.BytesIO(jpeg(smooth(8, 8)))), Image.open(io.BytesIO(jpeg(smooth(5, 6))))]}


def tar_member(archive, name, content, form=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.size = form, len(content)
    archive.addfile(info, io.BytesIO(content))


def npy(value):
    out = io.BytesIO()
    np.save(out, value)
    return out.getvalue()


def make_webdataset(folder):
    target = folder / "webdataset"
    target.mkdir()
    for shard in range(2):
        with webdataset.TarWriter(str(target / f"data-{shard:06d}.tar"), mtime=0) as out:
            for i in range(3):
                out.write({"__key__": f"sub.dir/{shard}/sample_{i}", "cls": i - 1, "txt": f"naïve {i}",
                           "jpg": jpeg(smooth(9, 9 + i)), "seg.png": pixels(3, 4),
                           "json": {"box": [i, 2], "name": "x", "list": [[1.5], [2.0, 3.0]]},
                           "npy": RANDOM.standard_normal((2, i + 1)), "bin": bytes(range(i))})
    with tarfile.open(target / "data-000002.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        tar_member(archive, "long/" + "n" * 150 + ".a.TXT", b"gnu")
        tar_member(archive, "folder", b"", tarfile.DIRTYPE)
        tar_member(archive, "long/" + "n" * 150 + ".b.cls", b"7")
        tar_member(archive, "__meta__", b"skipped")
        tar_member(archive, "no_extension", b"skipped")
        tar_member(archive, "long/" + "m" * 98 + ".txt", b"next")
    with tarfile.open(target / "data-000003.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("pax/" + "ü" * 120 + ".txt")
        info.size, info.pax_headers = 3, {"mtime": "1.5", "size": "3"}
        archive.addfile(info, io.BytesIO(b"pax"))
    with tarfile.open(target / "data-000004.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        tar_member(archive, "p" * 120 + "/" + "q" * 60 + ".id", b" 12\n")
    plain = (target / "data-000004.tar").read_bytes()
    (target / "data-000004.tar").unlink()
    (target / "data-000004.tar.gz").write_bytes(gzip.compress(plain, mtime=0))
    samples = []
    for file in sorted(target.iterdir()):
        for sample in webdataset.WebDataset(str(file), shardshuffle=False).decode("torchrgb8"):
            fields = {key: Json(value) if key == "json" else value for key, value in sample.items() if key[:2] != "__"}
            samples.append((sample["__key__"], fields))
    expect(target, samples)


JSON_LINES = [
    {"id": 1, "text": "a \"quoted\" é", "x": 1.5, "ids": [1, 2, 3], "ok": True, "none": None, "empty": [], "big": 2**63 - 1},
    {"matrix": [[1, 2.5], [3, 4]], "ragged": [[1, 2], [3]], "words": ["a", "b"], "nested": {"a": {"b": -1}, "c": [0.1]}},
    {"mixed": [1, "a"], "bools": [[True], [False]], "half": [True, 1], "nan": float("nan"), "inf": [float("inf"), -float("inf")],
     "odd": [[1], [[2]]], "objects": [{"a": 1}], "empty": "", "zero": -0.0, "tiny": 5e-324, "text": "NaN, Infinity"},
]


def make_json_lines(folder):
    target = folder / "jsonl"
    target.mkdir()
    lines = [json.dumps(row) for row in JSON_LINES] + [json.dumps({"n": i}) for i in range(40)]
    texts = {"a.jsonl": "\n".join(lines) + "\n", "b.jsonl.gz": lines[0] + "\r\n\n  \n" + lines[1],
             "c.jsonl.zst": lines[2] + "\n\n",
             "d.ndjson": json.dumps(JSON_LINES[0], ensure_ascii=False)}
    samples = []
    for name, text in texts.items():
        content = text.encode()
        if name.endswith(".gz"):
            content = gzip.compress(content[:40], mtime=0) + gzip.compress(content[40:], mtime=0)
        if name.endswith(".zst"):
            content = zstd.compress(content[:30]) + zstd.compress(content[30:])
        (target / name).write_bytes(content)
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        samples += [(f"{name}:{i}", Json(row)) for i, row in enumerate(rows)]
    expect(target, samples)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    make_mosaic(folder, "mds", streaming.MDSWriter, MDS_COLUMNS, [mds_sample(i) for i in range(11)], size_limit=14000)
    small = {"x": "float32", "text": "str"}
    rows = [{"x": np.float32(i / 7), "text": "t" * i} for i in range(50)]
    make_mosaic(folder, "mds_zstd", streaming.MDSWriter, small, rows, size_limit=700, compression="zstd:7",
                hashes=["sha1", "xxh64"])
    make_mosaic(folder, "mds_gz", streaming.MDSWriter, small, rows[:9], compression="gz:9", hashes=["md5", "sha256", "xxh3_128"])
    columns = {"n": "int", "x": "float", "text": "str"}
    table = [{"n": i - 2, "x": [0.1, float("nan"), 1e300, float("inf")][i % 4], "text": f"é {i}"} for i in range(20)]
    make_mosaic(folder, "mosaic_json", streaming.JSONWriter, columns, table, size_limit=600)
    make_mosaic(folder, "mosaic_csv", streaming.CSVWriter, columns, table, size_limit=300, compression="zstd", hashes=["xxh32"])
    make_mosaic(folder, "mosaic_tsv", streaming.TSVWriter, columns, table)

    make_litdata(folder, "litdata", [lit_sample(i) for i in range(7)], chunk_size=3)
    pairs = [(torch.arange(i + 1), i) for i in range(20)]
    make_litdata(folder, "litdata_frames", pairs, chunk_size=12, compression="zstd", compression_batch_size=5)
    make_litdata(folder, "litdata_chunk", pairs, chunk_size=12, compression="zstd:3", compression_level="chunk")
    make_litdata(folder, "litdata_sample", pairs, chunk_size=12, compression="zstd", compression_level="sample")
    make_litdata(folder, "litdata_leaf", [f"text {i}" for i in range(3)], chunk_size=3)
    make_litdata(folder, "litdata_tokens", [torch.randint(0, 1000, (17 + i,), dtype=torch.int32) for i in range(6)],
                 loader=TokensLoader(block_size=8), chunk_size=40)
    make_litdata(folder, "litdata_numpy_tokens", [np.arange(20, dtype=np.uint16) + i for i in range(3)],
                 loader=TokensLoader(block_size=7), chunk_size=30)
    make_webdataset(folder)
    make_json_lines(folder)


if __name__ == "__main__":
    main()
