"""Signals against ranks that hang, process groups, terminals that close; ranks and one process alone."""

import os
import pathlib
import pty
import shutil
import signal
import subprocess
import threading
import time

from ranks import CLEAN, ON_NCCL, PROGRAM, RanksTest, alive, children, free_port, fsdp, main, state
from waiting import NEW_REQUEST, is_pending, is_waiting

WITHOUT_SAVES = ("samples=400000", "batch=1", "slow=5")
LONG = (*WITHOUT_SAVES, "checkpoint")
UNLIMITED = "stop_grace=100000"
WAITS = f"rank 0 of 2 {'waits for its device' if ON_NCCL else 'is in a backward pass'}, which waits for the others' gradients"
# Arguments of a run, and what it waits for. With NCCL stage 3 waits where the device does, which on the simulated GPU is
# inside an operator.
WAITING = [([], WAITS), *([] if ON_NCCL else [(fsdp(3), "rank 0 of 2 waits for the others: gathering unit 0 (net.0.weight")])]


class StoppingTest(RanksTest):
    def begin(self, *arguments, **more):
        """Starts a run in its own process group, all of which is ended with the test."""
        process = self.start(*arguments, start_new_session=True, **more)

        def clean():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.communicate()

        self.addCleanup(clean)
        return process

    def wait_for_checkpoint(self):
        self.wait_until(lambda: list(pathlib.Path(self.out).glob("**/*.ckpt")), "a first checkpoint")

    def ended(self, process, timeout=60):
        """Returns the standard error of a process that must end now."""
        return process.communicate(timeout=timeout)[1]

    def interrupted(self):
        return list(pathlib.Path(self.out).glob("**/interrupted.ckpt"))

    def expect_stopped(self, process, who):
        errors = self.ended(process)
        self.assertIn(f"fit was stopped by {who}", errors)
        self.assertIn("Continue with", errors)
        self.assertTrue(self.interrupted(), errors)
        return errors


class WhatHangs(StoppingTest):
    def frozen(self, *arguments):
        """(launcher, its ranks) of a job whose rank 1 has stopped in batch 20. It saves nothing: the end of a save that is running
        when the signal comes would begin the grace time anew."""
        process = self.begin(*WITHOUT_SAVES, "freeze=1:20", "timeout=100000", "devices=2", *arguments)
        self.wait_until(lambda: [state(pid) for pid in children(process.pid)][1:] == ["T"], "a frozen rank")
        return process, children(process.pid)

    def wait_for_a_new_request(self, frozen, number):
        """Waits until the launcher has passed the signal on to a frozen rank, where it stays, and the same signal is another
        request."""
        self.wait_until(lambda: is_pending(frozen, number), "the signal that the launcher passes on")
        time.sleep(NEW_REQUEST)

    def expect_killed(self, process, ranks, status):
        errors = self.ended(process)
        self.assertEqual(process.returncode, status, errors)
        self.assertFalse([pid for pid in ranks if alive(pid)])
        self.assertRegex(errors, r"rank 1 was in train, epoch 0, batch 20, global step 20")
        return errors

    def test_a_frozen_rank_is_killed_when_the_grace_time_after_sigterm_is_over(self):
        process, ranks = self.frozen("stop_grace=2")
        process.terminate()
        errors = self.expect_killed(process, ranks, 128 + signal.SIGTERM)
        self.assertIn("SIGTERM came 2.0 s ago and these ranks have not ended", errors)
        self.assertIn("trainer.stop_grace", errors)

    def test_a_second_sigterm_kills_it_at_once(self):
        process, ranks = self.frozen(UNLIMITED)
        process.terminate()
        self.wait_for_a_new_request(ranks[1], signal.SIGTERM)
        self.assertIsNone(process.poll())
        process.terminate()
        self.assertIn("SIGTERM came again", self.expect_killed(process, ranks, 128 + signal.SIGTERM))

    def test_so_does_a_second_ctrl_c(self):
        process, ranks = self.frozen(UNLIMITED)
        process.send_signal(signal.SIGINT)
        self.wait_for_a_new_request(ranks[1], signal.SIGINT)
        process.send_signal(signal.SIGINT)
        self.assertIn("Ctrl-C came again", self.expect_killed(process, ranks, 128 + signal.SIGINT))

    def test_so_it_is_where_the_rank_that_waits_for_it_alone_was_signalled(self):
        for arguments, waits in WAITING:
            process, ranks = self.frozen("stop_grace=2", *arguments)
            self.wait_until(lambda: is_waiting(ranks[0]), "the wait of rank 0 for the other")
            os.kill(ranks[0], signal.SIGTERM)
            self.assertIn(waits, self.expect_killed(process, ranks, 128 + signal.SIGTERM))

    def test_a_rank_by_hand_ends_by_itself_and_names_what_it_waits_for(self):
        for arguments, waits in WAITING:
            url = f"tcp://127.0.0.1:{free_port()}"
            arguments = ["strategy=ddp", *WITHOUT_SAVES, *arguments, "freeze=1:20", "timeout=100000", "stop_grace=2", "--init-method", url]
            first, second = (self.begin(*arguments, "--rank", str(rank), "--world-size", "2") for rank in range(2))
            self.wait_until(lambda: state(second.pid) == "T", "a frozen rank")
            self.wait_until(lambda: is_waiting(first.pid), "the wait of rank 0 for the other")
            first.terminate()
            errors = self.ended(first)
            self.assertEqual(first.returncode, -signal.SIGTERM, errors)
            self.assertIn(f"SIGTERM came 2.0 s ago and the running batch has not ended: {waits}", errors)

    def hanging(self, *arguments):
        process = self.begin("samples=100", "batch=1", "hang_data=20", *arguments)
        self.wait_until((pathlib.Path(self.out) / "hangs").exists, "a read that hangs")
        return process

    def test_a_data_set_that_hangs_ends_when_the_grace_time_is_over(self):
        process = self.hanging("stop_grace=1")
        process.terminate()
        errors = self.ended(process)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertIn("SIGTERM came 1.0 s ago and the running batch has not ended", errors)
        self.assertIn("trainer.stop_grace", errors)

    def test_a_second_sigterm_ends_it_at_once(self):
        process = self.hanging(UNLIMITED)
        process.terminate()
        self.wait_until(lambda: not is_pending(process.pid, signal.SIGTERM), "the first signal's handler")
        time.sleep(NEW_REQUEST)
        self.assertIsNone(process.poll())
        process.terminate()
        self.ended(process)
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_ranks_whose_data_set_hangs_end(self):
        process = self.hanging("devices=2", "stop_grace=1")
        ranks = children(process.pid)
        process.terminate()
        self.ended(process)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertFalse([pid for pid in ranks if alive(pid)])

    def saving(self, *arguments):
        """Processes, alone and as ranks, that save after a SIGTERM, at which they have 2 s."""
        for ranks in ([], ["devices=2"]):
            process = self.begin(*LONG, "stop_grace=2", *ranks, *arguments)
            self.wait_for_checkpoint()
            process.terminate()
            yield process
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    def test_a_save_that_takes_longer_than_the_grace_time_is_not_cut_nor_is_the_end_of_the_run(self):
        for process in self.saving("slow_save=7000", "slow_end=1000"):  # ranks that do not save end earlier
            self.expect_stopped(process, "SIGTERM")

    def test_an_end_that_hangs_after_such_a_save_is_cut(self):
        for process in self.saving("slow_save=2500", "slow_end=60000"):
            errors = self.ended(process, timeout=30)
            self.assertIn("SIGTERM came, a save after it ended 2.0 s ago, and ", errors)
            self.assertNotIn("without a checkpoint", errors)
            self.assertTrue(self.interrupted(), errors)


