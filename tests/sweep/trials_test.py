"""levin sweep: which value and which checkpoint a trial has, its time limit, signals, faults of one trial, several
processes in one sweep, overrides.

  trials_test.py LEVIN ranked|ended|disturbed|shared [unittest's arguments]
"""
import csv
import glob
import json
import os
import signal
import sqlite3
import subprocess

import sweeps
from sweeps import LEVIN, RUN, Base
from waiting import alive, wait_until

# The learning rate grows by a factor of 8 each epoch: the first trial's best value is not its last one.
GROWING = RUN.replace("gamma: 0.7", "gamma: 8").replace("save_last: true", 'save_last: false, filename: "{epoch}"')
GROWING_SPACE = "space: {optimizer.lr: {grid: [0.1, 0.002]}}"
LONG = RUN.replace("max_epochs: 4", "max_epochs: 1000000")


def values_of(trial, metric="val_loss"):
    """The values of a metric by epoch, as the trial logged them."""
    (path,) = glob.glob(f"{glob.escape(trial['folder'])}/**/metrics.csv", recursive=True)
    with open(path, newline="", encoding="utf-8") as file:
        return {int(row["epoch"]): float(row[metric]) for row in csv.DictReader(file) if row.get(metric)}


class Ranked(Base):
    def test_last_values_and_checkpoints_of_the_same_epoch(self):
        self.write("run.yaml", GROWING)
        self.sweep_file(search="{method: grid}", space=GROWING_SPACE)
        output = self.sweep("s.yaml")
        trials = self.state()["trials"]
        epochs = [values_of(trial) for trial in trials]
        self.assertLess(min(epochs[0].values()), epochs[0][3], "the best epoch of the first trial is not its last")
        for trial, values in zip(trials, epochs):
            self.assertAlmostEqual(trial["value"], values[3], delta=1e-6 * abs(values[3]))
            saved = min(values, key=values.get)  # save_top_k is 1, and auto_resume keeps the last state
            self.assertEqual(os.path.basename(trial["checkpoint"]), "epoch=3.ckpt" if saved == 3 else "last.ckpt", values)
        self.assertEqual(self.best()["trial"], min((0, 1), key=lambda k: epochs[k][3]))
        self.assertIn("checkpoint: ", output)

    def test_best_values_and_their_checkpoints(self):
        self.write("run.yaml", GROWING)
        self.sweep_file("rank_by: best", search="{method: grid}", space=GROWING_SPACE)
        self.sweep("s.yaml")
        trials = self.state()["trials"]
        for trial in trials:
            values = values_of(trial)
            epoch = min(values, key=values.get)
            self.assertAlmostEqual(trial["value"], values[epoch], places=6)
            self.assertEqual(os.path.basename(trial["checkpoint"]), f"epoch={epoch}.ckpt")
            self.assertTrue(os.path.isfile(trial["checkpoint"]))
        self.assertNotEqual(os.path.basename(trials[0]["checkpoint"]), "epoch=3.ckpt")
        self.assertEqual(self.best()["value"], min(trial["value"] for trial in trials))

    def test_the_last_checkpoint_belongs_to_the_last_value(self):
        self.write("run.yaml", GROWING.replace("save_last: false", "save_last: true"))
        self.sweep_file(search="{method: grid}", space="space: {optimizer.lr: {grid: [0.1]}}")
        self.sweep("s.yaml")
        (trial,) = self.state()["trials"]
        self.assertEqual(os.path.basename(trial["checkpoint"]), "last.ckpt")
        output = self.levin("validate", "--config", trial["config"], f"--ckpt_path={trial['checkpoint']}",
                            "--trainer.default_root_dir=again", "--trainer.logger=CSVLogger")
        again = {"folder": str(self.folder / "again")}
        (value,) = values_of(again).values()
        self.assertAlmostEqual(value, trial["value"], delta=1e-6 * abs(value), msg=output)

    def test_a_checkpoint_of_the_step_before_is_not_the_last_values(self):
        run = (RUN.replace("max_epochs: 4", "max_steps: 9\n  val_check_interval: 9")
               .replace("limit_train_batches: 3", "limit_train_batches: 9"))
        for steps, name in ((8, ""), (9, "last.ckpt")):
            callback = f"{{every_n_train_steps: {steps}, filename: '{{step}}', save_last: with_top_k}}"
            self.write("run.yaml", run.replace("{monitor: val_loss, save_last: true}", callback))
            self.sweep_file(search="{method: grid}", space="space: {optimizer.lr: {grid: [0.1]}}", name=f"s{steps}.yaml")
            self.sweep(f"s{steps}.yaml")
            (trial,) = self.state(f"s{steps}")["trials"]
            self.assertEqual(list(values_of(trial)), [0])
            self.assertEqual(os.path.basename(trial["checkpoint"] or ""), name)

    def test_best_needs_a_callback_that_saves_the_best(self):
        for callback in ("{monitor: val_loss, mode: max}", "{monitor: train_loss}", "{monitor: val_loss, save_top_k: 0}"):
            with self.subTest(callback):
                self.write("run.yaml", RUN.replace("{monitor: val_loss, save_last: true}", callback))
                self.sweep_file("max_trials: 1\nrank_by: best")
                self.assertIn("rank_by: best needs a checkpoint of the best value, and no callback of the run saves one. Add "
                              "{class_path: ModelCheckpoint, init_args: {monitor: val_loss, mode: min}}",
                              self.sweep("s.yaml", status=2))

    def test_metric_files_are_read_by_their_columns(self):
        self.sweep_file("max_trials: 1")
        good = (self.folder / "s.yaml").read_text()
        self.write("s.yaml", good.replace("metric: val_loss", "metric: val_los"))
        self.sweep("s.yaml", status=1)
        (trial,) = self.state()["trials"]
        values = values_of(trial)
        (path,) = glob.glob(f"{glob.escape(trial['folder'])}/**/metrics.csv", recursive=True)
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        with open(path, "w", newline="", encoding="utf-8") as file:  # as if the model had logged a metric with a comma
            csv.writer(file, lineterminator="\n").writerows(
                [row[:2] + ["top 1, 5" if k == 0 else "0.5"] + row[2:] for k, row in enumerate(rows)])
        self.write("s.yaml", good)
        self.sweep("s.yaml")  # the run is complete, so its value is read from the file
        self.assertAlmostEqual(self.best()["value"], values[3], places=6)


