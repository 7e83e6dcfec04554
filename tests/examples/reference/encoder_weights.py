"""The small encoders that encoder.py runs and run_example.py writes as files: names and shapes as in Hugging Face's
xlm-roberta-base and bert-base-uncased, values a formula of a name's place in the sorted list."""
import json
import math
import struct

LAYERS, HEADS, WIDTH, WIDE, CLASSES = 2, 4, 16, 24, 3
KINDS = {"xlmr": {"prefix": "roberta", "pad": 1, "types": 1, "eps": 1e-5},
         "bert": {"prefix": "bert", "pad": 0, "types": 2, "eps": 1e-12}}


def shapes(kind, vocab, positions):
    p = kind["prefix"]
    named = {f"{p}.embeddings.word_embeddings.weight": (vocab, WIDTH),
             f"{p}.embeddings.position_embeddings.weight": (positions, WIDTH),
             f"{p}.embeddings.token_type_embeddings.weight": (kind["types"], WIDTH)}

    def linear(name, rows, columns):
        named[name + ".weight"], named[name + ".bias"] = (rows, columns), (rows,)

    def norm(name):
        named[name + ".weight"] = named[name + ".bias"] = (WIDTH,)

    norm(f"{p}.embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"{p}.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", WIDTH, WIDTH)
        linear(f"{layer}.attention.output.dense", WIDTH, WIDTH)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", WIDE, WIDTH)
        linear(f"{layer}.output.dense", WIDTH, WIDE)
        norm(f"{layer}.output.LayerNorm")
    if p == "bert":
        linear("bert.pooler.dense", WIDTH, WIDTH)
        linear("classifier", CLASSES, WIDTH)
    else:
        linear("classifier.dense", WIDTH, WIDTH)
        linear("classifier.out_proj", CLASSES, WIDTH)
    return {name: named[name] for name in sorted(named)}


def values(kind, vocab, positions):
    """name: (shape, list of numbers)"""
    result = {}
    for place, (name, shape) in enumerate(shapes(kind, vocab, positions).items()):
        base = 1.0 if "LayerNorm" in name and name.endswith("weight") else 0.0
        result[name] = shape, [0.3 * math.sin(0.7 * i + place) + base for i in range(math.prod(shape))]
    return result


def write_safetensors(path, tensors):
    """tensors: name: (shape, list of numbers), written as float32; https://github.com/huggingface/safetensors"""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        start = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
