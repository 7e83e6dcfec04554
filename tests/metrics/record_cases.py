"""Classification metrics of torchmetrics over random inputs.

  PYTHONPATH=~/.cache/levin/peers-2.11.0 python3 tests/metrics/record_cases.py     writes recorded/classification.json

A case is a metric, its options and the name of an input, which is a list of batches. NaN is written as null.

torchmetrics gets all batches as one, because it decides for each batch whether scores are logits. Its macro averages
count a class that is ignored, so they are made of its values of the other classes here.
peers_test.py makes new ones from another seed.
"""

import itertools
import json
import math
import pathlib
import warnings

import torch
import torchmetrics

warnings.filterwarnings("ignore")  # classes without samples, on purpose

STAT_SCORES = ("Accuracy", "Precision", "Recall", "Specificity", "F1Score", "FBetaScore")
SIZES = (16, 11, 7)  # of batches


def written(tensor, form=".7g"):
    values = tensor.flatten().tolist()
    if tensor.is_floating_point():
        values = [None if math.isnan(x) else float(format(x, form)) for x in values]
    return {"shape": list(tensor.shape), "type": "float" if tensor.is_floating_point() else "int", "values": values}


class Inputs:
    """Random inputs; `task` and the number of classes or labels are options of all metrics over one."""

    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.all = {}

    def add(self, name, options, batches):
        # Four decimals: the text is short, and Python and C++ read the same float from it.
        self.all[name] = (options, [(torch.round(preds, decimals=4) if preds.is_floating_point() else preds, target)
                                    for preds, target in batches])

    def labels(self, high, *shape):
        return torch.randint(0, high, shape, generator=self.random)

    def scores(self, *shape, logits=False):
        values = torch.rand(shape, generator=self.random)
        return torch.round((values - 0.5) * 6 if logits else values, decimals=4)

    def class_scores(self, *shape, logits=False):
        """No two scores of a sample are equal: which of them is the second of the highest is not defined."""
        while True:
            scores = self.scores(*shape, logits=logits)
            if not logits:
                scores = torch.round(scores / scores.sum(1, keepdim=True), decimals=4)
            ordered = scores.sort(dim=1).values
            if (ordered[:, 1:] != ordered[:, :-1]).all():
                return scores

    def with_ignored(self, labels, ignored, share=0.2):
        return torch.where(torch.rand(labels.shape, generator=self.random) < share, ignored, labels)

    def binary(self):
        task = {"task": "binary"}
        self.add("binary_scores", task, ((self.scores(n), self.labels(2, n)) for n in SIZES))
        self.add("binary_logits", task, ((self.scores(n, logits=True), self.labels(2, n)) for n in SIZES))
        self.add("binary_threshold", {**task, "threshold": 0.3}, ((self.scores(n, logits=True), self.labels(2, n)) for n in SIZES))
        self.add("binary_mixed", task, ((self.scores(n, logits=n == 11), self.labels(2, n)) for n in SIZES))
        self.add("binary_labels", task, ((self.labels(2, n), self.labels(2, n)) for n in SIZES))
        self.add("binary_dims", task, ((self.scores(n, 2, 3), self.labels(2, n, 2, 3)) for n in SIZES[1:]))
        self.add("binary_ties", task, ((torch.round(self.scores(n), decimals=1), self.labels(2, n)) for n in SIZES))
        self.add("binary_ignore", {**task, "ignore_index": -1},
                 ((self.scores(n, logits=n == 7), self.with_ignored(self.labels(2, n), -1)) for n in SIZES))
        self.add("binary_all_0", task, ((self.scores(n), 0 * self.labels(2, n)) for n in SIZES))
        self.add("binary_all_1", task, ((self.scores(n), 0 * self.labels(2, n) + 1) for n in SIZES))

    def multiclass(self):
        task = {"task": "multiclass", "num_classes": 5}
        self.add("class_scores", task, ((self.class_scores(n, 5), self.labels(5, n)) for n in SIZES))
        self.add("class_logits", task, ((self.class_scores(n, 5, logits=True), self.labels(5, n)) for n in SIZES))
        self.add("class_many", {"task": "multiclass", "num_classes": 70},
                 ((self.class_scores(n, 70, logits=True), self.labels(70, n)) for n in (9, 4)))
        self.add("class_labels", task, ((self.labels(5, n), self.labels(5, n)) for n in SIZES))
        self.add("class_dims", task, ((self.class_scores(n, 5, 3), self.labels(5, n, 3)) for n in SIZES[1:]))
        self.add("class_planes", task, ((self.class_scores(n, 5, 2, 2, logits=True), self.labels(5, n, 2, 2)) for n in (6, 4)))
        # 3 and 5 are never true, and 5 is never predicted.
        absent = {"task": "multiclass", "num_classes": 6}
        self.add("class_absent", absent, ((self.class_scores(n, 6) - torch.tensor([0, 0, 0, 0, 0, 1.0]) * 0.9, self.labels(3, n))
                                          for n in SIZES))
        self.add("class_all_0", task, ((self.class_scores(n, 5), 0 * self.labels(5, n)) for n in SIZES))
        for ignored in (-100, 2, 255):
            self.add(f"class_ignore_{ignored}", {**task, "ignore_index": ignored},
                     ((self.class_scores(n, 5, logits=True), self.with_ignored(self.labels(5, n), ignored)) for n in SIZES))
        self.add("class_dims_ignore", {**task, "ignore_index": -1},
                 ((self.class_scores(n, 5, 3), self.with_ignored(self.labels(5, n, 3), -1)) for n in SIZES[1:]))

    def multilabel(self):
        task = {"task": "multilabel", "num_labels": 4}
        self.add("label_scores", task, ((self.scores(n, 4), self.labels(2, n, 4)) for n in SIZES))
        self.add("label_logits", {**task, "threshold": 0.6}, ((self.scores(n, 4, logits=True), self.labels(2, n, 4)) for n in SIZES))
        self.add("label_labels", task, ((self.labels(2, n, 4), self.labels(2, n, 4)) for n in SIZES))
        self.add("label_dims", task, ((self.scores(n, 4, 3), self.labels(2, n, 4, 3)) for n in (6, 4)))
        self.add("label_ignore", {**task, "ignore_index": -1},
                 ((self.scores(n, 4), self.with_ignored(self.labels(2, n, 4), -1)) for n in SIZES))
        present = torch.tensor([1, 0, 1, 1])
        self.add("label_absent", task, ((self.scores(n, 4), self.labels(2, n, 4) * present) for n in SIZES))


