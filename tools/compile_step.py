#!/usr/bin/env python3
"""Compiles the training step of a PyTorch module ahead of time, for Levin's CompiledModule.

    tools/compile_step.py nets.py:Mlp --args '{"hidden": 64}' --input 64,784 --loss cross_entropy --output net.pt2

Forward, loss and backward become one graph (torch.export), which Inductor compiles to native code; the evaluation (loss
and prediction) becomes a second one. The file holds both, the weights as safetensors, and a description in JSON
(docs/compiled_steps.md). Before it is written, both graphs run, and their results are compared with the module's own.

Requires PyTorch for Python, of Levin's LibTorch version, and a C++ compiler (CXX, else g++).
"""
import argparse
import ast
import copy
import ctypes
import importlib
import importlib.util
import json
import os
import platform
import struct
import subprocess
import sys
import warnings

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export_model import compare as compare_programs
from output_path import output_path
from step_graphs import Graph, Refused, Step, trace

FORMAT = "levin-compiled-1"
SAFETENSORS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
               torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
               torch.bool: "BOOL"}


# ---- what the user names --------------------------------------------------------------------------------------------

def find_object(name):
    """Returns the object named by "package.module:name" or "file.py:name"."""
    where, _, attribute = name.partition(":")
    if not attribute:
        raise Refused(f"\"{name}\" names no object. Write package.module:name or file.py:name.")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(where)[:-3], where)
        if spec is None or not os.path.isfile(where):
            raise Refused(f"{where} is not a file.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise Refused(f"{error}. Is it installed, or in the current folder?") from error
    if not hasattr(module, attribute):
        raise Refused(f"{where} has no {attribute}.")
    return getattr(module, attribute)


def find_loss(name):
    if name == "none":
        return None
    if ":" in name:
        return find_object(name)
    if name.startswith("_") or not callable(getattr(torch.nn.functional, name, None)):
        raise Refused(f"--loss {name}: torch.nn.functional has no such function. Name one of its losses "
                      "(cross_entropy, mse_loss), your own as module:function, or none if the module returns its loss.")
    return getattr(torch.nn.functional, name)


def sample(text):
    """Returns a tensor for "64,784" or "64,16:int64" or "64,16:int64<100" (values below 100)."""
    sizes, _, kind = text.partition(":")
    kind, _, below = kind.partition("<")
    dtype = getattr(torch, kind or "float32", None)
    try:
        shape = [int(size) for size in sizes.split(",")]
        limit = int(below or 2)
    except ValueError:
        shape = []
    if not isinstance(dtype, torch.dtype) or not shape or min(shape) < 1:
        raise Refused(f"\"{text}\" is not an input. Write its sizes, the batch first, and its type unless float32: 64,784 or "
                      "64,16:int64<100, where 100 bounds the values.")
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0, 2 if dtype == torch.bool else limit, shape).to(dtype)


def target_for(model, inputs, loss_name, target):
    if target is not None:
        return sample(target)
    with torch.no_grad():
        output = model(*inputs)
    if not isinstance(output, torch.Tensor):
        raise Refused(f"the module returns a {type(output).__name__}, not a tensor. Compile it with --loss none and a "
                      "forward that returns the loss, or with a --loss of your own and --target.")
    if loss_name in ("cross_entropy", "nll_loss"):
        return torch.randint(0, output.shape[1], output.shape[:1] + output.shape[2:])
    if loss_name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
        return torch.rand_like(output)
    raise Refused(f"--loss {loss_name} needs --target, the sizes and type of what the output is compared with.")


# ---- the file -------------------------------------------------------------------------------------------------------

