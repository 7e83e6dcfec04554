"""Runs whose data are shards behind a web server or in a bucket of S3, disturbed and killed: each ends as a run with the same
shards in a folder.

    stream_runs_test.py LEVIN [TEST …]
"""
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import object_servers  # noqa: E402
from object_servers import CLEAN, Fault, FolderServer, Moto, Proxy  # noqa: E402
from waiting import wait_until  # noqa: E402

LEVIN = str(Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else ""
RUN = """\
seed_everything: 3
trainer:
  max_epochs: 3
  auto_resume: true
  default_root_dir: {root}
  devices: {devices}
  accelerator: cpu
  {strategy}
  enable_model_summary: false
  log_every_n_steps: 5
  logger: CSVLogger
  callbacks:
    - {{class_path: ModelCheckpoint, init_args: {{every_n_train_steps: 4, save_last: true}}}}
model: {{class_path: Classifier, init_args: {{arch: mlp, hidden: 8}}}}
data:
  class_path: StreamData
  init_args:
    {{path: "{path}", val_path: "{path}", pattern: "part-{{000..011}}.jsonl.gz", columns: [x, y], batch_size: 10, shuffle_shards: 3,
      num_workers: {workers}, cache: "{cache}"}}
"""


def write_shards(folder):
    import gzip
    chance = random.Random(5)
    folder.mkdir()
    for shard in range(12):
        lines = [json.dumps({"x": [round(chance.gauss(0, 1), 3) for _ in range(784)], "y": chance.randrange(10), "note": "not read"})
                 for _ in range(chance.randint(5, 20))]
        (folder / f"part-{shard:03}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


class StreamRuns(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.shared = Path(tempfile.mkdtemp(prefix="levin-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.shards = cls.shared / "shards"
        write_shards(cls.shards)
        cls.wanted = cls.finished(cls.shared / "wanted", str(cls.shards))
        cls.wanted_of_two = cls.finished(cls.shared / "wanted2", str(cls.shards), devices=2)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="levin-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    @classmethod
    def run_file(cls, root, path, devices=1, workers=2, cache=None):
        root.mkdir(exist_ok=True)
        (root / "run.yaml").write_text(RUN.format(root=root, path=path, devices=devices, workers=workers,
                                                  strategy="strategy: ddp" if devices > 1 else "",
                                                  cache=cache or root / "cache"))
        return [LEVIN, "fit", "--config", str(root / "run.yaml")]

    @classmethod
    def finished(cls, root, path, env=None, **options):
        """Returns the last checkpoint of a run."""
        done = subprocess.run(cls.run_file(root, path, **options), env={**CLEAN, **(env or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        if done.returncode != 0:
            raise AssertionError(f"status {done.returncode}: {done.stdout}")
        return cls.last(root)

    @staticmethod
    def last(root):
        (path,) = root.glob("levin_logs/*/checkpoints/last.ckpt")
        return path

    def assert_same(self, path, wanted=None):
        """The same weights, optimizer and metrics, bitwise."""
        done = subprocess.run([LEVIN, "checkpoint", "diff", "--tensors", str(wanted or self.wanted), str(path)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, done.stdout))
        rows = [next((folder.parent.parent).glob("metrics.csv")).read_text() for folder in (wanted or self.wanted, path)]
        self.assertEqual(rows[1], rows[0])

    def server(self, kind, *arguments, **options):
        started = kind(*arguments, **options)
        self.addCleanup(started.stop)
        return started

    def bucket(self):
        """A proxy before an S3 server with the shards, and the variables of its users."""
        if why := object_servers.missing():
            self.skipTest(why)
        log = open(self.folder / "moto.log", "w")
        self.addCleanup(log.close)
        moto = self.server(Moto, log)
        client = moto.client()
        client.create_bucket(Bucket="data")
        for path in self.shards.iterdir():
            client.put_object(Bucket="data", Key=f"train/{path.name}", Body=path.read_bytes())
        proxy = self.server(Proxy, moto.port, signed=True)
        return proxy, object_servers.variables(proxy.url)

    def test_a_web_server_gives_the_run_of_a_folder(self):
        server = self.server(FolderServer, self.shards)
        self.assert_same(self.finished(self.folder / "run", server.url))
        fetched = [path for method, path, *_ in server.requests if method == "GET"]
        self.assertEqual(len(fetched), 12, fetched)  # each once, for three epochs of training and validation

    def test_s3_gives_the_run_of_a_folder_on_one_rank_and_two(self):
        _, env = self.bucket()
        self.assert_same(self.finished(self.folder / "run", "s3://data/train", env=env))
        self.assert_same(self.finished(self.folder / "run2", "s3://data/train", env=env, devices=2, workers=3), self.wanted_of_two)

    def test_a_server_that_fails_now_and_then_changes_nothing(self):
        proxy, env = self.bucket()
        proxy.latency = 0.02
        proxy.faults = [Fault("status", path="part-003", code=500), Fault("status", path="part-004", code=503, count=2),
                        Fault("cut", path="part-005", after=900), Fault("cut", path="part-006", after=0, count=2),
                        Fault("reset", path="part-007")]
        self.assert_same(self.finished(self.folder / "run", "s3://data/train", env=env))
        self.assertEqual([fault.kind for fault in proxy.faults if fault.count > 0], [])

    def test_a_run_that_is_killed_again_and_again_visits_each_sample_once(self):
        proxy, env = self.bucket()
        proxy.latency = 0.01
        root = self.folder / "run"
        chance = random.Random(2)
        for kill in range(6):
            process = subprocess.Popen(self.run_file(root, "s3://data/train"), env={**CLEAN, **env}, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            before, more = proxy.count(), chance.randint(1, 9)
            checkpoints = {path: path.stat().st_mtime_ns for path in root.rglob("*.ckpt")}

            def is_time(fetched=kill % 2 == 0):
                if process.poll() is not None:
                    return True
                if fetched:  # while a shard is on its way
                    return proxy.count() >= before + more
                return {path: path.stat().st_mtime_ns for path in root.rglob("*.ckpt")} != checkpoints
            wait_until(is_time, "the moment to kill")
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.assert_same(self.finished(root, "s3://data/train", env=env))
        self.assertEqual([path.name for path in (root / "cache").iterdir() if path.name.endswith(".part")], [])

    def test_two_jobs_share_a_cache_and_fetch_each_shard_once(self):
        server = self.server(FolderServer, self.shards)
        roots = [self.folder / "a", self.folder / "b"]
        jobs = [subprocess.Popen(self.run_file(root, server.url, cache=self.folder / "cache"), env=CLEAN, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for root in roots]
        self.assertEqual([job.wait(timeout=300) for job in jobs], [0, 0])
        for root in roots:
            self.assert_same(self.last(root))
        fetched = [path for method, path, *_ in server.requests if method == "GET"]
        self.assertEqual(len(fetched), 12, fetched)

    def test_a_shard_that_is_missing_is_named(self):
        shards = self.folder / "shards"
        shutil.copytree(self.shards, shards)
        (shards / "part-007.jsonl.gz").unlink()
        server = self.server(FolderServer, shards)
        with self.assertRaisesRegex(AssertionError, r"status 1: (.|\n)*part-007\.jsonl\.gz"):
            self.finished(self.folder / "run", server.url)


if __name__ == "__main__":
    unittest.main(verbosity=2)
