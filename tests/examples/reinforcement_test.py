"""The agents of examples/reinforcement as programs: what they learn, and that recordings and checkpoints change nothing.

  reinforcement_test.py BUILD/bin [unittest's arguments]
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = Path(sys.argv.pop(1)).resolve()
AGENTS = {"ppo": ["ppo", "--steps", "10000"], "ppo on the pendulum": ["ppo", "--task", "pendulum", "--steps", "20000"],
          "dqn": ["dqn", "--steps", "8000"]}


def tensors_of(checkpoint):
    """The bytes of each tensor of a checkpoint, a safetensors file."""
    data = checkpoint.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: data[start + each["data_offsets"][0]:start + each["data_offsets"][1]] for name, each in header.items()}


class Reinforcement(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def start(self, *command):
        return subprocess.Popen([BIN / command[0], *command[1:]], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def run_to_end(self, *command):
        with self.start(*command) as program:
            try:
                out, errors = program.communicate(timeout=240)
            finally:
                program.kill()
        return program.returncode, out, errors

    def result(self, *command):
        status, out, errors = self.run_to_end(*command)
        self.assertEqual(status, 0, errors)
        return json.loads(out.splitlines()[-1])

    def weights(self, agent, name, *options):
        file = self.folder / name
        self.result(*AGENTS[agent], *options, "--checkpoint", str(file))
        return tensors_of(file)

    def expect_same(self, first, second):
        self.assertEqual(set(first), set(second))
        self.assertEqual([name for name in first if first[name] != second[name]], [])

    def test_ppo_balances_the_pole(self):
        result = self.result("ppo", "--steps", "100000", "--record", "true")
        self.assertGreaterEqual(result["last_100"], 475)
        self.assertGreaterEqual(result["evaluation"], 475)

    def test_ppo_swings_the_pendulum_up(self):
        result = self.result("ppo", "--task", "pendulum", "--steps", "100000", "--record", "true")
        self.assertGreaterEqual(result["evaluation"], -300)  # a pendulum that hangs costs about 1200

    def test_dqn_balances_the_pole(self):
        result = self.result("dqn", "--steps", "50000", "--record", "true")
        self.assertGreaterEqual(result["evaluation"], 200)

    def test_recorded_steps_end_with_the_weights_of_eager_steps(self):
        for agent in AGENTS:
            with self.subTest(agent):
                eager = self.weights(agent, agent + " eager", "--record", "false")
                self.expect_same(eager, self.weights(agent, agent + " recorded", "--record", "true"))

    def test_an_agent_that_is_killed_continues_to_the_same_weights(self):
        for agent, command in AGENTS.items():
            with self.subTest(agent):
                file = self.folder / (agent + " killed")
                with self.start(*command, "--checkpoint", str(file)) as program:
                    reports = 0
                    while reports < 3:
                        line = program.stderr.readline()
                        self.assertNotEqual(line, "", "the program ended too early")
                        reports += " steps, reward " in line
                    program.kill()
                self.assertLess(program.returncode, 0)
                whole = self.weights(agent, agent + " whole")
                self.expect_same(whole, self.weights(agent, file.name))
                self.assertTrue("dqn" not in agent or any("buffer" in name for name in whole))

    def test_mistakes_on_the_command_line_are_named(self):
        for command, parts in ((["dqn", "--step", "9"], ['"--step"', "--steps 50000"]), (["ppo", "--seed"], ['"--seed"']),
                               (["ppo", "--steps", "many"], ["--steps", "positive whole number", '"many"']),
                               (["ppo", "--task", "walk"], ["cart_pole or pendulum", '"walk"'])):
            status, _, errors = self.run_to_end(*command)
            self.assertEqual(status, 2, errors)
            for part in parts:
                self.assertIn(part, errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
