"""SQLiteLogger, read by Debian's sqlite3 and by Python's module while runs write: several processes in one file, processes
that are killed, a locked file, a full disk.
"""

import math
import os
import re
import shutil
import sqlite3
import subprocess
import unittest

import driven
from driven import LoggerTest, main, wait_until


class Sqlite(LoggerTest):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "root" / "runs.sqlite"

    def logger(self, resume=False, folder=None, **options):
        return self.driven("SQLiteLogger", options, resume, folder=folder)

    def read(self, query, *values):
        with sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=30) as file:
            rows = file.execute(query, values).fetchall()
        file.close()
        return rows

    def test_a_run_is_in_the_file_with_all_that_it_has_logged(self):
        logger = self.logger(name="first")
        logger("own")
        logger("hparams", {"lr": 0.1, "model": {"layers": [64, 32]}})
        logger("metrics", 0, {"loss": 0.5, "accuracy": 0.25})
        logger("metrics", 1, {"loss": "nan", "accuracy": "inf"})
        logger("text", 2, "sample", "ünïcode\nline")
        logger("table", 2, "confusion", {"columns": ["class", "hits"], "data": [["cat", 3]]})
        logger("histogram", 2, "weights")
        logger("artifact", 2, "last", "checkpoints/last.ckpt")
        logger("final", 2, {"loss": 0.5})
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        (name, folder, status, command, ended), = self.read("SELECT name, folder, status, command, ended - started FROM runs")
        self.assertEqual((name, folder, status), ("first", str(self.folder / "root"), "success"))
        self.assertIn("logger_program", command)
        self.assertGreaterEqual(ended, 0)
        curves = self.read("SELECT metric, step, value FROM curves ORDER BY step, metric")
        self.assertEqual(curves, [("accuracy", 0, 0.25), ("loss", 0, 0.5), ("accuracy", 1, math.inf), ("loss", 1, None)])
        self.assertEqual(self.read("SELECT key, value FROM hparams ORDER BY key"),
                         [("lr", "0.1"), ("model.layers.0", "64"), ("model.layers.1", "32")])
        self.assertEqual(self.read("SELECT text FROM texts"), [("ünïcode\nline",)])
        self.assertEqual(self.read("SELECT json FROM tables"), [('{"columns":["class","hits"],"data":[["cat",3.0]]}',)])
        self.assertEqual(self.read("SELECT json->'$.counts', json->'$.nonfinite' FROM histograms"), [("[1.0,2.0]", "1")])
        self.assertEqual(self.read("SELECT path FROM artifacts"), [(os.path.abspath("checkpoints/last.ckpt"),)])
        self.assertEqual(self.read("SELECT name, value FROM final_metrics"), [("loss", 0.5)])

    def test_after_the_run_the_file_is_complete_without_the_files_next_to_it(self):
        logger = self.logger()
        logger("own")
        logger("metrics", 0, {"loss": 0.5})
        logger("finalize", "success")
        copy = self.folder / "copy.sqlite"  # of the file alone, while the program lives on
        shutil.copy(self.path, copy)
        with sqlite3.connect(copy) as file:
            self.assertEqual(file.execute("SELECT status, value FROM runs, curves").fetchall(), [("success", 0.5)])
        file.close()
        self.assertEqual(logger.end(), 0)
        self.assertEqual(os.listdir(self.path.parent), ["runs.sqlite"])

    @unittest.skipUnless(shutil.which("sqlite3"), "Debian's sqlite3 is not installed")
    def test_debian_s_sqlite3_reads_the_file_during_the_run(self):
        logger = self.logger(flush_every="0.1s")
        logger("own")
        logger("metrics", 7, {"loss": 0.5})  # nothing else is logged: it is there after flush_every

        def shown():
            done = subprocess.run(["sqlite3", str(self.path), "SELECT metric, step, value FROM curves"], capture_output=True,
                                  text=True, check=True)
            return done.stdout
        self.assertEqual(wait_until(shown, "the row"), "loss|7|0.5\n")
        logger("flood", 8, 3000)
        self.assertIn("metric_9|8|8.9", shown())
        logger("finalize", "success")
        logger.end()

    def test_several_processes_write_into_one_file_at_the_same_time(self):
        loggers = [self.logger(flush_logs_every_n_rows=100, busy_timeout="60s") for _ in range(4)]
        for logger in loggers:
            logger("own")
        for logger in loggers:
            logger.send("flood", 0, 1000)
        for logger in loggers:
            logger.answer()
            logger("finalize", "success")
            self.assertEqual(logger.end(), 0)
            self.assertEqual(logger.output, "")
        self.assertEqual(self.read("SELECT count(*), count(DISTINCT run), min(value), max(value) FROM metrics"),
                         [(40000, 4, 0.0, 999.9)])
        self.assertEqual(self.read("SELECT count(*) FROM metrics GROUP BY run"), [(10000,)] * 4)
        self.assertEqual(self.read("PRAGMA integrity_check"), [("ok",)])

    def test_a_killed_process_loses_the_rows_that_waited_and_no_others(self):
        for attempt in range(5):
            folder = self.folder / str(attempt)
            self.path = folder / "runs.sqlite"
            logger = self.logger(folder=folder, flush_logs_every_n_rows=50, flush_every="1h")
            logger("own")
            logger.send("flood", 0, 200000)
            wait_until(lambda: self.read("SELECT count(*) FROM metrics")[0][0] > 100 * attempt, "the first rows")
            logger.kill()
            self.assertEqual(self.read("PRAGMA integrity_check"), [("ok",)])
            rows = self.read("SELECT step, name FROM metrics ORDER BY id")
            self.assertEqual(len(rows) % 50, 0)  # whole transactions
            steps = [step for step, _ in rows]
            self.assertEqual(steps, [k // 10 for k in range(len(rows))])  # from the first on, without gaps
            next_run = self.logger(folder=folder)
            next_run("own")
            self.assertEqual(self.read("SELECT status FROM runs ORDER BY id"), [("killed",), ("running",)])
            next_run("finalize", "failed")
            next_run.end()

    def test_a_resumed_run_continues_without_the_rows_after_its_checkpoint(self):
        other = self.logger()
        other("own")
        first = self.logger()
        first("own")
        first("flood", 0, 5)
        first("text", 4, "sample", "kept")
        first("save")
        state = first("state")
        first("text", 5, "sample", "gone")
        first("flood", 5, 5)
        first("save")
        other("metrics", 100, {"other": 1})  # after the checkpoint, and another run's
        other("save")
        first.kill()
        resumed = self.logger(resume=True)
        resumed("own")
        resumed("load", state)
        resumed("metrics", 5, {"metric_0": -1})
        resumed("finalize", "success")
        resumed.end()
        self.assertEqual(self.read("SELECT uuid, status FROM runs WHERE uuid = ?", state["run"]), [(state["run"], "success")])
        self.assertEqual(self.read("SELECT count(*) FROM runs"), [(2,)])
        rows = self.read("SELECT step, value FROM curves WHERE run = ? AND metric = 'metric_0' ORDER BY step", state["run"])
        self.assertEqual(rows, [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, -1.0)])
        self.assertEqual(self.read("SELECT text FROM texts"), [("kept",)])
        self.assertEqual(self.read("SELECT count(*) FROM curves WHERE metric = 'other'"), [(1,)])
        other("finalize", "success")
        other.end()

    def test_a_run_that_starts_from_another_one_s_checkpoint_is_a_run_of_its_own(self):
        first = self.logger()
        first("own")
        first("metrics", 0, {"loss": 1})
        first("save")
        state = first("state")
        first("finalize", "success")
        first.end()
        second = self.logger()
        second("own")
        second("load", state)
        second("metrics", 1, {"loss": 2})
        second("finalize", "success")
        second.end()
        self.assertEqual(self.read("SELECT step, value FROM curves"), [(0, 1.0), (1, 2.0)])
        self.assertEqual(self.read("SELECT count(DISTINCT run) FROM metrics"), [(2,)])

    def test_rows_wait_while_another_program_has_the_file_locked(self):
        logger = self.logger(flush_logs_every_n_rows=10, busy_timeout="0.1s")
        logger("own")
        lock = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        logger("flood", 0, 10)
        wait_until(lambda: "database is locked" in logger.output, "the message")
        self.assertIn(f"SQLiteLogger: cannot write {self.path}: database is locked. Rows are kept in memory until they can be "
                      "written; training continues.", logger.output)
        lock.execute("ROLLBACK")
        logger("finalize", "success")
        logger.end()
        self.assertIn(f"SQLiteLogger: {self.path} can be written again. It has the 100 rows that waited.", logger.output)
        self.assertEqual(self.read("SELECT count(*) FROM metrics"), [(100,)])

    def test_rows_that_stay_locked_out_are_counted(self):
        logger = self.logger(flush_logs_every_n_rows=10, busy_timeout="0.1s")
        logger("own")
        lock = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        logger("flood", 0, 3)
        logger("finalize", "success")
        logger.end()
        self.assertIn(f"SQLiteLogger: 30 rows are lost: {self.path}: database is locked.", logger.output)
        self.assertIn("SQLiteLogger: cannot write the run's end to", logger.output)

    def test_a_full_disk_keeps_rows_waiting(self):
        # A limit of the file's size stands for a full disk: SQLite reports both as a failed write.
        logger = self.limited(256)
        logger("own")
        logger("flood", 0, 5000)
        wait_until(lambda: "Rows are kept in memory" in logger.output, "the message")
        self.assertRegex(logger.output, "SQLiteLogger: cannot write .*runs.sqlite: (disk I/O error|database or disk is full)")
        logger.kill()
        self.assertEqual(self.read("PRAGMA integrity_check"), [("ok",)])

    def test_a_full_disk_takes_the_rows_that_fit(self):
        logger = self.limited(128, flush_logs_every_n_rows=100000, flush_every="1h")
        logger("own")
        logger("flood", 0, 400)
        logger("finalize", "success")
        logger.end()
        (lost,) = re.findall(r"SQLiteLogger: (\d+) rows are lost: ", logger.output)
        rows = self.read("SELECT step, name FROM metrics ORDER BY id")
        self.assertEqual(len(rows) + int(lost), 4000)
        self.assertGreater(len(rows), 400, "one transaction of all rows takes more than the 128 KiB")
        self.assertEqual([step for step, _ in rows], [k // 10 for k in range(len(rows))])

    def locked(self):
        """Makes a file of an earlier run that another program has locked."""
        first = self.logger()
        first("own")
        first("metrics", 0, {"loss": 1})
        first("save")
        state = first("state")
        first("metrics", 1, {"loss": 2})
        first("save")
        first.kill()
        lock = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(lock.close)
        lock.execute("BEGIN IMMEDIATE")
        return state, lock

    def test_a_file_that_is_locked_at_the_start_is_opened_later(self):
        _, lock = self.locked()
        logger = self.logger(busy_timeout="0.1s")
        self.assertEqual(logger.started, "started")
        logger("own")
        logger("hparams", {"lr": 0.1})
        logger("metrics", 5, {"loss": 0.5})
        self.assertIn(f"SQLiteLogger: cannot write {self.path}: database is locked. Rows are kept in memory until they can be "
                      "written; training continues.", logger.output)
        lock.execute("ROLLBACK")
        logger("final", 5, {"loss": 0.5})
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertIn("can be written again. It has the 1 row that waited.", logger.output)
        run, = self.read("SELECT id FROM runs WHERE status = 'success'")
        self.assertEqual(self.read("SELECT step, value FROM metrics WHERE run = ?", *run), [(5, 0.5)])
        self.assertEqual(self.read("SELECT key, value FROM hparams WHERE run = ?", *run), [("lr", "0.1")])
        self.assertEqual(self.read("SELECT name, value FROM final_metrics WHERE run = ?", *run), [("loss", 0.5)])

    def test_a_run_is_resumed_once_the_file_is_no_longer_locked(self):
        state, lock = self.locked()
        logger = self.logger(resume=True, busy_timeout="0.1s")
        logger("own")
        logger("load", state)
        self.assertEqual(logger("state"), state, "a checkpoint that is saved meanwhile")
        logger("metrics", 1, {"loss": 3})
        lock.execute("ROLLBACK")
        logger("finalize", "success")
        logger.end()
        self.assertEqual(self.read("SELECT uuid, status FROM runs"), [(state["run"], "success")])
        self.assertEqual(self.read("SELECT step, value FROM curves ORDER BY step"), [(0, 1.0), (1, 3.0)])

    def test_what_a_file_that_stays_locked_never_gets_is_named(self):
        self.locked()
        logger = self.logger(busy_timeout="0.1s")
        logger("own")
        logger("hparams", {"lr": 0.1})
        logger("metrics", 5, {"loss": 0.5})
        logger("final", 5, {"loss": 0.5})
        logger("finalize", "success")
        self.assertEqual(logger.end(), 0)
        self.assertIn(f"SQLiteLogger: 1 row is lost, and the hyperparameters, and the final metrics: {self.path}: database is "
                      "locked.", logger.output)

    def limited(self, kibibytes, **options):
        program = driven.PROGRAM
        launcher = self.folder / "limited.sh"
        launcher.write_text(f"#!/bin/bash\nulimit -f {kibibytes}\nexec {program} \"$@\"\n")
        launcher.chmod(0o755)
        driven.PROGRAM = str(launcher)
        try:
            return self.logger(**{"flush_logs_every_n_rows": 100, **options})
        finally:
            driven.PROGRAM = program

    def test_what_is_no_database_of_runs_is_an_error_at_once(self):
        text = self.folder / "notes.txt"
        text.write_text("not a database, but long enough to be looked at " * 100)
        other = self.folder / "other.db"
        with sqlite3.connect(other) as file:
            file.execute("CREATE TABLE mine (x)")
        file.close()
        newer = self.folder / "newer.db"
        with sqlite3.connect(newer) as file:
            file.execute("CREATE TABLE runs (x)")
            file.execute(f"PRAGMA application_id = {0x4C564E52}")
            file.execute("PRAGMA user_version = 99")
        file.close()
        for path, expected in [
                (text, f"SQLiteLogger: cannot open {text}: file is not a database. Check the path, the disk and who else uses "
                       "the file, or choose another path."),
                (self.folder, f"SQLiteLogger: {self.folder} is a folder. Set path of the logger to a file."),
                (other, f"{other} is another program's database. Choose another path for SQLiteLogger."),
                (newer, f"{newer} was made by a newer Levin (format 99, known: 1). Choose another path for SQLiteLogger, or")]:
            logger = self.logger(path=str(path))
            logger.process.wait(60)
            self.assertIn(expected, logger.output)
        self.assertEqual(text.read_text()[:14], "not a database")


if __name__ == "__main__":
    main()
