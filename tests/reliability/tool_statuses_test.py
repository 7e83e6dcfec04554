"""The exit status of `levin` after a fault in each of its commands that run a model.

  tool_statuses_test.py LEVIN [unittest's arguments]
"""
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from few_images import few_images  # noqa: E402
from levin_runs import run_levin  # noqa: E402
from processes import CLEAN  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
RUN = """\
trainer: {max_epochs: 1, accelerator: cpu, limit_train_batches: 3, limit_val_batches: 2, limit_test_batches: 2,
          limit_predict_batches: 2, enable_model_summary: false, default_root_dir: FOLDER}
model: {class_path: Classifier, init_args: {hidden: WIDTH}}
data: {class_path: FashionMnist, init_args: {root: IMAGES, batch_size: 16}}
optimizer: {class_path: SGD, init_args: {lr: 0.1}}
"""
EVALUATIONS = ("validate", "test", "predict")


class ExitStatus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="levin_statuses_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        cls.config = cls.write("run.yaml")
        cls.levin("fit", "--config", cls.config)
        (cls.checkpoint,) = cls.folder.rglob("*.ckpt")

    @classmethod
    def write(cls, name, images=None, width=4):
        path = cls.folder / name
        path.write_text(RUN.replace("FOLDER", str(cls.folder / "runs")).replace("IMAGES", f'"{images or few_images()}"')
                        .replace("WIDTH", str(width)))
        return path

    @classmethod
    def levin(cls, *arguments, status=0):
        done = run_levin([LEVIN, *arguments], cwd=cls.folder, env=CLEAN)
        if done.returncode != status:
            raise AssertionError(f"levin {arguments} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def each_entry(self, config, status, *more):
        """Yields (command, output) of each command that runs a model; an evaluation and a resumed fit have the checkpoint."""
        ckpt = f"--ckpt_path={self.checkpoint}"
        for command, *arguments in (("fit",), ("fit", ckpt), *((name, ckpt) for name in EVALUATIONS)):
            with self.subTest(command, arguments=arguments):
                yield command, self.levin(command, "--config", config, *arguments, *more, status=status)

    def test_is_1_without_the_memory_for_libtorch(self):
        """The limits meet the allocations of LibTorch's start, and the mapping of its libraries."""
        for limit, size in ((resource.RLIMIT_DATA, 20 << 20), (resource.RLIMIT_AS, 300 << 20)):
            done = subprocess.run([LEVIN, "--version"], text=True, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                                  preexec_fn=lambda limit=limit, size=size: resource.setrlimit(limit, (size, size)))
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, r"^error: levin cannot be loaded: .* There is not enough memory for LibTorch: free some, or "
                                          r"raise the limit of this process \(ulimit -v, ulimit -d\)\.\n$")
            self.assertNotIn("bad_alloc", done.stdout)

    def test_is_0_after_a_run(self):
        for _ in self.each_entry(self.config, 0, "--trainer.max_epochs=2"):
            pass

    def test_is_1_where_the_data_is_damaged(self):
        images = self.folder / "images"
        shutil.copytree(few_images(), images)
        for path in images.rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:100])
        for _, output in self.each_entry(self.write("damaged.yaml", images=images), 1):
            self.assertRegex(output, r"(?m)^error: .*" + str(images))

    def test_is_1_where_the_checkpoint_is_of_another_model(self):
        config = self.write("wider.yaml", width=8)
        for command in ("fit", *EVALUATIONS):
            with self.subTest(command):
                output = self.levin(command, "--config", config, f"--ckpt_path={self.checkpoint}", status=1)
                self.assertRegex(output, r"(?m)^error: .*its weights do not fit the module")

    def test_is_1_where_the_checkpoint_is_damaged(self):
        damaged = self.folder / "damaged.ckpt"
        damaged.write_bytes(self.checkpoint.read_bytes()[:-100])
        for command in ("fit", *EVALUATIONS):
            with self.subTest(command):
                output = self.levin(command, "--config", self.config, f"--ckpt_path={damaged}", status=1)
                self.assertRegex(output, r"(?m)^error: .*" + str(damaged))

    def test_is_1_where_the_loss_is_nan(self):
        output = self.levin("fit", "--config", self.config, "--optimizer.lr=1e38", status=1)
        self.assertRegex(output, r"(?m)^error: .*is (nan|inf|not finite).* in epoch 0, batch \d")

    def test_is_2_where_an_option_is_wrong(self):
        for _, output in self.each_entry(self.config, 2, "--trainer.max_epochs=-5"):
            self.assertIn("max_epochs", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
