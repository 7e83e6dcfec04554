"""levin top, as a person sees it: in a real terminal (tmux), and without one. Started as

  top_test.py LEVIN [unittest's arguments]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from levin_runs import run_levin  # noqa: E402
from waiting import wait_until  # noqa: E402

LEVIN = str(pathlib.Path(sys.argv.pop(1)).resolve())
CLEAN = {**os.environ, "OMP_NUM_THREADS": "1"}


class Folder(unittest.TestCase):
    def setUp(self):
        self.out = pathlib.Path(tempfile.mkdtemp(prefix="levin-top-"))
        self.addCleanup(shutil.rmtree, self.out, ignore_errors=True)

    def write_run(self, name="version_0", status="running", rows=40, **more):
        """A run of this process: it is alive as long as the test."""
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hparams.yaml").write_text("lr: 0.1\n")
        with open(folder / "metrics.csv", "w") as file:
            file.write("epoch,step,train_loss,val_acc,val_loss\n")
            for k in range(rows):
                file.write(f"0,{k * 10},{2.0 / (k + 1)},,\n" if k % 10 else f"0,{k * 10},,{k / 100},{1.0 / (k + 1)}\n")
        record = {"format": 1, "command": "fit", "status": status, "started": time.time() - 60, "updated": time.time(),
                  "host": os.uname().nodename, "pid": os.getpid(), "strategy": "ddp", "world_size": 2, "epoch": 1,
                  "max_epochs": 4, "step": 400, "progress": 0.25, "remaining_seconds": 180,
                  "rates": {"batches_per_second": 12.5, "samples_per_second": 800},
                  "time_split": {"data": 5, "forward": 50, "validation": 5},
                  "ranks": [{"rank": rank, "host": "node1", "pid": 4711 + rank, "memory_bytes": 2**29,
                             "peak_memory_bytes": 2**30, "stage": "training"} for rank in range(2)], **more}
        self.replace_record(folder, record)
        return folder, record

    @staticmethod
    def replace_record(folder, record):
        new = folder / "run.json.new"
        new.write_text(json.dumps(record))
        new.rename(folder / "run.json")

    def top(self, *arguments):
        return run_levin([LEVIN, "top", *arguments], timeout=60, cwd=self.out, env=CLEAN)


class WithoutATerminal(Folder):
    def test_one_line_each_time_until_the_run_ends(self):
        folder, record = self.write_run()
        with subprocess.Popen([LEVIN, "top", folder, "--every", "0.25"], cwd=self.out, env=CLEAN, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            lines = [process.stdout.readline() for _ in range(3)]
            self.replace_record(folder, {**record, "status": "success", "ended": time.time(), "progress": 1.0})
            lines += process.stdout.read().splitlines()
        self.assertEqual(process.returncode, 0, lines)
        for line in lines[:3]:
            self.assertRegex(line, r"^\d\d:\d\d:\d\d running, epoch 1 of 4, step 400, 25 %, train_loss 0\.0\d+, val_loss "
                                   r"[0-9.]+, val_acc 0.3, 12.5 batches/s, 3 min 00 s left$")
        self.assertRegex(lines[-1], r"^the run has ended: success after 1 min ")

    def test_a_run_whose_process_is_gone_has_ended(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.write_run(pid=gone.pid)
        done = self.top(self.out / "version_0")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("the run has ended: killed", done.stdout)

    def test_of_several_runs_the_newest_is_taken_and_reported(self):
        self.write_run("logs/version_0", "success", started=2000, ended=2100)
        self.write_run("logs/version_1", "failed", started=3000, ended=3010, error="out of memory")
        self.write_run("logs/version_2", "success", started=1000, ended=1100)
        done = self.top("logs")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("the newest of 3 runs in logs is logs/version_1", done.stdout)
        self.assertIn("the run has ended: failed after 10.0 s: out of memory", done.stdout)
        self.assertEqual(self.top("logs/version_0").stdout.count("newest"), 0)

    def test_mistakes(self):
        (self.out / "empty").mkdir()
        for arguments, status, parts in [
                (["nowhere"], 1, ["levin top: no folder nowhere.", "levin_logs/version_0"]),
                (["empty"], 1, ["levin top: no run is in empty", "run.json, or metrics.csv and hparams.yaml"]),
                (["a", "b"], 2, ['"b": a second run. Give one folder.']),
                (["--plian"], 2, ['"--plian": unknown option. Did you mean "--plain"?', "See levin top --help."]),
                (["--every=0"], 2, ["every: must be >= 0.1, got 0"])]:
            done = self.top(*arguments)
            self.assertEqual(done.returncode, status, done.stdout)
            for part in parts:
                self.assertIn(part, done.stdout)

    def test_help_explains_the_keys(self):
        done = self.top("--help")
        self.assertEqual(done.returncode, 0)
        for part in ["levin top [RUN]", "q quits", "plain", "every"]:
            self.assertIn(part, done.stdout)


@unittest.skipUnless(shutil.which("tmux"), "tmux is not installed")
class InATerminal(Folder):
    def start(self, *arguments, columns=80, rows=24, env=()):
        self.socket = f"levin-top-{os.getpid()}-{time.monotonic_ns()}"  # of a server of its own
        variables = " ".join(f"{name}={value}" for name, value in env)
        command = f"cd {self.out}; env {variables} {LEVIN} top {' '.join(map(str, arguments))}; echo status $?; sleep 60"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), command)
        self.addCleanup(subprocess.run, ["tmux", "-L", self.socket, "kill-server"], stderr=subprocess.DEVNULL)

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], check=True, text=True, stdout=subprocess.PIPE,
                              env={**CLEAN, "LC_ALL": "C.UTF-8"}).stdout

    def screen(self, *arguments):
        return self.tmux("capture-pane", "-p", *arguments)

    def wait_for_text(self, text):
        def screen_with_text():
            screen = self.screen()
            return text in screen and screen

        return wait_until(screen_with_text, f"{text!r} on the screen")

    def test_the_state_the_curves_and_the_ranks_are_shown_and_q_quits(self):
        folder, _ = self.write_run()
        self.start(folder.name)  # short enough for the first line
        screen = self.wait_for_text("train_loss")
        for part in ["running", "ddp, 2 ranks", "epoch 1 of 4  step 400", "25 %  3 min 00 s left", "12.5 batches/s  800 samples/s",
                     "forward 83 %", "▸train_loss", "val_loss", "4711", "4712", "512.0 MiB  1.0 GiB", "q quits"]:
            self.assertIn(part, screen)
        self.assertRegex(screen, "[\u2801-\u28ff]{5}")  # braille with dots
        self.tmux("send-keys", "q")
        self.wait_for_text("status 0")

    def test_arrow_keys_choose_a_curve_and_its_metric(self):
        folder, _ = self.write_run()
        self.start(folder)
        self.wait_for_text("▸train_loss")
        self.tmux("send-keys", "Right")
        self.wait_for_text("▸val_loss")
        self.tmux("send-keys", "Down")
        self.wait_for_text("▸val_acc")
        self.tmux("send-keys", "Up")
        self.wait_for_text("▸val_loss")
        self.tmux("send-keys", "Left")
        self.wait_for_text("▸train_loss")

    def test_new_values_are_shown_and_the_end(self):
        folder, record = self.write_run()
        self.start(folder, "--every", "0.2")
        self.wait_for_text("step 400")
        with open(folder / "metrics.csv", "a") as file:
            file.write("1,500,0.0123,,\n")
        self.replace_record(folder, {**record, "step": 501})
        self.wait_for_text("train_loss 0.0123")
        self.wait_for_text("step 501")
        self.replace_record(folder, {**record, "status": "interrupted", "ended": time.time()})
        self.wait_for_text("the run has ended: interrupted")
        self.tmux("send-keys", "q")
        self.wait_for_text("status 0")

    def test_it_follows_the_size_of_the_terminal(self):
        folder, _ = self.write_run()
        self.start(folder)
        self.assertNotIn("val_acc", self.wait_for_text("▸train_loss"))
        self.tmux("resize-window", "-x", "120", "-y", "40")
        self.wait_for_text("val_acc")  # a third curve
        self.assertEqual(len(self.screen().splitlines()), 40)
        self.tmux("resize-window", "-x", "40", "-y", "10")
        wait_until(lambda: "val_loss" not in self.screen() and "train_loss" in self.screen(), "one curve")

    def test_no_color_has_no_colours(self):
        folder, _ = self.write_run()
        self.start(folder)
        self.wait_for_text("train_loss")
        self.assertRegex(self.screen("-e"), "\x1b\\[3[0-9]m")
        self.tmux("kill-server")
        self.start(folder, env=[("NO_COLOR", "1")])
        self.wait_for_text("train_loss")
        self.assertNotRegex(self.screen("-e"), "\x1b\\[3[0-8]m")

    def test_a_terminal_that_was_closed_ends_it(self):
        self.write_run()
        ours, theirs = os.openpty()  # not its controlling terminal, so it gets no signal
        with subprocess.Popen([LEVIN, "top"], cwd=self.out, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                              env={**os.environ, "TERM": "xterm"}) as process:
            os.close(theirs)
            try:
                os.read(ours, 1)  # it draws
                os.close(ours)
                self.assertEqual(process.wait(timeout=60), 0)
            finally:
                process.kill()

    def test_a_terminal_that_is_not_known_is_named(self):
        folder, _ = self.write_run()
        self.start(folder, env=[("TERM", "no-such-terminal")])
        self.wait_for_text("is not known")
        self.assertIn('the terminal "no-such-terminal"', re.sub(r"\s+", " ", self.screen()))
        self.wait_for_text("status 1")

    def test_plain_prints_lines_in_a_terminal_too(self):
        self.write_run(status="success", ended=time.time())
        self.start("version_0", "--plain")
        self.wait_for_text("the run has ended: success")


if __name__ == "__main__":
    unittest.main(verbosity=2)
