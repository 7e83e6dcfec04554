"""What starts the ranks: levin itself, and the variables of torchrun, Slurm, MPI or plain ones."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

from ranks import PROGRAM, RanksTest, free_port, main


class Launching(RanksTest):
    def by_variables(self, variables_of, size=2, arguments=()):
        """Starts every rank separately with the variables of its launcher."""
        ranks = [self.start("samples=16", *arguments, env=variables_of(rank)) for rank in range(size)]
        for rank in ranks:
            _, errors = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, errors)

    def test_devices_2_starts_two_ranks(self):
        self.train("samples=16", ranks=2)

    def test_variables_of_torchrun(self):
        port = str(free_port())
        self.by_variables(lambda r: {"TORCHELASTIC_RUN_ID": "1", "RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r),
                                     "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_PORT": port})

    def test_variables_of_torchrun_on_nodes_with_two_ranks_and_one(self):
        port = str(free_port())
        self.by_variables(lambda r: {"TORCHELASTIC_RUN_ID": "1", "RANK": str(r), "WORLD_SIZE": "3",
                                     "LOCAL_RANK": str(r % 2), "LOCAL_WORLD_SIZE": "2" if r < 2 else "1",
                                     "GROUP_RANK": str(r // 2), "GROUP_WORLD_SIZE": "2", "MASTER_PORT": port,
                                     "MASTER_ADDR": "127.0.0.1"}, size=3)

    def test_variables_of_mpich(self):
        port = str(free_port())
        self.by_variables(lambda r: {"PMI_RANK": str(r), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(r),
                                     "MPI_LOCALNRANKS": "2", "MASTER_PORT": port})

    def test_variables_of_pods(self):
        for variables in ({"PET_NNODES": "2", "PET_NODE_RANK": "{}", "PET_MASTER_ADDR": "127.0.0.1",
                           "PET_MASTER_PORT": str(free_port())},
                          {"JOB_COMPLETION_INDEX": "{}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                           "MASTER_PORT": str(free_port())}):
            self.by_variables(lambda r: {name: value.format(r) for name, value in variables.items()})

    def test_a_pod_that_does_not_say_whether_it_is_alone_is_an_error(self):
        status, errors = self.run_with("samples=16", env={"JOB_COMPLETION_INDEX": "1"})
        self.assertEqual(status, 1)
        self.assertIn("if each trains alone, set WORLD_SIZE=1", errors)
        self.assertEqual(self.run_with("samples=16", env={"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "1"})[0], 0)

    def test_variables_of_slurm(self):
        job = str(free_port(15000, 24999) - 15000).zfill(4)  # the port is made of the job's last four digits
        self.by_variables(lambda r: {"SLURM_NTASKS": "2", "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r),
                                     "SLURM_NODEID": "0", "SLURM_JOB_ID": job, "SLURM_JOB_NAME": "train"})

    def test_variables_of_open_mpi(self):
        port = str(free_port())
        self.by_variables(lambda r: {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": "2",
                                     "OMPI_COMM_WORLD_LOCAL_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                                     "MASTER_PORT": port})

    def test_plain_variables(self):
        port = str(free_port())
        self.by_variables(lambda r: {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "MASTER_PORT": port})

    def test_an_init_method_as_the_articles_write_it(self):
        port = free_port()
        ranks = [self.start("samples=16", "strategy=ddp", "--init-method", f"tcp://127.0.0.1:{port}", f"--rank={rank}",
                            "--world-size", "2") for rank in range(2)]
        for rank in ranks:
            _, errors = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 0, errors)
        self.assertEqual([report["world_size"] for report in self.reports(2)], [2, 2])
        self.assertEqual([report["local_rank"] for report in self.reports(2)], [0, 1])

    def start_by_hand(self, *arguments, machines):
        """Starts a rank for each of `machines`, as the articles do; each name stands for a separate machine."""
        if any(machines) and (not shutil.which("unshare") or subprocess.run(["unshare", "--uts", "true"]).returncode != 0):
            self.skipTest("this machine makes no UTS namespaces")
        meeting = ["--init-method", f"tcp://127.0.0.1:{free_port()}", "--world-size", str(len(machines))]
        on = [["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"] if name else [] for name in machines]
        return [self.start("samples=16", *arguments, *meeting, f"--rank={rank}", program=[*before, PROGRAM])
                for rank, before in enumerate(on)]

    def finish(self, ranks):
        """Returns what each process wrote to standard error; all must end with status 0."""
        output = []
        for rank in ranks:
            output.append(rank.communicate(timeout=120)[1])
            self.assertEqual(rank.returncode, 0, output[-1])
        return output

    def test_ranks_started_by_hand_number_themselves_on_their_machine(self):
        self.finish(self.start_by_hand("strategy=ddp", machines=["", "", ""]))
        self.assertEqual([report["local_rank"] for report in self.reports(3)], [0, 1, 2])

    def test_ranks_started_by_hand_may_be_given_the_devices_of_their_machine(self):
        self.finish(self.start_by_hand("devices=2", machines=["", ""]))
        self.assertEqual([report["local_rank"] for report in self.reports(2)], [0, 1])

    def test_ranks_on_machines_of_different_names_are_each_the_first(self):
        self.finish(self.start_by_hand("strategy=ddp", machines=["node-a", "node-b", "node-a"]))
        self.assertEqual([report["local_rank"] for report in self.reports(3)], [0, 0, 1])

    def test_devices_that_the_machines_ranks_contradict_are_an_error_once_they_have_met(self):
        ranks = self.start_by_hand("devices=2", machines=["node-a", "node-b"])
        for rank in ranks:
            _, errors = rank.communicate(timeout=60)
            self.assertEqual(rank.returncode, 1)
            self.assertIn("2 devices x 2 nodes are 4 ranks, but --init-method has started 2 (1 on this node)", errors)

    def test_an_init_method_against_a_launcher_is_an_error_that_shows_both(self):
        process = self.start("--init-method", "tcp://127.0.0.1:5", "--rank=1", "--world-size=2",
                             env={"SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_JOB_ID": "17"})
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("rank 1 of 2 at 127.0.0.1:5, but SLURM has made it rank 3 of 4 at 127.0.0.1:15017", errors)

    def test_devices_that_contradict_an_init_method_are_an_error_that_shows_both(self):
        status, errors = self.run_with("devices=3", "--init-method=tcp://127.0.0.1:5", "--rank=0", "--world-size=2")
        self.assertEqual(status, 1)
        self.assertIn("3 devices x 1 node are 3 ranks, but --init-method has started 2. Make both the same", errors)

    def test_two_nodes_on_this_machine(self):
        port = str(free_port())
        nodes = [self.start("samples=16", "devices=2", "nodes=2",
                            env={"NODE_RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                 for node in range(2)]
        for node in nodes:
            _, errors = node.communicate(timeout=60)
            self.assertEqual(node.returncode, 0, errors)

    def test_devices_that_contradict_the_launcher_are_an_error_that_shows_both(self):
        process = self.start("devices=3", env={"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2",
                                               "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"})
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("3 devices x 1 node are 3 ranks, but torchrun has started 2", errors)

    def test_more_ranks_than_cores_are_an_error_before_any_is_started(self):
        start = time.monotonic()
        status, errors = self.run_with("devices=999", "within_cores")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"999 ranks on this machine, and it has \d+ cores? for them.*oversubscribe: true")
        self.assertLess(time.monotonic() - start, 30)

    def test_ranks_that_others_start_may_be_more_than_the_cores(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        port = str(free_port())
        self.by_variables(lambda r: {"RANK": str(r), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(r), "MASTER_PORT": port},
                          size=ranks, arguments=["within_cores"])

    def test_nodes_without_an_address_are_an_error(self):
        status, errors = self.run_with("devices=2", "nodes=2")
        self.assertEqual(status, 1)
        self.assertIn("set NODE_RANK, MASTER_ADDR and MASTER_PORT", errors)

    def test_a_node_rank_that_is_none_is_an_error(self):
        for node_rank, message in [("x", 'NODE_RANK is "x", not a whole number'),
                                   ("2", "NODE_RANK is 2, and TrainerOptions.num_nodes is 2")]:
            status, errors = self.run_with("devices=2", "nodes=2", env={
                "NODE_RANK": node_rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
            self.assertEqual(status, 1)
            self.assertIn(message, errors)


class Signals(RanksTest):
    def test_a_stop_that_reaches_the_launcher_ends_all_ranks_in_good_order(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            process = self.start("samples=4000", "batch=1", "slow=5", "devices=2", "checkpoint")
            self.wait_until(lambda: list(pathlib.Path(self.out).glob("**/*.ckpt")), "a first checkpoint")
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("fit was stopped by", errors)
            self.assertIn("Continue with", errors)
            shutil.rmtree(pathlib.Path(self.out) / "levin_logs")


if __name__ == "__main__":
    main()
