"""Records the operators that exports contain, for tests/models/data/exported_operators.txt.

  record_operators.py FILE [layers|losses|functions|models …]      default: all of them

Needs PyTorch 2.11, torchvision and transformers; takes half an hour. Each line is an operator of aten and its overload. A model
that torch.export cannot export is named and left out.
"""
import pathlib
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional as F


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs):
        return self.function(*self.layers, *inputs)


def layers():
    """Layers of torch.nn with inputs."""
    flat, sequence, image, volume = torch.rand(4, 8), torch.rand(4, 8, 12), torch.rand(2, 8, 12, 12), torch.rand(2, 8, 6, 6, 6)
    tokens = torch.randint(0, 10, (4, 8))
    for name in ("ELU", "Hardshrink", "Hardsigmoid", "Hardtanh", "Hardswish", "LeakyReLU", "LogSigmoid", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU",
                 "CELU", "GELU", "Sigmoid", "SiLU", "Mish", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "GLU", "Softmin", "Softmax",
                 "LogSoftmax", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "Identity", "Flatten"):
        yield getattr(nn, name)(), [flat]
    yield nn.Threshold(0.1, 20), [flat]
    yield nn.Softmax2d(), [image]
    for size, inputs in ((1, sequence), (2, image), (3, volume)):
        for name in ("Conv", "ConvTranspose"):
            yield getattr(nn, f"{name}{size}d")(8, 8, 3, stride=2, padding=1), [inputs]
        yield getattr(nn, f"Conv{size}d")(8, 8, 3, padding="same", groups=2), [inputs]
        yield getattr(nn, f"Conv{size}d")(8, 8, 3, padding=1, padding_mode="circular"), [inputs]
        for name in ("MaxPool", "AvgPool"):
            yield getattr(nn, f"{name}{size}d")(2), [inputs]
        yield getattr(nn, f"LPPool{size}d")(2.0, 2), [inputs]
        for name in ("AdaptiveMaxPool", "AdaptiveAvgPool"):
            yield getattr(nn, f"{name}{size}d")(3), [inputs]
        for name in ("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad"):
            yield getattr(nn, f"{name}{size}d")(1), [inputs]
        yield getattr(nn, f"ConstantPad{size}d")(1, 2.0), [inputs]
        yield getattr(nn, f"BatchNorm{size}d")(8), [inputs]
        yield getattr(nn, f"InstanceNorm{size}d")(8, affine=True, track_running_stats=True), [inputs]
        yield getattr(nn, f"Dropout{size}d")(), [inputs]
        pooled = Call(lambda pool, unpool, x: unpool(*pool(x)), getattr(nn, f"MaxPool{size}d")(2, return_indices=True),
                      getattr(nn, f"MaxUnpool{size}d")(2))
        yield pooled, [inputs]
    yield nn.FractionalMaxPool2d(3, output_ratio=0.5), [image]
    yield nn.FractionalMaxPool3d(2, output_ratio=0.5), [volume]
    for layer in (nn.LayerNorm(12), nn.RMSNorm(12), nn.GroupNorm(2, 8), nn.LocalResponseNorm(2), nn.Unfold(3), nn.PixelShuffle(2),
                  nn.PixelUnshuffle(2), nn.ChannelShuffle(2), nn.Unflatten(1, (2, 4)), nn.UpsamplingNearest2d(scale_factor=2),
                  nn.UpsamplingBilinear2d(scale_factor=2)):
        yield layer, [image]
    yield nn.Fold((4, 4), 2), [torch.rand(2, 8, 9)]
    for size, mode, inputs in ((1, "linear", sequence), (2, "bilinear", image), (2, "bicubic", image), (3, "trilinear", volume)):
        yield nn.Upsample(scale_factor=1.5, mode=mode), [inputs]
        yield nn.Upsample(size=7, mode="nearest"), [inputs]
        yield nn.Upsample(size=7, mode="nearest-exact"), [inputs]
    for mode in ("bilinear", "bicubic"):
        yield Call(lambda x, mode=mode: F.interpolate(x, size=5, mode=mode, antialias=True)), [image]
    yield nn.Embedding(10, 4, padding_idx=0), [tokens]
    yield nn.Embedding(10, 4, max_norm=1.0), [tokens]
    yield nn.EmbeddingBag(10, 4), [tokens]
    yield nn.EmbeddingBag(10, 4, mode="max"), [tokens.flatten(), torch.tensor([0, 3, 9])]
    yield nn.Linear(8, 3), [flat]
    yield nn.Bilinear(8, 8, 3), [flat, flat]
    yield nn.CosineSimilarity(), [flat, flat]
    yield nn.PairwiseDistance(), [flat, flat]
    for name in ("RNN", "GRU", "LSTM"):
        yield getattr(nn, name)(12, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1), [sequence]
        yield getattr(nn, f"{name}Cell")(8, 6), [flat]
    yield nn.RNN(12, 6, nonlinearity="relu"), [sequence]
    yield nn.LSTM(12, 6, proj_size=4), [sequence]
    yield nn.MultiheadAttention(12, 2), [sequence, sequence, sequence]
    yield nn.MultiheadAttention(12, 2, batch_first=True), [sequence, sequence, sequence]
    yield nn.TransformerEncoderLayer(12, 2, 16, batch_first=True), [sequence]
    yield nn.TransformerDecoderLayer(12, 2, 16, norm_first=True), [sequence, sequence]
    yield nn.Transformer(12, 2, 1, 1, 16), [sequence, sequence]
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.weight_norm, nn.utils.parametrizations.spectral_norm,
                 nn.utils.spectral_norm, nn.utils.parametrizations.orthogonal):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield wrap(nn.Linear(8, 8)), [flat]


