"""levin sweep as users run it: real trials of a tiny model, killed, stopped, resumed, asked for by Optuna.

  sweep_test.py LEVIN whole|stopped|stopped_long|asked|pages [unittest's arguments]
"""
import glob
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import time

import sweeps
from sweeps import LEVIN, RUN, SUPPORT, Base, few_images, weights


class Whole(Base):
    def test_a_sweep_finds_what_fit_finds_with_the_same_options(self):
        self.sweep_file("max_trials: 3\nslots: 2")
        output = self.sweep("s.yaml")
        self.assertIn("best: trial", output)
        trials = self.state()["trials"]
        self.assertEqual([trial["state"] for trial in trials], ["completed"] * 3)
        best = self.best()
        self.assertEqual(best["value"], min(trial["value"] for trial in trials))
        self.levin("fit", "--config", "run.yaml", *best["overrides"], "--trainer.default_root_dir=by_hand")
        self.assertAlmostEqual(self.val_loss(self.folder / "by_hand"), best["value"], places=5)
        for key in ("config", "checkpoint"):
            self.assertTrue(os.path.isfile(best[key]), best)
        for override in best["overrides"]:
            self.assertIn(override, output)
        # The same command has nothing left to do; with more trials it continues.
        self.sweep("s.yaml")
        self.assertEqual(self.best(), best)
        self.sweep_file("max_trials: 4\nslots: 2")
        self.sweep("s.yaml")
        after = self.state()["trials"]
        self.assertEqual([t["parameters"] for t in after[:3]], [t["parameters"] for t in trials])
        self.assertEqual(len(after), 4)

    def test_a_grid_runs_every_combination(self):
        self.sweep_file(search="{method: grid}", space="space: {model.hidden: {grid: [4, 8]}, trainer.max_epochs: {int: [1, 2]}}")
        self.sweep("s.yaml")
        self.assertEqual([t["overrides"] for t in self.state()["trials"]],
                         [[f"--model.hidden={h}", f"--trainer.max_epochs={e}"] for h in (4, 8) for e in (1, 2)])

    def test_every_value_is_checked_before_anything_starts(self):
        for space, parts in (
                ("{optimizer.lr: {uniform: [-1, 1]}}", ("s.yaml:6:", "space.optimizer.lr: --optimizer.lr=-1", "lr")),
                ("{trainer.precision: {choice: [32-true, 33]}}", ("space.trainer.precision", "33")),
                ("{model.hiden: {choice: [1]}}", ("space.model.hiden", "hidden")),
                ("{trainer.max_epochs: {uniform: [1, 2.5]}}", ("space.trainer.max_epochs", "2.5"))):
            with self.subTest(space):
                self.sweep_file("max_trials: 2", space=f"space: {space}")
                output = self.sweep("s.yaml", status=2)
                for part in (*parts, "nothing was run. See levin sweep --help."):
                    self.assertIn(part, output)
                self.assertFalse((self.folder / "s").exists())

    def test_halving_needs_a_limit_and_checkpoints(self):
        for search, change, part in (
                ("{method: asha, max_resource: 9}", ("", ""), "search.max_resource: 9 is more than the run's "
                 "trainer.max_epochs, 4"),
                ("{method: hyperband}", ("  max_epochs: 4\n", ""), "the run sets no trainer.max_epochs"),
                ("{method: asha}", ("  max_epochs: 4\n", "  max_epochs: 4\n  enable_checkpointing: false\n"),
                 "a paused trial is a checkpoint")):
            with self.subTest(search):
                self.write("run.yaml", RUN.replace(*change) if change[0] else RUN)
                self.sweep_file("max_trials: 2", search=search)
                self.assertIn(part, self.sweep("s.yaml", status=2))

    def test_another_search_in_the_same_folder_is_refused(self):
        self.sweep_file("max_trials: 1")
        self.sweep("s.yaml", "--prepare")
        self.sweep_file("max_trials: 1\nseed: 4")
        self.assertIn("was started with a different seed. Restore the old values, or start a new sweep with --folder NAME.",
                      self.sweep("s.yaml", status=2))
        self.sweep_file("max_trials: 1")
        self.write("run.yaml", RUN.replace("hidden: 4", "hidden: 5"))
        self.assertIn("was started with a different run.", self.sweep("s.yaml", status=2))

    # Reliability: runtime_error.
    def test_a_failing_trial_is_retried_and_does_not_end_the_sweep(self):
        (self.folder / "empty").mkdir()
        space = f'space: {{data.root: {{grid: ["{self.folder}/empty", ""]}}}}'
        self.sweep_file("max_retries: 1", search="{method: grid}", space=space)
        output = self.sweep("s.yaml")
        bad, good = self.state()["trials"]
        self.assertEqual((bad["state"], bad["failures"], good["state"]), ("failed", 2, "completed"), output)
        self.assertIn("exit status 1; its output is in", bad["error"])
        self.assertIn(f"{self.folder}/empty", bad["error"])
        self.assertIn("failed and starts again", output)

    def test_failures_in_a_row_end_the_sweep(self):
        (self.folder / "empty").mkdir()
        self.write("run.yaml", RUN.replace(str(few_images()), f'"{self.folder}/empty"'))
        self.sweep_file("max_trials: 5\nmax_retries: 0\nmax_failures: 2")
        output = self.sweep("s.yaml", status=1)
        self.assertIn("the sweep ends after 2 failed trials in a row (max_failures)", output)
        self.assertEqual([t["state"] for t in self.state()["trials"]], ["failed", "failed"])

    def test_a_metric_that_is_not_logged_is_named_with_those_that_are(self):
        self.sweep_file("max_trials: 4")
        good = (self.folder / "s.yaml").read_text()
        self.write("s.yaml", good.replace("metric: val_loss", "metric: val_los"))
        output = self.sweep("s.yaml", status=1)
        self.assertRegex(output, r'no trial can be ranked: trial 0: the run did not log "val_los"\. '
                               r'Did you mean "val_loss"\? Logged: .*val_loss')
        (trial,) = self.state()["trials"]
        self.assertEqual((trial["state"], trial["launches"], trial["failures"]), ("waiting", 1, 0))
        # With the right name the trial counts unchanged, and the sweep continues; then the metric is fixed.
        (rows,) = glob.glob(f"{glob.escape(trial['folder'])}/**/metrics.csv", recursive=True)
        before = pathlib.Path(rows).read_bytes()
        self.write("s.yaml", good)
        self.sweep("s.yaml")
        self.assertEqual([t["state"] for t in self.state()["trials"]], ["completed"] * 4)
        self.assertEqual(pathlib.Path(rows).read_bytes(), before, "it was not trained again")
        self.write("s.yaml", good.replace("metric: val_loss", "metric: val_acc"))
        self.assertIn("was started with a different metric", self.sweep("s.yaml", status=2))

    def test_words_that_are_wrong_are_named(self):
        self.assertIn("expected a sweep file, or status", self.sweep(status=2))
        self.assertIn("no sweep in", self.sweep("status", "nowhere", status=1))
        self.assertIn("expected a sweep's folder and a trial's number", self.sweep("tell", "s", status=2))
        self.sweep_file("max_trials: 1")
        self.assertIn("--prepar: unknown option.", self.sweep("s.yaml", "--prepar", status=2))
        self.assertIn("levin sweep", self.sweep("--help"))


