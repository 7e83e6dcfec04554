#!/usr/bin/env python3
"""Makes images.json, what data/images_test.cpp and data/image_folder_test.cpp compare with: files that Pillow wrote, the
pixels it reads from them, and what torchvision's transforms and ImageFolder make of images.

  python3 tests/data/reference/images.py        needs torch 2.11.0, torchvision 0.26.0, pillow and numpy

Bytes are written as hexadecimal digits, images in the order (channels, height, width).
"""
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional

RANDOM = np.random.default_rng(7)


def smooth(height, width, channels=3):
    """Returns noise that a JPEG can represent: (height, width, channels) uint8."""
    small = RANDOM.integers(0, 256, (height // 6 + 2, width // 6 + 2, channels), dtype=np.uint8)
    planes = [Image.fromarray(small[..., c]).resize((width, height), Image.BICUBIC) for c in range(channels)]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


def hex_of(image):
    return np.ascontiguousarray(image).tobytes().hex()


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def file_case(name, image, kind, **options):
    content = encoded(image, kind, **options)
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)
    return {"name": name, "file": content.hex(), "height": pixels.shape[1], "width": pixels.shape[2],
            "pixels": hex_of(pixels)}


def file_cases():
    rgb = Image.fromarray(smooth(21, 26))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, which torchvision does not do
    cases = [file_case("jpeg 4:4:4", rgb, "JPEG", quality=90, subsampling=0),
             file_case("jpeg 4:2:2", rgb, "JPEG", quality=80, subsampling=1),
             file_case("jpeg 4:2:0", rgb, "JPEG", quality=80, subsampling=2),
             file_case("jpeg progressive", rgb, "JPEG", quality=70, progressive=True),
             file_case("jpeg turned", rgb, "JPEG", quality=70, exif=exif),
             file_case("jpeg grey", rgb.convert("L"), "JPEG", quality=80),
             file_case("jpeg cmyk", rgb.convert("CMYK"), "JPEG", quality=90)]
    noise = lambda *shape: RANDOM.integers(0, 256, shape, dtype=np.uint8)
    palette = Image.fromarray(noise(7, 9, 3)).quantize(11)
    cases += [file_case("png rgb", Image.fromarray(noise(7, 9, 3)), "PNG"),
              file_case("png rgba", Image.fromarray(noise(7, 9, 4)), "PNG"),
              file_case("png grey", Image.fromarray(noise(7, 9)), "PNG"),
              file_case("png grey with alpha", Image.fromarray(noise(7, 9, 2)), "PNG"),
              file_case("png one bit", Image.fromarray(noise(7, 9)).convert("1"), "PNG"),
              file_case("png palette", palette, "PNG"),
              file_case("png transparent palette", palette, "PNG", transparency=3)]
    return cases


def webp_cases():
    """Drawn from a generator of their own, so that the other cases stay as they were."""
    random = np.random.default_rng(11)
    noise = lambda *shape: random.integers(0, 256, shape, dtype=np.uint8)
    photo = Image.fromarray(noise(4, 5, 3)).resize((27, 22), Image.BICUBIC)
    layers = Image.fromarray(noise(7, 9, 4))
    return [file_case("webp", photo, "WEBP", quality=80), file_case("webp lossless", photo, "WEBP", lossless=True),
            file_case("webp grey", photo.convert("L"), "WEBP", quality=80),
            file_case("webp with alpha", layers, "WEBP", quality=80),
            file_case("webp lossless with alpha", layers, "WEBP", lossless=True, exact=True),
            file_case("webp animation", photo, "WEBP", save_all=True, append_images=[Image.fromarray(noise(22, 27, 3))],
                      duration=100, quality=80)]


def grey16_case():
    """Pillow clips 16-bit grey at 255. A pixel's upper byte is what it stands for, so no library is asked here."""
    values = RANDOM.integers(0, 65536, (5, 6), dtype=np.uint16)
    upper = (values >> 8).astype(np.uint8)
    return {"name": "png grey of 16 bits", "file": encoded(Image.fromarray(values), "PNG").hex(), "height": 5, "width": 6,
            "pixels": hex_of(np.stack([upper] * 3))}


def resize_cases():
    cases = []
    for size in ((16, 16), (37, 20), (13, 90), (50, 71), (5, 3)):
        image = smooth(37, 53).transpose(2, 0, 1).copy()
        cases.append({"from": [37, 53], "image": hex_of(image), "size": size, "floats": False,
                      "result": hex_of(functional.resize(torch.from_numpy(image), size, antialias=True).numpy())})
    image = RANDOM.random((1, 9, 11), dtype=np.float32)
    for size in ((4, 5), (12, 7)):
        result = functional.resize(torch.from_numpy(image), size, antialias=True).numpy()
        cases.append({"from": [9, 11], "image": hex_of(image), "size": size, "floats": True, "result": hex_of(result)})
    return cases


def shorter_side_cases():
    return [{"size": [h, w], "shorter": s, "result": list(functional.resize(torch.zeros(1, h, w), s).shape[1:])}
            for h, w, s in ((480, 640, 256), (640, 480, 256), (333, 500, 224), (500, 333, 97), (10, 10, 7), (5, 64, 3))]


def center_crop_cases():
    image = RANDOM.integers(0, 256, (3, 9, 12), dtype=np.uint8)
    return {"image": hex_of(image), "crops": [
        {"size": size, "result": hex_of(functional.center_crop(torch.from_numpy(image), size).numpy())}
        for size in ((4, 4), (5, 6), (6, 5), (9, 12), (12, 8), (14, 15), (8, 17))]}


def random_crop_numbers():
    """Means over many draws of RandomResizedCrop, and the boxes where no draw can fit."""
    torch.manual_seed(0)
    draws = 20000
    image = torch.zeros(1, 480, 640)
    boxes = np.array([transforms.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(draws)])
    top, left, height, width = boxes.T.astype(float)
    share, log_ratio = height * width / (480 * 640), np.log(width / height)
    spread = lambda values: [float(values.mean()), float(values.std())]
    middles = [{"size": [h, w], "box": transforms.RandomResizedCrop.get_params(torch.zeros(1, h, w), [1.0, 1.0], [3 / 4, 4 / 3])}
               for h, w in ((10, 100), (100, 10), (33, 90), (91, 30))]
    return {"draws": draws, "share": spread(share), "log_ratio": spread(log_ratio), "top": spread(top), "left": spread(left),
            "height": spread(height), "width": spread(width), "middles": middles}


def batch_case():
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    images = [RANDOM.integers(0, 256, (4, 5, 3), dtype=np.uint8) for _ in range(3)]
    pipeline = lambda flip: transforms.Compose([transforms.RandomHorizontalFlip(float(flip)), transforms.ToTensor(),
                                                transforms.Normalize(mean, deviation)])
    flips = [False, True, True]
    results = [pipeline(flip)(Image.fromarray(image)).numpy() for image, flip in zip(images, flips)]
    return {"mean": mean, "deviation": deviation, "flips": flips,
            "images": [hex_of(image.transpose(2, 0, 1)) for image in images], "results": [hex_of(r) for r in results]}


def folder_case():
    names = ["dog/2.jpg", "dog/10.JPG", "dog/b/1.png", "dog/b.jpeg", "dog/b-c/x.jpg", "cat/1.PNG", "cat/a/z.jpg", "cat/Z.jpg",
             "Ape/ä.jpg", "Ape/z.jpg", "Ape/w.webp", "Ape/notes.txt"]
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        data = torchvision.datasets.ImageFolder(root)
        samples = [[str(Path(path).relative_to(root)), label] for path, label in data.samples]
    return {"names": names, "classes": data.classes, "samples": samples}


def main():
    numbers = {"made_with": {"torch": torch.__version__, "torchvision": torchvision.__version__,
                             "pillow": Image.__version__},
               "files": [*file_cases(), grey16_case(), *webp_cases()], "resize": resize_cases(), "shorter_side": shorter_side_cases(),
               "center_crop": center_crop_cases(), "random_crop": random_crop_numbers(), "batch": batch_case(),
               "folder": folder_case()}
    Path(__file__).with_name("images.json").write_text(json.dumps(numbers, indent=1) + "\n")


main()