def losses():
    values, labels = torch.rand(4, 8), torch.randint(0, 8, (4,))
    for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss", "PoissonNLLLoss",
                 "SoftMarginLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss"):
        yield getattr(nn, name)(), [values, values]
    for name in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
        yield getattr(nn, name)(), [values, labels]
    yield nn.NLLLoss(), [torch.rand(2, 8, 4, 4), torch.randint(0, 8, (2, 4, 4))]
    yield nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2), [values, labels]
    yield nn.MultiLabelMarginLoss(), [values, torch.randint(0, 8, (4, 8))]
    yield nn.GaussianNLLLoss(), [values, values, values]
    yield nn.MarginRankingLoss(), [values, values, values]
    yield nn.CosineEmbeddingLoss(), [values, values, torch.ones(4)]
    yield nn.TripletMarginLoss(), [values, values, values]
    yield nn.CTCLoss(), [torch.rand(9, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 3)), torch.tensor([9, 9]), torch.tensor([3, 2])]


def functions():
    x, y, square = torch.rand(4, 6), torch.rand(4, 6), torch.rand(4, 4) + 4 * torch.eye(4)
    image, grid = torch.rand(2, 3, 6, 6), torch.rand(2, 4, 4, 2)
    index = torch.randint(0, 4, (3,))
    one = ("abs acos acosh amax amin angle argmax argmin argsort asin asinh atan atanh ceil clone cos cosh cummax cummin deg2rad diag diagonal "
           "digamma erf erfc erfinv exp exp2 expm1 flatten flip floor frac frexp i0 isfinite isinf isnan isneginf isposinf lgamma log log10 log1p "
           "log2 logit logcumsumexp logsumexp max mean median min mode msort nan_to_num nanmean nanmedian nansum neg norm numel positive prod "
           "quantile rad2deg ravel reciprocal relu rot90 round rsqrt selu sgn sigmoid sign signbit sin sinc sinh softmax sort sqrt square squeeze "
           "std std_mean sum t tan tanh tril triu trunc unique var var_mean zeros_like ones_like rand_like randn_like empty_like bernoulli "
           "nonzero argwhere count_nonzero any all aminmax cov corrcoef fliplr flipud cumsum cumprod log_softmax bincount")
    dims = {"flip": ([0],), "softmax": (0,), "log_softmax": (0,), "cumsum": (0,), "cumprod": (0,), "cummax": (0,), "cummin": (0,),
            "logcumsumexp": (0,), "logsumexp": (0,), "quantile": (0.5,)}
    for name in one.split():
        inputs = index if name == "bincount" else x
        yield Call(lambda v, name=name: getattr(torch, name)(v, *dims.get(name, ()))), [inputs]
    two = ("add sub mul div pow fmod remainder maximum minimum fmax fmin atan2 hypot copysign eq ne lt le gt ge isclose logaddexp logaddexp2 "
           "floor_divide true_divide float_power dist xlogy nextafter heaviside ldexp outer inner vdot dot kron cdist matmul mm tensordot "
           "lerp allclose equal cross")
    for name in two.split():
        a, b = (x[0], y[0]) if name in ("outer", "inner", "vdot", "dot") else (x[:, :3], y[:, :3]) if name == "cross" else (x, y)
        a, b = (x, y.t()) if name in ("matmul", "mm", "tensordot") else (a, b)
        more = (1,) if name == "tensordot" else (0.5,) if name == "lerp" else ()
        yield Call(lambda a, b, name=name, more=more: getattr(torch, name)(a, b, *more)), [a, b]
    for name in "and or xor not".split():
        yield Call(lambda a, name=name: getattr(torch, f"logical_{name}")(*([a > 0.5] * (1 if name == "not" else 2)))), [x]
        yield Call(lambda a, name=name: getattr(torch, f"bitwise_{name}")(*([a] * (1 if name == "not" else 2)))), [index]
    for name in ("cholesky cholesky_ex det slogdet eigh eigvalsh eig inv inv_ex qr svd svdvals pinv matrix_norm vector_norm norm matrix_exp "
                 "matrix_rank cond lu").split():
        yield Call(lambda v, name=name: getattr(torch.linalg, name)(v @ v.t())), [square]
    yield Call(lambda v: torch.linalg.solve(v, v)), [square]
    yield Call(lambda v: torch.linalg.solve_triangular(v, v, upper=True)), [square]
    yield Call(lambda v: torch.linalg.lstsq(v, v)), [square]
    yield Call(lambda v: torch.linalg.matrix_power(v, 3)), [square]
    yield Call(lambda v: torch.linalg.multi_dot([v, v, v])), [square]
    yield Call(lambda v: torch.cholesky_solve(v, torch.linalg.cholesky(v @ v.t()))), [square]
    for name in "fft ifft rfft hfft fft2 rfft2 fftn rfftn fftshift".split():
        yield Call(lambda v, name=name: getattr(torch.fft, name)(v)), [x]
    yield Call(lambda v: torch.fft.irfft(torch.fft.rfft(v))), [x]
    yield Call(lambda v: torch.fft.irfft2(torch.fft.rfft2(v))), [x]
    yield Call(lambda v: torch.fft.ifft2(torch.fft.fft2(v)).real), [x]
    yield Call(lambda v: torch.stft(v, 4, return_complex=True, window=torch.hann_window(4))), [torch.rand(2, 16)]
    yield Call(lambda v: torch.istft(torch.stft(v, 4, return_complex=True), 4)), [torch.rand(2, 16)]
    for mode in ("bilinear", "nearest", "bicubic"):
        yield Call(lambda a, b, mode=mode: F.grid_sample(a, b, mode=mode, align_corners=False)), [image, grid]
    yield Call(lambda a: F.affine_grid(a, (2, 3, 4, 4), align_corners=False)), [torch.rand(2, 2, 3)]
    other = [
        lambda a: a.view(6, 4), lambda a: a.reshape(2, -1), lambda a: a.permute(1, 0), lambda a: a.transpose(0, 1), lambda a: a.unsqueeze(0),
        lambda a: a.expand(3, 4, 6), lambda a: a.repeat(2, 2), lambda a: a.tile((2, 1)), lambda a: a.split(2), lambda a: a.split([1, 3]),
        lambda a: a.chunk(2), lambda a: a.unbind(0), lambda a: a.tensor_split(2), lambda a: torch.cat([a, a]), lambda a: torch.stack([a, a]),
        lambda a: torch.hstack([a, a]), lambda a: torch.vstack([a, a]), lambda a: torch.dstack([a, a]), lambda a: a.select(0, 1),
        lambda a: a.narrow(0, 1, 2), lambda a: a[1:3, ::2], lambda a: a[..., None], lambda a: a[a > 0.5].sum(), lambda a: a.roll(1, 0),
        lambda a: a.unfold(0, 2, 1), lambda a: a.as_strided((2, 3), (6, 1)), lambda a: a.diag_embed(), lambda a: a.masked_fill(a > 0.5, 0.0),
        lambda a: torch.where(a > 0.5, a, -a), lambda a: a.clamp(0.1, 0.9), lambda a: a.clamp_min(0.1), lambda a: a.clamp_max(0.9),
        lambda a: a.topk(2), lambda a: a.kthvalue(2), lambda a: a.cumsum(0), lambda a: a.to(torch.float64), lambda a: a.double().float(),
        lambda a: a.bfloat16(), lambda a: a.half(), lambda a: a.long(), lambda a: a.bool(), lambda a: a.type_as(a.double()), lambda a: a.detach(),
        lambda a: a.contiguous(), lambda a: a.new_zeros(3), lambda a: a.new_ones(3), lambda a: a.new_full((3,), 2.0),
        lambda a: a.new_empty(3).bernoulli_(0.5), lambda a: torch.zeros(3) + a.sum(), lambda a: torch.ones(3) + a.sum(),
        lambda a: torch.full((3,), 2.0) + a.sum(), lambda a: torch.arange(3) + a.sum(), lambda a: torch.linspace(0, 1, 3) + a.sum(),
        lambda a: torch.logspace(0, 1, 3) + a.sum(), lambda a: torch.eye(3) + a.sum(), lambda a: torch.rand(3) + a.sum(),
        lambda a: torch.randn(3) + a.sum(), lambda a: torch.randint(0, 9, (3,)) + a.sum(), lambda a: torch.randperm(3) + a.sum(),
        lambda a: torch.normal(0.0, 1.0, (3,)) + a.sum(), lambda a: torch.normal(a, 1.0), lambda a: a.clone().normal_(), lambda a: a.clone().uniform_(),
        lambda a: a.clone().exponential_(), lambda a: torch.poisson(a), lambda a: torch.multinomial(a, 2), lambda a: torch.einsum("ij,kj->ik", a, a),
        lambda a: torch.meshgrid(a[0], a[0], indexing="ij"), lambda a: torch.tril_indices(3, 3) + a.sum(), lambda a: F.one_hot(a.long(), 3),
        lambda a: F.normalize(a), lambda a: F.pad(a, (1, 1)), lambda a: F.gumbel_softmax(a), lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]),
        lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None], is_causal=True, dropout_p=0.1), lambda a: F.pdist(a),
        lambda a: a.addmm(a[:, :4], a), lambda a: torch.addcmul(a, a, a), lambda a: torch.addcdiv(a, a, a + 1), lambda a: torch.baddbmm(a[None], a[None, :, :4], a[None]),
        lambda a: torch.bmm(a[None], a.t()[None]), lambda a: torch.complex(a, a).abs(), lambda a: torch.polar(a, a).imag, lambda a: torch.view_as_real(torch.view_as_complex(a.view(4, 3, 2))),
        lambda a: torch.bucketize(a, a[0].sort()[0]), lambda a: torch.searchsorted(a.sort()[0], a), lambda a: torch.histc(a), lambda a: torch.trapezoid(a),
        lambda a: a.repeat_interleave(2, 0), lambda a: torch.repeat_interleave(a, torch.tensor([1, 2, 1, 2]), dim=0), lambda a: torch.block_diag(a, a), lambda a: torch.cartesian_prod(a[0], a[0]),
        lambda a: torch.combinations(a[0]), lambda a: a.item() if a.dim() == 0 else a.sum().item() + a, lambda a: a.add_(1), lambda a: a.mul_(2).sub_(1).div_(2).relu_(),
        lambda a: a.clone().fill_(1).zero_(), lambda a: a.clone().copy_(a), lambda a: a.index_select(0, torch.tensor([0, 1])), lambda a: a.gather(0, a.long()),
        lambda a: a.scatter(0, a.long(), a), lambda a: a.scatter(0, a.long(), 1.0), lambda a: a.scatter_add(0, a.long(), a), lambda a: a.scatter_reduce(0, a.long(), a, "amax"),
        lambda a: a.index_add(0, torch.tensor([0, 1, 2, 3]), a), lambda a: a.index_copy(0, torch.tensor([0, 1, 2, 3]), a), lambda a: a.index_fill(0, torch.tensor([0]), 1.0),
        lambda a: a.index_put((torch.tensor([0]),), torch.zeros(6)), lambda a: a.take(torch.tensor([0, 5])), lambda a: a.take_along_dim(a.long(), 0),
        lambda a: a.masked_select(a > 0.5).sum(), lambda a: a.masked_scatter(a > 0.5, a), lambda a: torch.isin(a, a[0]), lambda a: a.movedim(0, 1), lambda a: a.swapaxes(0, 1),
        lambda a: torch.special.entr(a), lambda a: torch.special.xlog1py(a, a), lambda a: torch.special.i1(a), lambda a: torch.special.ndtri(a), lambda a: torch.special.zeta(a + 2, a + 1),
        lambda a: torch.polygamma(1, a), lambda a: torch.igamma(a, a), lambda a: torch.broadcast_to(a, (2, 4, 6)), lambda a: a.sum_to_size(1, 6), lambda a: a.view(torch.int32),
        lambda a: torch.hamming_window(4) + a.sum(), lambda a: torch.diff(a), lambda a: torch.gradient(a), lambda a: torch.vander(a[0]) if hasattr(torch, "vander") else a,
        lambda a: torch.std(a, 0, correction=0), lambda a: a.unflatten(0, (2, 2)), lambda a: F.bilinear(a, a, torch.rand(3, 6, 6)), lambda a: F.dropout1d(a), lambda a: F.celu_(a.clone()),
        lambda a: torch.bitwise_left_shift(a.long(), 1), lambda a: a.long() << 1, lambda a: a.long() // 2, lambda a: a.long() % 2, lambda a: -a, lambda a: 1 - a, lambda a: 2 ** a, lambda a: a ** 2,
    ]
    for function in other:
        yield Call(function), [x.clone()]