class Killed(Base):
    """Helpers for the tests of killed sweeps."""

    def killed(self, folder, times):
        """Runs the sweep to its end, killing it and its trials this many times."""
        chance = random.Random(3)
        for _ in range(times):
            process = self.start("s.yaml", "--folder", folder)
            time.sleep(chance.uniform(1, 3))
            process.kill()
            process.wait()
            if chance.random() < 0.7 and (self.folder / folder / "sweep.sqlite").exists():
                self.kill_trials(folder)  # otherwise the next sweep finds them alive
        self.sweep("s.yaml", "--folder", folder)

    def expect_same(self, first, second):
        def essence(folder):
            return [(t["parameters"], t["state"], t["value"], t["rungs"]) for t in self.state(folder)["trials"]]
        self.assertEqual(essence(first), essence(second))
        one, other = self.best(first), self.best(second)
        self.assertEqual((one["trial"], one["value"]), (other["trial"], other["value"]))
        self.assertEqual(weights(one["checkpoint"]), weights(other["checkpoint"]))

    def expect_the_same_best_trial(self, trials, times):
        self.write("run.yaml", RUN.replace("max_epochs: 4", "max_epochs: 1").replace("_batches: 3", "_batches: 2"))
        self.sweep_file(f"max_trials: {trials}\nslots: 2", search="{method: sobol}")
        self.sweep("s.yaml", "--folder", "whole")
        self.killed("killed", times)
        self.assertEqual(len(self.state("killed")["trials"]), trials)
        self.expect_same("whole", "killed")

    def expect_the_same_decisions_of_asha(self, trials, times):
        # With several slots its decisions depend on the order in which trials end.
        self.sweep_file(f"max_trials: {trials}", search="{method: asha, reduction_factor: 2}")
        self.sweep("s.yaml", "--folder", "whole")
        self.killed("killed", times)
        self.expect_same("whole", "killed")
        self.assertEqual({r["resource"] for t in self.state("whole")["trials"] for r in t["rungs"]}, {1, 2, 4})


class StoppedLong(Killed):
    def test_thirty_trials_killed_six_times_end_with_the_same_best_trial(self):
        self.expect_the_same_best_trial(30, 6)

    def test_asha_with_twelve_trials_decides_the_same_when_it_is_killed(self):
        self.expect_the_same_decisions_of_asha(12, 3)


