#!/usr/bin/env python3
"""Exports a PyTorch model to a .pt2 file that Levin trains (class_path: ExportedModule), and checks it.

  python3 tools/export_model.py torchvision.models:resnet18 --kwargs '{"num_classes": 10}' \\
      --inputs 'float32[4, 3, 224, 224]' --output net.pt2
  python3 tools/export_model.py mynet.py:make_net --inputs 'int64[2, 128] < 30522' 'int64[2, 128] < 2' --output net.pt2

MODULE:NAME is a class, or a function that returns the module; MODULE may be a file. An input is DTYPE[SIZES]. Whole numbers
are drawn from 0 to below the number after "<" (default 2), and so are others that have one; others without it may be negative.
The first size of every input is the batch: any size unless --static.

The file holds two graphs with the same weights: the model in training mode, and in evaluation mode for validation, tests and
predictions. Both are compared with the model, the first with its gradients too. With --eval it holds the second alone: Levin's
train() switches dropout and batch norm on, but what the model does in training only is not in the file.

--precision records the model for a run of that precision: types that Python reads (x.dtype, torch.finfo(x.dtype).min) are
constants in a graph, and are right for the precision in which it was recorded.

With --compile the file holds the training step as native code instead (class_path: CompiledModule): forward, --loss and
backward, compiled for this machine by Inductor; docs/compiled_steps.md.

In a program of your own: export_model(model, args, "net.pt2") after `from export_model import export_model`; for another
precision, a model and inputs of that dtype, or a call within torch.autocast.
"""
import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile

from output_path import output_path

PRECISIONS = {"32-true": "float32", "bf16-true": "bfloat16", "16-true": "float16", "64-true": "float64",
              "bf16-mixed": "bfloat16", "16-mixed": "float16"}


def export_model(model, args, output, kwargs=None, dynamic_batch=True, train=True):
    """Writes `output` and returns {"inputs": [...], "outputs": [...], "loaded": the program as read back}.

    Raises ValueError where a saved program, with the same random numbers, gives other numbers than the model: outputs,
    buffers or gradients. Then no file is written. The model keeps its modes, its state and its gradients.
    """
    import torch
    from torch.export.pt2_archive._package import load_pt2

    kwargs = kwargs or {}
    shapes = None
    if dynamic_batch:
        def first_size(value):
            return {0: torch.export.Dim.DYNAMIC} if isinstance(value, torch.Tensor) and value.dim() else None
        # One tuple for *args, regardless of the names: positions first, then keywords.
        shapes = torch.utils._pytree.tree_map(first_size, (tuple(args), kwargs))
        shapes = (*shapes[0], *shapes[1].values()) if kwargs else shapes[0]
    modes = {"model": True, "evaluation": False} if train else {"model": False}
    output = pathlib.Path(output_path(output, ValueError))
    initialize(model, args, kwargs)
    with kept(model) as restore, tempfile.TemporaryDirectory(prefix=f"{output.name}.tmp-", dir=output.parent) as folder:
        programs = {}
        for name, mode in modes.items():
            model.train(mode)
            try:
                programs[name] = torch.export.export(model, tuple(args), kwargs, dynamic_shapes=shapes)
            except Exception as error:  # torch.export raises many types, several of them private
                if name == "model":
                    raise
                raise ValueError(f"the model cannot be exported in evaluation mode: {error}") from error
            name_tuples(programs[name].call_spec.out_spec)
            restore()
        if train and same_graph(*programs.values()):
            programs["evaluation"] = programs["model"]
        written = pathlib.Path(folder) / output.name  # which the archive has in it
        save(programs, written)
        loaded = load_pt2(str(written)).exported_programs
        for name, mode in modes.items():
            model.train(mode)
            compare(model, loaded[name].module(), args, kwargs, "training" if mode else "evaluation",
                    gradients=name == "model")
            restore()
        os.replace(written, output)
    program = loaded["model"]
    user_inputs = list(program.graph_signature.user_inputs)
    user_outputs = [str(name) for name in program.graph_signature.user_outputs]
    return {"inputs": user_inputs, "outputs": user_outputs, "loaded": program}


