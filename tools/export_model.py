#!/usr/bin/env python3
"""Exports a PyTorch model to a .pt2 file that Levin trains (class_path: ExportedModule), and checks it.

  python3 tools/export_model.py torchvision.models:resnet18 --kwargs '{"num_classes": 10}' \\
      --inputs 'float32[4, 3, 224, 224]' --output net.pt2
  python3 tools/export_model.py mynet.py:make_net --inputs 'int64[2, 128] < 30522' 'int64[2, 128] < 2' --output net.pt2

MODULE:NAME is a class, or a function that returns the module; MODULE may be a file. An input is DTYPE[SIZES]; whole numbers
are drawn below the number after "<" (default 2). The first size of every input is the batch: any size unless --static. The
model is exported in training mode unless --eval: Levin's eval() switches dropout and batch norm off, but what an export in
evaluation mode has left out, no train() brings back.

With --compile the file holds the training step as native code instead (class_path: CompiledModule): forward, --loss and
backward, compiled for this machine by Inductor; docs/compiled_steps.md.

In a program of your own: export_model(model, args, "net.pt2") after `from export_model import export_model`.
"""
import argparse
import importlib
import importlib.util
import json
import pathlib
import re
import sys


def export_model(model, args, output, kwargs=None, dynamic_batch=True, train=True):
    """Writes `output` and returns {"inputs": [...], "outputs": [...], "loaded": the program as read back}.

    Raises ValueError where the saved program, in evaluation mode of its operators or with the same random numbers, gives
    other numbers than the model. The model keeps its mode and its state.
    """
    import torch

    kwargs = kwargs or {}
    was_training = model.training
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    model.train(train)
    try:
        shapes = None
        if dynamic_batch:
            def first_size(value):
                return {0: torch.export.Dim.DYNAMIC} if isinstance(value, torch.Tensor) and value.dim() else None
            # One tuple for *args, whatever the names: positions first, then keywords.
            shapes = torch.utils._pytree.tree_map(first_size, (tuple(args), kwargs))
            shapes = (*shapes[0], *shapes[1].values()) if kwargs else shapes[0]
        program = torch.export.export(model, tuple(args), kwargs, dynamic_shapes=shapes)
        torch.export.save(program, str(output))
        loaded = torch.export.load(str(output))
        compare(model, loaded.module(), args, kwargs)
    finally:
        model.load_state_dict(state)
        model.train(was_training)
    user_inputs = list(loaded.graph_signature.user_inputs)
    user_outputs = [str(name) for name in loaded.graph_signature.user_outputs]
    return {"inputs": user_inputs, "outputs": user_outputs, "loaded": loaded}


def compare(model, again, args, kwargs):
    """Both with the same random numbers; a module of the program has the model's state of before the export."""
    import torch

    flat = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        torch.manual_seed(0)
        wanted = flat(model(*args, **kwargs))
        torch.manual_seed(0)
        given = flat(again(*args, **kwargs))
    if len(wanted) != len(given):
        raise ValueError(f"the saved program has {len(given)} outputs, the model {len(wanted)}")
    for k, (one, other) in enumerate(zip(wanted, given)):
        if isinstance(one, torch.Tensor) and not torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ValueError(f"output {k} of the saved program differs from the model's by {(one - other).abs().max()}")


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
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    return torch.randint(0, int(parts[3] or 2), sizes).to(dtype)


def compile_model(model, options):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from compile_step import Refused, compile_step

    if options.eval:
        raise SystemExit("export_model: --compile makes a training step and an evaluation; leave --eval out")
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
    parser.add_argument("--eval", action="store_true", help="export in evaluation mode")
    parser.add_argument("--output", required=True, help="the .pt2 file to write")
    parser.add_argument("--compile", action="store_true", help="compile the training step, for CompiledModule")
    parser.add_argument("--loss", default="cross_entropy", help="with --compile: a function of torch.nn.functional, "
                        "MODULE:NAME, or none if forward returns the loss")
    parser.add_argument("--target", metavar="DTYPE[SIZES]", help="with --compile: what the loss compares with, if not obvious")
    options = parser.parse_args()
    model = load_object(options.model)(*json.loads(options.args), **json.loads(options.kwargs))
    if options.compile:
        return compile_model(model, options)
    done = export_model(model, [make_input(text) for text in options.inputs], options.output,
                        dynamic_batch=not options.static, train=not options.eval)
    print(f"{options.output}: the same numbers as the model\ninputs: {', '.join(done['inputs'])}\n"
          f"outputs: {', '.join(done['outputs'])}")


if __name__ == "__main__":
    main()
