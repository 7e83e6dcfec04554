"""Exports small models of PyTorch's libraries and trains them in Python: what Levin's losses must be.

export_peers.py FOLDER writes for each model NAME.pt2, NAME.safetensors (the batches: x0, x1, … and y) and NAME.json
({"loss": …, "optimizer": …, "lr": …, "losses": [20 numbers]}), and refused.txt: what export_model says of others.
"""
import collections
import json
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from export_model import export_model, recording  # noqa: E402

STEPS = 20


class Wrapped(nn.Module):
    """A model of transformers, whose outputs are an object: one tensor of it."""

    def __init__(self, model, output="logits"):
        super().__init__()
        self.model = model
        self.output = output

    def forward(self, input_ids, attention_mask=None):
        more = {} if attention_mask is None else {"attention_mask": attention_mask}
        return getattr(self.model(input_ids, **more, return_dict=True), self.output)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class TiedNet(nn.Module):
    """Tied weights, a buffer that steps change, one that is not saved, a constant, several outputs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8, bias=False)
        self.again = nn.Linear(8, 8, bias=False)
        self.again.weight = self.first.weight
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8), persistent=False)

    def forward(self, x):
        h = torch.tanh(self.first(x)) * self.scale
        with torch.no_grad():
            self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
        h = self.again(h - self.mean) + torch.tensor([1.0, -1.0] * 4)
        return h.view(x.shape[0], -1), h.sum(), x


class LSTMNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        skip = self.down(x)
        up = F.interpolate(self.up(self.inner(skip)), size=x.shape[-2:], mode="bilinear")
        return self.head(torch.cat([skip, up], 1))


Judgement = collections.namedtuple("Judgement", "logits auxiliary")


class Critic(nn.Module):
    """What a model does in training alone: power iterations, noise, an auxiliary head."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.layers = nn.Sequential(norm(nn.Linear(6, 16)), nn.ReLU(), norm(nn.Linear(16, 16)), nn.ReLU())
        self.head, self.auxiliary = nn.Linear(16, 3), nn.Linear(16, 3)

    def forward(self, x):
        h = self.layers(x + 0.1 * torch.randn_like(x) if self.training else x)
        return Judgement(self.head(h), self.auxiliary(h)) if self.training else self.head(h)


class Masked(nn.Module):
    """Reads the types of its tensors: a recurrent layer's first state, and what hides a value."""

    def __init__(self, recurrent):
        super().__init__()
        self.first, self.lstm, self.head = nn.Linear(5, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)
        self.recurrent = recurrent

    def forward(self, x):
        h = self.lstm(self.first(x))[0] if self.recurrent else self.first(x)
        hidden = x[..., :1] < 0
        weights = self.head(h).masked_fill(hidden, torch.finfo(h.dtype).min).softmax(1)
        return (weights * h[..., :3]).sum(1)


class Doubled(torch.autograd.Function):
    """The same value with a different gradient."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.round()

    @staticmethod
    def backward(context, gradient):
        return gradient


class SafeRoot(torch.autograd.Function):
    """Has a gradient at 0, where autograd's is not finite."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x.sqrt())
        return x.sqrt()

    @staticmethod
    def backward(context, gradient):
        root, = context.saved_tensors
        return gradient / (2 * root + 1e-6)


