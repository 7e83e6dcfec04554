"""Event files of TensorBoardLogger as TensorBoard's own package reads them, and its page in a browser.

    tensorboard_test.py PROGRAM PACKAGES    PROGRAM: event_program; PACKAGES: a folder with the package (./dev setup)
"""
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

PROGRAM, PACKAGES = sys.argv[1:3]
del sys.argv[1:3]
sys.path[:0] = [PACKAGES, str(Path(__file__).resolve().parent.parent / "support")]
from waiting import wait_until  # noqa: E402

try:
    import numpy
    from PIL import Image
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"skipped: TensorBoard's Python package is not installed ({error}); ./dev setup installs it")
    sys.exit(77)

TAG = "train_loss"


def loss(step):
    return 1.0 / (step + 3)


def float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def read(folder):
    everything = {name: 0 for name in event_accumulator.DEFAULT_SIZE_GUIDANCE}
    return event_accumulator.EventAccumulator(str(folder), size_guidance=everything).Reload()


def text_of(accumulator, tag):
    (event,) = accumulator.Tensors(tag)
    (text,) = tensor_util.make_ndarray(event.tensor_proto)
    return event.step, text.decode()


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="levin-tensorboard-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([PROGRAM, "tensorboard", cls.folder], check=True, timeout=120)
        cls.events = read(Path(cls.folder, "run"))

    def test_scalars_are_equal_to_the_bit(self):
        found = self.events.Scalars(TAG)
        self.assertEqual([event.step for event in found], list(range(100)))
        self.assertEqual([event.value for event in found], [float32(loss(step)) for step in range(100)])
        self.assertEqual([event.wall_time for event in found], [1700000000.5 + step for step in range(100)])
        self.assertEqual(self.events.Scalars("lr/größe")[50].value, float32(1e-3 * 50))
        self.assertEqual(self.events.Scalars("system/memory")[0].value, 123)

    def test_the_histogram_counts_as_numpy_does(self):
        values = (numpy.arange(1000) - 500) / 37
        (event,) = self.events.Histograms("weights")
        found = event.histogram_value
        self.assertEqual((event.step, found.num, found.min, found.max), (7, 1000, values.min(), values.max()))
        self.assertAlmostEqual(found.sum, values.sum(), places=9)
        self.assertAlmostEqual(found.sum_squares, (values**2).sum(), places=9)
        counts = numpy.histogram(values, [-numpy.inf, *found.bucket_limit])[0]
        self.assertEqual(list(found.bucket), list(counts))
        # The bins of TensorBoard's own writers.
        grown, edge = [0.0], 1e-12
        while edge < 1e20:
            grown += [edge, -edge]
            edge *= 1.1
        self.assertLessEqual(set(found.bucket_limit), set(grown))
        self.assertGreater(len(found.bucket_limit), 100)

    def test_the_image_has_every_sample(self):
        (event,) = self.events.Images("digits")
        self.assertEqual((event.step, event.height, event.width), (7, 5, 7))
        decoded = numpy.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
        expected = numpy.arange(3 * 5 * 7, dtype=numpy.uint8).reshape(3, 5, 7).transpose(1, 2, 0)
        numpy.testing.assert_array_equal(decoded, expected)

    def test_text_and_tables_are_markdown(self):
        self.assertEqual(text_of(self.events, "note"), (8, "**bold** \ufffd and |"))
        step, table = text_of(self.events, "examples")
        self.assertEqual((step, table), (9, "| word | score |\n| --- | --- |\n| a\\|b | 0.5 |\n| c | 2.0 |\n"))
        self.assertEqual(self.events.SummaryMetadata("note").plugin_data.plugin_name, "text")

    def plugin_data(self, name):
        metadata = self.events.SummaryMetadata("_hparams_/" + name).plugin_data
        self.assertEqual(metadata.plugin_name, "hparams")
        return plugin_data_pb2.HParamsPluginData.FromString(metadata.content)

    def test_hyperparameters_have_their_types_and_metrics(self):
        start = self.plugin_data("session_start_info").session_start_info
        self.assertEqual(start.hparams["lr"].number_value, 0.001)
        self.assertEqual(start.hparams["arch"].string_value, "cnn")
        self.assertIs(start.hparams["bias"].bool_value, True)
        self.assertEqual(start.hparams["optimizer/momentum"].number_value, 0.9)
        experiment = self.plugin_data("experiment").experiment
        self.assertEqual([info.name for info in experiment.hparam_infos], ["lr", "arch", "bias", "optimizer/momentum"])
        self.assertEqual([info.type for info in experiment.hparam_infos], [3, 1, 2, 3])
        self.assertEqual([info.name.tag for info in experiment.metric_infos], [TAG, "val_acc"])
        self.assertEqual(self.plugin_data("session_end_info").session_end_info.status, 1)
        self.assertEqual(self.events.Scalars("val_acc")[0].value, 0.75)


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="levin-tensorboard-")
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_a_killed_process_loses_no_row_that_was_written(self):
        process = self.start("endless", "tensorboard", self.folder)
        output = [process.stdout.readline() for _ in range(2000)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        events = read(Path(self.folder, "run"))
        steps = [event.step for event in events.Scalars(TAG)]
        self.assertEqual(steps, list(range(len(steps))))
        self.assertGreaterEqual(len(steps), len(output))

    def test_a_killed_process_leaves_whole_lines_of_json(self):
        process = self.start("endless", "jsonl", self.folder)
        output = [process.stdout.readline() for _ in range(2000)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        text = Path(self.folder, "run", "metrics.jsonl").read_text()
        rows = [json.loads(line) for line in text.split("\n")[:-1]]
        self.assertEqual([row["step"] for row in rows], list(range(len(rows))))
        self.assertEqual([row["metrics"] for row in rows], [{TAG: loss(step)} for step in range(len(rows))])
        self.assertGreaterEqual(len(rows), len(output))

    def test_a_resumed_run_has_no_double_points(self):
        process = self.start("resume", self.folder)
        self.assertEqual(process.stdout.readline(), "ready\n")
        live = read(Path(self.folder, "run"))  # a TensorBoard that has seen what will be taken back
        self.assertEqual([event.step for event in live.Scalars(TAG)], list(range(10)))
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "ready\n")
        expected = [loss(step) for step in range(6)] + [2 + loss(step) for step in range(6, 12)]
        for events in (read(Path(self.folder, "run")), live.Reload()):
            found = events.Scalars(TAG)
            self.assertEqual([event.step for event in found], list(range(12)))
            self.assertEqual([event.value for event in found], [float32(value) for value in expected])
        self.assertEqual([event.step for event in read(Path(self.folder, "run")).Scalars("val_loss")], [5])
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.wait(30), 0)