class InAnEvaluation(StoppingTest):
    """The ranks meet now and then: some have no batches, and steps may communicate. Most of these validations would take
    50 s and more."""

    ARGUMENTS = ("samples=4000", "batch=2000", "epochs=1", "val=4000", "in=validate", "slow=50", "val_mark", "devices=2")

    def stop(self, *arguments, rank=None, number=signal.SIGTERM):
        """Standard error of a run that was signalled in its validation, or of which one rank was."""
        mark = pathlib.Path(self.out) / "validates"
        process = self.begin(*self.ARGUMENTS, *arguments)
        self.wait_until(mark.exists, "the fifth batch of a validation")
        begun = time.monotonic()
        os.kill(process.pid if rank is None else children(process.pid)[rank], number)
        errors = self.ended(process)
        self.assertLess(time.monotonic() - begun, 20, errors)
        self.assertNotIn("have not ended", errors)
        mark.unlink()
        return errors

    def test_a_fit_saves_and_ends_long_before_the_validation(self):
        for arguments, rank in (([], None), (["val_of=1", "val_unsized"], 0), (["val_talks"], 1), (fsdp(3, "val_of=0"), 1)):
            with self.subTest(arguments=arguments):
                errors = self.stop("checkpoint", *arguments, rank=rank)
                self.assertIn("fit was stopped by SIGTERM in epoch 0, step 1", errors)
                (path,) = self.interrupted()
                self.assertIn(f"ckpt_path: {path}", errors)
                for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_a_fit_that_was_stopped_in_a_validation_continues_to_the_same_weights(self):
        arguments = ("samples=256", "batch=32", "epochs=2", "val=256", "checkpoint", "auto_resume")
        whole = self.train(*arguments, f"root={self.out}/whole", ranks=2)[0]["weights"]
        self.stop(*arguments, "val_of=1", f"root={self.out}/stopped")  # rank 1 has 128 batches, which take 6 s
        self.assertTrue(self.interrupted())
        self.assertEqual(self.train(*arguments, f"root={self.out}/stopped", ranks=2)[0]["weights"], whole)

    def test_an_evaluation_ends_too(self):
        self.assertIn("interrupted by Ctrl-C", self.stop("validate", "val_of=1", number=signal.SIGINT))
        self.assertIn("interrupted by SIGTERM", self.stop("validate", *fsdp(3, "val_talks"), rank=1))