class Wrapped(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        outputs = self.model(*inputs)
        return [value for value in (outputs.values() if isinstance(outputs, dict) else outputs) if isinstance(value, torch.Tensor)]


def hugging_face(name, **settings):
    import transformers as hf

    config = getattr(hf, f"{name}Config")(**settings)
    for key, value in (("use_cache", False), ("pad_token_id", 0), ("head_dim", 8), ("num_key_value_heads", 2), ("embedding_size", 16),
                       ("ffn_dim", 24), ("word_embed_proj_dim", 16)):
        setattr(config, key, value)
    return Wrapped(hf.AutoModel.from_config(config))


def models():
    """Functions that make small models of torchvision and transformers."""
    import torchvision.models as vision

    image, ids = [torch.rand(2, 3, 64, 64)], [torch.randint(0, 40, (2, 9))]
    for make in (vision.resnet18, vision.mobilenet_v3_small, vision.efficientnet_b0, vision.shufflenet_v2_x0_5, vision.squeezenet1_1,
                 vision.regnet_y_400mf, vision.mnasnet0_5, vision.alexnet):
        yield make, image
    blocks = [vision.convnext.CNBlockConfig(8, 16, 1), vision.convnext.CNBlockConfig(16, None, 1)]
    yield lambda: vision.ConvNeXt(blocks, stochastic_depth_prob=0.1), image
    yield lambda: vision.DenseNet(8, (2, 2), 16), image
    yield lambda: vision.SwinTransformer([4, 4], 16, [1, 1], [2, 2], [4, 4], stochastic_depth_prob=0.1), image
    yield lambda: vision.VisionTransformer(64, 16, 1, 2, 16, 32), image
    yield lambda: Wrapped(vision.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None)), image
    small = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    for name in ("Bert", "Roberta", "Electra", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi3", "GPTNeoX", "OPT", "DebertaV2", "Mixtral",
                 "MPNet", "Albert", "Falcon", "Olmo", "Cohere", "StableLm", "Starcoder2", "Nystromformer", "FNet"):
        yield lambda name=name: hugging_face(name, **small), ids
    yield lambda: hugging_face("GPT2", vocab_size=40, n_embd=16, n_layer=1, n_head=2), ids
    yield lambda: hugging_face("DistilBert", vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=24), ids
    yield lambda: hugging_face("Bloom", vocab_size=40, hidden_size=16, n_layer=1, n_head=2), ids
    yield lambda: hugging_face("Mamba", vocab_size=40, hidden_size=16, num_hidden_layers=1, state_size=4), ids
    vit = {"image_size": 64, "patch_size": 16, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    for name in ("ViT", "DeiT", "Dinov2", "Beit", "ViTMAE"):
        yield lambda name=name: hugging_face(name, **vit), image
    wave = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    yield lambda: hugging_face("Wav2Vec2", **small, **wave, num_feat_extract_layers=2), [torch.rand(2, 400)]


def operators_of(program):
    for graph in [program.graph_module] + [module for module in program.graph_module.modules() if module is not program.graph_module]:
        for node in getattr(graph, "graph", torch.fx.Graph()).nodes:
            if node.op == "call_function" and str(node.target).startswith("aten."):
                yield str(node.target).removeprefix("aten.")


def main():
    warnings.simplefilter("ignore")
    names, count = set(), 0
    for family in [globals()[name] for name in sys.argv[2:] or ("layers", "losses", "functions", "models")]:
        for model, inputs in family():
            try:
                model = model if isinstance(model, nn.Module) else model()
                for train in (True, False):
                    program = torch.export.export(model.train(train), tuple(inputs), strict=False)
                    names |= set(operators_of(program))
                    count += 1
                    if family is not models:
                        names |= set(operators_of(program.run_decompositions()))
            except Exception as error:
                print(f"{family.__name__}: {type(getattr(model, 'model', model)).__name__}: {error!r:.150}", flush=True)
    skipped = ("sym_constrain", "_assert_tensor")  # Levin does not run them
    lines = sorted(name.replace(".", " ") for name in names if not name.startswith(skipped))
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
    print(f"{count} exports, {len(lines)} operators")


if __name__ == "__main__":
    main()
