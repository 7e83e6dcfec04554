// Several independent episodes of a task (CartPole, Pendulum) that advance together, and the returns of finished
// episodes.
#pragma once

#include <levin/levin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace reinforcement {

// What a step led to; n is the number of environments.
struct Transition {
  torch::Tensor reward;       // (n)
  torch::Tensor observation;  // (n, observations); of an episode that ends here its last, not the next episode's first
  torch::Tensor terminated;   // (n) bool: the task is over, and nothing follows
  torch::Tensor truncated;    // (n) bool: only the limit of steps ends the episode
};

// Episodes begin with numbers of LibTorch's generator, which checkpoints of Fabric contain.
template <class Task>
class Environments {
 public:
  explicit Environments(int64_t count) : running_(static_cast<size_t>(count)) {
    for (Running& each : running_) reset(each);
  }

  [[nodiscard]] torch::Tensor observations() const {  // (n, observations)
    return stack([](const Running& each) { return each.task.observation(); });
  }

  // Advances each environment by its action, (n), and begins a new episode where one ends.
  Transition step(const torch::Tensor& actions) {
    const auto count = static_cast<int64_t>(running_.size());
    Transition result{
        torch::empty({count}), {}, torch::empty({count}, torch::kBool), torch::empty({count}, torch::kBool)};
    const auto* action = actions.const_data_ptr<typename Task::Action>();
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& each = running_[i];
      const double reward = each.task.step(action[i]);
      each.total += reward;
      ++each.steps;
      result.reward.mutable_data_ptr<float>()[i] = static_cast<float>(reward);
      result.terminated.mutable_data_ptr<bool>()[i] = each.task.is_over();
      result.truncated.mutable_data_ptr<bool>()[i] = !each.task.is_over() && each.steps == Task::kMaxSteps;
    }
    result.observation = observations();
    for (Running& each : running_) {
      if (!each.task.is_over() && each.steps < Task::kMaxSteps) continue;
      returns_.push_back(each.total);
      reset(each);
    }
    return result;
  }

  [[nodiscard]] int64_t episodes() const { return static_cast<int64_t>(returns_.size()); }

  // The mean return of the last episodes that ended; 0 if none has.
  [[nodiscard]] double mean_return(int64_t last = 100) const {
    const int64_t count = std::min(last, episodes());
    return std::accumulate(returns_.end() - count, returns_.end(), 0.0) /
           static_cast<double>(std::max<int64_t>(count, 1));
  }

  // The state for a checkpoint, without the generator of random numbers.
  [[nodiscard]] levin::State state_dict() const {
    levin::State saved;
    saved.tensors["running"] = stack([](const Running& each) {
      std::array<double, Task::kState + 2> row{};
      std::copy(each.task.state.begin(), each.task.state.end(), row.begin());
      row[Task::kState] = static_cast<double>(each.steps);
      row[Task::kState + 1] = each.total;
      return row;
    });
    saved.tensors["returns"] = torch::tensor(returns_, torch::kDouble);
    return saved;
  }

  void load_state_dict(const levin::State& saved) {
    const torch::Tensor rows = saved.tensor("running"), returns = saved.tensor("returns");
    for (size_t i = 0; i < running_.size(); ++i) {
      const double* row = rows[static_cast<int64_t>(i)].const_data_ptr<double>();
      std::copy_n(row, Task::kState, running_[i].task.state.begin());
      running_[i].steps = static_cast<int64_t>(row[Task::kState]);
      running_[i].total = row[Task::kState + 1];
    }
    returns_.assign(returns.const_data_ptr<double>(), returns.const_data_ptr<double>() + returns.numel());
  }

 private:
  struct Running {
    Task task = {};
    int64_t steps = 0;
    double total = 0;  // of the rewards so far
  };

  static void reset(Running& each) {
    std::array<double, Task::kState> uniform;
    const torch::Tensor drawn = torch::rand({Task::kState}, torch::kDouble);
    std::copy_n(drawn.const_data_ptr<double>(), Task::kState, uniform.begin());
    each = {};
    each.task.reset(uniform);
  }

  // One row of numbers for each environment.
  template <class Numbers>
  [[nodiscard]] torch::Tensor stack(const Numbers& numbers_of) const {
    using Row = decltype(numbers_of(running_[0]));
    using Number = typename Row::value_type;
    const auto width = static_cast<int64_t>(std::tuple_size_v<Row>);
    torch::Tensor rows =
        torch::empty({static_cast<int64_t>(running_.size()), width}, torch::CppTypeToScalarType<Number>::value);
    auto* out = rows.template mutable_data_ptr<Number>();
    for (const Running& each : running_) {
      const Row row = numbers_of(each);
      out = std::copy(row.begin(), row.end(), out);
    }
    return rows;
  }

  std::vector<Running> running_;
  std::vector<double> returns_;  // of the episodes that ended, in this order
};

// Writes a checkpoint of `fabric` with the environments and the number of complete rollouts, unless `path` is empty.
template <class Task>
void save(levin::Fabric& fabric, const std::string& path, const Environments<Task>& environments, int64_t rollouts) {
  if (path.empty()) return;
  levin::State user;
  user.set("rollouts", rollouts);
  user.put("environments", environments.state_dict());
  fabric.save(path, user);
}

// Continues from the checkpoint, if there is one, and returns the number of complete rollouts.
template <class Task>
int64_t load(levin::Fabric& fabric, const std::string& path, Environments<Task>& environments) {
  if (path.empty() || !std::filesystem::exists(path)) return 0;
  const levin::State user = fabric.load(path);
  environments.load_state_dict(user.part("environments"));
  return user.get<int64_t>("rollouts");
}

// Runs episodes one after another with the actions of `act`, and returns their mean return.
template <class Task, class Act>
double evaluate(const Act& act, int64_t episodes = 20) {
  Environments<Task> environment(1);
  while (environment.episodes() < episodes) (void)environment.step(act(environment.observations()));
  return environment.mean_return(episodes);
}

}  // namespace reinforcement
