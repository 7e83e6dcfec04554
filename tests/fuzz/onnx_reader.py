"""Loads and runs the files of ONNX that the fuzz target `onnx` writes: reads the path of a folder from each line of
standard input, and answers with a line.

  computed      model.onnx is valid, and gives the outputs in batches.safetensors
  loaded: WHY   it is valid, and could not be compared: onnxruntime lacks an operator for its types, or a program's
                numbers are beyond what types hold
  wrong: WHY    it is not valid, or gives different outputs

Needs onnx, onnxruntime and safetensors (`./dev check --peers` installs them); ends with 77 where they are missing.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402

peers.run_under_peers("onnxruntime", "onnx, onnxruntime and safetensors")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from safetensors import safe_open  # noqa: E402

WITHIN = 1e-3  # programs by chance add up what float32 rounds; a wrong translation is further off
LACKING = ("NOT_IMPLEMENTED", "NotImplemented", "Could not find an implementation", "is not implemented")


def batches_in(path):
    """The tensors of each batch by name; nothing for types that numpy lacks."""
    batches = {}
    with safe_open(str(path), framework="numpy") as file:
        for name in file.keys():
            batch, port = name.split("/")
            batches.setdefault(batch, {})[port] = file.get_tensor(name)
    return batches


def difference(name, given, wanted):
    """In words; "" if there is none."""
    if given.dtype != wanted.dtype or given.shape != wanted.shape:
        return f"{name} is {given.dtype} {given.shape}, and {wanted.dtype} {wanted.shape} in the program"
    if wanted.dtype.kind == "f":
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
        if np.allclose(given, wanted, rtol=WITHIN, atol=WITHIN * largest, equal_nan=True):
            return ""
    elif np.array_equal(given, wanted):
        return ""
    return f"{name} is {given.flatten()[:8]}, and {wanted.flatten()[:8]} in the program"


def answer(folder):
    path = folder / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        batches = batches_in(folder / "batches.safetensors")
    except (onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented, TypeError) as error:
        return f"loaded: {error}"
    wanted = [port.name for port in session.get_outputs()]
    names = {port.name for port in session.get_inputs()}
    for number, batch in batches.items():
        outputs = session.run(wanted, {name: value for name, value in batch.items() if name in names})
        for name, given in zip(wanted, outputs):
            wrong = difference(f"batch {number}: {name}", given, batch[name])
            if wrong:
                return f"wrong: {wrong}"
    return "computed"


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            text = answer(pathlib.Path(line.strip()))
        except Exception as error:  # noqa: BLE001: the fuzzer shows it
            lacking = any(word in str(error) for word in LACKING)
            text = f"{'loaded' if lacking else 'wrong'}: {type(error).__name__}: {error}"
        print(" ".join(text.split())[:2000], flush=True)


if __name__ == "__main__":
    main()
