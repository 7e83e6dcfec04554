"""A PyTorch module's step as graphs: traced, with its tensors as inputs, compiled by Inductor. For compile_step.py."""
import torch
import torch.nn.attention
from torch.export.graph_signature import InputKind, OutputKind


class Refused(Exception):
    """The module cannot be compiled; the message gives the reason and a remedy."""


class Step(torch.nn.Module):
    """A module and its loss: `batch` holds the module's inputs and, with a loss function, the target after them."""

    def __init__(self, model, loss, predicts):
        super().__init__()
        self.model, self.loss, self.predicts = model, loss, predicts

    def forward(self, *batch):
        if self.loss is None:
            loss = self.model(*batch)
            prediction = None
        else:
            prediction = self.model(*batch[:-1])
            loss = self.loss(prediction, batch[-1])
        if self.predicts and prediction is not None:
            return loss, prediction.detach()
        return (loss,)


class Traced(torch.nn.Module):
    """A Step as torch.export sees it: each tensor of the module once, even a tied weight, under a separate name.
    `trained` holds the names of the tensors that get a gradient."""

    def __init__(self, step, tensors, trained):
        super().__init__()
        self.step, self.targets = [step], {}  # in a list, so that its tensors are not registered a second time
        for k, (name, tensor) in enumerate(tensors.items()):
            self.targets[f"tensor{k}"] = name
            if name in trained:
                self.register_parameter(f"tensor{k}", tensor)
            else:
                self.register_buffer(f"tensor{k}", tensor.detach())

    def forward(self, *batch):
        own = {"model." + name: getattr(self, target) for target, name in self.targets.items()}
        return torch.func.functional_call(self.step[0], own, batch, tie_weights=True)


class Flat(torch.nn.Module):
    """A graph whose parameters and buffers are inputs, so that a caller's own tensors are used where they are."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, tensors):
        return self.graph(*tensors)


def trace(step, tensors, batch, dynamic, training):
    """The exported program of the step in the given mode; with backward if training."""
    dim = torch.export.Dim.DYNAMIC
    shapes = {"batch": tuple({0: dim} for _ in batch)} if dynamic else None
    step.train(training)
    traced = Traced(step, tensors, used_in_loss(step, tensors, batch) if training else set())
    try:
        # Attention as matrix products and a softmax, which Inductor fuses: the backward of the fused operator for CPUs
        # gives wrong gradients in a library compiled ahead (seen with PyTorch 2.11).
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            program = torch.export.export(traced, tuple(batch), dynamic_shapes=shapes, strict=False)
            if training:
                from torch.export.experimental import _export_forward_backward
                return _export_forward_backward(program), traced.targets
            return program.run_decompositions(), traced.targets
    except Exception as error:  # torch.export raises many types, several of them private
        text = str(error)
        if "data-dependent" in text or "GuardOnDataDependent" in type(error).__name__:
            raise Refused("shapes or branches depend on the values of the batch, and one graph cannot hold all cases: "
                          + first_line(text)) from error
        if dynamic and ("Constraints violated" in text or "specialized" in text or "mark_dynamic" in text):
            raise Refused("the module works with one batch size only (" + first_line(text) +
                          "). Compile it without --dynamic-batch.") from error
        raise Refused(f"torch.export cannot trace the module: {type(error).__name__}: {first_line(text)}") from error


def used_in_loss(step, tensors, batch):
    """Returns the parameters that a backward pass reaches."""
    saved = {name: value.clone() for name, value in tensors.items()}
    step.zero_grad()
    loss = step(*batch)[0]
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.requires_grad:
        raise Refused("the loss is not a scalar with a graph: it has " + (f"shape {tuple(loss.shape)}" if isinstance(
            loss, torch.Tensor) else f"type {type(loss).__name__}") + ". Return a mean or a sum.")
    loss.backward()
    used = {name for name, value in tensors.items() if value.grad is not None}
    with torch.no_grad():
        for name, value in saved.items():
            tensors[name].copy_(value)
    step.zero_grad()
    return used


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


class Graph:
    """A traced step whose inputs are all tensors that it reads: what each input and each output is."""

    def __init__(self, traced, tensors, batch, dynamic):
        program, names = traced
        names = dict(names)
        self.inputs, self.outputs, self.values, self.dynamic = [], [], [], dynamic
        kinds, used = [], iter(batch)
        for spec in program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                self.inputs.append(f"batch:{sum(k == 'batch' for k in kinds)}")
                kinds.append("batch")
                self.values.append(next(used))
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                kinds.append("tensor")
                self.add_tensor(spec, program, tensors, names)
            else:
                raise Refused(f"the graph takes a {spec.kind.name.lower()} ({spec.target}), which is not a tensor.")
        first = True
        for spec in program.graph_signature.output_specs:
            if spec.kind in (OutputKind.LOSS_OUTPUT, OutputKind.USER_OUTPUT):
                self.outputs.append("loss" if first else "prediction")
                first = False
            elif spec.kind == OutputKind.GRADIENT_TO_PARAMETER:
                self.outputs.append("gradient:" + names[spec.target])
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                self.outputs.append("buffer:" + names[spec.target])
            elif spec.kind == OutputKind.GRADIENT_TO_USER_INPUT:
                self.outputs.append("unused")
            else:
                raise Refused(f"the step changes {spec.target}, which is not a buffer ({spec.kind.name.lower()}). Register "
                              "it with register_buffer, or do not change it in forward.")
        self.random = sorted({str(node.target) for node in program.graph.nodes if node.op == "call_function" and
                              torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())})
        dim = torch.export.Dim.DYNAMIC
        shapes = (tuple({0: dim} if kind == "batch" else None for kind in kinds),) if dynamic else None
        with torch.no_grad():
            self.module = torch.export.export(Flat(program.graph_module), (tuple(self.values),), dynamic_shapes=shapes,
                                              strict=False).module(check_guards=False)

    def add_tensor(self, spec, program, tensors, names):
        if spec.target not in names:  # a tensor that forward makes: torch.export lifts it out of the graph
            value = program.constants[spec.target]
            names[spec.target] = next((name for name, other in tensors.items() if name.startswith("lifted:") and
                                       other.dtype == value.dtype and torch.equal(other, value)),
                                      f"lifted:{len(tensors)}")
            tensors[names[spec.target]] = value
        self.inputs.append("tensor:" + names[spec.target])
        self.values.append(tensors[names[spec.target]].detach().clone())

    def compile(self):
        # Inductor looks for the vector instructions by loading a test library that needs link_libtorch; -march=native
        # and the check of the results are proof enough.
        options = {"aot_inductor.package": True, "aot_inductor.link_libtorch": False, "cpp.dynamic_threads": True,
                   "cpp.vec_isa_ok": True}
        try:
            files = torch._inductor.aot_compile(self.module, (tuple(self.values),), options=options)
        except Exception as error:
            raise Refused(f"Inductor cannot compile the graph: {type(error).__name__}: {first_line(str(error))}") from error
        return [file for file in files if isinstance(file, str) and file.endswith((".so", ".json"))
                and not file.endswith("_metadata.json")]
