"""A model of one weight that logs in every step: microseconds a step of Lightning.

  a round: none|tensorboard STEPS LOGS    without a logger, or with Lightning's TensorBoardLogger
"""
import logging
import pathlib
import sys
import tempfile
import time
import warnings

from rounds import serve
import lightning

# TensorBoard is in a folder next to Lightning's packages: `./dev` installs it for tests.
sys.path.append(str(pathlib.Path(lightning.__file__).parents[2] / "python"))
from lightning.pytorch.loggers import TensorBoardLogger  # noqa: E402
import torch

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Tiny(lightning.LightningModule):
    def __init__(self, logs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.names = [f"metric_{i}" for i in range(logs)]

    def training_step(self, batch, batch_idx):
        loss = (batch[0] * self.weight).mean()
        for name in self.names:
            self.log(name, loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class Stopwatch(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.figure = (time.perf_counter() - self.start) * 1e6 / trainer.global_step


def run(words):
    steps, logs = int(words[1]), int(words[2])
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64 * steps)), batch_size=64)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        logger = TensorBoardLogger(folder) if words[0] == "tensorboard" else False
        trainer = lightning.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", devices=1, callbacks=[watch],
                                    default_root_dir=folder, logger=logger, log_every_n_steps=1,
                                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(Tiny(logs), data)
    return watch.figure


serve(run)
