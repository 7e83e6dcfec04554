"""A run of three ranks over Gloo ends bitwise identical when it is continued: the last bit of a sum over ranks depends on
the order in which gradients are reduced.

  ranks_test.py LEVIN [unittest's arguments]
"""
import tempfile
import unittest
from pathlib import Path

from runs import few_images, levin, read_checkpoint

# The first convolution of a block is registered after the block's shortcut, so that gradients become ready in an order
# that is not the reverse of the parameters'.
RUN = """\
seed_everything: 7
trainer:
  max_steps: 12
  accelerator: cpu
  devices: 3
  oversubscribe: true
  strategy: {{class_path: ddp, init_args: {{process_group_backend: gloo, comm_hook: bf16_compress, bucket_cap_mb: {cap}}}}}
  default_root_dir: {root}
  enable_model_summary: false
  logger: false
  callbacks: [{{class_path: ModelCheckpoint, init_args: {{dirpath: {root}, every_n_train_steps: 4, monitor: train_loss, save_top_k: -1}}}}]
model: {{class_path: ResNet, init_args: {{in_channels: 1, width: 4, first_stride: 2, blocks: [1, 1], num_classes: 10}}}}
data: {{class_path: FashionMnist, init_args: {{root: {data}, batch_size: 32, num_workers: 0}}}}
"""


class ThreeRanks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="levin-ranks-")
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()

    def checkpoint(self, folder, step):
        (path,) = folder.glob(f"*step={step}.ckpt")
        return path

    def train(self, name, cap, *more):
        folder = self.root / name
        config = self.root / f"{name}.yaml"
        config.write_text(RUN.format(root=folder, data=few_images(), cap=cap))
        levin("fit", "--config", config, *more)
        return folder

    def expect_continued(self, cap):
        whole = self.train("whole", cap)
        continued = self.train("continued", cap, "--ckpt_path", self.checkpoint(whole, 4))
        for step in (8, 12):
            levin("checkpoint", "diff", "--tensors", *(self.checkpoint(folder, step) for folder in (whole, continued)))
        return read_checkpoint(self.checkpoint(whole, 4))[0]["strategy"]["gradient_buckets"]

    def test_one_bucket(self):
        ((bucket,),) = self.expect_continued(cap=25)
        self.assertIn("the flags of ranks", bucket)

    def test_many_buckets(self):
        (buckets,) = self.expect_continued(cap=0.001)
        self.assertGreater(len(buckets), 3)


if __name__ == "__main__":
    unittest.main()
