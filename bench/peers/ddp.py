"""MLP 784-64-10, a batch of 64 on each of two ranks, SGD: microseconds a step of Lightning's DDP over Gloo.

  a round: mlp BATCHES          Trainer with its defaults, one logged value a step
"""
import pathlib
import tempfile

from rounds import serve
from fashion_mlp import Mlp, Stopwatch, load_data, make_loader
import lightning
import torch


class RankZerosFigure(Stopwatch):
    """Ranks are processes of their own, so the figure comes back in a file."""

    def __init__(self, path):
        self.path = path

    def on_train_end(self, trainer, module):
        super().on_train_end(trainer, module)
        if trainer.global_rank == 0:
            self.path.write_text(str(self.figure))


class OneThread(Mlp):
    def on_fit_start(self):
        torch.set_num_threads(1)


def run(words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figure"
        trainer = lightning.Trainer(max_steps=int(words[1]), max_epochs=-1, accelerator="cpu", devices=2,
                                    strategy="ddp_fork", callbacks=[RankZerosFigure(path)], default_root_dir=folder,
                                    use_distributed_sampler=False)
        trainer.fit(OneThread("sgd", 1), make_loader(X, Y))
        return float(path.read_text())


X, Y = load_data()
serve(run)