class Stopped(Killed):
    # Reliability: killed.
    def test_sixteen_trials_killed_four_times_end_with_the_same_best_trial(self):
        self.expect_the_same_best_trial(16, 4)

    def test_asha_with_one_slot_decides_the_same_when_it_is_killed(self):
        self.expect_the_same_decisions_of_asha(8, 2)

    def test_hyperband_decides_the_same_with_any_number_of_slots(self):
        self.sweep_file("slots: 1", search="{method: hyperband, reduction_factor: 2}")
        self.sweep("s.yaml", "--folder", "one")
        self.sweep_file("slots: 2", search="{method: hyperband, reduction_factor: 2}")
        self.sweep("s.yaml", "--folder", "two")
        self.expect_same("one", "two")

    def test_a_paused_trial_continues_bitwise_identically(self):
        self.sweep_file("max_trials: 4", search="{method: asha, reduction_factor: 2}")
        self.sweep("s.yaml")
        trial = max(self.state()["trials"], key=lambda t: t["resource"])
        self.assertEqual((trial["resource"], trial["launches"]), (4, 3), "it was paused twice")
        self.levin("fit", "--config", "run.yaml", *trial["overrides"], "--trainer.default_root_dir=whole")
        (paused,) = glob.glob(f"{glob.escape(trial['folder'])}/**/last.ckpt", recursive=True)
        (whole,) = glob.glob(f"{glob.escape(str(self.folder / 'whole'))}/**/last.ckpt", recursive=True)
        self.assertEqual(weights(paused), weights(whole))

    def test_stop_after_stops_between_epochs_and_between_steps(self):
        for text, done in (("epoch=2", "epoch 2, step 6"), ("step=4", "epoch 1, step 4")):
            with self.subTest(text):
                name = text.replace("=", "_")
                arguments = ("fit", "--config", "run.yaml", f"--trainer.default_root_dir={name}", "--trainer.auto_resume=true")
                output = self.levin(*arguments, status=3, env={"LEVIN_STOP_AFTER": text})
                self.assertIn(f"fit was stopped by LEVIN_STOP_AFTER in {done}", output)
                output = self.levin(*arguments, status=3, env={"LEVIN_STOP_AFTER": text})  # it is there already
                self.assertIn(f"fit was stopped by LEVIN_STOP_AFTER in {done}", output)
                self.levin(*arguments)
        self.levin("fit", "--config", "run.yaml", "--trainer.default_root_dir=whole")
        found = [weights(next((self.folder / n).rglob("last.ckpt"))) for n in ("epoch_2", "step_4", "whole")]
        self.assertEqual(found[0], found[2])
        self.assertEqual(found[1], found[2])
        output = self.levin("fit", "--config", "run.yaml", status=2, env={"LEVIN_STOP_AFTER": "later"})
        self.assertIn('LEVIN_STOP_AFTER: expected epoch=N or step=N with N >= 1, got "later"', output)

    # Reliability: sigint.
    def test_ctrl_c_leaves_checkpoints_and_says_how_to_continue(self):
        self.write("run.yaml", RUN.replace("max_epochs: 4", "max_epochs: 2000"))
        self.sweep_file("max_trials: 2\nslots: 2")
        process = self.start("s.yaml")
        self.wait_for_checkpoints(2)
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        self.assertEqual(process.wait(), 130, output)
        self.assertIn("its trials are at checkpoints. To continue: levin sweep s.yaml", output)
        self.assertEqual([t["state"] for t in self.state()["trials"]], ["waiting", "waiting"])
        self.assertEqual(len(list(self.folder.glob("s/trials/*/**/interrupted*.ckpt"))), 2)

    # Reliability: second_run.
    def test_a_second_sweep_of_the_folder_is_refused(self):
        self.write("run.yaml", RUN.replace("max_epochs: 4", "max_epochs: 2000"))
        self.sweep_file("max_trials: 1")
        process = self.start("s.yaml")
        self.wait_for_checkpoints(1)
        output = self.sweep("s.yaml", status=1)
        self.assertIn(f"is being run by process {process.pid}", output)
        process.send_signal(signal.SIGINT)
        process.wait()


OPTUNA = """\
import json, sys
import optuna
levin, folder, support = sys.argv[1:]
sys.path.insert(0, support)
from levin_runs import run_levin
def sweep(*arguments):
    done = run_levin([levin, "sweep", *arguments, "--json"], merge=False)
    done.check_returncode()
    return json.loads(done.stdout)
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=3))
for _ in range(8):
    trial = study.ask()
    params = {"optimizer.lr": trial.suggest_float("optimizer.lr", 0.001, 1, log=True),
              "model.hidden": trial.suggest_categorical("model.hidden", [4, 8]),
              "model.dropout": trial.suggest_float("model.dropout", 0, 0.5)}
    number = sweep("ask", folder, "--params", json.dumps(params))["trial"]
    study.tell(trial, sweep("wait", folder, str(number))["value"])
print(json.dumps({"value": study.best_value, "params": study.best_params}))
"""


