"""`levin runs` on folders of real fits and of older ones.

  runs_test.py LEVIN [unittest's arguments]
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def levin(folder, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    env.update(OMP_NUM_THREADS="1", NO_COLOR="1")
    done = run_levin([LEVIN, *arguments], cwd=folder, env=env, timeout=300)
    return done.returncode, done.stdout


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="levin_runs_")
        cls.root = pathlib.Path(cls._folder.name)
        for lr in ("0.001", "0.01"):
            status, output = levin(cls.root, "fit", "--config", str(SOURCE / "configs/fashion_mnist.yaml"),
                                   "--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.limit_train_batches=20",
                                   "--trainer.limit_val_batches=2", "--trainer.log_every_n_steps=2", "--test_after_fit=false",
                                   "--trainer.oversubscribe=true", f"--model.lr={lr}")
            if status != 0:
                raise unittest.SkipTest(f"the example's data are not there: {output[-300:]}")

    @classmethod
    def tearDownClass(cls):
        cls._folder.cleanup()

    def test_a_table_has_a_line_for_each_run_and_what_differs(self):
        status, output = levin(self.root, "runs")
        self.assertEqual(status, 0, output)
        lines = output.splitlines()
        self.assertRegex(lines[0], r"^name +status +.*\blr\b.*val_acc best +last$")
        self.assertEqual({line.split()[0] for line in lines[1:3]}, {"levin_logs/version_0", "levin_logs/version_1"})
        self.assertTrue(all(len(line) <= 80 for line in lines[:3]), output)

    def test_json_agrees_with_the_metrics_file(self):
        status, output = levin(self.root, "runs", "--json", "--sort", "name")
        self.assertEqual(status, 0, output)
        runs = json.loads(output)["runs"]
        self.assertEqual([run["hparams"]["lr"] for run in runs], ["0.001", "0.01"])
        for run in runs:
            rows = (self.root / run["folder"] / "metrics.csv").read_text().splitlines()
            column = rows[0].split(",").index("train_loss")
            values = [float(row.split(",")[column]) for row in rows[1:] if row.split(",")[column]]
            self.assertEqual(run["metrics"]["train_loss"]["last"], values[-1])
            self.assertEqual(run["metrics"]["train_loss"]["min"], min(values))

    def test_filters_and_orders_choose_runs(self):
        for arguments, expected in (("--filter lr>0.005", ["0.01"]), ("--filter lr<0.005", ["0.001"]),
                                    ("--sort -lr", ["0.01", "0.001"]), ("--sort lr --limit 1", ["0.001"]),
                                    ("--filter lr>0.005 --filter lr<0.006", [])):
            status, output = levin(self.root, "runs", "--json", *arguments.split())
            self.assertEqual(status, 0, output)
            self.assertEqual([run["hparams"]["lr"] for run in json.loads(output)["runs"]], expected, arguments)
        self.assertEqual(levin(self.root, "runs", "--filter", "lr>1")[1], "No run matches; there are 2.\n")

    def test_the_runs_of_several_folders_are_one_table(self):
        logs = self.root / "levin_logs"
        status, output = levin(self.root, "runs", "levin_logs/version_1", "levin_logs", str(logs / "version_0"), "--sort", "lr",
                               "--json")
        self.assertEqual(status, 0, output)
        self.assertEqual([(run["name"], run["hparams"]["lr"]) for run in json.loads(output)["runs"]],
                         [("levin_logs/version_0", "0.001"), ("levin_logs/version_1", "0.01")])
        self.assertEqual(levin(self.root, "runs", "send", "levin_logs", str(logs)), (0, "Nothing waits to be sent.\n"))
        status, output = levin(self.root, "runs", "send", "levin_logs", "--all")
        self.assertEqual(status, 2)
        self.assertIn('"--all": unknown option.', output)

    def test_mistakes_are_named(self):
        for arguments, message in ((["--sort", "val_los"], '--sort: no run has a column "val_los". Did you mean "val_loss"?'),
                                   (["--metrics", "nothing"], '--metrics: no run has a column "metrics.nothing".'),
                                   (["--filter", "lr"], '--filter "lr": it compares nothing.'),
                                   (["--limit", "x"], 'limit: expected a whole number'),
                                   (["--sorted"], '"--sorted": unknown option. Did you mean "--sort"?'),
                                   (["--filter"], "--filter: no value follows. Write --filter=VALUE."),
                                   (["nowhere"], "nowhere: the folder does not exist."),
                                   ([".", "nowhere"], "nowhere: the folder does not exist.")):
            status, output = levin(self.root, "runs", *arguments)
            self.assertEqual(status, 2, output)
            self.assertIn(message, output)

    def test_a_folder_without_runs_explains_what_a_run_is(self):
        with tempfile.TemporaryDirectory() as empty:
            status, output = levin(empty, "runs")
        self.assertEqual((status, output), (0, "No runs below .. A run's folder has run.json, or metrics.csv and hparams.yaml.\n"))

    def test_help_lists_the_options(self):
        status, output = levin(self.root, "runs", "--help")
        self.assertEqual(status, 0)
        for option in ("--metrics", "--sort", "--filter", "--limit", "--json"):
            self.assertIn(option, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
