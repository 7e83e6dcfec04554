"""Ports of this machine, for tests that start servers."""
import random
import socket


def free_port(low=25000, high=32767):
    """A port of this machine that nobody listens on. By default none that the kernel gives to others: between here and
    rank 0's listening another test's rank could get it, and then rank 0 ends and rank 1 waits at a stranger's door."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("", random.randint(low, high)))
                return probe.getsockname()[1]
            except OSError:
                continue


def free_ports(count):
    """Returns different ports that nobody listens on."""
    found = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
