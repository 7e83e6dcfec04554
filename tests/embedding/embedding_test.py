#!/usr/bin/env python3
"""embedding_test.py THREADS EXIT LOGGING STORE HOST FIRST SECOND: Levin in programs that own their process. The arguments are the
programs and plugins of this folder."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_port  # noqa: E402

THREADS, EXIT, LOGGING, STORE, HOST, *PLUGINS = sys.argv[1:8]


class Embedding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="levin_embedding_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_program(self, *command, status=0, **variables):
        """Returns what the program has printed: standard output and standard error."""
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **variables})
        self.assertEqual(done.returncode, status, f"{command}:\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def exit(self, way, status=7):
        folder = self.folder / way
        folder.mkdir(exist_ok=True)
        _, errors = self.run_program(EXIT, folder, way, status=status)
        self.assertEqual(errors, "")
        return folder

    def test_runs_on_threads_end_with_the_weights_that_each_has_alone(self):
        self.run_program(THREADS, self.folder)
        for kind in ("steps", "hand", "trainer"):
            run = self.folder / "together0" / kind / "run"
            self.assertEqual(json.loads((run / "run.json").read_text())["status"], "success")
            self.assertIn("loss", (run / "metrics.csv").read_text())

    def test_a_plugin_trains_again_after_it_was_closed(self):
        output, errors = self.run_program(HOST, self.folder, PLUGINS[0], OMP_NUM_THREADS="3")
        first, again, resident = output.splitlines()
        self.assertTrue(first.startswith(("0x", "-0x")), output)
        self.assertEqual(first, again)
        self.assertEqual(resident, "resident")
        self.assertEqual(errors, "")

    def test_two_plugins_train_in_one_process(self):
        output, _ = self.run_program(HOST, self.folder, *PLUGINS)
        *weights, resident = output.splitlines()
        self.assertEqual(len(weights), 4, output)
        self.assertEqual(len(set(weights)), 1, output)
        self.assertTrue(weights[0].startswith(("0x", "-0x")), output)
        self.assertEqual(resident, "resident")

    def test_exit_waits_for_a_step_on_another_thread(self):
        for way in ("step", "recorded", "loader"):
            for _ in range(5):
                self.exit(way)

    def test_exit_inside_a_step(self):
        self.exit("inside")

    def test_exit_does_not_wait_for_a_step_that_does_not_end(self):
        self.exit("stuck")

    def test_a_static_fabric_ends_its_run(self):
        for way in ("static-first", "static-last"):
            run = self.exit(way, status=0) / "run"
            self.assertEqual(json.loads((run / "run.json").read_text())["status"], "success")
            self.assertIn("loss", (run / "metrics.csv").read_text())

    def test_a_host_with_its_own_spdlog_keeps_its_loggers_and_levels(self):
        output, errors = self.run_program(LOGGING, self.folder)
        self.assertEqual(output.split(), "host/E/one of 2; other/E/two of 2; 2 loggers".split())
        self.assertEqual(errors.strip(), "warning: from Levin 0.50")
        log = (self.folder / "run" / "run.log").read_text()
        self.assertRegex(log, r" info +trainer +rank 0")

    def test_a_host_with_its_own_store_and_openmp_settings_keeps_both(self):
        self.run_program(STORE, self.folder, free_port())
        port = free_port()
        self.run_program(STORE, self.folder, port, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                         MASTER_PORT=str(port))  # with one rank nothing connects there

    def test_ranks_of_a_host_with_its_own_store_and_openmp_settings_keep_both(self):
        variables = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = [STORE, str(self.folder), str(free_port())]
        ranks = [subprocess.Popen(command, env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
        try:
            outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertTrue(outputs[0].startswith(("0x", "-0x")), outputs)
        self.assertEqual(*outputs)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
