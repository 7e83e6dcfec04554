"""Where rank 0 listens, which processes it accepts, and strangers that connect: real sockets and processes."""

import http.server
import json
import os
import pathlib
import socket
import struct
import threading
import time

from ranks import RanksTest, free_port, main

SECRET = "5f0c1b7d9e3a48c2b6d4"
SHORT = ("samples=16", "strategy=ddp")


def listens_at(pid):
    """Addresses, as bytes in the order of the network, of all TCP sockets on which a process listens."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(link))
        except OSError:
            continue  # closed meanwhile
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or f"socket:[{fields[9]}]" not in inodes:
                continue
            address, port = fields[1].split(":")
            arguments = [struct.pack("=I", int(address[k:k + 8], 16)) for k in range(0, len(address), 8)]
            found.append((b"".join(arguments), int(port, 16)))
    return found


LOOPBACKS = (socket.inet_aton("127.0.0.1"), socket.inet_pton(socket.AF_INET6, "::1"),
             socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"))


class DoorsTest(RanksTest):
    def rank(self, rank, port, *arguments, host="127.0.0.1", env=None):
        return self.start(*SHORT, *arguments, "--init-method", f"tcp://{host}:{port}", "--rank", str(rank),
                          "--world-size", "2", env=env)

    def finish(self, *processes):
        """Returns what each process wrote to standard error."""
        return [process.communicate(timeout=90)[1] for process in processes]

    def expect_trained(self, *processes):
        output = self.finish(*processes)
        self.assertEqual([process.returncode for process in processes], [0] * len(processes), output)
        self.assertEqual([report["world_size"] for report in self.reports(2)], [2, 2])
        return output


class ListeningAddress(DoorsTest):
    def expect_loopback_only(self, first, second, port):
        self.wait_until(lambda: any(p == port for _, p in listens_at(first.pid)), "rank 0's store")
        strange = [address for address, _ in listens_at(first.pid) if address not in LOOPBACKS]
        self.assertEqual(strange, [])
        self.expect_trained(first, second())

    def test_an_init_method_on_the_loopback(self):
        port = free_port()
        self.expect_loopback_only(self.rank(0, port), lambda: self.rank(1, port), port)

    def test_an_init_method_on_the_loopback_of_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        port = free_port()
        self.expect_loopback_only(self.rank(0, port, host="[::1]"), lambda: self.rank(1, port, host="[::1]"), port)

    def test_the_name_localhost(self):
        port = free_port()
        self.expect_loopback_only(self.rank(0, port, host="localhost"),
                                  lambda: self.rank(1, port, host="localhost"), port)

    def test_master_addr(self):
        port = free_port()

        def start(rank):
            return self.start(*SHORT, env={"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

        self.expect_loopback_only(start(0), lambda: start(1), port)

    # Reliability: port_taken.
    def test_a_port_that_another_program_has_is_an_error_that_names_it(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            process = self.rank(0, port)
            output = self.finish(process)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn(f"rank 0 cannot listen at 127.0.0.1, port {port}: Address already in use. Another program listens there", output)


class AnotherProgram(DoorsTest):
    """A rank that finds a different program at its store's address reports it, long before startup_timeout."""

    def serve(self, answer):
        """Returns the port of a server that calls `answer` with each connection, in a separate thread."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def accept():
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return  # closed
                self.addCleanup(connection.close)
                threading.Thread(target=answer, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return server.getsockname()[1]

    def expect_refused(self, port, *messages, env=None):
        process = self.rank(1, port, env=env)
        output = self.finish(process)[0]
        self.assertEqual(process.returncode, 1, output)
        for message in messages:
            self.assertIn(message, output)

    def expect_named(self, port, answer, **more):
        self.expect_refused(port, f"another program listens at 127.0.0.1, port {port}, where rank 0's store should be: its "
                                  f"answer is \"{answer}", "Set MASTER_PORT to choose another port", **more)

    def test_a_web_server(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.RequestHandlerClass.log_message = lambda *_: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.expect_named(server.server_address[1], "<!DOCTYPE HTML>")

    # Reliability: garbage.
    def test_one_that_greets(self):
        def greet(connection):
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.recv(1)

        self.expect_named(self.serve(greet), "SSH-2.0-OpenSSH_9.2\"")

    def test_one_that_echoes_what_it_receives(self):
        def repeat(connection):
            while text := connection.recv(4096):
                connection.sendall(text)

        self.expect_named(self.serve(repeat), "")

    def test_one_that_is_silent(self):
        port = self.serve(lambda connection: None)
        self.expect_refused(port, f"the program that listens at 127.0.0.1, port {port} has sent nothing for 30 s: it is another "
                                  "program, or rank 0 hangs")

    def torchruns_rank(self, rank, port):
        """A rank whose store is torchrun's own, as torchrun's variables say."""
        return self.start(*SHORT, env={
            "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "7",
            "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

    def test_instead_of_torchruns_store(self):
        port = self.serve(lambda connection: connection.sendall(b"220 mail ready\r\n"))
        for output in self.finish(*(self.torchruns_rank(rank, port) for rank in range(2))):
            self.assertIn("where rank 0's store should be: its answer is \"220 mail ready\"", output)

    def test_a_plain_store_is_known_as_one(self):
        """Rank 0 serves the store while it waits for its own ranks: torchrun's store is the same program."""
        port = free_port()
        keeper = self.rank(0, port)
        self.addCleanup(keeper.communicate)
        self.addCleanup(keeper.kill)
        self.wait_until(lambda: any(p == port for _, p in listens_at(keeper.pid)), "a store")
        self.expect_trained(*(self.torchruns_rank(rank, port) for rank in range(2)))

    def test_a_gate_whose_secret_it_was_not_given(self):
        port = free_port()
        first = self.rank(0, port, env={"LEVIN_SECRET": SECRET})
        self.expect_refused(port, f"rank 0 listens at 127.0.0.1, port {port} and requires a shared secret, which is not set "
                                  "for this rank. Set LEVIN_SECRET")
        self.expect_trained(first, self.rank(1, port, env={"LEVIN_SECRET": SECRET}))

    def test_one_that_goes_away_in_time_does_no_harm(self):
        """As a forwarded port does: it closes what comes until rank 0 is there."""
        server = socket.create_server(("127.0.0.1", free_port()))
        port = server.getsockname()[1]
        second = self.rank(1, port)
        for _ in range(3):
            server.accept()[0].close()
        server.close()
        self.expect_trained(self.rank(0, port), second)