class Swish(torch.autograd.Function):
    """A function whose gradient equals autograd's."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(context, gradient):
        x, = context.saved_tensors
        return gradient * (x.sigmoid() * (1 + x * (1 - x.sigmoid())))


class Between(nn.Module):
    """Two layers, dropout, and a function between them."""

    def __init__(self, function, hook=None):
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), nn.Dropout(0.5)
        self.function = function
        if hook == "tensor":
            self.first.weight.register_hook(lambda gradient: 2 * gradient)
        if hook == "module":
            self.second.register_full_backward_hook(lambda module, inputs, outputs: (2 * inputs[0],))

    def forward(self, x):
        return self.second(self.drop(self.function(self.first(x))))


def without_dropout(config):
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout_rate"):
        if hasattr(config, name):
            setattr(config, name, 0.0)
    return config


def images(size, classes=4):
    return [torch.randn(4, 3, size, size)], torch.randint(0, classes, (4,))


def texts(with_mask=False, labels=3):
    ids = torch.randint(0, 40, (4, 9))
    mask = torch.ones(4, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return [ids, mask] if with_mask else [ids], torch.randint(0, labels, (4,))


def cases():
    """name: (model, inputs, target, loss, optimizer, lr)"""
    import timm
    import torchvision.models as vision
    import transformers as hf

    # SGD where a bias stands before a batch norm: its gradient is rounding alone, which AdamW would make a whole step.
    yield "mlp", MLP(), ([torch.randn(8, 6)], torch.randint(0, 3, (8,))), "cross_entropy", "SGD", 0.1
    yield "tied", TiedNet(), ([torch.randn(6, 8)], torch.randn(6, 8)), "mse_loss", "SGD", 0.1
    yield "lstm", LSTMNet(), ([torch.randn(4, 7, 5)], torch.randint(0, 3, (4,))), "cross_entropy", "AdamW", 1e-2
    yield "unet", UNet(), ([torch.randn(2, 3, 8, 8)], torch.randint(0, 4, (2, 8, 8))), "cross_entropy", "AdamW", 1e-2
    block = vision.resnet.BasicBlock
    yield "resnet", vision.ResNet(block, [1, 1, 1, 1], num_classes=4), images(32), "cross_entropy", "SGD", 1e-2
    settings = [vision.convnext.CNBlockConfig(8, 16, 1), vision.convnext.CNBlockConfig(16, None, 1)]
    yield "convnext", vision.ConvNeXt(settings, stochastic_depth_prob=0.3, num_classes=4), images(32), "cross_entropy", "AdamW", 1e-3
    mb = vision.efficientnet.MBConvConfig
    settings = [mb(1, 3, 1, 8, 8, 1, 1.0, 1.0), mb(4, 3, 2, 8, 16, 1, 1.0, 1.0)]
    efficient = vision.EfficientNet(settings, dropout=0.2, stochastic_depth_prob=0.3, num_classes=4)
    yield "efficientnet", efficient, images(32), "cross_entropy", "SGD", 1e-2
    swin = vision.SwinTransformer([2, 2], 8, [1, 2], [1, 2], [2, 2], stochastic_depth_prob=0.3, num_classes=4)
    yield "swin", swin, images(16), "cross_entropy", "AdamW", 1e-3
    yield "critic", Critic(), ([torch.randn(8, 6)], torch.randint(0, 3, (8,))), "cross_entropy", "SGD", 0.1
    for precision in ("bf16-true", "64-true", "bf16-mixed"):
        batch = ([torch.randn(4, 7, 5)], torch.randint(0, 3, (4,)))
        # Not every CPU has recurrent layers under autocast.
        yield f"masked_{precision}", Masked(precision.endswith("true")), batch, "cross_entropy", "SGD", 0.1
    vit = vision.VisionTransformer(image_size=16, patch_size=8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=4)
    nn.init.normal_(vit.heads.head.weight, std=0.1)
    yield "vit", vit, images(16), "cross_entropy", "AdamW", 1e-3
    mixer = timm.models.mlp_mixer.MlpMixer(img_size=32, patch_size=16, embed_dim=16, num_blocks=2, num_classes=4, drop_path_rate=0.5)
    yield "timm_mixer", mixer, images(32), "cross_entropy", "AdamW", 1e-3
    common = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = hf.BertConfig(**common, intermediate_size=24, max_position_embeddings=16, num_labels=3)
    yield "bert", Wrapped(hf.BertForSequenceClassification(without_dropout(bert))), texts(True), "cross_entropy", "AdamW", 1e-3
    gpt2 = hf.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False)
    ids = torch.randint(0, 40, (4, 9))
    yield "gpt2", Wrapped(hf.GPT2LMHeadModel(gpt2)), ([ids], ids.roll(-1, 1)), "cross_entropy", "AdamW", 1e-3
    llama = hf.LlamaConfig(**common, intermediate_size=24, num_key_value_heads=1, max_position_embeddings=16, use_cache=False)
    yield "llama", Wrapped(hf.LlamaForCausalLM(llama)), ([ids], ids.roll(-1, 1)), "cross_entropy", "AdamW", 1e-3
    t5 = hf.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0)
    encoder = Wrapped(hf.T5EncoderModel(t5), "last_hidden_state")
    yield "t5_encoder", encoder, ([ids], torch.randn(4, 9, 16)), "mse_loss", "AdamW", 1e-3


def loss_of(loss, output, target):
    output = output[0] if isinstance(output, tuple) else output
    if loss == "cross_entropy" and output.dim() == 3:
        output = output.transpose(1, 2)
    return getattr(F, loss)(output, target)


def train(model, inputs, target, loss, optimizer, lr, precision=None):
    model.train()
    make = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}[optimizer]
    steps = make(model.parameters(), lr=lr)
    torch.manual_seed(1)
    losses = []
    for _ in range(STEPS):
        with recording(precision, model, inputs):
            value = loss_of(loss, model(*inputs), target)
        steps.zero_grad()
        value.backward()
        steps.step()
        losses.append(value.item())
    model.eval()
    with torch.no_grad(), recording(precision, model, inputs):
        return losses, loss_of(loss, model(*inputs), target).item()


def save_rows(folder, name, inputs, target):
    """Eight samples as .npy files, for runs of the tool."""
    import numpy

    for part, value in (("x", inputs[0]), ("y", target)):
        numpy.save(folder / f"{name}_{part}.npy", torch.cat([value, value.roll(1, 0)])[:8].numpy())


def refusals():
    """Returns export_model's errors for gradients that Python defines; "" if the program has them."""
    errors = {}
    for name, model in (("reversal", Between(Doubled.apply)), ("straight_through", Between(Rounded.apply)),
                        ("swish", Between(Swish.apply)), ("tensor_hook", Between(torch.tanh, "tensor")),
                        ("module_hook", Between(torch.tanh, "module")),
                        ("root", Between(lambda x: SafeRoot.apply((x - x.detach()).pow(2)))),
                        ("by_tensors", Between(lambda x: x + (x.round() - x).detach()))):
        path = pathlib.Path(sys.argv[1]) / f"refused_{name}.pt2"
        model.first.weight.grad = torch.ones(8, 4)
        model.drop.eval()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        try:
            export_model(model, [torch.randn(3, 4)], path)
            errors[name] = ""
        except ValueError as error:
            errors[name] = str(error)
        kept = all(torch.equal(value, before[key]) for key, value in model.state_dict().items()) and \
            bool((model.first.weight.grad == 1).all()) and not model.drop.training and model.training
        errors[name] += "" if kept else " the model has changed"
        errors[name] += " and wrote a file" if path.exists() == bool(errors[name]) else ""
        path.unlink(missing_ok=True)
    (pathlib.Path(sys.argv[1]) / "refused.txt").write_text(json.dumps(errors))


def main():
    from safetensors.torch import save_file

    folder = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:]
    torch.manual_seed(0)
    for name, model, (inputs, target), loss, optimizer, lr in cases():
        if wanted and name not in wanted:
            continue
        precision = name.partition("_")[2] if name.startswith("masked_") else None
        with recording(precision, model, inputs):
            export_model(model, inputs, folder / f"{name}.pt2")
        batch = {f"x{k}": value.contiguous() for k, value in enumerate(inputs)} | {"y": target.contiguous()}
        save_file(batch, folder / f"{name}.safetensors")
        if name in ("mlp", "vit", "convnext", "gpt2"):
            save_rows(folder, name, inputs, target)
        losses, final = train(model, inputs, target, loss, optimizer, lr, precision)
        (folder / f"{name}.json").write_text(json.dumps(
            {"loss": loss, "optimizer": optimizer, "lr": lr, "losses": losses, "eval_loss": final, "precision": precision or "32-true",
             "parameters": [name for name, _ in model.named_parameters()]}))
        print(name, losses[0], losses[-1], flush=True)
    if not wanted:
        refusals()


if __name__ == "__main__":
    main()
