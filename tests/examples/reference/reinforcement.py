"""Writes reinforcement.json: steps of Gymnasium's CartPole-v1 and Pendulum-v1 from given states. Needs gymnasium, which
`./dev bench --peers` installs:

  PYTHONPATH=~/.cache/levin/peers-2.11.0 python3 tests/examples/reference/reinforcement.py
"""
import json
from pathlib import Path

import gymnasium
import numpy


def trace(name, state, actions):
    environment = gymnasium.make(name).unwrapped
    environment.reset(seed=0)
    environment.state = numpy.array(state)
    steps = []
    for action in actions:
        observation, reward, terminated, _, _ = environment.step(action)
        steps.append({"action": float(numpy.asarray(action).item()), "state": [float(x) for x in environment.state],
                      "observation": [float(x) for x in observation], "reward": float(reward), "over": bool(terminated)})
    return {"state": state, "steps": steps}


def torques(*values):
    return [numpy.array([value], dtype=numpy.float32) for value in values]


traces = {
    "max_steps": [gymnasium.spec(name).max_episode_steps for name in ("CartPole-v1", "Pendulum-v1")],
    "cart_pole": [trace("CartPole-v1", [0.01, -0.02, 0.03, 0.04], [1, 1, 0, 1, 0, 0]),
                  trace("CartPole-v1", [0.0, 0.0, 0.0, 0.0], [1] * 9),           # falls with the last step
                  trace("CartPole-v1", [2.37, 1.0, 0.0, 0.0], [1, 1]),           # leaves the track with the last step
                  trace("CartPole-v1", [-2.37, -1.0, 0.0, 0.0], [0, 0])],
    "pendulum": [trace("Pendulum-v1", [2.5, -0.7], torques(0.5, -3.0, 2.0, 1.25)),
                 trace("Pendulum-v1", [7.0, 7.9], torques(2.0, 2.0)),            # more than a turn, at the highest speed
                 trace("Pendulum-v1", [-4.0, -7.9], torques(-2.0, 0.0))],
}
Path(__file__).with_suffix(".json").write_text(json.dumps(traces) + "\n")
