#!/usr/bin/env python3
"""Records what torchmetrics 1.9 gives for metrics of numbers, text, images and masks, and for aggregation.

  PYTHONPATH=~/.cache/levin/peers-2.11.0 python3 tests/metrics/record_other_cases.py

Writes recorded/other.json: cases with a metric, its options, batches and the value over all of them. Numbers of inputs
are multiples of 1/256, so that float holds them exactly; torchmetrics computes in float64, as in float32 its own rounding
is as large as what the tests allow. peers_test.py records other seeds.
"""
import json
import math
import pathlib
import warnings

import torch
import torchmetrics
from torchmetrics import image, segmentation, text

warnings.simplefilter("ignore")
GRID = 256


class Inputs:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def integers(self, low, high, shape):
        return torch.randint(low, high, shape, generator=self.generator)

    def normal(self, *shape, scale=1.0, offset=0.0):
        values = torch.randn(shape, generator=self.generator, dtype=torch.double) * scale + offset
        return (values * GRID).round() / GRID

    def uniform(self, *shape):
        return self.integers(0, GRID + 1, shape).double() / GRID

    def choice(self, items):
        return items[int(self.integers(0, len(items), (1,)))]

    def words(self, count, vocabulary):
        return " ".join(self.choice(vocabulary) for _ in range(count))


def number(value):
    if math.isnan(value):
        return None
    return ("inf" if value > 0 else "-inf") if math.isinf(value) else value


def written_input(value):
    if not isinstance(value, torch.Tensor):
        return number(value) if isinstance(value, float) else value
    values = value.reshape(-1)
    if not value.is_floating_point():
        return {"type": "int", "shape": list(value.shape), "values": values.tolist()}
    scaled = [None if math.isnan(v) else round(v * GRID) for v in values.tolist()]
    return {"type": "float", "shape": list(value.shape), "values": scaled}


def written_value(value):
    return {"shape": list(value.shape), "values": [number(v) for v in value.double().reshape(-1).tolist()]}


def case(metric, options, batches, made, value=lambda values: values, at_once=False):
    """`made` is torchmetrics' metric; `value` takes what is compared out of what it computes. `at_once`: torchmetrics gets all
    batches as one, because it decides for each batch whether scores are logits."""
    made = made.set_dtype(torch.double)
    for batch in [[torch.cat(parts) for parts in zip(*batches)]] if at_once else batches:
        made.update(*[part.clone() if isinstance(part, torch.Tensor) else part for part in batch])
    return {"metric": metric, "options": options, "batches": [[written_input(part) for part in batch] for batch in batches],
            "value": written_value(value(made.compute()))}


def numbers(inputs):
    def pairs(*shapes, scale=1.0, offset=0.0, noise=0.5):
        for shape in shapes:
            target = inputs.normal(*shape, scale=scale, offset=offset)
            yield target + inputs.normal(*shape, scale=noise * scale), target

    def of(metric, options, batches, **more):
        removed = ("num_outputs",) if metric == "R2Score" else ()
        words = {key: value for key, value in options.items() if key not in removed}
        return case(metric, options, list(batches), getattr(torchmetrics, metric)(**words), **more)

    plain = [[(13,), (4,), (1,)], [(7, 1), (5, 1)], [(3, 2, 4), (2, 2, 4)], [(300,)]]
    for metric, options in (("MeanAbsoluteError", {}), ("MeanSquaredError", {}), ("MeanSquaredError", {"squared": False})):
        for shapes in plain:
            yield of(metric, options, pairs(*shapes))
        yield of(metric, {**options, "num_outputs": 3}, pairs((6, 3), (9, 3), (1, 3)))
        yield of(metric, options, [(inputs.integers(-9, 9, (12,)), inputs.integers(-9, 9, (12,)))])
        yield of(metric, options, pairs((40,), (2,), offset=1000.0))
    for options in ({}, {"adjusted": 3}, {"multioutput": "raw_values"}):
        yield of("R2Score", options, pairs((13,), (4,), (1,)))
        yield of("R2Score", options, pairs((30,), (25,), offset=100.0))
        yield of("R2Score", options, [(torch.zeros(8), torch.zeros(8))])
        yield of("R2Score", options, [(torch.arange(8).double(), torch.full((8,), 2.0).double())])
    for multioutput in ("raw_values", "uniform_average", "variance_weighted"):
        for adjusted in (0, 2):
            options = {"multioutput": multioutput, "adjusted": adjusted, "num_outputs": 3}
            yield of("R2Score", options, pairs((6, 3), (9, 3), (1, 3)))
    yield of("R2Score", {"adjusted": 9}, pairs((6,), (3,)))
    for shapes in [[(13,), (4,), (1,)], [(1,), (1,), (1,), (2,)], [(7, 1), (5, 1)], [(300,), (17,)]]:
        yield of("PearsonCorrCoef", {}, pairs(*shapes))
    yield of("PearsonCorrCoef", {}, pairs((50,), (20,), offset=1000.0))
    yield of("PearsonCorrCoef", {}, [(torch.full((5,), 0.5).double(), inputs.normal(5))])
    yield of("PearsonCorrCoef", {}, pairs((1,)))
    yield of("PearsonCorrCoef", {"num_outputs": 3}, pairs((6, 3), (9, 3), (2, 3)))
    for reduction in ("sum", "mean", "none"):
        yield of("CosineSimilarity", {"reduction": reduction}, pairs((5, 8), (1, 8), (3, 8)))
        yield of("CosineSimilarity", {"reduction": reduction}, [(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.ones(2, 2))])