class OneRequest(StoppingTest):
    """A signal that reaches a run in several ways is one request."""

    def test_ctrl_c_to_the_whole_process_group(self):
        for _ in range(3):
            process = self.begin(*LONG, "devices=2")
            self.wait_for_checkpoint()
            os.killpg(process.pid, signal.SIGINT)
            self.expect_stopped(process, "Ctrl-C")
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    def test_sigterm_to_the_whole_process_group(self):
        process = self.begin(*LONG, "devices=2")
        self.wait_for_checkpoint()
        os.killpg(process.pid, signal.SIGTERM)
        self.expect_stopped(process, "SIGTERM")

    def test_sigterm_twice_in_a_moment(self):
        """timeout(1) signals its child, and then the child's process group."""
        for arguments in ([], ["devices=2"]):
            process = self.begin(*LONG, "slow_save=500", *arguments)
            self.wait_for_checkpoint()
            process.terminate()
            self.wait_until(lambda: not is_pending(process.pid, signal.SIGTERM), "the first signal's handler")
            process.terminate()
            self.expect_stopped(process, "SIGTERM")
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    def test_a_rank_that_is_signalled_again_and_again_still_saves(self):
        process = self.begin(*LONG, "devices=2")
        self.wait_for_checkpoint()
        ranks = children(process.pid)
        for _ in range(20):
            for rank in filter(alive, ranks):
                os.kill(rank, signal.SIGINT)
            time.sleep(0.05)
        self.expect_stopped(process, "Ctrl-C")


class WithRestarts(StoppingTest):
    """Ranks that were asked to end have not failed: nothing starts them again."""

    def expect_at_rest(self, process, who):
        errors = self.expect_stopped(process, who)
        self.assertNotIn("start again", errors)
        self.assertNotIn("ended with status", errors)

    def test_a_signal_to_one_rank(self):
        process = self.begin(*LONG, "devices=2", "restarts=1")
        self.wait_for_checkpoint()
        os.kill(children(process.pid)[1], signal.SIGTERM)
        self.expect_at_rest(process, "SIGTERM")

    def test_a_file_called_stop(self):
        process = self.begin(*LONG, "devices=2", "restarts=1")
        self.wait_for_checkpoint()
        next(pathlib.Path(self.out).glob("levin_logs/*")).joinpath("stop").touch()
        self.expect_at_rest(process, "the file called stop")

    def test_a_signal_to_another_nodes_launcher(self):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        nodes = [self.begin(*LONG, "nodes=2", "strategy=ddp", "restarts=1", env={**address, "NODE_RANK": str(node)})
                 for node in range(2)]
        self.wait_for_checkpoint()
        nodes[0].terminate()
        for node in nodes:
            self.expect_at_rest(node, "SIGTERM")


class Terminals(StoppingTest):
    def on_terminal(self, *arguments):
        """(the other end, process) of a run that leads a session on a terminal of its own."""
        own, other = pty.openpty()
        self.addCleanup(os.close, own)

        def take():
            import fcntl
            import termios
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = subprocess.Popen([PROGRAM, f"out={self.out}", *arguments], env=CLEAN, stdin=other, stdout=other,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=take)
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        os.close(other)
        return own, process

    def test_ctrl_c_on_a_terminal(self):
        for arguments in ([], ["devices=2"]):
            terminal, process = self.on_terminal(*LONG, *arguments)
            self.wait_for_checkpoint()
            reader = threading.Thread(target=self.read_all, args=[terminal])
            reader.start()
            os.write(terminal, b"\x03")
            self.expect_stopped(process, "Ctrl-C")
            reader.join()
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    @staticmethod
    def read_all(terminal):
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:
            pass

    def test_a_terminal_that_closes(self):
        for arguments in ([], ["devices=2"]):
            process = self.begin(*LONG, *arguments)
            self.wait_for_checkpoint()
            os.killpg(process.pid, signal.SIGHUP)
            self.expect_stopped(process, "SIGHUP")
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    def test_nohup_is_respected(self):
        for arguments in ([], ["devices=2"]):
            process = self.begin("samples=200", "batch=1", "epochs=1", "slow=5", "checkpoint", *arguments,
                                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
            self.wait_for_checkpoint()
            os.killpg(process.pid, signal.SIGHUP)
            errors = self.ended(process)
            self.assertEqual(process.returncode, 0, errors)
            for path in pathlib.Path(self.out).glob("**/*.ckpt"):
                path.unlink()

    def test_sighup_at_any_moment_leaves_no_rank_behind(self):
        for k in range(12):
            process = self.begin(*LONG, "devices=2")
            time.sleep(0.15 * k)
            ranks = children(process.pid)
            process.send_signal(signal.SIGHUP)
            self.ended(process)
            self.assertNotEqual(process.returncode, 0)
            self.wait_until(lambda: not self.members(process.pid), f"no rank of {ranks}", seconds=20)

    @staticmethod
    def members(group):
        """Returns the live processes of the group."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
        return found


if __name__ == "__main__":
    main()
