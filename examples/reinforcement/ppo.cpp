// PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) as a loop over levin::Fabric: discrete actions on the
// cart-pole, Gaussian ones on the pendulum. The initialisation is stable-baselines3's, and the
// hyperparameters are rl-baselines3-zoo's for CartPole-v1 and Pendulum-v1, without state-dependent exploration.
//
//   ppo [--task cart_pole|pendulum] [--steps 100000] [--seed 1] [--record auto|true|false] [--checkpoint FILE]
//
// With --checkpoint, FILE is written ten times during the training. A program that is started again continues from it,
// and ends with bitwise identical weights.
#include <cmath>
#include <iostream>
#include <numbers>
#include <type_traits>

#include "cart_pole.h"
#include "environments.h"
#include "gae.h"
#include "pendulum.h"
#include "program.h"

namespace reinforcement {
namespace {

struct Hyperparameters {
  int64_t environments, steps;  // of a rollout
  int64_t epochs, batch_size;
  double gamma, lambda, learning_rate, clip_range;
  bool decays;  // learning rate and clip range fall linearly to 0
};

template <class Task>
constexpr Hyperparameters kHyperparameters;
template <>
constexpr Hyperparameters kHyperparameters<CartPole> = {8, 32, 20, 256, 0.98, 0.8, 1e-3, 0.2, true};
template <>
constexpr Hyperparameters kHyperparameters<Pendulum> = {4, 1024, 10, 64, 0.9, 0.95, 1e-3, 0.2, false};

// A perceptron of two hidden layers with orthogonal weights, smaller ones in the last layer.
torch::nn::Sequential perceptron(int64_t inputs, int64_t outputs, double last_gain) {
  const auto layer = [](int64_t in, int64_t out, double gain) {
    torch::nn::Linear linear(in, out);
    torch::nn::init::orthogonal_(linear->weight, gain);
    torch::nn::init::zeros_(linear->bias);
    return linear;
  };
  const double gain = std::sqrt(2.0);
  return torch::nn::Sequential(layer(inputs, 64, gain), torch::nn::Tanh(), layer(64, 64, gain), torch::nn::Tanh(),
                               layer(64, outputs, last_gain));
}

template <class Task>
struct ActorCritic : torch::nn::Module {
  static constexpr bool kIsDiscrete = std::is_integral_v<typename Task::Action>;

  torch::nn::Sequential actor = register_module("actor", perceptron(Task::kObservations, Task::kActions, 0.01));
  torch::nn::Sequential critic = register_module("critic", perceptron(Task::kObservations, 1, 1.0));
  torch::Tensor log_std = kIsDiscrete ? torch::Tensor() : register_parameter("log_std", torch::zeros({}));
  // A tensor, because a recorded step reads tensors anew and keeps numbers.
  torch::Tensor clip_range = register_buffer("clip_range", torch::tensor(kHyperparameters<Task>.clip_range));

  torch::Tensor value(const torch::Tensor& observations) { return critic->forward(observations).squeeze(1); }

  // Returns an action for each observation, (n).
  torch::Tensor sample(const torch::Tensor& observations) {
    const torch::Tensor out = actor->forward(observations);
    if constexpr (kIsDiscrete) return torch::multinomial(out.softmax(1), 1).squeeze(1);
    return out.squeeze(1) + log_std.exp() * torch::randn({out.size(0)});
  }

  torch::Tensor best_action(const torch::Tensor& observations) {
    const torch::Tensor out = actor->forward(observations);
    return kIsDiscrete ? out.argmax(1) : out.squeeze(1);
  }

  torch::Tensor log_prob(const torch::Tensor& observations, const torch::Tensor& actions) {
    const torch::Tensor out = actor->forward(observations);
    if constexpr (kIsDiscrete) return out.log_softmax(1).gather(1, actions.unsqueeze(1)).squeeze(1);
    const torch::Tensor z = (actions - out.squeeze(1)) / log_std.exp();
    return -0.5 * z * z - log_std - 0.5 * std::log(2 * std::numbers::pi);
  }

