"""A part of the real images of Fashion-MNIST, for runs so short that reading all of them would be most of their time."""
import atexit
import functools
import gzip
import shutil
import struct
import tempfile
from pathlib import Path


@functools.cache
def few_images():
    """Returns a folder with the first sixth of the images, unpacked, for the option `root`. It is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="levin-images-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_first_images(folder, 10240, 1000)
    return folder


def write_first_images(folder, train, test):
    """Writes this many images for training and for tests, unpacked."""
    for part, count in [("train", train), ("t10k", test)]:
        for kind, header, size in [("images-idx3", 16, 784), ("labels-idx1", 8, 1)]:
            with gzip.open(f"/usr/share/datasets/fashion-mnist/{part}-{kind}-ubyte.gz") as packed:
                data = bytearray(packed.read(header + count * size))
            struct.pack_into(">I", data, 4, count)
            (folder / f"{part}-{kind}-ubyte").write_bytes(data)