class Page(unittest.TestCase):
    """The server, and its page in Chromium."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="levin-tensorboard-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([PROGRAM, "tensorboard", cls.folder], check=True, timeout=120)
        log = open(Path(cls.folder, "server.log"), "w+")
        cls.addClassCleanup(log.close)
        environment = {**os.environ, "PYTHONPATH": PACKAGES, "PYTHONUNBUFFERED": "1", "TMPDIR": cls.folder}
        server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", cls.folder, "--host", "127.0.0.1",
                                   "--port", "0", "--reload_interval", "1"], stdout=log, stderr=log, env=environment)
        cls.addClassCleanup(server.wait)
        cls.addClassCleanup(server.terminate)
        server.ended, server.report = lambda: server.poll() is not None, Path(log.name).read_text
        cls.url = wait_until(lambda: re.search(r"http://127.0.0.1:\S+(?= )", server.report()), "its address", server)[0]

    def get(self, path, body=None):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body is not None else None, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def wait_for_run(self):
        wait_until(lambda: TAG in str(self.get("data/plugin/scalars/tags")), "scalars that the server has found")

    def test_the_hparams_tab_shows_the_run_with_its_metrics(self):
        self.wait_for_run()

        def groups_with_metrics():
            answer = self.get("data/plugin/hparams/session_groups",
                              {"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS", "STATUS_UNKNOWN",
                                                                         "STATUS_FAILURE", "STATUS_RUNNING"],
                               "colParams": [{"metric": {"group": "", "tag": "val_acc"}}], "startIndex": 0,
                               "sliceSize": 10})
            return [group for group in answer["sessionGroups"] if group.get("metricValues")]

        (group,) = wait_until(groups_with_metrics, "the metrics of the run")
        self.assertEqual(group["hparams"], {"lr": 0.001, "arch": "cnn", "bias": True, "optimizer/momentum": 0.9})
        values = {value["name"]["tag"]: value["value"] for value in group["metricValues"]}
        self.assertEqual(values["val_acc"], 0.75)
        self.assertAlmostEqual(values[TAG], loss(99), places=7)
        self.assertEqual(group["sessions"][0]["status"], "STATUS_SUCCESS")

    def test_a_browser_shows_the_scalars(self):
        browser = shutil.which("chromium")
        if browser is None:
            self.skipTest("Chromium is not installed (apt install chromium; ./dev check does it as root)")
        self.wait_for_run()
        picture = Path(os.environ.get("LEVIN_KEEP_SCREENSHOT", self.folder + "/page.png"))
        common = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  "--window-size=1200,900", f"--user-data-dir={self.folder}/browser", "--virtual-time-budget=30000"]
        page = self.url + "?darkMode=false#timeseries"
        dom = subprocess.run([*common, "--dump-dom", page], capture_output=True, text=True, timeout=240).stdout
        self.assertIn(TAG, dom)
        self.assertIn("weights", dom)
        subprocess.run([*common, f"--screenshot={picture}", page], capture_output=True, timeout=240, check=True)
        pixels = numpy.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
        self.assertGreater(len(numpy.unique(pixels, axis=0)), 50, "the page is blank")


if __name__ == "__main__":
    unittest.main(verbosity=2)
