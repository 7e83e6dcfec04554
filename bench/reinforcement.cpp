// Reinforcement learning: the programs of examples/reinforcement, with steps recorded and eager, compared with
// stable-baselines3 with the same hyperparameters (peers/reinforcement.py). Each round trains once with a new seed; all
// candidates have one thread. The table shows environment steps per second of the training; the reward is the mean of
// 20 episodes without exploration after the training, and its median over the rounds.
//
//   bench_reinforcement [--rounds N] [ppo_cart_pole] [ppo_pendulum] [dqn_cart_pole]      without names: all
#include <algorithm>
#include <filesystem>
#include <map>

#include "peer.h"
#include "programs.h"
#include "rounds.h"

namespace bench::reinforcement {

namespace {

struct Task {
  std::string name;
  std::vector<std::string> command;  // the program and its first arguments
  std::string peer;                  // the beginning of the peer's round
  int64_t steps;
};

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {{"ppo_cart_pole", {"ppo", "--task", "cart_pole"}, "ppo CartPole-v1", 100'000},
                                        {"ppo_pendulum", {"ppo", "--task", "pendulum"}, "ppo Pendulum-v1", 100'000},
                                        {"dqn_cart_pole", {"dqn"}, "dqn CartPole-v1", 50'000}};
  return all;
}

void measure(const Task& task, const Options& options, const std::shared_ptr<Peer>& peer, Report& report) {
  std::map<std::string, std::vector<double>> rewards;  // by candidate
  const std::string steps = std::to_string(options.quick ? 500 : task.steps);
  const auto next_seed = [&rewards](const std::string& name) { return std::to_string(rewards[name].size() + 1); };
  const auto levin = [&](const std::string& name, const std::string& record) {
    return Candidate{name, [&, name, record] {
                       std::vector<std::string> command = task.command;
                       command[0] = std::filesystem::read_symlink("/proc/self/exe").replace_filename(command[0]);
                       for (const std::string& word : {std::string("--steps"), steps, std::string("--seed"),
                                                       next_seed(name), std::string("--record"), record}) {
                         command.push_back(word);
                       }
                       const auto result = Process(command, peer_log("reinforcement")).answer();
                       rewards[name].push_back(result["evaluation"]);
                       return result["steps_per_second"].get<double>();
                     }};
  };
  std::vector<Candidate> candidates = {levin("Fabric, recorded", "true"), levin("Fabric", "false")};
  if (peer != nullptr) {
    candidates.push_back({"stable-baselines3", [&] {
                            const double speed =
                                peer->round(task.peer + " " + steps + " " + next_seed("stable-baselines3"));
                            rewards["stable-baselines3"].push_back(peer->round("evaluation"));
                            return speed;
                          }});
  }
  const auto measurements = interleave(candidates, options);
  report.table(task.name, "environment steps a second", measurements);
  const auto reward = [&](const std::string& name) { return measurement_of(name, rewards[name]).median; };
  report.number(task.name + "_reward", reward("Fabric, recorded"));
  report.number(task.name + "_recorded_to_eager", ratio(measurements, "Fabric, recorded", "Fabric"));
  if (rewards.contains("stable-baselines3")) {
    report.number(task.name + "_reward_of_sb3", reward("stable-baselines3"));
    report.at_least(task.name + "_speed_to_sb3", ratio(measurements, "Fabric, recorded", "stable-baselines3"), 1.0);
  }
}

int run(const Options& options) {
  pin_to_one_core();
  for (const std::string& word : options.words) {
    if (std::none_of(tasks().begin(), tasks().end(), [&](const Task& task) { return task.name == word; }))
      throw std::runtime_error(
          "usage: bench_reinforcement [--rounds N] [ppo_cart_pole] [ppo_pendulum] [dqn_cart_pole]");
  }
  const auto peer = Peer::start("reinforcement");
  Report report("reinforcement");
  if (peer != nullptr) report.peers(peer->versions());
  for (const Task& task : tasks()) {
    const auto& names = options.words;
    if (names.empty() || std::find(names.begin(), names.end(), task.name) != names.end()) {
      measure(task, options, peer, report);
    }
  }
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 3);
  return guarded([&] { return run(options); });
}

}  // namespace bench::reinforcement