class Asked(Base):
    def test_optuna_drives_a_sweep(self):
        python = "/usr/bin/python3"
        if subprocess.run([python, "-c", "import optuna"], capture_output=True).returncode != 0:
            self.skipTest("python3-optuna is not installed")
        self.sweep_file("max_trials: 8", search="{method: ask}")
        self.write("tpe.py", OPTUNA)
        self.sweep("s.yaml", "--prepare")
        process = self.start("s.yaml")
        done = subprocess.run([python, "tpe.py", LEVIN, "s", SUPPORT], cwd=self.folder, env=self.env, text=True, timeout=400,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        output = process.stdout.read()
        self.assertEqual(process.wait(), 0, output)
        found, best = json.loads(done.stdout.splitlines()[-1]), self.best()
        self.assertEqual(found["value"], best["value"])
        self.assertEqual(found["params"], best["parameters"])
        self.assertIn("all 8 trials were asked for (max_trials)", self.sweep("ask", "s", status=1))

    def test_a_value_from_outside_ends_a_trial(self):
        self.sweep_file("max_trials: 2", search="{method: ask}")
        self.sweep("s.yaml", "--prepare")
        asked = json.loads(self.sweep("ask", "s", "--json"))
        self.assertEqual((asked["trial"], asked["state"]), (0, "waiting"))
        self.assertIn("is still waiting after 0.2 s", self.sweep("wait", "s", 0, "--timeout", "0.2", status=1))
        self.assertIn('--value: expected a number, got "x"', self.sweep("tell", "s", 0, "--value", "x", status=2))
        self.sweep("tell", "s", 0, "--value", "0.25")
        self.assertEqual(self.sweep("wait", "s", 0).strip(), "0.25")
        self.assertIn("trial 0 is completed, and only one that waits", self.sweep("tell", "s", 0, "--value", "1", status=1))
        self.assertIn("model.hidden: 5 is not in choice [4, 8]", self.sweep(
            "ask", "s", "--params", '{"optimizer.lr": 0.1, "model.hidden": 5, "model.dropout": 0}', status=2))
        self.assertEqual(self.best()["value"], 0.25)


class Pages(Base):
    def test_status_and_report_show_every_trial(self):
        self.sweep_file("max_trials: 4", search="{method: ask}")
        self.sweep("s.yaml", "--prepare")
        self.assertIn("no trial in", self.sweep("best", "s", status=1))
        values = [0.5, 0.25, 0.75, 0.375]
        for number, value in enumerate(values):
            self.sweep("ask", "s")
            self.sweep("tell", "s", number, "--value", value)
        status = self.sweep("status", "s")
        self.assertIn("4/4 done, 0 running, best val_loss 0.25 (trial 1)", status)
        null = pathlib.Path(self.folder) / "null"
        null.symlink_to("/dev/null")
        self.assertEqual(self.sweep("report", "s", "--output", null).strip(), str(null))
        self.assertEqual(os.readlink(null), "/dev/null")
        path = self.sweep("report", "s").strip()
        page = pathlib.Path(path).read_text()
        for part in ("best so far", "parallel coordinates", "Importance", "Spearman", "prefers-color-scheme: dark",
                     "width=device-width", "optimizer.lr", *map(str, values)):
            self.assertIn(part, page)
        self.assertEqual(page.count("<polyline class=\"trial\""), 3)
        self.assertEqual(page.count("<polyline class=\"best\""), 1)
        for part in ("<script", "http://", "https://"):
            self.assertNotIn(part, page)
        # On a phone a chart is not drawn smaller than it is, which would make its text unreadable: it scrolls.
        charts = re.findall(r'<div class="wide"><svg style="min-width:([\d.]+)px" viewBox="0 0 ([\d.]+) ', page)
        self.assertEqual([width for width, _ in charts], [width for _, width in charts])
        self.assertEqual((len(charts), page.count("<svg"), page.count("</svg></div>")), (3, 3, 3))

    def test_the_database_can_be_read_by_sqlite(self):
        self.sweep_file("max_trials: 1", search="{method: ask}")
        self.sweep("s.yaml", "--prepare")
        self.sweep("ask", "s")
        with sqlite3.connect(self.folder / "s" / "sweep.sqlite") as database:
            self.assertEqual(database.execute("SELECT id, state FROM trials").fetchall(), [(0, "waiting")])
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])


if __name__ == "__main__":
    sweeps.main({"whole": Whole, "stopped": Stopped, "stopped_long": StoppedLong, "asked": Asked, "pages": Pages})
