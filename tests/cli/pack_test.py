"""`levin pack`: folders of images become shards, from which runs train and predict; also after a kill.

    pack_test.py LEVIN [TEST …]
"""
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from waiting import wait_until  # noqa: E402

LEVIN = str(Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else ""
RUN = """\
seed_everything: 3
trainer: {{max_epochs: 1, accelerator: cpu, enable_model_summary: false, default_root_dir: "{root}", auto_resume: false}}
model: {{class_path: ResNet, init_args: {{blocks: [1, 1], width: 4, in_channels: 3, num_classes: 2}}}}
data:
  class_path: StreamData
  init_args: {{path: "{store}", val_path: "{store}", test_path: "{store}", columns: [image, label], image_size: 32, batch_size: 8}}
"""


def write_png(path, width, height, chance):
    rows = b"".join(b"\0" + chance.randbytes(3 * width) for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


class Pack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.images = Path(tempfile.mkdtemp(prefix="levin-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.images, ignore_errors=True)
        chance = random.Random(4)
        for number in range(40):
            folder = cls.images / ("cat" if number % 2 else "dog")
            folder.mkdir(exist_ok=True)
            write_png(folder / f"{number:02}.png", chance.randint(60, 90), chance.randint(50, 100), chance)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="levin-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.store = self.folder / "store"

    def levin(self, *arguments, status=0):
        done = subprocess.run([LEVIN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                              cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def digests(self, store=None):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (store or self.store).iterdir()}

    def test_a_run_trains_from_the_store_and_predicts_names_of_classes_and_files(self):
        output = self.levin("pack", self.images, self.store, "--size", 40, "--quality", 80, "--shard_size", "20KiB")
        self.assertRegex(output, r"store: 40 images in \d+ shards, ")
        self.assertEqual(json.loads((self.store / "classes.json").read_text()), {"label": ["cat", "dog"]})
        (self.folder / "run.yaml").write_text(RUN.format(root=self.folder, store=self.store))
        self.levin("fit", "--config", "run.yaml")
        (self.store / "classes.json").unlink()  # the checkpoint has them
        (checkpoint,) = self.folder.glob("levin_logs/version_0/checkpoints/*.ckpt")
        self.levin("predict", "--config", "run.yaml", f"--ckpt_path={checkpoint}", "--output", "predictions.csv")
        rows = (self.folder / "predictions.csv").read_text().splitlines()
        self.assertEqual(len(rows), 41)
        wanted = sorted(f"{path.parent.name}/{path.name}" for path in self.images.rglob("*.png"))
        self.assertEqual(sorted(name for row in rows[1:] for name in row.split(",") if name.endswith(".png")), wanted, rows[:3])
        for row in rows[1:]:
            self.assertRegex(row, r"\b(cat|dog)\b(?!/)")

    def test_the_number_of_workers_does_not_matter(self):
        for workers in (1, 4):
            self.levin("pack", self.images, self.folder / str(workers), "--size", 32, "--workers", workers)
        self.assertEqual(self.digests(self.folder / "1"), self.digests(self.folder / "4"))

    def test_a_killed_pack_leaves_no_index_and_the_next_one_the_whole_store(self):
        self.levin("pack", self.images, self.folder / "wanted", "--shard_size", "30KiB")
        for _ in range(4):
            process = subprocess.Popen([LEVIN, "pack", str(self.images), str(self.store), "--shard_size", "30KiB", "--workers", "1"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: process.poll() is not None or any(self.store.glob("*.mds")), "the first shard")
            process.kill()
            if process.wait() == 0:
                break
            self.assertFalse((self.store / "index.json").exists())
        done = process.returncode == 0
        self.levin("pack", self.images, self.store, "--shard_size", "30KiB", *(["--overwrite"] if done else []))
        self.assertEqual(self.digests(), self.digests(self.folder / "wanted"))

    def test_mistakes_are_named(self):
        self.assertIn("Write levin pack FOLDER STORE.", self.levin("pack", self.images, status=2))
        self.assertIn("quality: must be <= 100, got 101", self.levin("pack", self.images, self.store, "--quality", 101, status=2))
        self.levin("pack", self.images, self.store)
        before = self.digests()
        self.assertIn("--overwrite", self.levin("pack", self.images, self.store, status=1))
        self.assertEqual(self.digests(), before)
        damaged = self.folder / "damaged"
        shutil.copytree(self.images, damaged)
        (damaged / "cat" / "01.png").write_bytes((damaged / "cat" / "01.png").read_bytes()[:900])
        self.assertIn("01.png", self.levin("pack", damaged, self.folder / "other", status=1))
        self.assertFalse((self.folder / "other" / "index.json").exists())
        output = self.levin("pack", damaged, self.folder / "other", "--on_error", "skip")
        self.assertIn("39 images", output)
        self.assertIn("cat/01.png", output)

    def test_a_full_disk_is_an_error_and_leaves_no_index(self):
        if os.geteuid() != 0:
            self.skipTest("only root may mount a small disk")
        self.store.mkdir()
        script = f'mount -t tmpfs -o size=64k small "{self.store}" && "{LEVIN}" pack "{self.images}" "{self.store}" --shard_size 20KiB; ' \
                 f'echo "status $?"; ls "{self.store}"'
        done = subprocess.run(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120)
        self.assertIn("No space left on device", done.stdout)
        self.assertIn("status 1", done.stdout)
        self.assertNotIn("index.json", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