def safetensors_bytes(tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        value = tensor.detach().contiguous()
        raw = bytes(value.reshape(-1).view(torch.uint8).numpy()) if value.numel() else b""
        header[name] = {"dtype": SAFETENSORS[value.dtype], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def cpu_flags():
    """The instruction sets that -march=native enables, as named in /proc/cpuinfo."""
    compiler = os.environ.get("CXX", "g++").split()
    macros = subprocess.run([*compiler, "-march=native", "-dM", "-E", "-x", "c++", os.devnull], capture_output=True,
                            text=True, check=True).stdout
    defined = {line.split()[1].strip("_").lower() for line in macros.splitlines() if line.startswith("#define __")}
    with open("/proc/cpuinfo") as info:
        flags = next((line.split(":")[1].split() for line in info if line.startswith("flags")), [])
    wanted = {name for word in defined for name in (word, word.replace("avx512", "avx512_"))}
    return sorted(flag for flag in flags if flag in wanted)


def described(tensor, **more):
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", ""), **more}


def write(path, manifest, weights, files):
    from torch.export.pt2_archive._package import PT2ArchiveWriter
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with PT2ArchiveWriter(temporary) as archive:
            archive.write_string("extra/levin.json", json.dumps(manifest, indent=1))
            archive.write_bytes("extra/weights.safetensors", safetensors_bytes(weights))
            for graph, paths in files.items():
                for file in paths:
                    archive.write_file(f"data/aotinductor/{graph}/model{os.path.splitext(file)[1]}", file)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


# ---- the check ------------------------------------------------------------------------------------------------------

def run(files, values):
    # The library does not name LibTorch, and the wheel keeps its symbols to itself.
    ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
    library = next(file for file in files if file.endswith(".so"))
    return torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1).run([value.clone() for value in values])


def compare(what, ours, eager, tolerance):
    scale = max(1.0, eager.abs().max().item()) if eager.numel() else 1.0
    difference = (ours.double() - eager.double()).abs().max().item() / scale if eager.numel() else 0.0
    if not difference <= tolerance:
        raise Refused(f"the compiled step's {what} differs from the module's by {difference:.3g}, more than {tolerance:g}. "
                      "The file is not written.")
    return difference


def check_training(files, graph, step, batch, tolerance):
    step.train()
    saved = {name: value.clone() for name, value in step.state_dict().items()}
    step.zero_grad()
    loss = step(*batch)[0]
    loss.backward()
    parameters = dict(step.model.named_parameters(remove_duplicate=False))
    buffers = dict(step.model.named_buffers(remove_duplicate=False))
    outputs = run(files, graph.values)
    worst, sums = compare("loss", outputs[graph.outputs.index("loss")], loss.detach(), tolerance), {}
    for name, value in zip(graph.outputs, outputs):
        kind, _, target = name.partition(":")
        if kind == "gradient":
            sums[target] = sums.get(target, 0) + value
        elif kind == "buffer":
            worst = max(worst, compare(f"buffer {target}", value, buffers[target], tolerance))
    for target, value in sums.items():
        worst = max(worst, compare(f"gradient of {target}", value, parameters[target].grad, tolerance))
    step.load_state_dict(saved)
    step.zero_grad()
    return worst


def check_traced(step, batch):
    """Checks that the traced step's loss, buffers and gradients equal the module's, with the same random numbers."""
    own, traced = copy.deepcopy(step).train(), copy.deepcopy(step).train()  # a program's gradients are its module's
    program = torch.export.export(traced, tuple(batch), strict=False).module()
    try:
        compare_programs(own, program, batch, {}, "training", True)
    except ValueError as error:
        raise Refused(f"{error}. The file is not written.") from error


def check_evaluation(files, graph, step, batch, tolerance):
    step.eval()
    with torch.no_grad():
        eager = step(*batch)
    outputs = run(files, graph.values)
    return max(compare(what, ours, value, tolerance) for what, ours, value in zip(graph.outputs, outputs, eager))


# ---- all of it ------------------------------------------------------------------------------------------------------

def tensors_of(model):
    """Returns (parameters and buffers by name, the names that are saved). A tied weight has only its first name."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return tensors, set(model.state_dict())


def compile_step(model, inputs, loss="cross_entropy", output="net.pt2", target=None, dynamic_batch=False, source="",
                 tolerance=1e-4):
    """Writes `output`. `inputs` and `target` are sample tensors, `loss` a function or a name; returns the description."""
    output = output_path(output, Refused)
    loss_name = loss if isinstance(loss, str) else getattr(loss, "__name__", "none") if loss else "none"
    function = find_loss(loss) if isinstance(loss, str) else loss
    batch = list(inputs)
    if function is not None:
        batch.append(target if isinstance(target, torch.Tensor) else target_for(model, inputs, loss_name, target))
    if any(tensor.is_cuda for tensor in model.parameters()):
        raise Refused("the module is on a GPU. Compiled steps are for CPUs: move it there with .cpu().")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise Refused("no parameter requires a gradient, so there is nothing to train.")
    if dynamic_batch and any(tensor.shape[0] < 2 for tensor in batch):
        raise Refused("--dynamic-batch needs a sample batch of at least 2, because torch.export takes 1 for a constant.")
    tensors, kept = tensors_of(model)
    step, own = Step(model, function, predicts=False), dict(tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training = Graph(trace(step, own, batch, dynamic_batch, True), tensors, batch, dynamic_batch)
        check_traced(step, batch)
        evaluation = evaluation_graph(model, function, batch, own, tensors)
        files = {"training": training.compile(), "evaluation": evaluation.compile()}
    changed = {name.partition(":")[2] for name in training.outputs if name.startswith("buffer:")}
    trained = dict(model.named_parameters())
    manifest = {
        "format": FORMAT, "source": source or type(model).__name__, "torch": torch.__version__.split("+")[0],
        "device": "cpu", "machine": platform.machine(), "cpu_flags": cpu_flags(), "loss": loss_name,
        "random": training.random,
        "parameters": [described(value, name=name, requires_grad=value.requires_grad) for name, value in tensors.items()
                       if name in trained],
        "buffers": [described(value, name=name) for name, value in tensors.items()
                    if name not in trained and (name in kept or name in changed)],
        "constants": [described(value, name=name) for name, value in tensors.items()
                      if name not in trained and name not in kept and name not in changed],
        "batch": [described(value) for value in batch],
        "graphs": {name: {"dynamic_batch": graph.dynamic, "inputs": graph.inputs, "outputs": graph.outputs}
                   for name, graph in (("training", training), ("evaluation", evaluation))},
    }
    # Compiled code draws Inductor's own random numbers, so for a step with dropout only the traced graph is compared.
    worst = 0.0 if training.random else check_training(files["training"], training, step, batch, tolerance)
    worst = max(worst, check_evaluation(files["evaluation"], evaluation, Step(model, function, True), batch, tolerance))
    manifest["checked"] = {"tolerance": tolerance, "worst": worst}
    write(output, manifest, tensors, files)
    return manifest


def evaluation_graph(model, function, batch, own, tensors):
    """Traces for any number of samples if the module allows it: the last batch of an evaluation is usually smaller."""
    step = Step(model, function, predicts=True)
    if all(tensor.dim() and tensor.shape[0] > 1 for tensor in batch):
        try:
            return Graph(trace(step, own, batch, True, False), tensors, batch, True)
        except Refused:
            pass
    return Graph(trace(step, own, batch, False, False), tensors, batch, False)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", help="package.module:name or file.py:name of a class or function that makes the module")
    parser.add_argument("--args", default="{}", help="its keyword arguments as a Python dict: '{\"hidden\": 64}'")
    parser.add_argument("--input", action="append", required=True, metavar="SIZES[:TYPE[<N]]",
                        help="an input of forward, the batch first: 64,784 or 64,16:int64<100; repeat for more")
    parser.add_argument("--target", metavar="SIZES[:TYPE[<N]]", help="what the loss compares with, if not obvious")
    parser.add_argument("--loss", default="cross_entropy",
                        help="a function of torch.nn.functional, module:function, or none if forward returns the loss")
    parser.add_argument("--dynamic-batch", action="store_true", help="training for any batch size; somewhat slower")
    parser.add_argument("--seed", type=int, default=0, help="of the module's initial weights")
    parser.add_argument("--output", required=True, help="the file to write: net.pt2")
    options = parser.parse_args(arguments)
    try:
        torch.manual_seed(options.seed)
        kwargs = ast.literal_eval(options.args)
        model = find_object(options.module)(**kwargs)
        inputs = [sample(text) for text in options.input]
        manifest = compile_step(model, inputs, options.loss, options.output, options.target, options.dynamic_batch,
                                options.module)
    except Refused as error:
        sys.exit(f"compile_step: {error}")
    note = f"; random operators ({', '.join(manifest['random'])}) draw other numbers than eager ones" \
        if manifest["random"] else ""
    print(f"{options.output}: {len(manifest['parameters'])} parameters, {len(manifest['buffers'])} buffers; results within "
          f"{manifest['checked']['worst']:.1e} of the module's{note}")


if __name__ == "__main__":
    main()
