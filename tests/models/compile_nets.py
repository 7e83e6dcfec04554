"""Compiles the modules of nets.py and trains each in eager PyTorch: what compiled_step_test.py compares Levin with.

  compile_nets.py FOLDER     writes NAME.pt2, NAME-x.npy, NAME-y.npy and eager.json
"""
import json
import os
import sys

os.environ.setdefault("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")  # compiles the code around the kernels quickly
import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import compile_step
import nets

STEPS = 20
FOLDER = sys.argv[1]
CASES = {  # module, its loss, the batch's x and y
    "mlp": (nets.mlp, "cross_entropy", lambda: (torch.randn(64, 784), torch.randint(0, 10, (64,)))),
    "cnn": (nets.cnn, "cross_entropy", lambda: (torch.randn(8, 1, 14, 14), torch.randint(0, 10, (8,)))),
    "gpt": (nets.Gpt, nets.token_loss, lambda: (torch.randint(0, 32, (4, 8)), torch.randint(0, 32, (4, 8)))),
    "tiny": (nets.tiny, "mse_loss", lambda: (torch.randn(8, 6), torch.randn(8, 3))),
}
OPTIMIZERS = {"SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
              "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01)}


def eager(make, loss, batches, optimizer):
    torch.manual_seed(0)
    model = make()
    update, losses = OPTIMIZERS[optimizer](model.parameters()), []
    for x, y in batches:
        update.zero_grad()
        value = loss(model(x), y)
        value.backward()
        update.step()
        losses.append(value.item())
    model.eval()
    with torch.no_grad():
        return {"losses": losses, "evaluated": loss(model(batches[0][0]), batches[0][1]).item(),
                "names": sorted(dict(model.named_parameters())), "saved": sorted(model.state_dict())}


def refusals():
    """Returns the errors of compile_step for modules that it cannot compile."""
    errors = {}
    for name, model, inputs, arguments in [
        ("branches", nets.Branches(), [torch.randn(2, 4)], {}),
        ("frozen", nets.Branches().requires_grad_(False), [torch.randn(2, 4)], {}),
        ("one_sample", nets.mlp(), [torch.randn(1, 784)], {"dynamic_batch": True}),
        ("no_such_loss", nets.mlp(), [torch.randn(2, 784)], {"loss": "cross_entropie"}),
        ("reversed", nets.Reversed(), [torch.randn(4, 6)], {}),
        ("no_target", nets.mlp(), [torch.randn(2, 784)], {"loss": "kl_div"}),
    ]:
        try:
            compile_step.compile_step(model, inputs, output=os.path.join(FOLDER, "refused.pt2"), **arguments)
            errors[name] = ""
        except compile_step.Refused as error:
            errors[name] = str(error)
    return errors


def main():
    torch.set_num_threads(1)
    answer = {"refusals": refusals(), "cases": {}}
    for name, (make, loss, batch) in CASES.items():
        torch.manual_seed(1)
        batches = [batch() for _ in range(STEPS)]
        np.save(f"{FOLDER}/{name}-x.npy", torch.cat([x for x, _ in batches]).numpy())
        np.save(f"{FOLDER}/{name}-y.npy", torch.cat([y for _, y in batches]).numpy())
        torch.manual_seed(0)
        manifest = compile_step.compile_step(make(), [batches[0][0]], loss, f"{FOLDER}/{name}.pt2",
                                             batches[0][1], dynamic_batch=name == "tiny")
        function = compile_step.find_loss(loss) if isinstance(loss, str) else loss
        answer["cases"][name] = {"batch": len(batches[0][0]), "worst": manifest["checked"]["worst"],
                                 **{o: eager(make, function, batches, o) for o in OPTIMIZERS}}
    with open(f"{FOLDER}/eager.json", "w") as file:
        json.dump(answer, file)


main()