class Ended(Base):
    def begin(self, head="", run=LONG):
        """A sweep whose trials have saved a checkpoint and never end by themselves."""
        self.write("run.yaml", run)
        self.sweep_file("max_trials: 2\nslots: 2\n" + head)
        process = self.start("s.yaml")
        self.wait_for_checkpoints(2)
        pids = [trial["pid"] for trial in self.state()["trials"]]
        self.addCleanup(self.kill_trials)
        return process, pids

    def expect_end(self, process, pids, status):
        output = process.stdout.read()
        self.assertEqual(process.wait(), status, output)
        self.assertEqual([pid for pid in pids if alive(pid)], [], "a trial outlived its sweep")
        self.assertEqual([trial["state"] for trial in self.state()["trials"]], ["waiting", "waiting"])
        return output

    # Reliability: sigterm.
    def test_sigterm_is_passed_on_as_sigterm(self):
        process, pids = self.begin()
        process.send_signal(signal.SIGTERM)
        self.expect_end(process, pids, 143)
        for output in self.folder.glob("s/trials/*/output.log"):
            self.assertIn("fit was stopped by SIGTERM", output.read_text())

    def test_a_second_ctrl_c_leaves_no_trial_behind(self):
        process, pids = self.begin()
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)  # they do not react to the first one
        # What comes within half a second is the same request.
        wait_until(lambda: process.poll() is not None or process.send_signal(signal.SIGINT), "the end of the sweep")
        output = self.expect_end(process, pids, 130)
        for trial in (0, 1):
            killed = f"trial {trial}: is killed, as Ctrl-C came again; it continues from its last checkpoint"
            self.assertEqual(output.count(killed), 1, output)
        self.assertIn("the sweep was stopped; its trials are at checkpoints", output)

    def test_trials_that_do_not_stop_are_ended_after_stop_grace(self):
        process, pids = self.begin(run=LONG.replace("trainer:\n", "trainer:\n  stop_grace: 0.5s\n"))
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        self.assertIn("(trainer.stop_grace)", self.expect_end(process, pids, 130))

    def test_the_value_of_a_trial_that_ran_too_long_counts(self):
        self.write("run.yaml", LONG)
        self.sweep_file("max_trials: 1\nmax_trial_time: 6s")
        output = self.sweep("s.yaml")
        self.assertIn("trial 0: is stopped after 6.0 s (max_trial_time)", output)
        (trial,) = self.state()["trials"]
        values = values_of(trial)
        self.assertEqual(trial["state"], "completed", trial["error"])
        self.assertAlmostEqual(trial["value"], values[max(values)], places=5)

    def test_a_trial_that_ran_too_long_and_hangs_has_failed(self):
        self.write("run.yaml", LONG.replace("trainer:\n", "trainer:\n  stop_grace: 0.5s\n"))
        self.sweep_file("max_trials: 1\nmax_trial_time: 4s\nmax_retries: 0")
        self.sweep("s.yaml", "--prepare")
        process = self.start("s.yaml")
        database = sqlite3.connect(self.folder / "s" / "sweep.sqlite")
        self.addCleanup(database.close)
        pids = []
        wait_until(lambda: pids.extend(database.execute("SELECT pid FROM trials WHERE pid > 0")) or pids, "the trial")
        pid = pids[0][0]
        os.killpg(pid, signal.SIGSTOP)
        output = process.stdout.read()
        self.assertEqual(process.wait(), 1, output)
        self.assertFalse(alive(pid))
        (trial,) = self.state()["trials"]
        self.assertEqual(trial["state"], "failed")
        self.assertIn("it has no result after 4.0 s (max_trial_time)", trial["error"])


