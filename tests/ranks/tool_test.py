"""The levin tool on several ranks: an init method as the articles write it, and the articles' own flags."""

import pathlib
import shutil
import signal
import subprocess

from tool_runs import Run, ToolTest, few_images, main, wait_until

from ranks import CLEAN, children, free_port


GLOO_CONNECTED = "[Gloo] Rank 1 is connected to 1 peer ranks."  # which the Gloo of LibTorch 2.9 prints itself


class InitMethod(ToolTest):
    def test_two_calls_of_the_tool_train_as_two_local_ranks(self):
        status, output = self.run_tool(*self.fit, "--trainer.devices=2")
        self.assertEqual(status, 0, output)
        local = self.last_weights()
        url = f"tcp://127.0.0.1:{free_port()}"
        ranks = [subprocess.Popen([*self.fit, "--init-method", url, "--rank", str(rank), "--world-size", "2"], env=CLEAN,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        output = [rank.communicate(timeout=60)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], output)
        self.assertIn("Trained 1 epoch, 6 steps", output[0])
        self.assertEqual([line for line in output[1].splitlines() if not line.startswith(GLOO_CONNECTED)], [])
        self.assertEqual(self.last_weights(), local)

    def test_mistakes_are_reported_before_anything_is_run(self):
        status, output = self.run_tool(*self.fit, "--init-method", "tcp://127.0.0.1:5", "--rank=2", "--world-size=2")
        self.assertEqual(status, 2)
        self.assertIn('--rank: "2" is not a number from 0 to 1', output)
        self.assertFalse(self.root.exists())


class Starts(ToolTest):
    def test_a_signal_before_the_ranks_handle_it_is_reported(self):
        with Run(*self.fit[1:], "--trainer.devices=2") as run:
            wait_until(lambda: children(run.process.pid) and run.catches(signal.SIGHUP), "the ranks", run)
            run.send(signal.SIGHUP)
            self.assertEqual(run.status(), 129, run.report())
            self.assertRegex(run.output(), r"(?m)^error: .*(SIGHUP|was killed by signal 1 \(Hangup\) before training)")

    def test_a_mistake_in_the_configuration_is_not_started_again(self):
        status, output = self.run_tool(*self.fit, "--trainer.devices=2", "--trainer.max_restarts=2",
                                       "--trainer.callbacks+={class_path: ModelCheckpoint, init_args: {save_top_k: 2}}")
        self.assertEqual(status, 2, output)
        self.assertIn("ModelCheckpointOptions.save_top_k: 2 of the best need a metric", output)
        self.assertNotIn("start again", output)


class Threads(ToolTest):
    def test_ranks_choose_their_number_of_threads_together(self):
        """Ranks that differed would train on, but with different bits; rank 0 alone reports the choice. Each number is
        measured for at most 202 steps. The variables are those of a launcher on a machine with more cores."""
        fit = [word for word in self.fit if "limit_" not in word]
        status, output = self.run_tool(*fit, "--trainer.devices=2", "--trainer.max_steps=420", "--trainer.max_epochs=100",
                                       "--trainer.limit_val_batches=0", "--trainer.enable_model_summary=true",
                                       "--data.batch_size=8", env={"OMP_NUM_THREADS": "2", "LEVIN_THREAD_SHARE": "2"})
        self.assertEqual(status, 0, output)
        choices = [line for line in output.splitlines() if "num_threads: auto chose" in line]
        self.assertTrue(choices, output)
        self.assertEqual(len(choices), len(set(choices)), output)  # on a busy machine it may choose again
        self.assertRegex(output, r"num_threads: auto chose [12] threads? \(a step takes [0-9.]+ ms with 2, [0-9.]+ ms with 1\)")


class Differences(ToolTest):
    def run_ranks(self, *arguments):
        """Returns the output of two ranks that are started separately, each with its own arguments after the run's."""
        url = f"tcp://127.0.0.1:{free_port()}"
        ranks = [subprocess.Popen([*self.fit, *own, "--init-method", url, "--rank", str(rank), "--world-size", "2"],
                                  env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                 for rank, own in enumerate(arguments)]
        output = [rank.communicate(timeout=120)[0] for rank in ranks]
        return [rank.returncode for rank in ranks], output

    def expect_named(self, zero, one, arguments_of_zero, arguments_of_one):
        statuses, output = self.run_ranks(arguments_of_zero, arguments_of_one)
        self.assertEqual(statuses, [2, 2], output)
        for text in output:
            self.assertIn(f"ranks differ in their options: rank 0 has {zero}, rank 1 has {one}.", text)
        self.assertFalse(self.root.exists())  # nothing was created

    def test_options_of_model_data_and_optimizer_are_named(self):
        self.expect_named('"model.init_args.dropout: 0.2"', '"model.init_args.dropout: 0.3"', [], ["--model.dropout=0.3"])
        self.expect_named('"data.init_args.batch_size: 128"', '"data.init_args.batch_size: 64"',
                          [], ["--data.batch_size=64"])
        self.expect_named('"optimizer.init_args.lr: 0.001"', '"optimizer.init_args.lr: 0.002"',
                          [], ["--optimizer.lr=0.002"])
        self.expect_named('"optimizer.class_path: Adam"', '"optimizer.class_path: SGD"', [], ["--optimizer=SGD"])

    def test_an_option_that_only_one_rank_sets_is_not_hidden_by_its_neighbours(self):
        self.expect_named('"trainer.gradient_clip_val: null"', '"trainer.gradient_clip_val: 0.5"',
                          [], ["--trainer.gradient_clip_val=0.5"])
        self.expect_named('"test_after_fit: false"', '"test_after_fit: true"', [], ["--test_after_fit=true"])

    def test_a_different_number_of_workers_and_data_folder_are_allowed(self):
        copy = pathlib.Path(self.out) / "images"
        shutil.copytree(few_images(), copy)
        statuses, output = self.run_ranks([], ["--data.num_workers=0", f"--data.root={copy}"])
        self.assertEqual(statuses, [0, 0], output)


class Help(ToolTest):
    def test_every_option_of_a_strategy_is_listed(self):
        status, output = self.run_tool(self.fit[0], "help", "fsdp")
        self.assertEqual(status, 0, output)
        for word in ("trainer.strategy", "stage", "state_dict_type", "cpu_offload"):
            self.assertIn(word, output)


class OldOptions(ToolTest):
    def test_each_is_named_once_for_any_number_of_ranks(self):
        status, output = self.run_tool(*self.fit, "--trainer.devices=2", "--trainer.distributed_backend=ddp",
                                       "--trainer.use_amp=false")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("--trainer.distributed_backend=ddp: an old spelling; today: strategy: ddp."), 1, output)
        self.assertEqual(output.count("--trainer.use_amp=false: an old spelling; today: precision: 32-true."), 1, output)

    def test_the_printed_configuration_has_todays(self):
        status, output = self.run_tool(*self.fit, "--trainer.use_amp=true", "--trainer.amp_level=O1", "--print_config")
        self.assertEqual(status, 0, output)
        self.assertIn("  precision:\n    class_path: 16-mixed\n", output)
        for old in ("use_amp", "amp_level"):
            self.assertNotIn(old, output)

    def test_nodes_that_contradict_what_was_started_are_an_error_at_their_place(self):
        status, output = self.run_tool(*self.fit, "--trainer.nb_gpu_nodes=128", env={
            "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5"})
        self.assertEqual(status, 2, output)
        self.assertIn("1 device x 128 nodes are 128 ranks, but MASTER_ADDR, RANK and WORLD_SIZE has started 2", output)

    def test_one_in_the_wrong_place_suggests_the_right_one(self):
        status, output = self.run_tool(*self.fit, "--gpus=2")
        self.assertEqual(status, 2)
        self.assertIn("--gpus: unknown option. Did you mean --trainer.gpus?", output)


if __name__ == "__main__":
    main("")