def initialize(model, args, kwargs):
    """Runs the model once if it has lazy modules, which have no parameters before."""
    import torch

    if any(isinstance(value, torch.nn.parameter.UninitializedTensorMixin) for value in
           (*model.parameters(), *model.buffers())):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(*args, **kwargs)


def name_tuples(spec):
    """Registers named tuples among the outputs under a name, which is required to save them."""
    from torch.utils import _pytree

    of = spec.context
    if isinstance(of, type) and hasattr(of, "_fields") and of not in _pytree.SUPPORTED_SERIALIZED_TYPES:
        _pytree._register_namedtuple(of, serialized_type_name=f"{of.__module__}.{of.__qualname__}")
    for part in spec.children():
        name_tuples(part)


@contextlib.contextmanager
def kept(model):
    """Yields a function that restores the model's parameters, buffers and gradients; on exit they are restored, and so
    are the modes of its submodules."""
    import torch

    def tensors():
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    modes = [(part, part.training) for part in model.modules()]
    values = {name: value.detach().clone() for name, value in tensors().items()}
    gradients = [(value, value.grad) for value in model.parameters()]

    @torch.no_grad()
    def restore():
        for name, value in tensors().items():
            if name in values and values[name].shape == value.shape:
                value.data.copy_(values[name])
        for value, gradient in gradients:
            value.grad = gradient

    try:
        yield restore
    finally:
        restore()
        for part, mode in modes:
            part.training = mode


def same_graph(one, other):
    """Returns True if two programs compute the same, in training and in evaluation."""
    import torch

    def text(program):
        return program.graph_module.print_readable(print_output=False), str(program.graph_signature), \
            str(program.range_constraints)

    def same(name):
        value, again = one.constants[name], other.constants[name]
        return isinstance(value, torch.Tensor) and isinstance(again, torch.Tensor) and value.dtype == again.dtype and \
            torch.equal(value, again)

    return text(one) == text(other) and one.constants.keys() == other.constants.keys() and all(map(same, one.constants))


def save(programs, output):
    """Writes one archive of the programs under their names, with the weights of the first, which all share."""
    from torch.export.pt2_archive import PT2ArchiveReader, PT2ArchiveWriter
    from torch.export.pt2_archive._package import package_pt2

    package_pt2(str(output), exported_programs=programs)
    if len(programs) == 1:
        return
    config, own, other = "data/weights/{}_weights_config.json", *programs
    whole = output.with_suffix(".whole.pt2")
    os.replace(output, whole)
    try:
        reader = PT2ArchiveReader(str(whole))
        weights = json.loads(reader.read_string(config.format(own)))["config"]
        if weights.keys() != json.loads(reader.read_string(config.format(other)))["config"].keys():
            raise ValueError("the model has other parameters or buffers in training than in evaluation")
        used = {f"data/weights/{entry['path_name']}" for entry in weights.values()}
        with PT2ArchiveWriter(str(output)) as writer:
            for name in reader.get_file_names():
                if name.startswith(".data/") or name in ("byteorder", "version"):
                    continue  # the writer's own
                if name.startswith("data/weights/") and not name.endswith(".json") and name not in used:
                    continue
                writer.write_bytes(name, reader.read_bytes(config.format(own) if name == config.format(other) else name))
    finally:
        whole.unlink()


