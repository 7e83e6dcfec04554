// One run of `./dev bench recorded`, in a process of its own.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench::recorded {

struct Net {
  std::shared_ptr<nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// A model, its batch, and the limit of the replayed step's time relative to the hand-written loop's.
struct Shape {
  std::string name;
  std::string title;
  std::vector<int64_t> input;
  int64_t classes;
  int64_t steps;
  double limit;
  bool beats_compiled;
  std::function<Net()> make;
};

std::vector<Shape> shapes();

/// Runs what the arguments after "alone" select, and prints the result as a list of one number.
int run_alone(const std::vector<std::string>& words);

}  // namespace bench::recorded
