"""fsdp's checkpoints, in one file or a folder of shards: resumed, resharded, consolidated, damaged, cut short."""

import pathlib
import re
import shutil
import signal

from ranks import FSDP_STAGES, PROGRAM, RanksTest, fsdp, main

from levin_runs import run_levin  # ranks.py adds its folder to the path

TOOL = pathlib.Path(PROGRAM).resolve().parent / "levin"


class Checkpoints(RanksTest):
    ARGUMENTS = ["samples=48", "batch=4", "optimizer=adamw_groups", "model=dropout"]

    def newest(self):
        found = sorted(pathlib.Path(self.out).glob("**/last.ckpt"))
        self.assertEqual(len(found), 1, found)
        return found[0]

    def clean(self):
        shutil.rmtree(pathlib.Path(self.out) / "levin_logs", ignore_errors=True)

    def test_a_resumed_run_is_bitwise_identical_to_an_uninterrupted_one(self):
        for kind in ("full", "sharded"):
            runs = []
            for stage in FSDP_STAGES:
                arguments = [*self.ARGUMENTS, *fsdp(stage, f"state_dict_type={kind}")]
                begun = pathlib.Path(self.out) / f"{kind}{stage}"
                last = begun / "levin_logs/version_0/checkpoints/last.ckpt"
                runs += [[*arguments, "epochs=4"], [*arguments, "epochs=2", "checkpoint", f"root={begun}"],
                         [*arguments, "epochs=4", f"ckpt={last}"]]
            reports = self.train_each(*runs, ranks=2)
            for whole, resumed in zip(reports[::3], reports[2::3]):
                for one, other in zip(whole, resumed):
                    self.assertEqual(one["weights"], other["weights"])
                    self.assertEqual(one["random"], other["random"])
            self.assertEqual(last.is_dir(), kind == "sharded")

    def test_states_of_every_layout_resume_bitwise(self):
        for optimizer in ("adafactor", "shrinking"):
            runs = []
            for kind in ("full", "sharded"):
                arguments = ["samples=48", "batch=4", f"optimizer={optimizer}", *fsdp(2, f"state_dict_type={kind}")]
                begun = pathlib.Path(self.out) / f"{optimizer}-{kind}"
                last = begun / "levin_logs/version_0/checkpoints/last.ckpt"
                runs += [[*arguments, "epochs=4"], [*arguments, "epochs=2", "checkpoint", f"root={begun}"],
                         [*arguments, "epochs=4", f"ckpt={last}"]]
            reports = self.train_each(*runs, ranks=3)
            for whole, resumed in zip(reports[::3], reports[2::3]):
                self.assertEqual(whole[0]["weights"], resumed[0]["weights"])

    def test_lookahead_resumes_from_its_slow_weights(self):
        arguments = ["samples=48", "batch=4", "optimizer=lookahead"]
        begun = pathlib.Path(self.out) / "begun"
        last = begun / "levin_logs/version_0/checkpoints/last.ckpt"
        ddp, whole, _, resumed = self.train_each(
            [*arguments, "epochs=4"], [*arguments, *fsdp(3), "epochs=4"],
            [*arguments, *fsdp(3), "epochs=2", "checkpoint", f"root={begun}"], [*arguments, *fsdp(3), "epochs=4", f"ckpt={last}"],
            ranks=2)
        self.assert_close(whole[0]["weights"], ddp[0]["weights"], 2e-5)
        self.assertEqual(whole[0]["weights"], resumed[0]["weights"])

    def test_inside_an_accumulation_window(self):
        runs = []
        for stage in FSDP_STAGES:
            for kind in ("full", "sharded"):
                arguments = ["samples=48", "batch=4", "accumulate=3", "epochs=1", *fsdp(stage, f"state_dict_type={kind}")]
                mid = self.folder(len(runs)) / "mid.ckpt"
                runs += [[*arguments, "save_at=3"], [*arguments, f"ckpt={mid}"]]
        reports = self.train_each(*runs, ranks=2)
        for whole, resumed in zip(reports[::2], reports[1::2]):
            self.assert_close(whole[0]["weights"], resumed[0]["weights"], 1e-6)

    def check_other_world_sizes(self, optimizer, kind="sharded"):
        self.train("samples=48", "batch=4", optimizer, *fsdp(3, f"state_dict_type={kind}"), "checkpoint", "epochs=1",
                   ranks=3)
        kept = pathlib.Path(self.out) / f"{optimizer}-{kind}.ckpt"
        shutil.move(self.newest(), kept)
        self.clean()
        alone = self.train("samples=48", "batch=12", optimizer, "epochs=2", f"ckpt={kept}")[0]["weights"]
        for ranks, batch, strategy in ((2, 6, fsdp(1)), (3, 4, fsdp(2)), (2, 6, fsdp(3)), (2, 6, [])):
            reports = self.train("samples=48", f"batch={batch}", optimizer, *strategy, "epochs=2", f"ckpt={kept}",
                                 ranks=ranks)
            self.assert_close(alone, reports[0]["weights"], 2e-5)

    # Reliability: other_world.
    def test_a_sharded_one_loads_under_other_world_sizes_and_other_strategies(self):
        self.check_other_world_sizes("optimizer=adamw_groups")

    def test_row_and_column_factors_load_under_other_world_sizes(self):
        self.check_other_world_sizes("optimizer=adafactor")
        self.check_other_world_sizes("optimizer=adafactor", "full")

    def test_a_users_number_per_parameter_loads_under_other_world_sizes(self):
        self.check_other_world_sizes("optimizer=shrinking")
        self.check_other_world_sizes("optimizer=shrinking", "full")

    def test_an_ordinary_one_of_ddp_loads_into_every_stage(self):
        arguments = ["samples=48", "batch=4", "optimizer=adamw_groups"]
        self.train(*arguments, "checkpoint", "epochs=1", ranks=2)
        kept = pathlib.Path(self.out) / "kept.ckpt"
        shutil.move(self.newest(), kept)
        ddp = self.train(*arguments, "epochs=2", f"ckpt={kept}", ranks=2)[0]["weights"]
        for stage in FSDP_STAGES:
            reports = self.train(*arguments, *fsdp(stage), "epochs=2", f"ckpt={kept}", ranks=2)
            self.assert_close(ddp, reports[0]["weights"], 2e-5)

    def test_consolidated_it_is_an_ordinary_checkpoint(self):
        arguments = ["samples=48", "batch=4", "optimizer=adamw_groups"]
        self.train(*arguments, *fsdp(3, "state_dict_type=sharded"), "checkpoint", "epochs=1", ranks=2)
        kept = pathlib.Path(self.out) / "kept.ckpt"
        shutil.move(self.newest(), kept)
        one = pathlib.Path(self.out) / "one.ckpt"
        done = run_levin([TOOL, "checkpoint", "consolidate", kept, one])
        self.assertEqual(done.returncode, 0, done.stdout)
        checked = run_levin([TOOL, "checkpoint", "verify", one, kept])
        self.assertEqual(checked.returncode, 0, checked.stdout)
        from_file = self.train(*arguments, "epochs=2", f"ckpt={one}", ranks=2)[0]["weights"]
        from_folder = self.train(*arguments, "epochs=2", f"ckpt={kept}", ranks=2)[0]["weights"]
        self.assertEqual(from_file, from_folder)
        again = run_levin([TOOL, "checkpoint", "consolidate", kept, one], merge=False)
        self.assertEqual(again.returncode, 1)
        self.assertIn("the file exists", again.stderr)

    def test_a_shard_that_is_missing_or_damaged_is_named(self):
        arguments = ["samples=48", "batch=4"]
        self.train(*arguments, *fsdp(2, "state_dict_type=sharded"), "checkpoint", "epochs=1", ranks=2)
        last = self.newest()
        shard = next(last.glob("shard-1-of-2.*"))
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        status, errors = self.run_with(*arguments, *fsdp(2), f"ckpt={last}", "epochs=2", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertRegex(errors, re.escape(shard.name) + r'.*is damaged: the checksum differs')
        shard.unlink()
        status, errors = self.run_with(*arguments, *fsdp(2), f"ckpt={last}", "epochs=2", "devices=2")
        self.assertNotEqual(status, 0)
        self.assertIn(f"its shard {shard.name} is missing", errors)

    def test_killed_before_the_record_the_older_one_is_used(self):
        """The shards are written, and rank 0 dies as it renames the commit record."""
        arguments = ["samples=48", "batch=4", *fsdp(3, "state_dict_type=sharded"), "auto_resume", "checkpoint_epochs"]
        whole = self.train(*arguments, "epochs=3", ranks=2)
        self.clean()
        status, errors = self.run_with(*arguments, "epochs=3", "kill_at_record=2", "devices=2")
        self.assertEqual(status, 128 + signal.SIGKILL, errors)
        folders = list(pathlib.Path(self.out).glob("**/*.ckpt"))
        self.assertTrue([f for f in folders if not (f / "commit.safetensors").exists()], folders)
        process = self.start(*arguments, "epochs=3", "devices=2")
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertRegex(output + errors, r"auto_resume: continuing from \S+epoch=0-step=6\.ckpt")
        self.assertEqual(whole[0]["weights"], self.report(0)["weights"])
        for folder in pathlib.Path(self.out).glob("**/*.ckpt"):
            self.assertTrue((folder / "commit.safetensors").exists(), folder)

    def test_restarts_are_bitwise_identical_to_an_undisturbed_run(self):
        for stage, kind in ((2, "full"), (3, "sharded")):
            arguments = ["samples=40", "batch=2", "model=dropout", *fsdp(stage, f"state_dict_type={kind}"), "checkpoint"]
            undisturbed = self.train(*arguments, ranks=2)
            self.clean()
            status, errors = self.run_with(*arguments, "kill=1:13", "restarts=1", "devices=2")
            self.assertEqual(status, 0, errors)
            for rank, one in enumerate(undisturbed):
                self.assertEqual(one["weights"], self.report(rank)["weights"])
            self.clean()


if __name__ == "__main__":
    main()
