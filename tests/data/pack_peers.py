"""Reads what `levin pack` writes with mosaicml-streaming, and compares the images with those that torchvision resizes and
Pillow writes.

    pack_peers.py LEVIN        # exit status 77: mosaicml-streaming or PyTorch for Python is missing
"""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peers  # noqa: E402

SHARDS = peers.HOME / "formats-python"
if not (SHARDS / "streaming").is_dir():
    print("skipped: needs mosaicml-streaming. Run ./dev check --peers.")
    sys.exit(peers.SKIPPED)
peers.run_under_peers("transformers", "transformers and PyTorch for Python")
sys.path.append(str(SHARDS))
import numpy  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
SIZE, QUALITY = 48, 85
KINDS = [(f"{mode}-{extension}-{shape}", mode, extension, size)
         for mode, extension in (("RGB", "jpg"), ("L", "jpg"), ("RGB", "png"), ("L", "png"), ("P", "png"), ("RGB", "webp"))
         for shape, size in (("wide", (131, 77)), ("tall", (64, 150)), ("small", (40, 30)))]


def drawn(seed, size):
    """A smooth picture with edges."""
    chance = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:size[1], 0:size[0]] / 20
    planes = [127 + 90 * numpy.sin(chance.uniform(0.3, 2) * x + chance.uniform(0, 6)) * numpy.cos(chance.uniform(0.3, 2) * y)
              for _ in range(3)]
    image = numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8)
    image[size[1] // 3:size[1] // 2, size[0] // 4:size[0] // 2] = chance.integers(0, 256, 3)
    return Image.fromarray(image)


def as_pillow_writes_it(file):
    """What torchvision and Pillow make of a file: the shorter side resized, and a JPEG. One that is small enough stays."""
    image = Image.open(file)
    if min(image.size) <= SIZE and image.format == "JPEG":
        return image
    image = image.convert("RGB")
    if min(image.size) > SIZE:
        image = functional.to_pil_image(functional.resize(functional.pil_to_tensor(image), SIZE, antialias=True))
    written = io.BytesIO()
    image.save(written, "JPEG", quality=QUALITY)
    return Image.open(written)


class Packed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="levin-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.images, cls.store = pathlib.Path(folder.name) / "images", pathlib.Path(folder.name) / "store"
        for seed, (name, mode, extension, size) in enumerate(KINDS):
            path = cls.images / ("cats" if seed % 3 else "dogs") / f"{name}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            options = {"jpg": {"quality": 95}, "webp": {"lossless": True}}.get(extension, {})
            drawn(seed, size).convert(mode).save(path, **options)
        subprocess.run([LEVIN, "pack", cls.images, cls.store, "--size", str(SIZE), "--quality", str(QUALITY), "--shard_size", "10KiB"],
                       check=True, stdout=subprocess.DEVNULL, timeout=120)
        os.environ["TMPDIR"] = folder.name  # where mosaicml-streaming keeps its locks
        import streaming
        streaming.base.util.clean_stale_shared_memory()
        cls.addClassCleanup(streaming.base.util.clean_stale_shared_memory)
        data = streaming.StreamingDataset(local=str(cls.store), shuffle=False, batch_size=1, validate_hash=None)
        cls.samples = [data[k] for k in range(len(data))]

    def test_every_image_is_there_with_its_file_and_its_class(self):
        classes = json.loads((self.store / "classes.json").read_text())["label"]
        found = sorted((sample["file"], classes[sample["label"]]) for sample in self.samples)
        wanted = sorted((str(path.relative_to(self.images)), path.parent.name) for path in self.images.rglob("*.*"))
        self.assertEqual(found, wanted)
        self.assertGreater(len(list(self.store.glob("*.mds"))), 2)

    def test_the_pixels_are_those_of_torchvision_and_pillow(self):
        for sample in self.samples:
            with self.subTest(sample["file"]):
                found, wanted = sample["image"], as_pillow_writes_it(self.images / sample["file"])
                self.assertEqual((found.size, found.mode, found.quantization), (wanted.size, wanted.mode, wanted.quantization))
                differences = numpy.abs(numpy.asarray(found).astype(int) - numpy.asarray(wanted).astype(int))
                self.assertLess(differences.mean(), 0.5)
                self.assertLessEqual(differences.max(), 12)


if __name__ == "__main__":
    unittest.main(verbosity=2)
