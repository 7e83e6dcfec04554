"""The log of a run, as runs of the tool leave it: one file for each rank."""

import json
import re
import subprocess
import unittest

from tool_runs import LEVIN, ToolTest, main

from ranks import CLEAN

LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (trace|debug|info|warning|error) +([a-z]+) +"
                  r"rank (\d+)(?:, epoch (\d+))?(?:, step (\d+))?: (.*)$")


class RunLog(ToolTest):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "levin_logs/version_0"

    def lines(self, name="run.log"):
        """(level, component, rank, step, text) of each line; one that is not of this form fails the test."""
        found = []
        for line in (self.folder / name).read_text().splitlines():
            match = LINE.match(line)
            self.assertIsNotNone(match, line)
            level, component, rank, _, step, text = match.groups()
            found.append((level, component, int(rank), None if step is None else int(step), text))
        return found

    def messages(self, name="run.log", component=None):
        return [line[4] for line in self.lines(name) if component in (None, line[1])]

    def assert_has(self, messages, pattern):
        self.assertTrue(any(re.search(pattern, text) for text in messages), f"{pattern} is not in {messages}")

    def test_two_ranks_write_two_files(self):
        status, output = self.run_tool(*self.fit, "--trainer.devices=2")
        self.assertEqual(status, 0, output)
        for rank, name in enumerate(["run.log", "run.rank1.log"]):
            lines = self.lines(name)
            self.assertEqual({line[2] for line in lines}, {rank})
            self.assert_has(self.messages(name, "trainer"), r"^levin [0-9.]+, LibTorch .*: fit in .*, process \d+ on ")
            self.assert_has(self.messages(name, "strategy"), rf"^rank {rank} of 2 has joined")
            self.assert_has(self.messages(name, "data"), r"^train: 6 batches of 128, fetched by 2 workers$")
            self.assert_has(self.messages(name, "trainer"), r"^epoch 0 has ended: 6 batches, step 6$")
        self.assert_has(self.messages(component="trainer"), r"^plan: strategy ddp, 2 ranks on 1 node, .*max_epochs 1")
        self.assert_has(self.messages(component="trainer"), r"^command: .*levin fit --config")
        self.assert_has(self.messages(component="checkpoint"), r"^wrote .*\.ckpt: \d+ bytes in [0-9.]+ s$")
        self.assertFalse(any("wrote" in text for text in self.messages("run.rank1.log", "checkpoint")))
        self.assertIn(6, [line[3] for line in self.lines()])

    def test_a_run_that_continues_adds_to_the_file_and_logs_from_where(self):
        status, output = self.run_tool(*self.fit)
        self.assertEqual(status, 0, output)
        before = (self.folder / "run.log").read_text()
        status, output = self.run_tool(*self.fit, "--trainer.auto_resume=true", "--trainer.max_epochs=2")
        self.assertEqual(status, 0, output)
        self.assertTrue((self.folder / "run.log").read_text().startswith(before))
        self.assert_has(self.messages(component="checkpoint"), r"^starts from .*\.ckpt$")
        self.assert_has(self.messages(component="checkpoint"), r"^read .*\.ckpt: \d+ tensors in ")

    def test_the_console_prints_the_same_with_a_log_and_without(self):
        status, with_log = self.run_tool(*self.fit)
        self.assertEqual(status, 0, with_log)
        status, without = self.run_tool(*self.fit, "--log_level=off")
        self.assertEqual(status, 0, without)
        strip = lambda text: re.sub(r"version_\d+|\d+(\.\d+)? ?m?s\b|[\d.k]+ it/s", "", text)  # noqa: E731: folders and times
        self.assertEqual(strip(with_log), strip(without))
        self.assertNotIn("info:", with_log)
        self.assertEqual((self.root / "levin_logs/version_1/run.log").read_text(), "")

    def test_a_component_at_debug_is_shown_on_standard_error_too(self):
        run = subprocess.run([*self.fit, "--log_level", "data=debug"], env=CLEAN, text=True, capture_output=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("debug: data: started 2 threads", run.stderr)
        self.assertNotIn("debug", run.stdout)
        self.assertNotIn("trainer:", run.stderr)
        self.assertIn(("debug", "data"), {line[:2] for line in self.lines()})

    def test_options_of_the_trainer_choose_level_format_and_size(self):
        status, output = self.run_tool(*self.fit, "--trainer.log.level=data=debug,warn", "--trainer.log.format=json",
                                       "--trainer.log.max_bytes=1000", "--trainer.log.max_files=2")
        self.assertEqual(status, 0, output)
        lines = [json.loads(line) for line in (self.folder / "run.log").read_text().splitlines()]
        self.assertEqual({line["component"] for line in lines}, {"data"})
        self.assertIn("debug", {line["level"] for line in lines})
        self.assertLessEqual(len(list(self.folder.glob("run*.log"))), 2)
        status, output = self.run_tool(*self.fit, "--trainer.log.level=dta=debug")
        self.assertEqual(status, 2, output)
        self.assertIn("trainer.log.level: unknown component", output)
        self.assertIn("dta", output)

    def test_hooks_are_written_at_trace(self):
        status, output = self.run_tool(*self.fit, env={"LEVIN_LOG": "hooks=trace,off"})
        self.assertEqual(status, 0, output)
        hooks = self.messages(component="hooks")
        self.assertLess(hooks.index("on_fit_start"), hooks.index("on_train_batch_start"))
        self.assertEqual(hooks.count("on_train_batch_start"), 6)
        self.assertEqual({line[1] for line in self.lines()}, {"hooks"})

    def test_json_lines_on_request(self):
        status, output = self.run_tool(*self.fit, env={"LEVIN_LOG_FORMAT": "json"})
        self.assertEqual(status, 0, output)
        lines = [json.loads(line) for line in (self.folder / "run.log").read_text().splitlines()]
        self.assertGreater(len(lines), 5)
        self.assertEqual({"time", "level", "component", "rank", "text"} - lines[0].keys(), set())
        self.assertIn(6, [line.get("step") for line in lines])

    def test_mistakes_are_reported_before_anything_is_run(self):
        for arguments, env, parts in [
                ([], {"LEVIN_LOG": "dta=debug"},
                 ['LEVIN_LOG: unknown component "dta". Did you mean "data"?', "Known: checkpoint, console, data, hooks"]),
                ([], {"LEVIN_LOG": "loud"}, ['LEVIN_LOG: unknown level "loud".', "Known: trace, debug, info, warn, error, off"]),
                ([], {"LEVIN_LOG_FORMAT": "xml"}, ['LEVIN_LOG_FORMAT: unknown format "xml". Known: text, json.']),
                (["--log_level", "trainr=debug"], {}, ['--log_level: unknown component "trainr". Did you mean "trainer"?']),
                (["--log_format=xml"], {}, ['--log_format: unknown format "xml". Known: text, json.'])]:
            status, output = self.run_tool(*self.fit, *arguments, env=env)
            self.assertEqual(status, 2, output)
            for part in parts:
                self.assertIn(part, output)
            self.assertFalse(self.root.exists())

    def test_the_error_that_ends_a_run_is_in_the_file(self):
        status, output = self.run_tool(*self.fit, "--trainer.max_epochs=2", "--trainer.callbacks=[]",
                                       "--optimizer.lr=1e30", "--trainer.detect_anomaly=true",
                                       "--trainer.callbacks+={class_path: EarlyStopping, init_args: {monitor: no_such_metric}}")
        self.assertNotEqual(status, 0, output)
        errors = [line[4] for line in self.lines() if line[0] == "error"]
        self.assertTrue(errors and errors[0][:60] in output, (errors, output))

    def test_a_link_in_its_place_is_not_followed_and_does_not_end_the_run(self):
        self.folder.mkdir(parents=True)
        theirs = self.root / "theirs"
        theirs.write_text("theirs\n")
        (self.folder / "run.log").symlink_to(theirs)
        (self.folder / "hparams.yaml").write_text("{}\n")
        logger = "--trainer.logger={class_path: CSVLogger, init_args: {version: version_0}}"
        status, output = self.run_tool(*self.fit, logger)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("run.log: it is a symbolic link, not a regular file."), 1, output)
        self.assertIn("Trained 1 epoch, 6 steps", output)
        self.assertEqual(theirs.read_text(), "theirs\n")

    def test_a_prediction_leaves_no_folder_for_its_log(self):
        arguments = [word for word in self.fit if word not in ("fit", LEVIN)]
        status, output = self.run_tool(LEVIN, "validate", *arguments)
        self.assertEqual(status, 0, output)


if __name__ == "__main__":
    main("")
