"""Two nodes that reach each other by a cable only: network namespaces with a pair of virtual interfaces. Each has its own
loopback, so a rank that tells the other a loopback address, or listens there, is found out. Nodes with names of their own
count as two machines: otherwise all ranks share memory. Root, iproute2.
"""

import os
import pathlib
import shutil
import subprocess
import time

from tool_runs import main

from ranks import CLEAN, PROGRAM, RanksTest

MINE = f"levin{os.getpid()}"
NODES = [f"{MINE}a", f"{MINE}b"]
ADDRESSES = ["10.231.77.1", "10.231.77.2"]


def enter(node):
    """Arguments before a command. `ip -n` and `ip netns exec` mount a /sys too, which fails in a chroot whose / is not a mount."""
    return ["nsenter", f"--net=/run/netns/{NODES[node]}", "--"]


def remove():
    for node in NODES:  # with the interface in it, and that one's other end
        subprocess.run(["ip", "netns", "delete", node], capture_output=True)


def make():
    """Why the two nodes cannot be made; "" once they are there."""
    if not shutil.which("ip"):
        return "the program ip is missing (Debian: iproute2)"
    cable = [f"v{os.getpid()}a", f"v{os.getpid()}b"]
    steps = [["ip", "netns", "add", node] for node in NODES]
    steps += [["ip", "link", "add", cable[0], "netns", NODES[0], "type", "veth",
               "peer", "name", cable[1], "netns", NODES[1]]]
    for node, end, address in zip([0, 1], cable, ADDRESSES):
        steps += [[*enter(node), "ip", "address", "add", f"{address}/24", "dev", end],
                  [*enter(node), "ip", "link", "set", end, "up"], [*enter(node), "ip", "link", "set", "lo", "up"]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            remove()
            return f"this machine makes no network namespaces: {' '.join(step)}: {done.stderr.strip()}"
    return ""


class TwoNodes(RanksTest):
    ARGUMENTS = ["samples=16", "batch=2", "model=dropout"]

    def on(self, node, *arguments, env=None, named=False):
        name = ["unshare", "--uts", "sh", "-c", f'echo levin-{node} > /proc/sys/kernel/hostname; exec "$@"', "sh"]
        return subprocess.Popen([*enter(node), *(name if named else []), PROGRAM, f"out={self.out}", *self.ARGUMENTS, *arguments],
                                env={**CLEAN, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, nodes):
        for node in nodes:
            try:
                _, errors = node.communicate(timeout=60)
            finally:
                node.kill()
            self.assertEqual(node.returncode, 0, errors)

    def expect_as_local(self, ranks, start):
        local = self.train(*self.ARGUMENTS, ranks=ranks)
        for old in pathlib.Path(self.out).glob("rank*.json"):
            old.unlink()
        self.finish([start(node) for node in range(2)])
        for here, there in zip(local, self.reports(ranks)):
            self.assertEqual(there["world_size"], ranks)
            self.assertEqual(here["weights"], there["weights"])

    def test_with_an_init_method(self):
        self.expect_as_local(2, lambda node: self.on(
            node, "strategy=ddp", "--init-method", f"tcp://{ADDRESSES[0]}:23456", "--rank", str(node), "--world-size", "2"))

    def test_with_levins_own_ranks_on_each(self):
        self.expect_as_local(4, lambda node: self.on(node, "devices=2", "nodes=2", env={
            "NODE_RANK": str(node), "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "23457"}))

    def test_two_machines_share_memory_inside_and_use_gloo_between(self):
        def run(*arguments, port):
            for old in pathlib.Path(self.out).glob("rank*.json"):
                old.unlink()
            self.finish([self.on(node, *arguments, "devices=2", "nodes=2", named=True, env={
                "NODE_RANK": str(node), "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(port)}) for node in range(2)])
            return [report["weights"] for report in self.reports(4)]

        local = self.train(*self.ARGUMENTS, ranks=4)[0]["weights"]
        both, again, gloo = run(port=23490), run(port=23491), run("backend=gloo", port=23492)
        self.assertEqual(both, [both[0]] * 4)
        self.assertEqual(again, both)
        self.assert_close(both[0], local)
        self.assert_close(both[0], gloo[0])

    def test_shared_memory_alone_is_not_for_two_machines(self):
        nodes = [self.on(node, "backend=shm", "devices=2", "nodes=2", named=True, env={
            "NODE_RANK": str(node), "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "23493"}) for node in range(2)]
        for node in nodes:
            output = node.communicate(timeout=60)[1]
            self.assertNotEqual(node.returncode, 0)
            self.assertIn("process_group_backend: shm requires memory that all ranks share, but rank 0 is on host levin-0, "
                          "rank 2 is on host levin-1. Use gloo or auto.", output)

    def test_without_a_secret_rank_zero_warns_that_anybody_may_join(self):
        nodes = [self.on(node, "strategy=ddp", "--init-method", f"tcp://{ADDRESSES[0]}:23459", "--rank", str(node),
                         "--world-size", "2") for node in range(2)]
        output = [node.communicate(timeout=60)[1] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], output)
        self.assertIn(f"ranks connect at {ADDRESSES[0]}, port 23459 without a shared secret: any program that reaches that "
                      "port can join them. Set LEVIN_SECRET", output[0])

    def test_with_a_secret_and_a_stranger_from_the_other_machine(self):
        secret = {"LEVIN_SECRET": "0123456789abcdef0123"}
        arguments = ["strategy=ddp", "--init-method", f"tcp://{ADDRESSES[0]}:23460", "--world-size", "2"]
        first = self.on(0, *arguments, "--rank", "0", env=secret)
        knock = ("import socket,sys,time\n"
                 "for _ in range(600):\n"
                 "  try: s = socket.create_connection((sys.argv[1], 23460)); break\n"
                 "  except OSError: time.sleep(0.1)\n"
                 "s.sendall(bytes(64)); s.settimeout(20)\n"
                 "while s.recv(4096): pass\n")
        subprocess.run([*enter(1), "python3", "-c", knock, ADDRESSES[0]], timeout=90, check=True)
        second = self.on(1, *arguments, "--rank", "1", env=secret)
        output = [node.communicate(timeout=60)[1] for node in (first, second)]
        self.assertEqual([first.returncode, second.returncode], [0, 0], output)
        self.assertIn(f"a stranger at {ADDRESSES[1]} tried to join the ranks and was refused: it does not have the secret",
                      output[0])
        self.assertNotIn("without a shared secret", output[0])

    def test_two_ranks_0_of_two_machines_end_at_once_and_name_both(self):
        port = 23470
        for first, secret in [(0, ""), (1, ""), (0, "0123456789abcdef0123"), (1, "0123456789abcdef0123")]:
            port += 1
            nodes = {}
            for node in (first, 1 - first):
                nodes[node] = self.on(node, "nodes=2", "strategy=ddp", env={
                    "NODE_RANK": "0", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(port), "LEVIN_SECRET": secret})
                self.addCleanup(nodes[node].kill)
                time.sleep(2)  # in each order; whichever comes first, both must end
            for node in nodes.values():
                output = node.communicate(timeout=60)[1]
                self.assertEqual(node.returncode, 1, output)
                self.assertRegex(output, r"rank 0 of 2 was given to two processes: process \d+ on \S+, and process \d+ on ")
                self.assertIn("Give every process its own rank: RANK, --rank, or with several nodes NODE_RANK", output)

    def test_two_ranks_0_that_cannot_know_of_each_other_say_where_they_wait(self):
        nodes = [self.on(node, "nodes=2", "strategy=ddp", env={
            "NODE_RANK": "0", "MASTER_ADDR": ADDRESSES[node], "MASTER_PORT": "23480"}) for node in range(2)]
        for node, address in zip(nodes, ADDRESSES):
            self.addCleanup(node.communicate)
            self.addCleanup(node.kill)
            self.assertEqual(node.stdout.readline(),
                             f"Waiting for rank 1 of 2 at {address}:23480, the address that all nodes must be given.\n")

    def test_with_the_interface_named(self):
        self.expect_as_local(2, lambda node: self.on(
            node, "strategy=ddp", env={"RANK": str(node), "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0],
                                       "MASTER_PORT": "23458", "GLOO_SOCKET_IFNAME": f"v{os.getpid()}{'ab'[node]}"}))


if __name__ == "__main__":
    problem = make()
    try:
        main(problem)
    finally:
        remove()