def compare(model, again, args, kwargs, mode, gradients):
    """Compares outputs, buffers and gradients of both, with the same random numbers, from the same state."""
    import torch

    def run(module):
        torch.manual_seed(0)
        outputs = torch.utils._pytree.tree_leaves(module(*args, **kwargs))
        if gradients:
            generator = torch.Generator().manual_seed(1)
            ends = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
            factors = [torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value.device) for value in ends]
            module.zero_grad()
            if ends:
                torch.autograd.backward(ends, factors)
        return outputs

    with torch.set_grad_enabled(gradients):
        wanted, given = run(model), run(again)
    if len(wanted) != len(given):
        raise ValueError(f"the saved program of {mode} has {len(given)} outputs, the model {len(wanted)}")
    for k, (one, other) in enumerate(zip(wanted, given)):
        compare_values(f"output {k}", mode, one, other)
    buffers = dict(again.named_buffers())
    for name, value in model.named_buffers():
        if name in buffers:
            compare_values(f"the buffer {name} that it leaves", mode, value, buffers[name])
    if gradients:
        compare_gradients(model, again, mode)


def compare_values(what, mode, wanted, given):
    import torch

    if not isinstance(wanted, torch.Tensor) or not isinstance(given, torch.Tensor):
        return
    if wanted.shape != given.shape or wanted.dtype != given.dtype:
        raise ValueError(f"{what} of the saved program of {mode} is {given.dtype}{list(given.shape)}, and the model's "
                         f"{wanted.dtype}{list(wanted.shape)}")
    if not (wanted.is_floating_point() or wanted.is_complex()):
        if not torch.equal(wanted, given):
            raise ValueError(f"{what} of the saved program of {mode} differs from the model's")
    elif not torch.allclose(wanted, given, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise ValueError(f"{what} of the saved program of {mode} differs from the model's by "
                         f"{(wanted - given).abs().max()}")


def compare_gradients(model, again, mode):
    """Adds up the gradients of tied weights: the program has a parameter for each of their names."""
    import torch

    names = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        names.setdefault(value, []).append(name)
    parameters = dict(again.named_parameters(remove_duplicate=False))
    pairs = []
    for value, own in names.items():
        others = {id(parameters[name]): parameters[name] for name in own if name in parameters}.values()
        sums = [each.grad for each in others if each.grad is not None]
        if value.grad is None and not sums:
            continue
        zero = torch.zeros_like(value)
        pairs.append((own[0], zero if value.grad is None else value.grad, sum(sums, zero)))
    largest = max((wanted.nan_to_num(0, 0, 0).abs().max().item() for _, wanted, _ in pairs if wanted.numel()), default=0.0)
    for name, wanted, given in pairs:
        if not wanted.numel():
            continue
        finite, same = wanted.isfinite(), wanted.isfinite() == given.isfinite()
        if same.all():
            wanted, given = wanted.where(finite, 0), given.where(finite, 0)
        # A gradient that is only rounding error, such as a bias's before a batch norm, is compared with the others.
        scale = max(wanted.abs().max().item(), given.abs().max().item(), 1e-4 * largest)
        difference = (wanted - given).abs().max().item()
        if not difference <= 1e-3 * scale:  # also for nan
            raise ValueError(
                f"the gradient of {name} of the saved program of {mode} differs from the model's by {difference:.3g}, where "
                f"the largest is {scale:.3g}. An export records forward, and loses gradients that Python defines: "
                "torch.autograd.Function, register_hook, register_full_backward_hook. Write them with tensors: "
                "x + (f(x) - x).detach() computes f(x) and has the gradient of x, and -a * x + (1 + a) * x.detach() "
                "computes x and has the gradient of -a * x")


def load_object(spec):
    where, _, name = spec.partition(":")
    if not name:
        raise SystemExit(f"export_model: \"{spec}\" is not MODULE:NAME, as in torchvision.models:resnet18")
    if where.endswith(".py"):
        path = pathlib.Path(where).resolve()
        found = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(found)
        sys.modules[path.stem] = module
        found.loader.exec_module(module)
    else:
        sys.path.insert(0, "")
        module = importlib.import_module(where)
    return getattr(module, name)


def make_input(text):
    import torch

    parts = re.fullmatch(r"\s*(\w+)\s*\[([\d\s,]*)\]\s*(?:<\s*(\d+))?\s*", text)
    dtype = getattr(torch, parts[1], None) if parts else None
    if not isinstance(dtype, torch.dtype):
        raise SystemExit(f"export_model: the input \"{text}\" is not DTYPE[SIZES], as in float32[4, 3, 224, 224]")
    sizes = [int(size) for size in parts[2].split(",") if size.strip()]
    if not dtype.is_floating_point:
        return torch.randint(0, int(parts[3] or 2), sizes).to(dtype)
    return (torch.rand(sizes) * int(parts[3]) if parts[3] else torch.randn(sizes)).to(dtype)


@contextlib.contextmanager
def recording(precision, model, inputs):
    """Returns the model and the inputs as a run with that precision has them; None: unchanged."""
    import torch

    dtype = getattr(torch, PRECISIONS.get(precision) or PRECISIONS[f"{precision}-true"]) if precision else None
    is_mixed = bool(precision) and precision.endswith("-mixed")
    if dtype and not is_mixed:
        model.to(dtype)
        inputs[:] = [value.to(dtype) if value.is_floating_point() else value for value in inputs]
    with torch.autocast("cpu", dtype, cache_enabled=False) if is_mixed else contextlib.nullcontext():
        yield


def compile_model(model, options):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from compile_step import Refused, compile_step

    if options.eval or options.precision:
        raise SystemExit("export_model: --compile makes a training step and an evaluation, in the model's own types; leave "
                         "--eval and --precision out")
    try:
        done = compile_step(model, [make_input(text) for text in options.inputs], options.loss, options.output,
                            make_input(options.target) if options.target else None, not options.static, options.model)
    except Refused as error:
        raise SystemExit(f"export_model: {error}") from error
    print(f"{options.output}: loss and gradients within {done['checked']['worst']:.1e} of the model's")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="MODULE:NAME of a class, or of a function that returns a module")
    parser.add_argument("--args", default="[]", help="its arguments, a JSON list")
    parser.add_argument("--kwargs", default="{}", help="its keyword arguments, a JSON object")
    parser.add_argument("--inputs", nargs="+", required=True, metavar="DTYPE[SIZES]", help="example inputs of forward")
    parser.add_argument("--static", action="store_true", help="the batch has the examples' size, always")
    parser.add_argument("--eval", action="store_true", help="the graph of evaluation alone")
    parser.add_argument("--precision", choices=[*PRECISIONS, "32", "bf16", "16", "64"], metavar="PRECISION",
                        help="trainer.precision of the runs: 32-true, bf16-true, 16-true, 64-true, bf16-mixed or 16-mixed; "
                        "32, bf16, 16 and 64 stand for -true; default: the model's own types")
    parser.add_argument("--output", required=True, help="the .pt2 file to write")
    parser.add_argument("--compile", action="store_true", help="compile the training step, for CompiledModule")
    parser.add_argument("--loss", default="cross_entropy", help="with --compile: a function of torch.nn.functional, "
                        "MODULE:NAME, or none if forward returns the loss")
    parser.add_argument("--target", metavar="DTYPE[SIZES]", help="with --compile: what the loss compares with, if not obvious")
    options = parser.parse_args()
    model = load_object(options.model)(*json.loads(options.args), **json.loads(options.kwargs))
    if options.compile:
        return compile_model(model, options)
    inputs = [make_input(text) for text in options.inputs]
    try:
        with recording(options.precision, model, inputs):
            done = export_model(model, inputs, options.output, dynamic_batch=not options.static, train=not options.eval)
    except ValueError as error:
        raise SystemExit(f"export_model: {error}. Nothing was written.") from error
    print(f"{options.output}: the same numbers as the model\ninputs: {', '.join(done['inputs'])}\n"
          f"outputs: {', '.join(done['outputs'])}")


if __name__ == "__main__":
    main()