class Disturbed(Base):
    """One trial meets a fault, and the other one does not."""

    def expect_other_trial_completed(self, output):
        bad, good = self.state()["trials"]
        self.assertEqual((bad["state"], bad["failures"], good["state"]), ("failed", 1, "completed"), output)
        self.assertEqual(self.best()["trial"], 1)
        return bad

    # Reliability: nan_loss.
    def test_a_trial_whose_loss_is_nan_fails_and_the_others_continue(self):
        self.sweep_file("max_retries: 0", search="{method: grid}", space="space: {optimizer.lr: {grid: [1.0e+38, 0.1]}}")
        bad = self.expect_other_trial_completed(self.sweep("s.yaml"))
        self.assertIn("exit status 1; its output is in", bad["error"])
        self.assertRegex(bad["error"], r"the (loss|gradient).* is (nan|inf|not finite)")

    # Reliability: disk_full.
    def test_a_trial_that_cannot_save_fails_and_the_others_continue(self):
        """A limit on the size of files refuses the checkpoints of the wide model alone, as a full disk does."""
        self.sweep_file("max_retries: 0", search="{method: grid}", space="space: {model.hidden: {grid: [64, 4]}}")
        limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 256; exec "$@"', "sh", LEVIN, "sweep", "s.yaml"]  # 128 KiB
        done = subprocess.run(limited, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout)
        bad = self.expect_other_trial_completed(done.stdout)
        self.assertRegex(bad["error"], "nothing of it is saved: all of its checkpoints failed .*File too large")


class Shared(Base):
    def together(self, count, *arguments):
        """The statuses and outputs of several calls that run at the same time."""
        all_of_them = [self.start(*arguments) for _ in range(count)]
        outputs = [process.stdout.read() for process in all_of_them]
        return [process.wait() for process in all_of_them], outputs

    def test_several_processes_begin_one_sweep(self):
        self.sweep_file("max_trials: 1")
        statuses, outputs = self.together(6, "s.yaml", "--prepare")
        self.assertEqual(statuses, [0] * 6, outputs)
        statuses, outputs = self.together(4, "s.yaml")
        for status, text in zip(statuses, outputs):  # one runs it, and the others are refused or find it complete
            self.assertTrue(status == 0 or (status == 1 and "is being run by process" in text), text)
        self.assertIn(0, statuses)
        (trial,) = self.state()["trials"]
        self.assertEqual((trial["state"], trial["launches"]), ("completed", 1))

    def test_trials_that_several_processes_ask_for(self):
        self.sweep_file("max_trials: 4", search="{method: ask}")
        self.sweep("s.yaml", "--prepare")
        statuses, outputs = self.together(7, "ask", "s", "--json")
        asked = [json.loads(text)["trial"] for status, text in zip(statuses, outputs) if status == 0]
        self.assertEqual(sorted(asked), [0, 1, 2, 3], outputs)
        refused = [text for status, text in zip(statuses, outputs) if status != 0]
        for text in refused:
            self.assertIn("all 4 trials were asked for (max_trials)", text)
        parameters = [json.dumps(trial["parameters"]) for trial in self.state()["trials"]]
        self.assertEqual(len(set(parameters)), 4, "each was drawn for its own number")

    def test_overrides_of_the_sweep_and_of_the_run(self):
        self.sweep_file("max_trials: 9")
        self.sweep("s.yaml", "--max_trials=2", "--search.method", "sobol", "--trainer.max_epochs=1")
        trials = self.state()["trials"]
        self.assertEqual([sorted(values_of(trial)) for trial in trials], [[0], [0]])
        with_file = [trial["parameters"] for trial in trials]
        self.sweep_file("max_trials: 2", search="{method: sobol}", name="other.yaml")
        self.sweep("other.yaml", "--prepare")
        self.assertIn("2", self.sweep("status", "other"))
        self.sweep("other.yaml", "--trainer.max_epochs=2", status=2)  # another run
        self.sweep("other.yaml")
        self.assertEqual([trial["parameters"] for trial in self.state("other")["trials"]], with_file)

    def test_overrides_that_cannot_be_are_named(self):
        self.sweep_file("max_trials: 1")
        for arguments, part in ((("s.yaml", "--max_trials=none"), "max_trials"),
                                (("s.yaml", "--slots"), "--slots: no value follows. Write --slots=VALUE."),
                                (("s.yaml", "--search.method=sobbol"), "sobol"),
                                (("s.yaml", "--trainer.max_epoch=1"), "max_epochs"),
                                (("s.yaml", "--optimizer.lr=1"),
                                 "every trial has a value of its own, so --optimizer.lr=1 would change nothing.")):
            with self.subTest(arguments):
                self.assertIn(part, self.sweep(*arguments, status=2))
                self.assertFalse((self.folder / "s").exists())
        self.sweep("s.yaml", "--prepare")
        self.assertIn("--max_trials=3: this command takes no overrides.",
                      self.sweep("status", "s", "--max_trials=3", status=2))


if __name__ == "__main__":
    sweeps.main({"ranked": Ranked, "ended": Ended, "disturbed": Disturbed, "shared": Shared})
