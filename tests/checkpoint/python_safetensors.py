"""Python's own safetensors package on the other side of a test: it shares no code with Levin.

    python_safetensors.py PACKAGES read FILE         prints as JSON what the package finds in a file
    python_safetensors.py PACKAGES write FOLDER      writes weights.safetensors, and the same in two shards, in folder
"""
import json
import sys

sys.path.insert(0, sys.argv[1])
import numpy  # noqa: E402
import safetensors  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        raw = {name: item["data"] for name, item in safetensors.deserialize(file.read())}
    found = {"tensors": {}}
    with safetensors.safe_open(path, framework="np") as file:
        found["metadata"] = file.metadata()
        for name in file.keys():
            view = file.get_slice(name)
            found["tensors"][name] = {"dtype": view.get_dtype(), "shape": view.get_shape(), "hex": bytes(raw[name]).hex()}
            if view.get_dtype() not in ("BF16", "C64") and not view.get_dtype().startswith("F8"):  # numpy has none
                found["tensors"][name]["values"] = file.get_tensor(name).tolist()
    return found


def spec(dtype, array):
    """How the package takes types that numpy does not have. The array must outlive it."""
    return safetensors.TensorSpec(dtype=dtype, shape=list(array.shape), data_ptr=array.ctypes.data,
                                  data_len=array.nbytes)


def write(folder):
    # body.0.weight[i][j] = i + j / 8, body.0.bias = [-2, 5], head.weight = [[1.5, -3]] as bfloat16, steps = 1234567890123
    weight = numpy.array([[i + j / 8 for j in range(3)] for i in range(2)], dtype=numpy.float64)
    bias = numpy.array([-2, 5], dtype=numpy.float16)
    steps = numpy.array(1234567890123, dtype=numpy.int64)
    save_file({"body.0.weight": weight, "steps": steps}, f"{folder}/model-00001-of-00002.safetensors",
              metadata={"format": "pt"})
    head = numpy.frombuffer(b"\xc0\x3f\x40\xc0", dtype=numpy.uint16).reshape(1, 2)
    tensors = {"body.0.bias": spec("float16", bias), "head.weight": spec("bfloat16", head)}
    safetensors.serialize_file(tensors, f"{folder}/model-00002-of-00002.safetensors")
    shards = {"body.0.weight": 1, "steps": 1, "body.0.bias": 2, "head.weight": 2}
    with open(f"{folder}/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": 64}, "weight_map": {
            name: f"model-0000{shard}-of-00002.safetensors" for name, shard in shards.items()}}, file, indent=2)
    tensors["body.0.weight"], tensors["steps"] = spec("float64", weight), spec("int64", steps)
    safetensors.serialize_file(tensors, f"{folder}/weights.safetensors",
                               {"made by": "safetensors " + safetensors.__version__})


if sys.argv[2] == "read":
    print(json.dumps(read(sys.argv[3])))
else:
    write(sys.argv[3])
