"""A rank that dies, freezes or throws; a launcher that dies; restarts."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time
import unittest

from ranks import ON_GPUS, ON_NCCL, PROGRAM, RanksTest, alive, children, free_port, main, state

OWN_MOUNTS = pathlib.Path(__file__).resolve().parent.parent / "support/own_mounts.sh"

# A rank's error when another one hangs.
TIMED_OUT = r"reducing gradients failed: Timed out waiting 2000ms for rank 1 \(process \d+\)\."
TIMED_OUT_AFTER_3_S = r".* failed: .*Timed out waiting 3000ms.*"
if ON_NCCL:
    TIMED_OUT = (r"a collective failed: Watchdog caught collective operation timeout: WorkNCCL\(.*\) ran for 2\d\d\d "
                 r"milliseconds before timing out\.")
    TIMED_OUT_AFTER_3_S = f"({TIMED_OUT.replace('2', '3')}|{TIMED_OUT_AFTER_3_S})"  # in a step, or while it is saved


def shared_memory(pid):
    """The files of the memory that a rank shares, as it has them open."""
    try:
        return [path for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if "memfd:levin" in os.readlink(path)]
    except OSError:  # just closed
        return []


def named_memory():
    """Returns the files of Levin in /dev/shm, and no folders: another test's folder for temporary files may be there."""
    return [path for path in pathlib.Path("/dev/shm").iterdir() if "levin" in path.name and path.is_file()]