def perplexities(inputs):
    for ignored in (None, -100, 0):
        for words, scale in ((11, 1.0), (60, 4.0)):
            batches = []
            for rows, length in ((2, 5), (1, 3), (3, 2)):
                target = inputs.integers(0, words, (rows, length))
                if ignored == -100:
                    target[0, length // 2:] = -100
                batches.append((inputs.normal(rows, length, words, scale=scale), target))
            yield case("Perplexity", {"ignore_index": ignored}, batches, text.Perplexity(ignore_index=ignored))
    yield case("Perplexity", {"ignore_index": 1}, [(inputs.normal(1, 3, 4), torch.ones(1, 3, dtype=torch.long))],
               text.Perplexity(ignore_index=1))


def texts(inputs):
    vocabulary = ["the", "cat", "sat", "on", "a", "mat", "Dog", "ran", "it's", "über", "42", "naïve-looking", "end."]

    def pair(length, references, change=0.3):
        pred = inputs.words(length, vocabulary)
        made = []
        for _ in range(references):
            words = [w if float(inputs.uniform(1)) > change else inputs.choice(vocabulary) for w in pred.split()]
            made.append(" ".join(words[: max(1, len(words) - int(inputs.integers(-2, 3, (1,))))]))
        return pred, made

    def batches(*sizes, references=1, length=14):
        for size in sizes:
            made = [pair(length + int(inputs.integers(0, 6, (1,))), references) for _ in range(size)]
            yield [pred for pred, _ in made], [list(targets) for _, targets in made]

    special = [(["", "a b", "x\u00a0y\u3000z  w", "a a a a a b b"], [["a b c"], [""], ["x y z w"], ["a a b b b", "a a a b"]])]
    for options in ({}, {"n_gram": 2}, {"n_gram": 1}, {"smooth": True}, {"n_gram": 3, "smooth": True},
                    {"n_gram": 3, "weights": [0.5, 0.25, 0.25]}, {"n_gram": 6}):
        for references in (1, 3):
            yield case("BLEUScore", options, list(batches(3, 1, 2, references=references)), text.BLEUScore(**options))
        yield case("BLEUScore", options, special, text.BLEUScore(**options))
        yield case("BLEUScore", options, list(batches(2, length=3)), text.BLEUScore(**options))
    special = [(["", "Hello, World! \u212a9", "\u0130x-ray", "a a b"], [["a b c"], ["hello world k9", "x"], ["i x ray"], ["...", "b a"]])]
    for key, values in (("rougeL", ("fmeasure", "precision", "recall")), ("rouge1", ("fmeasure",)), ("rouge2", ("recall",))):
        for accumulate in ("best", "avg"):
            for value in values:
                options = {"rouge_key": key, "accumulate": accumulate, "value": value}
                for made in (batches(3, 1, 2), batches(2, 1, references=3), special):
                    yield case("ROUGEScore", options, list(made), text.ROUGEScore(rouge_keys=key, accumulate=accumulate),
                               lambda made, name=f"{key}_{value}": made[name])

    def strings(*lengths, letters="abcd", change=0.3):
        preds, targets = [], []
        for length in lengths:
            target = [inputs.choice(letters) for _ in range(length)]
            pred = [c if float(inputs.uniform(1)) > change else inputs.choice(letters + "  ") for c in target]
            preds.append("".join(pred).replace(" ", ""))
            targets.append("".join(target))
        return preds, targets

    far = "".join(inputs.choice("xyz") for _ in range(70))
    for reduction in ("mean", "sum", "none"):
        for cost in (0, 1, 2):
            options = {"reduction": reduction, "substitution_cost": cost}
            made = [strings(5, 0, 12, 40), strings(90, 1), (["", "abc", "", "rain"], ["abc", "", "", "shine"]),
                    (["grüße 🙂", "a" + far, far + "bcd"], ["gruesse 🙃", far + far[:35], far[40:] + "qqqqqqqqqqqqqqqqqqqqqqqqqq"])]
            yield case("EditDistance", options, made, text.EditDistance(**options))


def images(inputs):
    def pairs(*shapes):
        for shape in shapes:
            target = inputs.uniform(*shape)
            noisy = target + inputs.normal(*shape, scale=0.15)
            yield noisy, target

    def psnr(options, batches):
        words = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        return case("PeakSignalNoiseRatio", options, list(batches), image.PeakSignalNoiseRatio(**words))

    for data_range in (1.0, [0.25, 0.75]):
        for base in (10.0, 2.0):
            yield psnr({"data_range": data_range, "base": base}, pairs((2, 3, 8, 5), (1, 3, 8, 5)))
        for reduction in ("elementwise_mean", "sum", "none"):
            yield psnr({"data_range": data_range, "dim": [1, 2, 3], "reduction": reduction}, pairs((2, 3, 4, 5), (1, 3, 4, 5)))
        yield psnr({"data_range": data_range, "dim": [-1], "reduction": "none"}, pairs((2, 3, 4)))

    def ssim(options, batches):
        words = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        return case("StructuralSimilarityIndexMeasure", options, list(batches),
                    image.StructuralSimilarityIndexMeasure(**words))

    for reduction in ("elementwise_mean", "sum", "none"):
        for data_range in (None, 1.0, [0.25, 0.75]):
            yield ssim({"reduction": reduction, "data_range": data_range}, pairs((2, 2, 7, 8), (1, 1, 13, 6)))
    for options in ({"gaussian_kernel": False, "kernel_size": 5}, {"sigma": 0.8}, {"sigma": [1.5, 0.5]},
                    {"gaussian_kernel": False, "kernel_size": [3, 9]}, {"k1": 0.05, "k2": 0.1}):
        yield ssim({**options, "data_range": 1.0}, pairs((2, 1, 10, 12)))
    for options in ({}, {"gaussian_kernel": False, "kernel_size": 5}):
        yield ssim({**options, "data_range": 1.0}, pairs((1, 1, 7, 8, 9), (1, 1, 6, 6, 7)))
    flat = inputs.uniform(1, 1, 1, 1).expand(1, 1, 8, 8)
    yield ssim({"data_range": 1.0}, [(flat, flat)])


def masks(inputs):
    classes = 4

    def scores(*shape):
        return inputs.normal(*shape, scale=2.0)

    for average in ("micro", "macro", "weighted", "none"):
        for ignored in (None, 0, -1):
            options = {"task": "multiclass", "num_classes": classes, "average": average, "ignore_index": ignored}
            made = []
            for samples in (2, 1):
                target = inputs.integers(0, classes - 1, (samples, 3, 5))  # the last class is absent
                if ignored == -1:
                    target[0, 0] = -1
                preds = inputs.integers(0, classes - 1, (samples, 3, 5)) if samples == 1 else scores(samples, classes, 3, 5)
                made.append((preds, target))
            yield case("JaccardIndex", options, made, torchmetrics.JaccardIndex(**options))
            labels = [(inputs.integers(0, classes - 1, (9,)), inputs.integers(0, classes - 1, (9,))) for _ in range(2)]
            yield case("JaccardIndex", options, labels, torchmetrics.JaccardIndex(**options))
        options = {"task": "multilabel", "num_labels": 3, "average": average, "threshold": 0.25}
        made = [(inputs.uniform(4, 3), inputs.integers(0, 2, (4, 3))), (scores(2, 3), inputs.integers(0, 2, (2, 3)))]
        yield case("JaccardIndex", options, made, torchmetrics.JaccardIndex(**options), at_once=True)
    for ignored in (None, 0, -1):
        for made in ([(inputs.uniform(3, 4), inputs.integers(0, 2, (3, 4)))], [(scores(9), inputs.integers(0, 2, (9,)))],
                     [(inputs.integers(0, 2, (9,)), inputs.integers(0, 2, (9,)))]):
            options = {"task": "binary", "ignore_index": ignored, "threshold": 0.6}
            yield case("JaccardIndex", options, made, torchmetrics.JaccardIndex(**options))
    nothing = [(torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long))]
    yield case("JaccardIndex", {"task": "binary", "zero_division": 1.0}, nothing,
               torchmetrics.classification.BinaryJaccardIndex(zero_division=1.0))

    def mask_batches(input_format):
        for samples in (3, 1):
            target = inputs.integers(0, classes - 1, (samples, 3, 4))
            target[0] = 0
            if input_format == "index":
                yield inputs.integers(0, classes - 1, (samples, 3, 4)), target
            elif input_format == "mixed":
                yield scores(samples, classes, 3, 4), target
            else:
                hot = torch.nn.functional.one_hot(target, classes).movedim(-1, 1)
                yield (scores(samples, classes, 3, 4) if samples == 3 else inputs.integers(0, 2, (1, classes, 3, 4))), hot

    for input_format in ("one-hot", "index", "mixed"):
        for background in (True, False):
            shared = {"num_classes": classes, "include_background": background, "input_format": input_format}
            for average in ("micro", "macro", "weighted", "none"):
                for level in ("samplewise", "global"):
                    options = {**shared, "average": average, "aggregation_level": level}
                    yield case("DiceScore", options, list(mask_batches(input_format)), segmentation.DiceScore(**options))
            for per_class in (True, False):
                options = {**shared, "per_class": per_class}
                yield case("MeanIoU", options, list(mask_batches(input_format)), segmentation.MeanIoU(**options))


