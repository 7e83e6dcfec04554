"""The same folder with different options: the changes are shown, and the run continues only if they do not make it a
different run, or if the user allows it. The earlier run's records stay unchanged until then.

  changed_options_test.py LEVIN [unittest's arguments]
"""
import shutil
import tempfile
import unittest
from pathlib import Path

from runs import checkpoints_in, files_below, global_step, levin, run_file

FIT = ["fit", "--config"]


class Case(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        """One run of an epoch, which every test continues in its own copy."""
        temporary = tempfile.TemporaryDirectory(prefix="levin-changed-")
        cls.addClassCleanup(temporary.cleanup)
        cls.root = Path(temporary.name).resolve()
        cls.folder = cls.root / "run"  # the same for all, since checkpoints hold absolute paths
        cls.config = cls.root / "run.yaml"
        cls.config.write_text(run_file(cls.folder, epochs=1, save_every=20))
        levin(*FIT, cls.config)
        cls.kept = cls.root / "kept"
        cls.folder.rename(cls.kept)

    def setUp(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.kept, self.folder)
        self.log = self.folder / "levin_logs/version_0"

    def record(self):
        return (self.log / "config.yaml").read_text(), (self.log / "hparams.yaml").read_text()

    def refused(self, *changes):
        """Checks that nothing in the folder has changed; returns the output, a line for each difference."""
        before = files_below(self.folder)
        output = levin(*FIT, self.config, *changes, status=2)
        self.assertEqual(files_below(self.folder), before)
        self.assertNotIn("continuing from", output)
        newest = self.log / "checkpoints/last.ckpt"
        self.assertIn(f"error: auto_resume: the run of {newest} was started with different options, so it is not continued, and "
                      "nothing in its folder was changed. Restore the old values, continue with the new ones by "
                      "trainer.auto_resume: warn, or begin a new run", output)
        return [line for line in output.splitlines() if " was " in line and " now." in line]

    def goes_on(self, *changes):
        output = levin(*FIT, self.config, "--trainer.max_epochs=2", *changes)
        self.assertIn("continuing from", output)
        self.assertEqual(max(map(global_step, checkpoints_in(self.log / "checkpoints"))), 120)
        return [line for line in output.splitlines() if line.startswith("auto_resume: ") and " was " in line]


class ChangedOptions(Case):
    def test_of_the_model_are_refused_before_its_weights_fail_to_fit(self):
        self.assertEqual(self.refused("--model.hidden=32"), ["error: model.init_args.hidden was 64 and is 32 now."])

    def test_of_optimizer_data_and_seed_are_refused_together(self):
        self.assertEqual(self.refused("--optimizer.lr=0.1", "--data.batch_size=64", "--seed_everything=8"),
                         ["error: seed_everything was 7 and is 8 now.",
                          "error: data.init_args.batch_size was 128 and is 64 now.",
                          "error: optimizer.init_args.lr was 0.001 and is 0.1 now."])

    def test_of_another_class_name_what_is_gone_and_what_is_new(self):
        lines = self.refused("--optimizer=SGD", "--optimizer.lr=0.1")
        self.assertIn("error: optimizer.class_path was Adam and is SGD now.", lines)
        self.assertIn("error: optimizer.init_args.momentum was not set and is 0.0 now.", lines)
        self.assertTrue(any(line.endswith("and is not set now.") for line in lines), lines)

    def test_that_were_asked_for_are_shown_and_taken(self):
        before = self.record()
        self.assertEqual(self.goes_on("--optimizer.lr=0.002", "--trainer.auto_resume=warn"),
                         ["auto_resume: trainer.max_epochs was 1 and is 2 now.",
                          "auto_resume: trainer.auto_resume was true and is warn now.",
                          "auto_resume: optimizer.init_args.lr was 0.001 and is 0.002 now."])
        after = self.record()
        self.assertIn("lr: 0.001", before[0])
        self.assertIn("lr: 0.002", after[0])

    def test_that_say_how_long_and_where_it_runs_need_no_word(self):
        self.assertEqual(self.goes_on("--trainer.enable_progress_bar=false", "--data.num_workers=1"),
                         ["auto_resume: trainer.max_epochs was 1 and is 2 now.",
                          "auto_resume: trainer.enable_progress_bar was null and is false now.",
                          "auto_resume: data.init_args.num_workers was 2 and is 1 now."])
        self.assertIn("max_epochs: 2", self.record()[0])

    def test_that_let_the_run_fail_before_it_trains_leave_the_records(self):
        """The old weights do not fit the new model."""
        before = self.record()
        output = levin(*FIT, self.config, "--trainer.auto_resume=warn", "--trainer.max_epochs=2", "--model.hidden=32", status=1)
        self.assertIn("auto_resume: model.init_args.hidden was 64 and is 32 now.", output)
        self.assertIn("do not fit the module", output)
        self.assertEqual(self.record(), before)

    def test_of_a_run_that_saved_nothing_are_no_matter(self):
        """There is nothing to continue: the run starts over, with its own options."""
        shutil.rmtree(self.log / "checkpoints")
        output = levin(*FIT, self.config, "--model.hidden=32")
        self.assertNotIn("continuing", output)
        self.assertIn("hidden: 32", self.record()[0])

    def test_of_an_evaluation_leave_the_record_of_the_fit(self):
        before = self.record()
        levin("test", "--config", self.config, "--trainer.limit_test_batches=2",
              "--trainer.logger={class_path: CSVLogger, init_args: {version: version_0}}")
        self.assertEqual(self.record(), before)

    def test_cannot_be_compared_with_a_record_that_is_broken(self):
        """A warning is logged, and the run continues."""
        (self.log / "config.yaml").write_text("trainer: [\n")
        output = levin(*FIT, self.config, "--trainer.max_epochs=2", "--optimizer.lr=0.002")
        self.assertRegex(output, rf"(?m)^warning: auto_resume: the options of the earlier run cannot be read, and are not "
                               rf"compared: {self.log}/config\.yaml:")
        self.assertIn("lr: 0.002", self.record()[0])

    def test_none(self):
        before = files_below(self.folder)
        output = levin(*FIT, self.config)
        self.assertNotIn(" was ", output)
        self.assertEqual(files_below(self.folder), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
