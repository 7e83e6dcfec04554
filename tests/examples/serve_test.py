"""examples/06_serve.cpp: trains a model with `levin`, serves it, and compares its answers with `levin predict`.

  serve_test.py BUILD/bin ROOT [unittest's arguments]
"""
import concurrent.futures
import contextlib
import gzip
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from run_example import SHORT_RUN, Place, free_port
from waiting import wait_until

BIN, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()


class Server:
    """06_serve on a free port, until the block ends."""

    def __init__(self, place, *arguments):
        self.port = free_port()
        self.command = [place.bin / "06_serve", *arguments, str(self.port)]
        self.log_file = open(place.folder / "server.txt", "w+", encoding="utf-8")
        self.process = subprocess.Popen(self.command, cwd=place.folder, stdout=self.log_file, stderr=subprocess.STDOUT)

    def ended(self):
        return self.process.poll() is not None

    def report(self):
        self.log_file.seek(0)
        return f"$ {' '.join(map(str, self.command))}\n{self.log_file.read()}(status {self.process.poll()})"

    def fail(self, what):
        raise AssertionError(f"{what}\n{self.report()}")

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def wait_until_it_listens(self):
        wait_until(self.listens, "it listens", self)
        return self

    def ask(self, body):
        """(status, text)"""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/predict", data=body.encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def predictions(self, batch):
        status, text = self.ask(json.dumps(batch))
        if status != 200:
            self.fail(f"expected predictions, got {status}: {text}")
        return json.loads(text)

    def has_no_signal_handler(self):
        """Most of what stops a server must not be called by a handler, so a thread waits for the signals instead: it is the
        only one that does not block them (while it waits, Linux shows them as not blocked)."""
        for number in (signal.SIGINT, signal.SIGTERM):
            open_to = []
            for status in Path(f"/proc/{self.process.pid}/task").glob("*/status"):
                masks = dict(line.split(":") for line in status.read_text().splitlines() if line.startswith("Sig"))
                if int(masks["SigCgt"], 16) >> number - 1 & 1:
                    self.fail(f"signal {number} has a handler")
                if not int(masks["SigBlk"], 16) >> number - 1 & 1:
                    open_to.append(status)
            if len(open_to) > 1:
                self.fail(f"signal {number} can interrupt {open_to}")

    def ends_on_sigterm(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        if status != 0:
            self.fail(f"expected exit status 0 after SIGTERM, got {status}")
        if self.listens():
            self.fail("something still listens after SIGTERM")

    def __enter__(self):
        return self.wait_until_it_listens()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log_file.close()


def as_float32(rows):
    return [[struct.pack("<f", value) for value in row] for row in rows]


# On one thread, because sums may differ in their last digits with a different number of threads.
SERVED_RUN = """\
seed_everything: 7
trainer:
  max_epochs: 20
  num_threads: 1
  callbacks:
    - class_path: ModelCheckpoint
      init_args: {monitor: val_acc, mode: max, save_last: true}
model: {class_path: PaddleMlp, init_args: {in_features: 4, hidden: 16, num_classes: 3}}
data:
  class_path: CsvData
  init_args: {path: rows.csv, test_path: rows.csv, target: label, target_is_class: true, batch_size: 16}
"""


class Serve(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Place(BIN, SOURCE, Path(folder.name).resolve())

    def train(self, config):
        self.place.levin("fit", "--config", config).exits(0)

    def predictions_of_levin(self, config, checkpoint):
        self.place.levin("predict", "--config", config, "--ckpt_path", checkpoint, "--output",
                         "expected.jsonl").exits(0)
        with open(self.place.folder / "expected.jsonl", encoding="utf-8") as file:
            return [json.loads(line)["prediction"] for line in file]

    def refuses(self, server, body, *parts):
        status, text = server.ask(body)
        self.assertEqual(status, 400, (body, text))
        for part in parts:
            self.assertIn(part, text)

    def serve_rows(self):
        """96 rows of four numbers, and what a short training makes of them."""
        numbers = random.Random(5)
        rows = [[round(numbers.uniform(-2, 2), 3) for _ in range(4)] for _ in range(96)]
        lines = [",".join(map(str, [*row, "abc"[(row[0] > 0) + (row[1] > 0)]])) for row in rows]
        self.place.write("rows.csv", "\n".join(["p,q,r,s,label", *lines, ""]))
        run = self.place.write("run.yaml", SERVED_RUN)
        self.train(run)
        logits = self.predictions_of_levin(run, "best")
        self.assertEqual(len(logits), 96)
        self.assertGreater(len({row.index(max(row)) for row in logits}), 1, "else the comparison says nothing")
        return rows, as_float32(logits)

    def test_eight_clients_at_once_get_the_values_of_levin_predict(self):
        rows, expected = self.serve_rows()
        with Server(self.place, self.place.log()) as server:
            places = [*range(0, 96, 16)] * 8
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda k: server.predictions(rows[k:k + 16]), places))
            for k, answer in zip(places, answers):
                self.assertEqual(as_float32(answer), expected[k:k + 16])
            server.has_no_signal_handler()
            server.ends_on_sigterm()

    def test_bad_requests_get_the_reason_and_the_server_continues(self):
        rows, expected = self.serve_rows()
        with Server(self.place, self.place.log()) as server:
            self.refuses(server, "no numbers", "not JSON at byte")
            self.refuses(server, "", "not JSON")
            self.refuses(server, "[[1, 2], [3]]", "[1]", "a list of 1")
            self.refuses(server, '[[1, 2, 3, "x"]]', "[0][3]", "expected a number, got a string")
            self.refuses(server, "[[1, 2, 3]]", "PaddleMlp failed for a batch of (1, 3) Float", "mat1 and mat2")
            self.assertEqual(as_float32(server.predictions(rows[:16])), expected[:16])
            server.ends_on_sigterm()

    def test_a_run_on_images_gives_the_classes_of_levin_predict(self):
        config = self.place.write("run.yaml", SHORT_RUN)
        self.train(config)
        last = self.place.log() / "checkpoints/last.ckpt"
        expected = self.predictions_of_levin(config, last)
        with gzip.open("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz") as file:
            pixels = file.read()[16:16 + 64 * 784]
        images = [[(pixel / 255 - 0.2860) / 0.3530 for pixel in pixels[k:k + 784]] for k in range(0, 64 * 784, 784)]
        with Server(self.place, last) as server:
            answers = server.predictions(images[:32]) + server.predictions(images[32:])
            self.assertEqual(answers, expected)
            self.assertGreater(len(set(answers)), 2, "else the comparison says nothing")
            server.ends_on_sigterm()

    def test_a_run_that_does_not_exist_and_a_port_in_use_are_reported(self):
        self.place.run("06_serve", "gone").exits(1).says("no such file or folder: gone")
        self.serve_rows()
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            self.place.run("06_serve", self.place.log(), port).exits(1).says(f"cannot listen on port {port}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