def aggregations(inputs):
    def with_nans(values, places):
        values = values.clone()
        for place in places:
            values[place] = math.nan
        return values

    for metric in ("MeanMetric", "SumMetric", "MinMetric", "MaxMetric"):
        for strategy in ("warn", "ignore", 0.5, "disable"):
            options = {"nan_strategy": strategy}
            made = [(inputs.normal(7),), (inputs.normal(2, 3),), (1.25,), (inputs.integers(-5, 5, (4,)),), (torch.zeros(0),)]
            yield case(metric, options, made, getattr(torchmetrics, metric)(**options))
            made = [(with_nans(inputs.normal(7), (0, 4)),), (inputs.normal(3),), (math.nan,)]
            yield case(metric, options, made, getattr(torchmetrics, metric)(**options))
        yield case(metric, {}, [], getattr(torchmetrics, metric)())
    for strategy in ("ignore", 0.5):
        made = [(inputs.normal(6), inputs.uniform(6)), (2.5, 3.0), (inputs.normal(2, 3), inputs.uniform(3)),
                (inputs.normal(4), 0.25), (with_nans(inputs.normal(5), (1,)), with_nans(inputs.uniform(5), (3,)))]
        yield case("MeanMetric", {"nan_strategy": strategy}, made, torchmetrics.MeanMetric(nan_strategy=strategy))


def document(seed):
    cases = []
    for kind in (numbers, perplexities, texts, images, masks, aggregations):
        cases += kind(Inputs(seed))
    return {"torchmetrics": torchmetrics.__version__, "grid": GRID, "cases": cases}


def save(all_cases, path):
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in all_cases["cases"])
    head = json.dumps({key: value for key, value in all_cases.items() if key != "cases"})[:-1]
    path.write_text(f'{head}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    save(document(0), pathlib.Path(__file__).parent / "recorded" / "other.json")
