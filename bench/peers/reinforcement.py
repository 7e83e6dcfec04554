"""PPO and DQN of stable-baselines3 on Gymnasium's tasks, with the hyperparameters of examples/reinforcement.

  a round: ppo|dqn CartPole-v1|Pendulum-v1 STEPS SEED     environment steps a second of learn()
           evaluation                                      the mean reward of 20 episodes of the agent trained last
"""
import time
import warnings

from rounds import serve
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

warnings.filterwarnings("ignore")


def linear(start):
    return lambda remaining: start * max(remaining, 0)  # the last rollout may exceed the number of steps


AGENTS = {
    ("ppo", "CartPole-v1"): (PPO, 8, dict(n_steps=32, batch_size=256, n_epochs=20, gamma=0.98, gae_lambda=0.8,
                                          learning_rate=linear(1e-3), clip_range=linear(0.2))),
    ("ppo", "Pendulum-v1"): (PPO, 4, dict(n_steps=1024, batch_size=64, n_epochs=10, gamma=0.9, gae_lambda=0.95,
                                          learning_rate=1e-3, clip_range=0.2)),
    ("dqn", "CartPole-v1"): (DQN, 1, dict(learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000,
                                          gamma=0.99, target_update_interval=10, train_freq=256, gradient_steps=128,
                                          exploration_fraction=0.16, exploration_final_eps=0.04,
                                          policy_kwargs=dict(net_arch=[256, 256]))),
}
trained = {}


def run(words):
    if words == ["evaluation"]:
        return float(evaluate_policy(trained["agent"], make_vec_env(trained["task"]), n_eval_episodes=20)[0])
    kind, task, steps, seed = words[0], words[1], int(words[2]), int(words[3])
    agent_class, environments, hyperparameters = AGENTS[kind, task]
    agent = agent_class("MlpPolicy", make_vec_env(task, environments), seed=seed, device="cpu", **hyperparameters)
    start = time.perf_counter()
    agent.learn(steps)
    seconds = time.perf_counter() - start
    trained.update(agent=agent, task=task)
    return agent.num_timesteps / seconds


serve(run)