class Faults(RanksTest):
    def disturbed(self, is_so, what, *arguments):
        """Returns the exit status of a job of two ranks, its standard error, and its seconds since is_so(rank 1)."""
        process = self.start("batch=1", "devices=2", *arguments)
        ranks = self.wait_until(lambda: children(process.pid)[1:] and children(process.pid), "two ranks")
        self.wait_until(lambda: is_so(ranks[1]), what)
        begun = time.monotonic()
        errors = process.communicate(timeout=60)[1]
        return process.returncode, errors, time.monotonic() - begun

    def test_a_killed_rank_ends_the_job_within_five_seconds_and_is_named(self):
        status, errors, took = self.disturbed(lambda rank: not alive(rank), "the end of rank 1", "samples=4000", "slow=2",
                                              "kill=1:100")
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertRegex(errors, r"rank 1 on \S+ \(process \d+\) was killed by signal 9 \(Killed\) in train, epoch 0, "
                                 r"batch 100, global step 100")
        self.assertRegex(errors, r"rank 0 was in train, epoch 0, batch 10\d")
        self.assertLess(took, 10)  # a busy machine is slower

    def test_a_rank_that_crashes_under_a_limit_of_memory_names_the_limit(self):
        limit = 1 << 40
        for limited in (True, False):
            def before_start(limit=limit if limited else resource.RLIM_INFINITY):
                resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

            process = self.start("batch=1", "devices=2", "samples=100000", "slow=2", preexec_fn=before_start)
            ranks = self.wait_until(lambda: children(process.pid)[1:] and children(process.pid), "two ranks")
            os.kill(ranks[1], signal.SIGSEGV)
            errors = process.communicate(timeout=60)[1]
            self.assertRegex(errors, r"rank 1 on \S+ \(process \d+\) was killed by signal 11 \(Segmentation fault\)")
            self.assertEqual("Its memory is limited (ulimit -v, -d)" in errors, limited, errors)

    def test_a_rank_that_is_killed_in_a_validation_stood_there(self):
        status, errors = self.run_with("samples=16", "val=8", "in=validate", "kill=1:2", "devices=2")
        self.assertEqual(status, 128 + signal.SIGKILL)
        self.assertRegex(errors, r"\(Killed\) in validate, epoch 0, batch 0, global step 2")

    def test_a_rank_that_throws_is_the_first_cause(self):
        status, errors = self.run_with("samples=64", "batch=2", "throw=1:5", "devices=2")
        self.assertEqual(status, 1)
        self.assertIn("Its error: ", errors)
        self.assertRegex(errors, r"rank 1 on \S+ \(process \d+\) ended with status 1 in train, epoch 0, batch 5.*"
                                 r"a fault in the model")

    def test_torchruns_error_file_holds_the_cause(self):
        path = pathlib.Path(self.out) / "error.json"
        process = self.start("samples=16", "throw=0:1", "strategy=ddp", env={
            "TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_PORT": str(free_port()), "TORCHELASTIC_ERROR_FILE": str(path)})
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        message = json.loads(path.read_text())["message"]
        self.assertIn("a fault in the model", message["message"])
        self.assertGreater(int(message["extraInfo"]["timestamp"]), 0)

    def test_a_frozen_rank_is_found_within_the_timeout(self):
        status, errors, took = self.disturbed(lambda rank: state(rank) == "T", "a frozen rank", "samples=400", "freeze=1:20",
                                              "timeout=2")
        self.assertNotEqual(status, 0)
        self.assertLess(took, 20)
        self.assertRegex(errors, r"rank 1 was in train, epoch 0, batch 20, global step 20, [2-9]\.?\d* s ago")
        self.assertRegex(errors, r"rank 0 of 2: " + TIMED_OUT + r" Another rank ended or hangs; see its output\.")

    def test_no_rank_outlives_its_launcher(self):
        process = self.start("samples=400000", "batch=1", "slow=5", "checkpoint", "devices=2")
        self.wait_until(lambda: list(pathlib.Path(self.out).glob("**/last.ckpt")), "a first checkpoint")
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        process.kill()
        process.communicate()
        self.wait_until(lambda: not any(map(alive, ranks)), "the ranks' end", seconds=20)

    @unittest.skipIf(ON_GPUS, "GPUs do not communicate through shared memory")
    def test_a_job_that_is_killed_amid_a_step_leaves_no_shared_memory(self):
        process = self.start("samples=4000", "batch=1", "slow=5", "devices=2", start_new_session=True)
        self.wait_until(lambda: [len(shared_memory(rank)) for rank in children(process.pid)] == [2, 2],
                        "memory for messages and for the ranks' status")
        ranks = children(process.pid)
        for rank in ranks:
            for path in shared_memory(rank):
                self.assertIn("(deleted)", os.readlink(path))
                self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(named_memory(), [])
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.wait_until(lambda: not any(shared_memory(rank) for rank in ranks), "the ranks' end")
        self.assertEqual(named_memory(), [])

    def test_restarts_end_bitwise_identical_to_the_undisturbed_run(self):
        arguments = ["samples=40", "batch=2", "epochs=2", "model=dropout", "checkpoint"]
        undisturbed = self.train(*arguments, ranks=2)
        for file in sorted(pathlib.Path(self.out).glob("**/*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        status, errors = self.run_with(*arguments, "kill=1:13", "restarts=1", "devices=2")
        self.assertEqual(status, 0, errors)
        self.assertIn("restart 1 of 1", errors)
        for one, other in zip(undisturbed, self.reports(2)):
            self.assertEqual(one["weights"], other["weights"])
            self.assertEqual(one["metrics"], other["metrics"])
            self.assertEqual(one["random"], other["random"])

    def test_a_restart_continues_where_the_run_stood_and_not_at_its_ckpt_path(self):
        arguments = ["samples=40", "batch=2", "model=dropout", "checkpoint"]
        self.train(*arguments, "epochs=1", ranks=2)
        first = pathlib.Path(self.out) / "first.ckpt"
        next(pathlib.Path(self.out).glob("**/last.ckpt")).rename(first)
        arguments += ["epochs=3", f"ckpt={first}"]
        undisturbed = self.train(*arguments, ranks=2)
        process = self.start(*arguments, "kill=1:25", "restarts=1", "devices=2")
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        self.assertRegex(output, r"auto_resume: continuing from .*levin_logs/version_2/checkpoints/")
        for one, other in zip(undisturbed, self.reports(2)):
            self.assertEqual(one["weights"], other["weights"])


class Nodes(RanksTest):
    """Two launchers on one machine."""
    ARGUMENTS = ["samples=400", "batch=2", "epochs=1", "model=dropout", "checkpoint", "nodes=2", "strategy=ddp"]

    def node(self, rank, port, *more, program=PROGRAM):
        return self.start(*self.ARGUMENTS, *more, program=program,
                          env={"NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

    def begin(self, *more):
        """(port, both nodes), once there is a checkpoint."""
        port = free_port()
        nodes = [self.node(rank, port, "slow=20", *more) for rank in range(2)]
        self.wait_until(lambda: list(pathlib.Path(self.out).glob("**/*.ckpt")), "a first checkpoint")
        return port, nodes

    # Reliability: node_lost.
    def test_a_node_that_is_replaced_joins_the_others_restart(self):
        """One launcher is killed with its rank, and one that knows nothing of it is started in its place: of rank 1, and of
        rank 0, with the store that all meet at."""
        port = free_port()
        for process in [self.node(rank, port) for rank in range(2)]:
            self.assertEqual(process.communicate(timeout=120)[1].count("error"), 0)
        undisturbed = self.reports(2)
        for replaced in (1, 0):
            with self.subTest(replaced=replaced):
                shutil.rmtree(pathlib.Path(self.out) / "levin_logs")
                port, nodes = self.begin("restarts=3")
                nodes[replaced].kill()
                nodes[replaced].communicate()
                nodes[replaced] = self.node(replaced, port, "restarts=3", "slow=20")
                output = [process.communicate(timeout=120)[1] for process in nodes]
                self.assertEqual([process.returncode for process in nodes], [0, 0], output)
                self.assertIn("restart 1 of 3", output[1 - replaced])
                for one, other in zip(undisturbed, self.reports(2)):
                    self.assertEqual(one["weights"], other["weights"])
                    self.assertEqual(one["random"], other["random"])

    def test_rank_0s_node_that_comes_back_elsewhere_is_missed_with_a_remedy(self):
        _, (first, second) = self.begin("restarts=1", "timeout=3")
        first.kill()
        self.node(0, free_port(), "restarts=1", "slow=20")
        output = second.communicate(timeout=90)[1]
        self.assertEqual(second.returncode, 1, output)
        self.assertRegex(output, r"nothing has listened at 127.0.0.1, port \d+ for 3 s: Connection refused.*"
                               r"A node that replaces rank 0's must be reachable at the same address")
        self.assertNotIn("TCPStore", output)

    def test_a_machine_that_does_not_have_the_checkpoint_reports_it(self):
        hides = [OWN_MOUNTS, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.out]
        if os.geteuid() != 0 or subprocess.run([*hides, "true"]).returncode != 0:
            self.skipTest("this user cannot hide a folder from one of the nodes")
        port = free_port()
        for process in [self.node(rank, port) for rank in range(2)]:
            self.assertEqual((process.communicate(timeout=120)[1].count("error"), process.returncode), (0, 0))
        port = free_port()
        nodes = [self.node(0, port, "auto_resume"), self.node(1, port, "auto_resume", program=[*hides, PROGRAM])]
        output = [process.communicate(timeout=120)[1] for process in nodes]
        self.assertEqual([process.returncode for process in nodes], [1, 1], output)
        for rank in range(2):
            self.assertRegex(output[rank], rf"rank {rank} on \S+ \(process \d+\) ended with status 1 before training\. Its error: on rank 1: "
                                           r".*\.ckpt: rank 0 continues from this checkpoint, and this machine does not have it\.")

    # Reliability: node_frozen.
    def test_the_others_end_when_a_node_has_frozen(self):
        """Stops its launcher and its ranks; the kernel still accepts connections for them."""
        for frozen, message in [(1, r"rank 0 of 2 has waited 3 s for the others. Not started: rank 1. Every node needs the same "
                                    r"MASTER_ADDR and MASTER_PORT \(here 127.0.0.1:\d+\) and a different node rank"),
                                (0, r"the program that listens at 127.0.0.1, port \d+ has sent nothing for 3 s: it is another "
                                    r"program, or rank 0 hangs")]:
            with self.subTest(frozen=frozen):
                shutil.rmtree(pathlib.Path(self.out) / "levin_logs", ignore_errors=True)
                _, nodes = self.begin("restarts=1", "timeout=3")
                stopped = [nodes[frozen].pid, *children(nodes[frozen].pid)]
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                output = nodes[1 - frozen].communicate(timeout=90)[1]
                nodes[frozen].kill()  # its rank dies with it
                self.assertEqual(nodes[1 - frozen].returncode, 1, output)
                self.assertRegex(output, rf"rank {1 - frozen} of 2: " + TIMED_OUT_AFTER_3_S + " Another rank ended or hangs")
                self.assertRegex(output, message)


if __name__ == "__main__":
    main()
