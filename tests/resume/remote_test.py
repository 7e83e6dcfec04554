"""Runs that are kept in a bucket of S3: killed, continued on other machines, and disturbed, each ends as a run in a folder does.

    remote_test.py LEVIN [TEST …]

A machine is a folder for caches: nothing else is kept on a machine.
"""
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import object_servers  # noqa: E402
from object_servers import CLEAN, Fault, Moto, Proxy  # noqa: E402
from waiting import wait_until  # noqa: E402

LEVIN = str(Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else ""
RUN = """\
seed_everything: 3
trainer:
  max_epochs: {epochs}
  auto_resume: {resume}
  default_root_dir: {root}
  devices: {devices}
  accelerator: cpu
  {strategy}
  enable_model_summary: false
  log_every_n_steps: 5
  upload_every: {every}
  logger: CSVLogger
  callbacks:
    - {{class_path: ModelCheckpoint, init_args: {{every_n_train_steps: 7, save_last: true}}}}
    - {{class_path: ModelCheckpoint, init_args: {{monitor: val_loss, filename: "best-{{epoch}}", save_top_k: 2}}}}
model: {{class_path: Classifier, init_args: {{arch: mlp, hidden: 8}}}}
data: {{class_path: NpyData, init_args: {{inputs: {data}/x.npy, targets: {data}/y.npy, val_fraction: 0.2, batch_size: 8}}}}
"""
ROOT = "s3://runs/mine"
SHARDED = "strategy: {class_path: fsdp, init_args: {state_dict_type: sharded}}"
VERSION = "mine/levin_logs/version_0/"


def write_npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * ((64 - (len(header) + 11) % 64) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


class RemoteRuns(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if why := object_servers.missing():
            raise unittest.SkipTest(why)
        cls.shared = Path(tempfile.mkdtemp(prefix="levin-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        chance = random.Random(1)
        write_npy(cls.shared / "x.npy", "<f4", (200, 784), struct.pack("<156800f", *(chance.gauss(0, 1) for _ in range(156800))))
        write_npy(cls.shared / "y.npy", "<i8", (200,), struct.pack("<200q", *(chance.randrange(10) for _ in range(200))))
        cls.wanted = {}

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="levin-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        log = open(self.folder / "moto.log", "w")
        self.addCleanup(log.close)
        moto = Moto(log)
        self.addCleanup(moto.stop)
        self.client = moto.client()
        self.client.create_bucket(Bucket="runs")
        self.proxy = Proxy(moto.port, signed=True)
        self.addCleanup(self.proxy.stop)

    def command(self, *arguments, root=ROOT, epochs=3, devices=1, strategy="", every="1s", resume="true"):
        file = self.folder / "run.yaml"
        file.write_text(RUN.format(epochs=epochs, root=root, devices=devices, strategy=strategy, data=self.shared, every=every,
                                   resume=resume))
        command, *more = arguments or ["fit"]
        return [LEVIN, command, "--config", str(file), *more]

    def env(self, machine, url=""):
        """The variables of a machine, by its name."""
        return {**CLEAN, **object_servers.variables(url or self.proxy.url), "XDG_CACHE_HOME": str(self.folder / machine)}

    def levin(self, machine, *arguments, status=0, url="", **options):
        done = subprocess.run(self.command(*arguments, **options), env=self.env(machine, url), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def start(self, machine, **options):
        with open(self.folder / "output.txt", "w") as output:
            process = subprocess.Popen(self.command(**options), env=self.env(machine), stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train_uncopied(self, machine, **options):
        """A run whose checkpoints the store refuses."""
        self.proxy.faults = [Fault("status", method="PUT", path="ckpt", code=403, count=10**6)]
        self.levin(machine, status=1, **options)
        self.proxy.faults = []

    def start_held(self, path, machine, **options):
        """Starts a run, and returns once the store holds its copy of such a path."""
        self.proxy.faults = [Fault("hold", method="PUT", path=path)]
        process = self.start(machine, **options)
        wait_until(lambda: not self.proxy.faults[0].count, f"the copy of {path}")
        return process

    def objects(self):
        """Returns the etags in the store by their names, without the folders that all have in common."""
        listed = self.client.list_objects_v2(Bucket="runs").get("Contents", [])
        return {each["Key"].removeprefix(VERSION): each["ETag"] for each in listed}

    def downloaded(self):
        """Returns a folder with what is in the store of the run."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for name in self.objects():
            if name.startswith("mine/"):  # of another run
                continue
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.client.get_object(Bucket="runs", Key=VERSION + name)["Body"].read())
        return folder

    def local_run(self, epochs=3, **options):
        """Returns the folder of an undisturbed run without a store."""
        what = json.dumps([epochs, options])
        if what not in self.wanted:
            root = Path(tempfile.mkdtemp(dir=self.shared))
            self.levin("none", root=root, epochs=epochs, **options)
            type(self).wanted[what] = root / "levin_logs/version_0"
        return self.wanted[what]

    def assert_as_local(self, may_keep_old=False, **options):
        """The store has the files of a local run, with the same checkpoints and metrics, bitwise."""
        wanted, found = self.local_run(**options), self.downloaded()

        def names(folder):
            """Shards have other names each time."""
            return sorted({str(path.relative_to(folder)).split(".ckpt/")[0] for path in folder.rglob("*")
                           if path.is_file() and path.name not in ("run.lock", "run.writer") and not path.name.startswith(".")})
        old = {name for name in names(found) if "step=" in name} if may_keep_old else set()
        self.assertEqual(sorted(set(names(found)) - old | (old & set(names(wanted)))), names(wanted))
        self.assertEqual((found / "metrics.csv").read_text(), (wanted / "metrics.csv").read_text())
        for path in (wanted / "checkpoints").iterdir():
            files = [path, found / "checkpoints" / path.name]
            for k, file in enumerate(files):
                if file.is_dir():  # sharded
                    files[k] = self.folder / f"{path.stem}-{k}.safetensors"
                    files[k].unlink(missing_ok=True)
                    subprocess.run([LEVIN, "checkpoint", "consolidate", file, files[k]], check=True, stdout=subprocess.DEVNULL, timeout=60)
            done = subprocess.run([LEVIN, "checkpoint", "diff", "--tensors", *files],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
            self.assertEqual((path.name, done.returncode, done.stdout), (path.name, 0, done.stdout))

    def test_machines_continue_each_others_run(self):
        for epochs, machine in ((1, "a"), (2, "b"), (3, "a")):
            output = self.levin(machine, epochs=epochs)
        self.assertIn("continuing from s3://runs/mine/levin_logs/version_0/checkpoints/last.ckpt", output)
        self.assertIn("checkpoint:  s3://runs/mine/levin_logs/version_0/checkpoints/", output)
        self.assert_as_local()
        self.assertNotIn("run.lock", self.objects())

    def test_the_same_machine_fetches_nothing(self):
        self.levin("a", epochs=2)
        self.proxy.clear()
        self.assertNotIn("Fetching", self.levin("a"))
        self.assertEqual([path for method, path, *_ in self.proxy.requests if method == "GET" and ".ckpt" in path], [])
        self.assert_as_local()

    def test_killed_runs_continue_on_any_machine(self):
        chance = random.Random(7)
        self.proxy.latency = 0.005
        for kill in range(6):
            process = self.start(chance.choice("abc"), every="0.1s")
            before = self.objects()

            def is_time(last=kill % 2 == 0):
                """While a file is on its way, or once one has arrived."""
                now = self.objects()
                return process.poll() is not None or (now.get("checkpoints/last.ckpt") != before.get("checkpoints/last.ckpt")
                                                      if last else len(set(now) - set(before)) > 0 and "metrics.csv" in now)
            wait_until(is_time, "the moment to kill")
            process.kill()
            process.wait()
        self.levin("d")
        self.assert_as_local(may_keep_old=True)  # what a killed machine had still to remove

    def test_a_run_of_two_ranks_with_sharded_checkpoints_continues_elsewhere(self):
        options = {"devices": 2, "strategy": SHARDED}
        process = self.start("a", every="0.1s", **options)
        wait_until(lambda: "checkpoints/last.ckpt/commit.safetensors" in self.objects(), "a checkpoint in the store")
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.levin("b", **options)
        self.assert_as_local(**options)
        records = list(self.downloaded().rglob("commit.safetensors"))
        self.assertGreater(len(records), 2)
        for record in records:  # no shard of an older save
            self.assertEqual(len(list(record.parent.iterdir())), 3, list(record.parent.iterdir()))

    def test_a_sharded_checkpoint_that_lost_its_record_is_saved_again(self):
        options = {"devices": 2, "strategy": SHARDED}
        self.levin("a", epochs=2, **options)
        for name in self.objects():
            if name == "checkpoints/last.ckpt/commit.safetensors" or name.startswith("checkpoints/best"):
                self.client.delete_object(Bucket="runs", Key=VERSION + name)
        for machine in "bc":
            self.levin(machine, **options)
        self.assert_as_local(**options)

    def test_sharded_checkpoints_and_those_of_one_file_replace_each_other(self):
        kinds = [SHARDED, SHARDED.replace("sharded", "full")]
        for first in (0, 1):
            with self.subTest(first=kinds[first]):
                run = {"devices": 2, "root": f"{ROOT}/{first}"}
                for epochs, kind, machine in ((1, first, "a"), (2, 1 - first, "a"), (3, first, "b")):
                    output = self.levin(f"{machine}{first}", "fit", strategy=kinds[kind], epochs=epochs, resume="warn", **run)
                    names = [name for name in self.objects() if f"mine/{first}/" in name and "last.ckpt" in name]
                    self.assertEqual(["last.ckpt/" in name for name in names], [True] * 3 if kind == 0 else [False], names)
                self.assertIn("continuing from", output)

    def test_a_removal_waits_for_a_successor_that_was_lost(self):
        self.levin("a", epochs=1)
        before = {name for name in self.objects() if name.endswith(".ckpt")}
        self.train_uncopied("a", epochs=2)
        (folder,) = self.folder.glob("a/levin/staging/s3_*/runs/mine")
        shutil.rmtree(folder)
        self.levin("a", "validate", f"--ckpt_path={ROOT}/levin_logs/version_0/checkpoints/last.ckpt", "--trainer.logger=false")
        self.assertIn("continuing from", self.levin("a", epochs=2))
        self.assertLessEqual(before - {"checkpoints/last.ckpt"} - set(self.objects()), {"checkpoints/epoch=0-step=14.ckpt"})
        self.levin("a")
        self.assert_as_local()

    def test_a_machine_that_has_nothing_to_train_leaves_another_its_checkpoints(self):
        self.levin("a", epochs=1)
        self.train_uncopied("a", epochs=2)
        self.assertIn("Nothing to train", self.levin("b", epochs=1))
        self.assertIn("Nothing to train", self.levin("a", epochs=2))
        self.levin("c")
        self.assert_as_local()

    def test_what_another_machine_has_not_seen_is_set_aside(self):
        self.levin("a", epochs=1)
        self.train_uncopied("a", epochs=2)
        self.levin("b", epochs=2)
        self.assertIn("are set aside in the folder .dropped: ", self.levin("a"))
        self.assertTrue(list(self.folder.glob("a/levin/staging/s3_*/runs/mine/levin_logs/version_0/.dropped/checkpoints/*.ckpt")))
        self.assert_as_local()

    def test_a_run_that_was_cut_off_in_a_copy_stops_when_another_one_has_continued(self):
        self.levin("a", epochs=1)
        process = self.start_held("last.ckpt", "a", epochs=2)
        process.send_signal(signal.SIGSTOP)
        lock = json.loads(self.client.get_object(Bucket="runs", Key=VERSION + "run.lock")["Body"].read())
        self.client.put_object(Bucket="runs", Key=VERSION + "run.lock", Body=json.dumps({**lock, "machine": "another"}).encode())
        self.levin("b")
        self.assert_as_local(may_keep_old=True)
        before = self.objects()
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(60), 1)
        self.assertIn("another run has begun to write there, so this run no longer copies", (self.folder / "output.txt").read_text())
        self.proxy.go.set()
        self.levin("c")
        self.assertEqual({name: etag for name, etag in self.objects().items() if "ckpt" in name},
                         {name: etag for name, etag in before.items() if "ckpt" in name})

    def test_what_another_program_removes_while_the_run_lives_stays_in_the_store(self):
        self.levin("a", epochs=2)
        before = set(self.objects())
        process = self.start_held("run.writer", "a", every="0.2s")
        shutil.rmtree(self.folder / "a/levin/staging")
        self.proxy.go.set()
        process.wait(60)
        output = (self.folder / "output.txt").read_text()
        self.assertIn("another program has removed files of the run", output)
        self.assertLessEqual(before, set(self.objects()), output)

    def test_the_same_server_by_another_name_is_another_machine(self):
        """Each name has a folder of its own, and the older one must not win."""
        self.levin("a", epochs=1)
        self.levin("a", epochs=2, url=self.proxy.url.replace("127.0.0.1", "localhost"))
        self.assertIn("auto_resume: continuing from s3://runs/mine/levin_logs/version_0/checkpoints/last.ckpt", self.levin("a"))
        self.assert_as_local()

    def test_a_machine_whose_copies_were_all_refused_continues_its_own_run(self):
        self.levin("a", epochs=1)
        self.proxy.faults = [Fault("status", method="PUT", path="ckpt|writer", code=403, count=10**6)]
        self.assertIn("is copied by the next run with this folder on this machine", self.levin("b", epochs=2, status=1))
        self.proxy.faults = []
        output = self.levin("b", epochs=2)
        self.assertIn("Nothing to train", output)
        self.assertNotIn("another machine", output)
        self.levin("c")
        self.assert_as_local()

    def test_an_evaluation_does_not_replace_what_was_never_copied(self):
        self.levin("a", epochs=1)
        self.train_uncopied("a", epochs=2)
        process = self.start_held("ckpt", "a", epochs=3)
        process.kill()
        process.wait()
        self.proxy.faults = []
        self.levin("a", "validate", f"--ckpt_path={ROOT}/levin_logs/version_0/checkpoints/last.ckpt", "--trainer.logger=false")
        self.assertIn("Nothing to train", self.levin("a"))
        self.assert_as_local(may_keep_old=True)

    def test_a_bucket_that_lets_nobody_remove_objects_keeps_runs_that_continue(self):
        self.proxy.faults = [Fault("status", method="DELETE", path="", code=403, count=10**6)]
        for machine, epochs in (("a", 1), ("a", 2), ("b", 3)):
            output = self.levin(machine, epochs=epochs)
        self.assertIn("a later pass removes it there", output)
        self.assertEqual(output.count("a later pass"), 1, output)
        self.assertIn("continuing from", output)
        self.assertLessEqual({"checkpoints/" + path.name for path in (self.local_run() / "checkpoints").iterdir()}, set(self.objects()))

    def test_checkpoints_with_hidden_names_are_copied(self):
        more = "--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {dirpath: s3://runs/mine/.own, filename: .top}}"
        for epochs, machine in ((1, "a"), (2, "b")):
            self.levin(machine, "fit", more, epochs=epochs)
        self.assertIn("mine/.own/.top.ckpt", self.objects())

    def test_an_object_whose_name_is_too_long_for_a_file_is_left_alone(self):
        self.levin("a", epochs=1)
        name = "x" * 250
        self.client.put_object(Bucket="runs", Key=VERSION + name, Body=b"mine")
        self.levin("b")
        self.assertIn(name, self.objects())
        self.client.delete_object(Bucket="runs", Key=VERSION + name)
        self.assert_as_local()

    def test_checkpoints_above_the_log_folder_are_kept_too(self):
        more = "--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {dirpath: s3://runs/mine, filename: top}}"
        for epochs, machine in ((1, "a"), (2, "b")):
            output = self.levin(machine, "fit", more, epochs=epochs)
        self.assertIn("continuing from", output)
        self.assertLessEqual({"mine/top.ckpt", "checkpoints/last.ckpt", "metrics.csv"}, set(self.objects()))

    def test_checkpoints_in_a_folder_of_their_own_are_replaced_on_any_machine(self):
        more = ("--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {dirpath: s3://runs/kept/here, filename: "
                "'{epoch}', monitor: train_loss, mode: min, save_top_k: 1, every_n_epochs: 1, save_last: true}}")
        local = self.folder / "local"
        self.levin("none", "fit", more.replace("s3://runs/kept/here", str(local / "kept")), root=local)
        for epochs, machine in ((1, "a"), (2, "b"), (3, "a")):
            output = self.levin(machine, "fit", more, epochs=epochs)
            self.assertNotIn("WARNING", output.upper())
        kept = {name.removeprefix("kept/here/") for name in self.objects() if name.startswith("kept/")} - {"run.writer"}
        self.assertEqual(kept, {path.name for path in (local / "kept").iterdir()})

    def test_files_that_are_removed_between_two_runs_are_fetched_again(self):
        self.levin("a", epochs=2)
        before = self.objects()
        (folder,) = self.folder.glob("a/levin/staging/s3_*/runs/mine")
        for path in folder.rglob("best*.ckpt"):
            path.unlink()
        self.levin("a", epochs=2)
        self.assertEqual({name for name in before if "ckpt" in name}, {name for name in self.objects() if "ckpt" in name})
        shutil.rmtree(folder)
        self.assertIn("Fetching", self.levin("a"))
        self.assert_as_local()

    def test_an_object_of_somebody_else_stays_and_drops_nothing(self):
        self.levin("a", epochs=1)
        self.train_uncopied("a", epochs=2)
        others = ["NOTES.txt", ".ipynb_checkpoints/mine.txt"]
        for name in others:
            self.client.put_object(Bucket="runs", Key=VERSION + name, Body=b"by hand")
        self.assertNotIn("dropped", self.levin("a", epochs=2))
        self.assertNotIn("dropped", self.levin("b"))
        for name in others:
            self.assertIn(name, self.objects())
            self.client.delete_object(Bucket="runs", Key=VERSION + name)
        self.assert_as_local()

    def test_a_file_that_is_refused_does_not_keep_the_others_back(self):
        self.proxy.faults = [Fault("status", method="PUT", path="run.log|run.json|config|hparams", code=403, count=10**6)]
        self.assertIn("403", self.levin("a", status=1))
        self.assertLessEqual({"checkpoints/last.ckpt", "metrics.csv"}, set(self.objects()))

    def test_a_run_lives_while_it_copies_a_large_file(self):
        self.proxy.faults = [Fault("hold", method="PUT", path=r"last\.ckpt")]
        first = self.start("a", every="0.5s")
        wait_until(lambda: not self.proxy.faults[0].count, "the upload")
        self.assertIn("belongs to a run that is still alive", self.levin("b", status=1))
        self.proxy.go.set()
        self.assertEqual(first.wait(timeout=120), 0)
        self.assert_as_local()

    def test_an_evaluation_does_not_take_a_file_whose_copy_was_cut(self):
        self.levin("a", epochs=1)
        process = self.start_held(r"last\.ckpt", "a", epochs=2)
        process.kill()
        process.wait()
        self.proxy.go.set()
        self.levin("b")
        last = f"--ckpt_path={ROOT}/levin_logs/version_0/checkpoints/last.ckpt"
        outputs = [self.levin(machine, "validate", last) for machine in ("a", "new")]
        self.assertEqual(*(output[output.index("validate metrics"):] for output in outputs))

    def test_a_store_that_does_not_answer_lets_a_stopped_run_end(self):
        process = self.start("a", epochs=10**6, every="0.2s")
        wait_until(lambda: "checkpoints/last.ckpt" in self.objects(), "a checkpoint in the store")
        self.proxy.faults = [Fault("hold", count=10**6)]
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=100)
        self.proxy.go.set()
        output = (self.folder / "output.txt").read_text()
        self.assertRegex(output, r"warning: copying files to the object store failed .* What was not copied is kept in")
        self.assertIn(f"ckpt_path: {ROOT}/levin_logs/version_0/checkpoints/interrupted.ckpt", output)
        self.assertNotIn("..", output)
        self.assertEqual(status, 143, output)

    def test_a_server_that_fails_now_and_then_changes_nothing(self):
        self.proxy.faults = [Fault("status", method="PUT", path="last", code=503, count=2), Fault("reset", method="PUT", path="metrics"),
                             Fault("status", method="GET", path="list-type", code=500), Fault("cut", method="GET", path="run.lock", after=3),
                             Fault("reset", method="DELETE", path="best|step")]
        self.levin("a", every="0.2s")
        self.assert_as_local()

    def test_what_a_refusing_store_did_not_take_is_copied_by_the_next_run(self):
        self.proxy.faults = [Fault("status", method="PUT", path="ckpt", code=403, count=10**6)]
        output = self.levin("a", epochs=2, status=1)
        self.assertRegex(output, r"What was not copied is kept in \S+/a/levin/staging/s3_127.0.0.1:\d+/runs/mine/levin_logs/version_0, and is copied by")
        self.proxy.faults = []
        self.assertNotIn("Fetching", self.levin("a"))
        self.assert_as_local()

    def test_a_checkpoint_goes_only_once_its_successor_has_arrived(self):
        self.levin("a", epochs=1)
        before = {name for name in self.objects() if name.endswith(".ckpt")}
        self.proxy.faults = [Fault("status", method="PUT", path=r"ckpt", code=403, count=10**6)]
        self.levin("a", epochs=3, status=1)
        self.assertLessEqual(before, set(self.objects()))

    def test_a_second_run_in_the_folder_is_refused_while_the_first_lives(self):
        first = self.start("a", epochs=10**6, every="0.2s")
        wait_until(lambda: "checkpoints/last.ckpt" in self.objects(), "a checkpoint in the store")
        output = self.levin("b", status=1)
        self.assertRegex(output, rf"the folder s3://runs/mine/levin_logs/version_0/? belongs to a run that is still alive: process {first.pid} on ")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(timeout=60), 143)
        self.assertNotIn("run.lock", self.objects())
        self.assertIn("checkpoints/interrupted.ckpt", self.objects())

    def test_a_run_whose_folder_was_taken_over_stops(self):
        process = self.start("a", epochs=10**6, every="0.2s")
        wait_until(lambda: "run.lock" in self.objects() and "checkpoints/last.ckpt" in self.objects(), "the run's lock")
        lock = json.loads(self.client.get_object(Bucket="runs", Key=VERSION + "run.lock")["Body"].read())
        lock.update(id="other", host="elsewhere", pid=7, machine="another")

        def has_ended():
            """The run may write the lock just after, which no other run would have taken while it lives."""
            if process.poll() is None:
                self.client.put_object(Bucket="runs", Key=VERSION + "run.lock", Body=json.dumps(lock).encode())
            return process.poll() is not None
        wait_until(has_ended, "the end")
        output = (self.folder / "output.txt").read_text()
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("process 7 on elsewhere has begun to write there, so this run no longer copies its files.", output)
        self.assertEqual(json.loads(self.client.get_object(Bucket="runs", Key=VERSION + "run.lock")["Body"].read())["id"], "other")

    def test_new_runs_take_free_versions_and_leave_each_other_alone(self):
        for machine in "ab":
            self.levin(machine, epochs=1, resume="false")
        versions = {name.removeprefix("mine/levin_logs/").split("/")[0] for name in self.objects()
                    if name.startswith("mine/")} | {"version_0"}
        self.assertEqual(versions, {"version_0", "version_1"})

    def test_evaluations_fetch_the_checkpoint_they_need(self):
        self.levin("a")
        before = self.objects()
        checkpoints = ROOT + "/levin_logs/version_0/checkpoints"
        wanted = self.levin("none", "validate", f"--ckpt_path={self.local_run()}/checkpoints/last.ckpt", "--trainer.logger=false",
                            root=self.folder)
        wanted = wanted[wanted.index("validate metrics"):]
        for number, path in enumerate(("last", f"{checkpoints}/last.ckpt", "best", f"{ROOT}/levin_logs/version_0")):
            with self.subTest(path):
                output = self.levin(f"new{number}", "validate", f"--ckpt_path={path}")
                (self.assertIn if "last" in path else self.assertNotIn)(wanted, output)
        self.assertEqual({name: etag for name, etag in self.objects().items() if not name.startswith("mine")}, before)
        output = self.levin("none", "validate", f"--ckpt_path={checkpoints}/no.ckpt", status=1)
        self.assertIn(f"ckpt_path: there is no file {checkpoints}/no.ckpt", output)

    def test_an_evaluation_is_not_disturbed_by_a_run_that_replaces_its_checkpoints(self):
        self.levin("a")
        self.proxy.faults = [Fault("hold", method="GET", path="step.*56")]
        process = subprocess.Popen(self.command("validate", f"--ckpt_path={ROOT}/levin_logs/version_0", "--trainer.logger=false"),
                                   env=self.env("b"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.kill)
        wait_until(lambda: not self.proxy.faults[0].count, "the fetch")
        self.client.delete_object(Bucket="runs", Key=VERSION + "checkpoints/epoch=2-step=56.ckpt")
        self.proxy.go.set()
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, output)
        self.assertIn("val_loss", output)

    def test_places_without_a_network_are_named(self):
        more = "--trainer.callbacks+={class_path: OnExceptionCheckpoint, init_args: {dirpath: s3://runs/mine}}"
        self.assertIn("OnExceptionCheckpointOptions.dirpath: \"s3://runs/mine\" is a URL. Name a folder of this machine",
                      self.levin("a", "fit", more, status=2))
        self.assertIn("s3://runs/mine.onnx is a URL. Name a file of this machine, and copy it.",
                      self.levin("a", "export", "--output=s3://runs/mine.onnx", status=2))

    def test_a_run_that_was_evaluated_meanwhile_continues(self):
        self.levin("a", epochs=1)
        self.levin("a", "validate", "--ckpt_path=last")
        self.levin("b", epochs=2)
        self.levin("b", "test", "--ckpt_path=last", "--data.test_inputs=" + str(self.shared / "x.npy"),
                   "--data.test_targets=" + str(self.shared / "y.npy"))
        self.levin("c")
        self.assert_as_local()
        self.assertLessEqual({f"mine/levin_logs/version_{n}/metrics.csv" for n in (1, 2)}, set(self.objects()))

    def test_places_that_cannot_hold_a_run_are_refused(self):
        output = self.levin("a", "fit", "--trainer.default_root_dir=https://example.org/runs", status=2)
        self.assertIn('"https://example.org/runs" is not a place for runs and checkpoints: name a folder of this machine', output)
        for root in ("gs://runs/x", "file:///runs", "S3://runs/x", "s3:/runs/x"):
            output = self.levin("a", "fit", f"--trainer.default_root_dir={root}", status=2)
            self.assertIn(f'"{root}" is not a place for runs and checkpoints', output)
        output = self.levin("a", "fit", "--trainer.default_root_dir=s3://runs/../x", status=2)
        self.assertIn('does not name a folder of a bucket. Write s3://bucket/folder.', output)
        output = self.levin("a", "fit", "--trainer.logger=SQLiteLogger", status=2)
        self.assertIn("SQLiteLogger: it changes one file all the time, which an object store does not allow. Set path", output)
        self.assertEqual(self.objects(), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
