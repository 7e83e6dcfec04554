"""Small data of every kind that the tool reads, the same in every call: the run files of scenario.py name them below $data.

write_samples(folder) writes them.
"""
import random
import struct
import zlib

from few_images import write_first_images

WORDS = "in the beginning was a small run that trained and stopped and trained again until its end was the same".split()


def write_samples(folder):
    chance = random.Random(1)
    (folder / "images").mkdir()
    write_first_images(folder / "images", 1500, 200)
    _write_photos(folder / "photos", chance)
    text = " ".join(chance.choice(WORDS) for _ in range(8000))
    (folder / "text.txt").write_text(text)
    (folder / "tokens.bin").write_bytes(b"".join(struct.pack("<H", byte) for byte in text[:20000].encode()))
    with open(folder / "text.csv", "w") as file:
        print("text,label", file=file)
        for _ in range(240):
            kind = chance.randrange(3)
            print(" ".join(chance.choice(WORDS[kind:]) for _ in range(chance.randint(2, 9))), "abc"[kind], sep=",", file=file)
    with open(folder / "table.csv", "w") as file:
        print(*(f"p{k}" for k in range(784)), "class", sep=",", file=file)
        for row in range(200):
            print(*(chance.randint(0, 9) if k % 10 == row % 10 else 0 for k in range(784)), row % 10, sep=",", file=file)
    pixels = [chance.gauss(0, 1) for _ in range(320 * 784)]
    _write_npy(folder / "x.npy", "<f4", (320, 784), struct.pack(f"<{len(pixels)}f", *pixels))
    _write_npy(folder / "y.npy", "<i8", (320,), struct.pack("<320q", *(chance.randrange(10) for _ in range(320))))


def _write_photos(folder, chance):
    """PNG files of 28 x 28 pixels, a folder for each class."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for label in "abcd":
        (folder / label).mkdir(parents=True)
        for k in range(30):
            rows = b"".join(b"\0" + chance.randbytes(28 * 3) for _ in range(28))
            (folder / label / f"{k}.png").write_bytes(
                b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def _write_npy(path, dtype, shape, data):
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
