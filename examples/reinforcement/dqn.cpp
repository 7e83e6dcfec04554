// DQN (Mnih et al. 2015, https://doi.org/10.1038/nature14236) on the cart-pole, as a loop over levin::Fabric. The
// hyperparameters are rl-baselines3-zoo's for CartPole-v1.
//
//   dqn [--steps 50000] [--seed 1] [--record auto|true|false] [--checkpoint FILE]
//
// With --checkpoint, FILE is written ten times during the training. A program that is started again continues from it,
// and ends with bitwise identical weights.
#include <iostream>

#include "cart_pole.h"
#include "environments.h"
#include "program.h"

namespace reinforcement {
namespace {

constexpr int64_t kRollout = 256, kGradientSteps = 128, kBatch = 64;  // a rollout is followed by this many batches
constexpr int64_t kLearningStarts = 1000;                             // steps with random actions and without training
constexpr double kLearningRate = 2.3e-3, kGamma = 0.99;
constexpr double kExplorationFraction = 0.16, kFinalEpsilon = 0.04;

// Q(observation, action) for all actions: (batch, observations) to (batch, actions).
struct QNetwork : torch::nn::Module {
  torch::nn::Sequential layers =
      register_module("layers", torch::nn::Sequential(torch::nn::Linear(CartPole::kObservations, 256),
                                                      torch::nn::ReLU(), torch::nn::Linear(256, 256), torch::nn::ReLU(),
                                                      torch::nn::Linear(256, CartPole::kActions)));
  torch::Tensor forward(const torch::Tensor& observations) { return layers->forward(observations); }
};

class Dqn {
 public:
  explicit Dqn(const CommandLine& options)
      : steps_(options.number("steps")),
        checkpoint_(options.text("checkpoint")),
        fabric_({.accelerator = "cpu",
                 .gradient_clip_val = 10.0,
                 .record_steps = options.record_steps(),
                 .num_threads = 1}),
        loader_(set_up()) {
    rollout_ = load(fabric_, checkpoint_, environment_);
  }

  void train() {
    Stopwatch stopwatch;
    const int64_t first = rollout_, rollouts = (steps_ + kRollout - 1) / kRollout;
    while (rollout_ < rollouts) {
      for (int64_t i = 0; i < kRollout; ++i) act(rollout_ * kRollout + i);
      ++rollout_;
      if (rollout_ * kRollout > kLearningStarts) learn();
      if (rollout_ % std::max<int64_t>(1, rollouts / 10) != 0) continue;
      save(fabric_, checkpoint_, environment_, rollout_);
      std::cerr << rollout_ * kRollout << " steps, reward " << environment_.mean_return() << std::endl;
    }
    stopwatch.stop();
    save(fabric_, checkpoint_, environment_, rollout_);
    const double evaluation = evaluate<CartPole>([&](const torch::Tensor& seen) { return best_action(seen); });
    stopwatch.print((rollout_ - first) * kRollout, environment_.mean_return(), evaluation);
  }

 private:
  levin::FabricLoader set_up() {
    fabric_.setup(net_, levin::Adam(net_.parameters(), {.lr = kLearningRate}));
    fabric_.setup(target_, {}, "target");
    return fabric_.setup_dataloaders(
        levin::ReplayLoader(buffer_, {.batch_size = kBatch, .batches_per_epoch = kGradientSteps}));
  }

  void learn() {
    {  // The zoo does this every 10 steps; but between two calls of learn() the weights do not change.
      const torch::NoGradGuard no_grad;
      const auto from = net_.parameters(), to = target_.parameters();
      for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    }
    for (const levin::Batch& batch : loader_.epoch(fabric_.current_epoch())) {
      fabric_.step(batch, [&](const levin::Batch& each) { return loss(each); });
    }
  }

  torch::Tensor best_action(const torch::Tensor& observations) {
    const torch::NoGradGuard no_grad;
    return net_.forward(observations).argmax(1);
  }

  // One step of the environment, whose transition goes to the buffer.
  void act(int64_t step) {
    const double progress = static_cast<double>(step) / static_cast<double>(steps_);
    const double epsilon = std::max(kFinalEpsilon, 1 - progress / kExplorationFraction * (1 - kFinalEpsilon));
    const torch::Tensor before = environment_.observations();
    const bool explores = step < kLearningStarts || torch::rand({1}).item<double>() < epsilon;
    const torch::Tensor action = explores ? torch::randint(CartPole::kActions, {1}) : best_action(before);
    const Transition after = environment_.step(action);
    buffer_->add_many({{"observation", before},
                       {"action", action},
                       {"reward", after.reward},
                       {"next", after.observation},
                       {"terminated", after.terminated}});  // an episode that is only truncated has a future
  }

  torch::Tensor loss(const levin::Batch& batch) {
    torch::Tensor wanted;
    {
      const torch::NoGradGuard no_grad;
      const torch::Tensor future = target_.forward(batch["next"]).amax(1);
      wanted = batch["reward"] + kGamma * future.masked_fill(batch["terminated"], 0);
    }
    return torch::smooth_l1_loss(net_.forward(batch["observation"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1),
                                 wanted);
  }

  int64_t steps_;
  std::string checkpoint_;
  int64_t rollout_ = 0;  // complete rollouts
  QNetwork net_, target_;
  Environments<CartPole> environment_{1};
  std::shared_ptr<levin::ReplayBuffer> buffer_ =
      std::make_shared<levin::ReplayBuffer>(levin::ReplayBufferOptions{.capacity = 100'000});
  levin::Fabric fabric_;  // destroyed before the modules
  levin::FabricLoader loader_;
};

}  // namespace
}  // namespace reinforcement

int main(int argc, char** argv) {
  using namespace reinforcement;
  return levin::main_guard([&] {
    const CommandLine options(argc, argv, {{"steps", "50000"}, {"seed", "1"}, {"record", "auto"}, {"checkpoint", ""}});
    levin::seed_everything(options.number("seed"));
    Dqn(options).train();
  });
}
