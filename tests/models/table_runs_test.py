"""A table trains, evaluates and predicts from a run file alone: `levin fit`, `levin test` and `levin predict` with TabularModel.

    table_runs_test.py LEVIN
"""
import csv
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import object_servers
from levin_runs import run_levin
from object_servers import KEY, SECRET, FolderServer, Moto
from waiting import wait_until

LEVIN = ""
CITIES = {"Bonn": 0, "Ulm": 40, "Jena, Thuringia": 80, 'the "old" town': -40}
RUN = """
seed_everything: 1
trainer: {{max_epochs: 15, enable_progress_bar: false, callbacks: [{{class_path: ModelCheckpoint, init_args: {{monitor: val_loss}}}}]}}
model: {{class_path: TabularModel, init_args: {{hidden: [32], dropout: 0, lr: 0.02}}}}
data: {{class_path: TableCsv, init_args: {{path: houses.csv, id: address, features: [city, size, kind], target: {target}, batch_size: 64}}}}
"""

RANKS_RUN = """
seed_everything: 1
trainer: {{max_epochs: {epochs}, accelerator: cpu, devices: {devices}, {strategy} auto_resume: true, enable_progress_bar: false,
           logger: CSVLogger, callbacks: [{{class_path: ModelCheckpoint, init_args: {{every_n_train_steps: 5, save_last: true}}}}]}}
model: {{class_path: TabularModel, init_args: {{hidden: [32], dropout: 0, lr: 0.02}}}}
data: {{class_path: {data}, init_args: {{path: {folder}/houses.{ending}, test_path: {folder}/new.{ending}, id: address,
        features: [city, size, kind], target: {target}, batch_size: {batch}, drop_last: {drop_last}, shuffle: {shuffle},
        num_workers: {workers}}}}}
"""
ARROW = pathlib.Path(os.environ.get("LEVIN_HOME") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "levin") / "arrow-python"


def houses(rows, seed, cities=tuple(CITIES)):
    """Rows with a price in thousands, which is 2 for a square metre and depends on the city; some sizes are missing."""
    draw = random.Random(seed)
    for row in range(rows):
        city, size, kind = draw.choice(cities), draw.gauss(100, 25), draw.choice([1, 2])
        price = 2 * size + CITIES.get(city, 0) + 30 * kind
        known = draw.random() > 0.1
        yield {"address": f"{row} Main St", "city": city if draw.random() > 0.05 else "", "size": f"{size:.2f}" if known else "NA",
               "kind": kind, "price": f"{price:.3f}", "band": "dear" if price > 250 else "cheap"}


class TableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, rows, columns):
        with open(self.folder / name, "w", newline="") as file:
            table = csv.DictWriter(file, columns, extrasaction="ignore")
            table.writeheader()
            table.writerows(rows)

    def levin(self, *arguments):
        done = run_levin([LEVIN, *arguments], cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


class TableRuns(TableTest):
    def predictions(self, target):
        """Trains, removes the table, and predicts other rows without a target: their truths and the rows of the output."""
        (self.folder / "run.yaml").write_text(RUN.format(target=target))
        self.write("houses.csv", houses(2000, 1), ["address", "city", "size", "kind", "price", "band"])
        new = list(houses(300, 2))
        self.write("new.csv", new, ["kind", "more", "size", "city", "address"])
        self.levin("fit", "--config", "run.yaml")
        (self.folder / "houses.csv").unlink()
        self.levin("predict", "--config", "run.yaml", "--ckpt_path", "best", "--data.test_path=new.csv", "--output", "out.csv")
        with open(self.folder / "out.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["id"] for row in rows], [row["address"] for row in new])
        return new, rows

    def test_a_regression(self):
        new, rows = self.predictions("price")
        errors = [abs(float(row["prediction"]) - float(truth["price"])) for truth, row in zip(new, rows)
                  if truth["size"] != "NA" and truth["city"]]
        mean = sum(float(row["price"]) for row in new) / len(new)
        spread = sum(abs(float(row["price"]) - mean) for row in new) / len(new)
        self.assertLess(sum(errors) / len(errors), spread / 8)

    def test_a_classification(self):
        new, rows = self.predictions("band")
        self.assertEqual({row["class"] for row in rows}, {"cheap", "dear"})
        self.assertTrue(all(0.5 <= float(row["probability"]) <= 1 for row in rows))
        right = [row["class"] == truth["band"] for truth, row in zip(new, rows) if truth["size"] != "NA" and truth["city"]]
        self.assertGreater(sum(right) / len(right), 0.93)

    def test_a_city_that_no_training_row_has(self):
        self.predictions("price")
        self.write("new.csv", houses(20, 3, ["Oslo"]), ["address", "city", "size", "kind", "price"])
        output = self.levin("test", "--config", "run.yaml", "--ckpt_path", "best", "--data.test_path=new.csv")
        self.assertIn("test_mae", output)


class TableRanks(TableTest):
    """Two ranks with half the batch give the run of one process."""

    def setUp(self):
        super().setUp()
        columns = ["address", "city", "size", "kind", "price", "band"]
        self.write("houses.csv", houses(1037, 1), columns)
        self.write("new.csv", houses(301, 2), columns)

    def run_file(self, name, devices, data="TableCsv", target="price", drop_last=False, shuffle=True, epochs=3):
        root = self.folder / name
        root.mkdir()
        (root / "run.yaml").write_text(RANKS_RUN.format(
            epochs=epochs, devices=devices, strategy="strategy: ddp," if devices > 1 else "", data=data, folder=self.folder,
            ending="csv" if data == "TableCsv" else "parquet", target=target, batch=32 // devices, workers=devices - 1,
            drop_last=str(drop_last).lower(), shuffle=str(shuffle).lower()))
        return root

    def levin_in(self, root, command, *arguments):
        done = run_levin([LEVIN, command, "--config", "run.yaml", *arguments], cwd=root)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def table(self, path):
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    def results(self, root):
        """The validation's metrics, the tested ones, and the predictions."""
        self.levin_in(root, "fit")
        (metrics,) = root.glob("levin_logs/*/metrics.csv")
        tested = [line.split() for line in self.levin_in(root, "test", "--ckpt_path", "last").splitlines() if "test_" in line]
        self.levin_in(root, "predict", "--ckpt_path", "last", "--output", "out.csv")
        validated = [row["val_loss"] for row in self.table(metrics) if row["val_loss"]]
        return validated, tested, self.table(root / "out.csv")

    def assert_near(self, one, two):
        """Equal but for the order in which ranks add up floats."""
        self.assertEqual(len(one), len(two))
        for a, b in zip(one, two):
            self.assertAlmostEqual(float(a), float(b), delta=1e-3 * (1 + abs(float(a))))

    def assert_ranks_agree(self, **options):
        one, two = (self.results(self.run_file(f"ranks{devices}", devices, **options)) for devices in (1, 2))
        self.assertEqual(len(one[0]), 3)
        self.assert_near(one[0], two[0])
        self.assertEqual([name for name, _ in one[1]], [name for name, _ in two[1]])
        self.assert_near([value for _, value in one[1]], [value for _, value in two[1]])
        self.assertEqual([(row["id"], row["index"]) for row in one[2]], [(row["id"], row["index"]) for row in two[2]])
        self.assertEqual(len(one[2]), 301)
        value = "prediction" if options.get("target", "price") == "price" else "probability"
        self.assert_near([row[value] for row in one[2]], [row[value] for row in two[2]])

    def test_two_ranks_learn_a_number(self):
        self.assert_ranks_agree(drop_last=True)

    def test_two_ranks_learn_a_class_in_the_order_of_the_file(self):
        self.assert_ranks_agree(target="band", shuffle=False)

    @unittest.skipUnless((ARROW / "pandas").is_dir(), "needs pandas and pyarrow. Run ./dev check --peers.")
    def test_two_ranks_read_a_parquet_file(self):
        convert = ("import pandas, sys\nfor name in ('houses', 'new'): pandas.read_csv(name + '.csv').to_parquet(name + '.parquet',"
                   " row_group_size=100)")
        subprocess.run([sys.executable, "-B", "-c", convert], cwd=self.folder, check=True,
                       env={**os.environ, "PYTHONPATH": str(ARROW)})
        self.assert_ranks_agree(data="ParquetData", target="band")

    def test_a_run_of_two_ranks_that_is_killed_resumes_bitwise(self):
        whole, killed = (self.run_file(name, 2, epochs=12) for name in ("whole", "killed"))
        self.levin_in(whole, "fit")
        for kill in range(2):
            process = subprocess.Popen([LEVIN, "fit", "--config", "run.yaml"], cwd=killed, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            before = {path: path.stat().st_mtime_ns for path in killed.rglob("*.ckpt")}
            wait_until(lambda: {path: path.stat().st_mtime_ns for path in killed.rglob("*.ckpt")} != before or
                       process.poll() is not None, "a checkpoint")
            self.assertIsNone(process.poll(), "the run ended before it was killed")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.levin_in(killed, "fit")
        paths = [next(root.glob("levin_logs/*/checkpoints/last.ckpt")) for root in (whole, killed)]
        done = run_levin([LEVIN, "checkpoint", "diff", "--tensors", *map(str, paths)], cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)


class RemoteTables(TableTest):
    """Tables on a web server and in a bucket give the run of files."""

    def setUp(self):
        super().setUp()
        self.tables = self.folder / "tables of 1999"
        self.tables.mkdir()
        columns = ["address", "city", "size", "kind", "price", "band"]
        self.write("tables of 1999/houses.csv", houses(300, 1), columns)
        self.write("tables of 1999/new.csv", houses(50, 2), columns)
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        self.env["XDG_CACHE_HOME"] = str(self.folder / "cache")

    def run_tool(self, name, base, train="houses.csv", test="new.csv", devices=2):
        root = self.folder / name
        root.mkdir(exist_ok=True)
        (root / "run.yaml").write_text(RANKS_RUN.format(
            epochs=1, devices=devices, strategy="strategy: ddp," if devices > 1 else "", data="TableCsv", folder="", ending="csv",
            target="price", batch=16, workers=0, drop_last="false", shuffle="true")
            .replace("/houses.csv", f'"{base}/{train}"').replace("/new.csv", f'"{base}/{test}"'))
        outputs = []
        for command in (["fit"], ["predict", "--ckpt_path", "last", "--output", "out.csv"]):
            done = subprocess.run([LEVIN, command[0], "--config", "run.yaml", *command[1:]], cwd=root, env=self.env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
            if done.returncode != 0:
                return done.stdout
            outputs.append(done.stdout)
        return (root / "out.csv").read_text()

    def server(self):
        server = FolderServer(self.folder)
        self.addCleanup(server.stop)
        return server

    def test_a_web_server(self):
        server = self.server()
        wanted = self.run_tool("near", self.tables)
        self.assertIn("prediction", wanted)
        self.assertEqual(self.run_tool("far", f"{server.url}/tables%20of%201999"), wanted)
        fetched = [path for method, path, *_ in server.requests if method == "GET"]
        self.assertEqual(fetched, ["/tables%20of%201999/houses.csv", "/tables%20of%201999/new.csv"])  # once for two ranks
        self.assertEqual(self.run_tool("again", f"{server.url}/tables%20of%201999"), wanted)
        self.assertEqual(sum(method == "GET" for method, *_ in server.requests), 2)
        self.write("tables of 1999/new.csv", houses(60, 3), ["address", "city", "size", "kind", "price"])
        self.assertEqual(self.run_tool("changed", f"{server.url}/tables%20of%201999").count("\n"), 61)

    def test_a_bucket(self):
        if why := object_servers.missing():
            self.skipTest(why)
        log = open(self.folder / "moto.log", "w")
        self.addCleanup(log.close)
        moto = Moto(log)
        self.addCleanup(moto.stop)
        client = moto.client()
        client.create_bucket(Bucket="data")
        for path in self.tables.iterdir():
            client.put_object(Bucket="data", Key=f"a b/{path.name}", Body=path.read_bytes())
        self.env |= {"AWS_ENDPOINT_URL_S3": moto.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                     "AWS_REGION": "us-east-1"}
        self.assertEqual(self.run_tool("far", "s3://data/a b"), self.run_tool("near", self.tables))

    def test_errors_name_the_url_without_its_secrets(self):
        server = self.server()
        (self.tables / "bad.csv").write_text("address,city,size,kind,price\na,b,1,2,3\na,b,1,2\n")
        (self.tables / "other.csv").write_text("address,city\na,b\n")
        url = f"{server.url}/tables%20of%201999"
        for name, text in (("none.csv", "none.csv: the server has no such file. Correct the path."),
                           ("bad.csv", "bad.csv:3:1: expected 5 fields as in line 1, saw 4."),
                           ("other.csv", "other.csv: no column \"price\"")):
            output = self.run_tool("run", url, train=f"{name}?token=secret", devices=1)
            self.assertIn(f"{url}/{text}", output)
            self.assertNotIn("secret", output)


if __name__ == "__main__":
    LEVIN = sys.argv.pop(1)
    unittest.main()
