"""A table trains, evaluates and predicts from a run file alone: `levin fit`, `levin test` and `levin predict` with TabularModel.

    table_runs_test.py LEVIN
"""
import csv
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin

LEVIN = ""
CITIES = {"Bonn": 0, "Ulm": 40, "Jena, Thuringia": 80, 'the "old" town': -40}
RUN = """
seed_everything: 1
trainer: {{max_epochs: 15, enable_progress_bar: false, callbacks: [{{class_path: ModelCheckpoint, init_args: {{monitor: val_loss}}}}]}}
model: {{class_path: TabularModel, init_args: {{hidden: [32], dropout: 0, lr: 0.02}}}}
data: {{class_path: TableCsv, init_args: {{path: houses.csv, id: address, features: [city, size, kind], target: {target}, batch_size: 64}}}}
"""


def houses(rows, seed, cities=tuple(CITIES)):
    """Rows with a price in thousands, which is 2 for a square metre and depends on the city; some sizes are missing."""
    draw = random.Random(seed)
    for row in range(rows):
        city, size, kind = draw.choice(cities), draw.gauss(100, 25), draw.choice([1, 2])
        price = 2 * size + CITIES.get(city, 0) + 30 * kind
        known = draw.random() > 0.1
        yield {"address": f"{row} Main St", "city": city if draw.random() > 0.05 else "", "size": f"{size:.2f}" if known else "NA",
               "kind": kind, "price": f"{price:.3f}", "band": "dear" if price > 250 else "cheap"}


class TableRuns(unittest.TestCase):
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


if __name__ == "__main__":
    LEVIN = sys.argv.pop(1)
    unittest.main()