def cases_of(name, options, has_scores):
    """(metric, options) of each case over an input."""
    task = options["task"]
    averages = ("micro",) if task == "binary" else ("micro", "macro", "weighted", "none")
    plain = {key: value for key, value in options.items() if key != "threshold"}
    top_ks = (1, 3) if task == "multiclass" and has_scores else (1,)
    for metric, average, top_k in itertools.product(STAT_SCORES, averages, top_ks):
        if "many" in name and average == "none":
            continue
        chosen = {**options, "average": average}
        if top_k > 1:
            chosen["top_k"] = top_k
        if metric == "FBetaScore":
            chosen["beta"] = 0.5 if average == "macro" else 2.0
        yield metric, chosen
    if "many" not in name:
        for normalize in ("none", "true", "pred", "all"):
            yield "ConfusionMatrix", {**options, "normalize": normalize}
    if not has_scores:
        return
    curve_averages = {"binary": ("macro",), "multiclass": averages[1:], "multilabel": averages}[task]
    for metric, thresholds, average in itertools.product(("AUROC", "AveragePrecision"), (None, 5, 20), curve_averages):
        if "many" in name and (average == "none" or thresholds == 20):
            continue
        yield metric, {**plain, "average": average, "thresholds": thresholds}
    if task != "multilabel":
        for norm, n_bins in (("l1", 15), ("l2", 15), ("max", 15), ("l1", 4)):
            yield "CalibrationError", {**plain, "norm": norm, "n_bins": n_bins}


def value_of(metric, options, batches):
    one = getattr(torchmetrics, metric)(**options)
    one.update(*(torch.cat(parts) for parts in zip(*batches)))
    return one.compute()


def expected(metric, options, batches):
    ignored = options.get("ignore_index", -1)
    if options.get("average") != "macro" or options["task"] != "multiclass" or not 0 <= ignored < options["num_classes"]:
        return value_of(metric, options, batches)
    values = value_of(metric, {**options, "average": "none"}, batches)  # every class is true and predicted
    return torch.cat([values[:ignored], values[ignored + 1:]]).mean()


def document(seed):
    inputs = Inputs(seed)
    inputs.binary()
    inputs.multiclass()
    inputs.multilabel()
    cases = []
    for name, (options, batches) in inputs.all.items():
        for metric, chosen in cases_of(name, options, batches[0][0].is_floating_point()):
            cases.append({"metric": metric, "options": chosen, "input": name,
                          "value": written(expected(metric, chosen, batches))})
    return {"torchmetrics": torchmetrics.__version__, "seed": seed, "cases": cases,
            "inputs": {name: [{"preds": written(preds, ".4f"), "target": written(target)} for preds, target in batches]
                       for name, (_, batches) in inputs.all.items()}}


def save(document, path):
    lines = [json.dumps(case, separators=(",", ":")) for case in document["cases"]]
    inputs = [f"{json.dumps(name)}:{json.dumps(batches, separators=(',', ':'))}"
              for name, batches in document["inputs"].items()]
    head = {key: value for key, value in document.items() if key not in ("cases", "inputs")}
    path.write_text(json.dumps(head)[:-1] + ',\n"inputs":{\n' + ",\n".join(inputs) + '},\n"cases":[\n' + ",\n".join(lines) + "]}\n")


if __name__ == "__main__":
    save(document(18), pathlib.Path(__file__).parent / "recorded/classification.json")
