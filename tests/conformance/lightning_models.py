"""Lightning, changed where docs/differences.md says that Levin differs on purpose. Each change has the name of a row in
documented_differences.py, and is noted in USED when it had an effect."""
import contextlib

from lightning.pytorch import callbacks
from lightning.pytorch.loops.optimization import automatic

USED = set()


def callback_class(name):
    return getattr(callbacks, name)


def apply(scenario):
    automatic._AutomaticOptimization._training_step = training_step


plain_training_step = automatic._AutomaticOptimization._training_step


def training_step(self, kwargs):
    """tail window: the loss of the last window of an epoch is divided by the batches it holds."""
    window, batches = self.trainer.accumulate_grad_batches, self.trainer.num_training_batches
    held = min(window, batches - kwargs.get("batch_idx") // window * window)
    if held == window or not batches < float("inf"):
        return plain_training_step(self, kwargs)
    USED.add("tail window")
    loop = self.output_result_cls
    with divided_by(loop, held):
        return plain_training_step(self, kwargs)


@contextlib.contextmanager
def divided_by(result_class, count):
    plain = result_class.from_training_step_output
    try:
        result_class.from_training_step_output = classmethod(lambda cls, output, normalize: plain(output, count))
        yield
    finally:
        result_class.from_training_step_output = plain
