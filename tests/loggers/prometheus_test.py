"""PrometheusLogger, collected by Debian's node_exporter, scraped by Debian's Prometheus, and read back through its API."""

import json
import os
import select
import shutil
import time
import urllib.parse
import urllib.request

from driven import LoggerTest, free_port, main, wait_until

EXPORTER, SERVER = (shutil.which(name) for name in ("prometheus-node-exporter", "prometheus"))


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class Prometheus(LoggerTest):
    def logger(self, **options):
        return self.driven("PrometheusLogger", options)

    def start_prometheus(self, collected):
        node, server = free_port(), free_port()
        self.start([EXPORTER, f"--web.listen-address=127.0.0.1:{node}", "--collector.disable-defaults",
                    "--collector.textfile", f"--collector.textfile.directory={collected}"])
        config = self.folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: node\n    static_configs:\n"
                          f"      - targets: ['127.0.0.1:{node}']\n")
        self.start([SERVER, f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                    f"--web.listen-address=127.0.0.1:{server}"])
        self.node = f"http://127.0.0.1:{node}/metrics"
        self.api = f"http://127.0.0.1:{server}/api/v1/query?query="
        wait_until(lambda: get(self.node), "the start of node_exporter")

    def query(self, text):
        """{labels as a dict without job and instance: value} of an instant query."""
        answer = get(self.api + urllib.parse.quote(text))
        if not answer:
            return None
        found = json.loads(answer)["data"]["result"]
        return [({key: value for key, value in one["metric"].items() if key not in ("job", "instance", "__name__")},
                 one["value"][1]) for one in found]

    def test_prometheus_answers_with_the_values_of_the_run(self):
        collected = self.folder / "collected"
        collected.mkdir()
        self.start_prometheus(collected)
        odd = 'odd "name"\\with\neverything é'
        logger = self.logger(path=str(collected / "levin.prom"), name="first", every="0.2s")
        logger("own")
        logger("metrics", 41, {"train_loss": 0.625, "epoch": 3, "worst": "inf", odd: 7})
        logger("status", 41, {"epoch": 3, "batches_per_second": 81.5, "skipped_steps": 2, "checkpoint_time": 1700000000.25})
        logger("system", 41, {"memory": 5})
        wait_until(lambda: self.query("levin_system"), "the scrape of the values")
        self.assertEqual(self.query('levin_metric{name="train_loss"}'), [({"run": "first", "name": "train_loss"}, "0.625")])
        self.assertEqual({labels["name"]: value for labels, value in self.query("levin_metric")},
                         {"train_loss": "0.625", "worst": "+Inf", odd: "7"})
        run = {"run": "first"}
        for name, value in [("step", "41"), ("epoch", "3"), ("batches_per_second", "81.5"), ("skipped_steps", "2"),
                            ("checkpoint_timestamp_seconds", "1700000000.25"), ("active", "1")]:
            self.assertEqual(self.query("levin_" + name), [(run, value)], name)
        self.assertEqual(self.query("levin_system"), [({"run": "first", "name": "memory"}, "5")])
        self.assertEqual(self.query("levin_status == 1"), [({"run": "first", "status": "running"}, "1")])
        age, = self.query("time() - levin_checkpoint_timestamp_seconds")
        self.assertGreater(float(age[1]), 0)
        self.assertIn("node_textfile_scrape_error 0", get(self.node))
        logger("metrics", 42, {"train_loss": 0.5})
        logger("finalize", "failed")
        self.assertEqual(logger.end(), 0)
        wait_until(lambda: self.query("levin_status == 1") == [({"run": "first", "status": "failed"}, "1")], "the run's end")
        self.assertEqual(self.query("levin_active"), [(run, "0")])
        self.assertEqual(self.query("levin_step"), [(run, "42")])
        self.assertEqual(self.query("levin_batches_per_second"), [])
        self.assertEqual(os.listdir(collected), ["levin.prom"])

    def test_a_reader_never_sees_a_half_of_the_file(self):
        path = self.folder / "root" / "levin.prom"
        logger = self.logger(every="0.001s")
        logger("own")
        logger("metrics", 0, {f"metric_{k}": 0 for k in range(500)})
        logger.send("flood", 0, 20000)
        seen = set()
        while not select.select([logger.process.stdout], [], [], 0)[0]:  # until the flood has ended
            text = path.read_text()
            self.assertEqual(text.count("\nlevin_metric{"), 500)
            self.assertTrue(text.endswith("\n"))
            seen.add(text)
        logger.answer()
        logger("finalize", "success")
        logger.end()
        self.assertGreater(len(seen), 1)

    def test_the_file_is_written_at_most_so_often_and_at_the_end(self):
        path = self.folder / "root" / "levin.prom"
        logger = self.logger(every="1h")
        logger("own")
        logger("metrics", 0, {"loss": 1})
        self.assertIn('levin_metric{run="root",name="loss"} 1.0\n', path.read_text())  # the first values at once
        first = path.stat().st_ino, path.stat().st_mtime_ns
        logger("flood", 1, 1000)
        self.assertEqual((path.stat().st_ino, path.stat().st_mtime_ns), first)
        logger("finalize", "success")
        logger.end()
        self.assertIn('levin_step{run="root"} 1000.0\n', path.read_text())

    def test_the_file_can_be_removed_at_the_end(self):
        path = self.folder / "root" / "levin.prom"
        logger = self.logger(remove_at_end=True)
        logger("own")
        logger("metrics", 0, {"loss": 1})
        self.assertTrue(path.exists())
        logger("finalize", "success")
        logger.end()
        self.assertFalse(path.exists())

    def test_a_file_that_cannot_be_written_is_reported_once(self):
        path = self.folder / "root" / "levin.prom"
        logger = self.logger(every="0.05s")
        path.mkdir()  # in the way
        logger("own")
        for step in range(5):
            logger("metrics", step, {"loss": step})
            time.sleep(0.1)  # longer than `every`: each step tries to write
        self.assertEqual(logger.output.count("PrometheusLogger: "), 1)
        self.assertRegex(logger.output, "PrometheusLogger: .*levin.prom.*The file keeps its old values until it can be written; "
                                      "training continues.")
        path.rmdir()
        wait_until(path.is_file, "the file")
        logger("finalize", "success")
        logger.end()
        self.assertIn(f"PrometheusLogger: {path} can be written again.", logger.output)

    def test_a_name_that_node_exporter_does_not_read_is_an_error(self):
        logger = self.logger(path=str(self.folder / "levin.txt"))
        logger.process.wait(60)
        self.assertIn("must be a name that ends in .prom, as node_exporter reads no others, got", logger.output)


if __name__ == "__main__":
    main("" if EXPORTER and SERVER else "Debian's prometheus and prometheus-node-exporter are not installed. ./dev check "
         "installs them as root")