  torch::Tensor loss(const levin::Batch& batch) {
    const auto [observations, actions, old_log_prob, advantages, returns] =
        batch.unpack("observations", "actions", "log_prob", "advantages", "returns");
    const torch::Tensor advantage = (advantages - advantages.mean()) / (advantages.std() + 1e-8);
    const torch::Tensor ratio = (log_prob(observations, actions) - old_log_prob).exp();
    const torch::Tensor clipped = torch::clamp(ratio, 1 - clip_range, 1 + clip_range);
    const torch::Tensor policy_loss = -torch::min(advantage * ratio, advantage * clipped).mean();
    return policy_loss + 0.5 * torch::mse_loss(value(observations), returns);
  }
};

template <class Task>
class Ppo {
 public:
  explicit Ppo(const CommandLine& options)
      : rollouts_((options.number("steps") + kRollout - 1) / kRollout),
        checkpoint_(options.text("checkpoint")),
        fabric_({.accelerator = "cpu",
                 .gradient_clip_val = 0.5,
                 .record_steps = options.record_steps(),
                 .num_threads = 1}) {
    const auto remaining = [this](int64_t rollout) { return kHyper.decays ? this->remaining(rollout) : 1.0; };
    fabric_.setup(
        net_, {levin::Adam(net_.parameters(), {.lr = kHyper.learning_rate, .eps = 1e-5}), levin::LambdaLR(remaining)});
  }

  void train() {
    Stopwatch stopwatch;
    const int64_t first = load(fabric_, checkpoint_, environments_);
    for (int64_t rollout = first; rollout < rollouts_; ++rollout) {
      if (kHyper.decays) net_.clip_range.fill_(kHyper.clip_range * remaining(rollout));
      learn(collect());
      fabric_.end_epoch();  // moves the learning rate
      if ((rollout + 1) % std::max<int64_t>(1, rollouts_ / 10) != 0) continue;
      save(fabric_, checkpoint_, environments_, rollout + 1);
      std::cerr << (rollout + 1) * kRollout << " steps, reward " << environments_.mean_return() << std::endl;
    }
    stopwatch.stop();
    save(fabric_, checkpoint_, environments_, rollouts_);
    const torch::NoGradGuard no_grad;
    const double evaluation = evaluate<Task>([&](const torch::Tensor& seen) { return net_.best_action(seen); });
    stopwatch.print((rollouts_ - first) * kRollout, environments_.mean_return(), evaluation);
  }

 private:
  static constexpr Hyperparameters kHyper = kHyperparameters<Task>;
  static constexpr int64_t kRollout = kHyper.environments * kHyper.steps;

  [[nodiscard]] double remaining(int64_t rollout) const {
    return 1 - static_cast<double>(rollout) / static_cast<double>(rollouts_);
  }

  // Plays one rollout and returns what was seen: (steps * environments, …).
  levin::Batch collect() {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> seen, acted, rewards, ends;
    for (int64_t step = 0; step < kHyper.steps; ++step) {
      seen.push_back(environments_.observations());
      acted.push_back(net_.sample(seen.back()));
      const Transition after = environments_.step(acted.back());
      rewards.push_back(after.reward);
      if (after.truncated.any().template item<bool>()) {
        rewards.back() += kHyper.gamma * net_.value(after.observation) * after.truncated;
      }
      ends.push_back(after.terminated | after.truncated);
    }
    const torch::Tensor observations = torch::cat(seen), actions = torch::cat(acted);
    const torch::Tensor values = net_.value(observations).view({kHyper.steps, kHyper.environments});
    const torch::Tensor advantages =
        advantages_of(torch::stack(rewards), values, torch::stack(ends), net_.value(environments_.observations()),
                      kHyper.gamma, kHyper.lambda);
    return {{"observations", observations},
            {"actions", actions},
            {"log_prob", net_.log_prob(observations, actions)},
            {"advantages", advantages.flatten()},
            {"returns", (advantages + values).flatten()}};
  }

  void learn(const levin::Batch& rollout) {
    const auto loss = [&](const levin::Batch& batch) { return net_.loss(batch); };
    for (int64_t epoch = 0; epoch < kHyper.epochs; ++epoch) {
      for (const torch::Tensor& rows : torch::randperm(kRollout).split(kHyper.batch_size)) {
        levin::Batch batch = rollout;
        for (torch::Tensor& each : batch.tensors) each = each.index_select(0, rows);
        fabric_.step(batch, loss);
      }
    }
  }

  int64_t rollouts_;  // of the complete training
  std::string checkpoint_;
  ActorCritic<Task> net_;
  Environments<Task> environments_{kHyper.environments};
  levin::Fabric fabric_;  // destroyed before the module
};

}  // namespace
}  // namespace reinforcement

int main(int argc, char** argv) {
  using namespace reinforcement;
  return levin::main_guard([&] {
    const CommandLine options(
        argc, argv,
        {{"task", "cart_pole"}, {"steps", "100000"}, {"seed", "1"}, {"record", "auto"}, {"checkpoint", ""}});
    const std::string& task = options.text("task");
    levin::seed_everything(options.number("seed"));
    if (task == "cart_pole") return Ppo<CartPole>(options).train();
    if (task == "pendulum") return Ppo<Pendulum>(options).train();
    throw levin::ConfigError("command line: --task must be cart_pole or pendulum, got \"" + task + "\".");
  });
}
