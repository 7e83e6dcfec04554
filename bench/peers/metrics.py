"""Metrics of torchmetrics over batches in memory: microseconds per update.

  a round: CASE MILLISECONDS           updates for so long
           CASE MILLISECONDS epochs    epochs of 20 updates, each with its compute(); also per update
"""
import time
import warnings

from rounds import serve
import torch
import torchmetrics
from torchmetrics import image, segmentation, text

warnings.simplefilter("ignore")
UPDATES = 20


def normal(*shape):
    return torch.randn(shape)


def classes(count, *shape):
    return torch.randint(count, shape)


def texts(change):
    words = "the quick brown fox jumps over a lazy dog and runs away from the big bear".split()
    return [" ".join(words[(i * change + k * (1 + i % change)) % len(words)] for k in range(16)) for i in range(32)]


def pair(make, *shape):
    return make(*shape), make(*shape)


def references(texts):
    return [[one] for one in texts]


def of_classes(metric, **options):
    return metric(task="multiclass", num_classes=10, **options), (normal(256, 10), classes(10, 256))


# name: (metric, what update() takes). bench/metrics.cpp has the same names and shapes.
CASES = {
    "Accuracy": lambda: of_classes(torchmetrics.Accuracy, average="micro"),
    "Accuracy_top_3": lambda: of_classes(torchmetrics.Accuracy, average="micro", top_k=3),
    "Precision": lambda: of_classes(torchmetrics.Precision, average="macro"),
    "Recall": lambda: of_classes(torchmetrics.Recall, average="macro"),
    "Specificity": lambda: of_classes(torchmetrics.Specificity, average="macro"),
    "F1Score": lambda: of_classes(torchmetrics.F1Score, average="macro"),
    "FBetaScore": lambda: of_classes(torchmetrics.FBetaScore, average="macro"),
    "ConfusionMatrix": lambda: of_classes(torchmetrics.ConfusionMatrix),
    "AUROC": lambda: of_classes(torchmetrics.AUROC),
    "AUROC_large": lambda: (torchmetrics.AUROC(task="multiclass", num_classes=1000),
                            (normal(1024, 1000).softmax(1), classes(1000, 1024))),
    "AveragePrecision": lambda: of_classes(torchmetrics.AveragePrecision),
    "CalibrationError": lambda: of_classes(torchmetrics.CalibrationError),
    "MeanAbsoluteError": lambda: (torchmetrics.MeanAbsoluteError(), pair(normal, 4096)),
    "MeanSquaredError": lambda: (torchmetrics.MeanSquaredError(), pair(normal, 4096)),
    "MeanSquaredError_outputs": lambda: (torchmetrics.MeanSquaredError(num_outputs=8), pair(normal, 1024, 8)),
    "R2Score": lambda: (torchmetrics.R2Score(), pair(normal, 4096)),
    "PearsonCorrCoef": lambda: (torchmetrics.PearsonCorrCoef(), pair(normal, 4096)),
    "CosineSimilarity": lambda: (torchmetrics.CosineSimilarity(), pair(normal, 256, 128)),
    "Perplexity": lambda: (text.Perplexity(), (normal(8, 64, 256), classes(256, 8, 64))),
    "Perplexity_large": lambda: (text.Perplexity(), (normal(2, 32, 32000), classes(32000, 2, 32))),
    "BLEUScore": lambda: (text.BLEUScore(), (texts(2), references(texts(3)))),
    "ROUGEScore": lambda: (text.ROUGEScore(rouge_keys="rougeL"), (texts(2), references(texts(3)))),
    "EditDistance": lambda: (text.EditDistance(), (texts(2)[:4], texts(3)[:4])),
    "JaccardIndex": lambda: (torchmetrics.JaccardIndex(task="multiclass", num_classes=21),
                             (normal(4, 21, 64, 64), classes(21, 4, 64, 64))),
    "DiceScore": lambda: (segmentation.DiceScore(num_classes=21, input_format="index"), (classes(21, 8, 64, 64), classes(21, 8, 64, 64))),
    "MeanIoU": lambda: (segmentation.MeanIoU(num_classes=21, input_format="index"), (classes(21, 8, 64, 64), classes(21, 8, 64, 64))),
    "PeakSignalNoiseRatio": lambda: (image.PeakSignalNoiseRatio(data_range=1.0), pair(torch.rand, 8, 3, 64, 64)),
    "StructuralSimilarity": lambda: (image.StructuralSimilarityIndexMeasure(data_range=1.0), pair(torch.rand, 4, 3, 64, 64)),
    "MeanMetric": lambda: (torchmetrics.MeanMetric(), (normal(4096),)),
    "MeanMetric_number": lambda: (torchmetrics.MeanMetric(), (0.5,)),
    "SumMetric": lambda: (torchmetrics.SumMetric(), (normal(4096),)),
    "MinMetric": lambda: (torchmetrics.MinMetric(), (normal(4096),)),
    "MaxMetric": lambda: (torchmetrics.MaxMetric(), (normal(4096),)),
    "MetricCollection": lambda: (torchmetrics.MetricCollection([torchmetrics.MeanAbsoluteError(), torchmetrics.MeanSquaredError(),
                                                                torchmetrics.R2Score()]), pair(normal, 4096)),
}

made = {}


def run(words):
    name, milliseconds = words[0], float(words[1])
    if name not in made:
        torch.manual_seed(0)
        made[name] = CASES[name]()
    metric, batch = made[name]
    computes = "epochs" in words
    passed, updates = 0.0, 0
    while updates == 0 or passed < milliseconds / 1e3:
        metric.reset()
        start = time.perf_counter()
        for _ in range(UPDATES):
            metric.update(*batch)
        if computes:
            metric.compute()
        passed += time.perf_counter() - start
        updates += UPDATES
    return passed * 1e6 / updates


serve(run)