class Secrets(DoorsTest):
    def with_secret(self, secret=SECRET):
        return {"LEVIN_SECRET": secret}

    # Reliability: stranger.
    def test_ranks_that_share_one_train_while_strangers_knock(self):
        port = free_port()
        first = self.rank(0, port, env=self.with_secret())
        self.wait_until(lambda: any(p == port for _, p in listens_at(first.pid)), "the gate")
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as noisy:
                noisy.sendall(b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n" * 10)
                noisy.settimeout(20)
                try:
                    while noisy.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        start = time.monotonic()
        output = self.expect_trained(first, self.rank(1, port, env=self.with_secret()))
        self.assertLess(time.monotonic() - start, 60)
        self.assertIn("a stranger at 127.0.0.1 tried to join the ranks and was refused: it does not have the secret",
                      output[0])
        for one in silent:
            one.close()

    def test_nobody_reaches_the_store_itself_by_that_port(self):
        """The first message of a store's client is not a proof."""
        port = free_port()
        first = self.rank(0, port, env=self.with_secret())
        self.wait_until(lambda: any(p == port for _, p in listens_at(first.pid)), "the gate")
        strange = [address for address, _ in listens_at(first.pid) if address not in LOOPBACKS]
        self.assertEqual(strange, [])
        output = self.rank(1, port)  # without a secret: speaks to the gate as to a store
        try:
            self.expect_trained(first, self.rank(1, port, env=self.with_secret()))
        finally:
            output.kill()
            output.communicate()

    def test_a_rank_with_a_different_secret_is_refused_and_reports_why(self):
        port = free_port()
        first = self.rank(0, port, env=self.with_secret())
        other = self.rank(1, port, env=self.with_secret("another secret 123456"))
        output = self.finish(other)[0]
        self.assertEqual(other.returncode, 1)
        self.assertIn("it rejects this rank's secret (LEVIN_SECRET or LEVIN_SECRET_FILE)", output)
        self.expect_trained(first, self.rank(1, port, env=self.with_secret()))

    def test_a_rank_zero_without_one_is_not_believed(self):
        port = free_port()
        first = self.rank(0, port)
        other = self.rank(1, port, env=self.with_secret())
        output = self.finish(other)[0]
        self.assertEqual(other.returncode, 1)
        self.assertIn("it does not require the secret", output)
        self.expect_trained(first, self.rank(1, port))

    def test_a_program_that_echoes_what_it_receives_is_not_trusted(self):
        """It takes rank 0's port and sends the ranks' own messages back."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def repeat():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"LEVIN 1\n" + bytes(32))
                answer = connection.recv(64, socket.MSG_WAITALL)
                connection.sendall(answer[32:])

        threading.Thread(target=repeat, daemon=True).start()
        process = self.rank(1, server.getsockname()[1], env=self.with_secret())
        output = self.finish(process)[0]
        self.assertEqual(process.returncode, 1)
        self.assertIn("it does not have the secret itself: another program listens there", output)

    def test_a_file_holds_it(self):
        path = pathlib.Path(self.out) / "secret"
        path.write_text(SECRET + "\n")
        port = free_port()
        self.expect_trained(self.rank(0, port, env={"LEVIN_SECRET_FILE": str(path)}),
                            self.rank(1, port, env=self.with_secret()))

    def test_one_that_can_be_guessed_is_refused(self):
        output = self.finish(self.rank(0, free_port(), env=self.with_secret("secret")))[0]
        self.assertIn("the secret in LEVIN_SECRET has 6 characters, fewer than 16", output)
        output = self.finish(self.rank(0, free_port(), env={"LEVIN_SECRET_FILE": "/no/such/file"}))[0]
        self.assertIn('LEVIN_SECRET_FILE is "/no/such/file", which cannot be read', output)

    def test_ranks_of_one_machine_need_none(self):
        plain = self.train("samples=16", ranks=2)
        self.assertEqual(json.dumps(self.train("samples=16", ranks=2, env=self.with_secret())), json.dumps(plain))


if __name__ == "__main__":
    main()
