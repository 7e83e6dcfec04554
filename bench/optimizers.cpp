// One optimizer step: Levin's, on ATen's fused or foreach kernels, compared with stock torch::optim, which updates
// tensor by tensor. 400 tensors of 256 numbers (where the calls cost more than the arithmetic) and 4 tensors of 4
// million (where memory bandwidth counts), float32, one thread, unchanging gradients.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/sgd.h"
#include "rounds.h"

namespace bench::optimizers {

namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::string name;
  int64_t tensors, elements;
};

std::vector<at::Tensor> make_parameters(const Shape& shape) {
  torch::manual_seed(0);
  std::vector<at::Tensor> parameters;
  for (int64_t i = 0; i < shape.tensors; ++i) {
    auto parameter = torch::randn({shape.elements}).requires_grad_();
    parameter.mutable_grad() = torch::randn({shape.elements});
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// One of the two with its own parameters; a call is one step.
template <class Optimizer, class... Options>
std::function<void()> stepper(const std::vector<at::Tensor>& parameters, Options... options) {
  auto optimizer = std::make_shared<Optimizer>(parameters, options...);
  return [optimizer] { optimizer->step(); };
}

struct Pair {
  std::string name;
  std::function<std::function<void()>(const std::vector<at::Tensor>&)> stock, levin;
};

template <class Stock, class Levin, class StockOptions, class LevinOptions>
Pair make_pair_of(std::string name, StockOptions stock, LevinOptions levin) {
  return {std::move(name), [stock](const auto& parameters) { return stepper<Stock>(parameters, stock); },
          [levin](const auto& parameters) { return stepper<Levin>(parameters, levin); }};
}

// Uses the same settings on both sides, with momentum, because few train without it.
std::vector<Pair> make_pairs() {
  namespace o = torch::optim;
  return {
      make_pair_of<o::SGD, levin::SGD>("SGD", o::SGDOptions(0.01).momentum(0.9),
                                       levin::SGDOptions{.lr = 0.01, .momentum = 0.9}),
      make_pair_of<o::Adam, levin::Adam>("Adam", o::AdamOptions(1e-3), levin::AdamOptions{.lr = 1e-3}),
      make_pair_of<o::AdamW, levin::AdamW>("AdamW", o::AdamWOptions(1e-3), levin::AdamWOptions{.lr = 1e-3}),
      make_pair_of<o::Adagrad, levin::Adagrad>("Adagrad", o::AdagradOptions(1e-2), levin::AdagradOptions{.lr = 1e-2}),
      make_pair_of<o::RMSprop, levin::RMSprop>("RMSprop", o::RMSpropOptions(1e-3), levin::RMSpropOptions{.lr = 1e-3})};
}

// Runs as many steps as fit into `milliseconds`, the same for both sides: on a busy machine, short turns are disturbed
// less.
double microseconds_a_step(const std::function<void()>& step, double milliseconds) {
  const auto start = Clock::now();
  std::chrono::duration<double, std::micro> passed{};
  int64_t steps = 0;
  for (; steps == 0 || passed.count() < milliseconds * 1e3; ++steps) {
    step();
    passed = Clock::now() - start;
  }
  return passed.count() / static_cast<double>(steps);
}

// Faster is worth nothing unless it is the same.
void check_equal(const Shape& shape, const Pair& pair) {
  const auto for_stock = make_parameters(shape), for_levin = make_parameters(shape);
  const auto stock = pair.stock(for_stock), levin = pair.levin(for_levin);
  for (int step = 0; step < 3; ++step) stock(), levin();
  for (size_t i = 0; i < for_stock.size(); ++i) {
    if (torch::allclose(for_stock[i], for_levin[i], 1e-5, 1e-6)) continue;
    throw std::runtime_error(pair.name + ": the two do not agree");
  }
}

void measure(const Shape& shape, const Pair& pair, const Options& options, Report& report, std::optional<double> bar) {
  check_equal(shape, pair);
  const auto for_stock = make_parameters(shape), for_levin = make_parameters(shape);
  const auto stock = pair.stock(for_stock), levin = pair.levin(for_levin);
  const double milliseconds = options.quick ? 1 : 100;
  const auto measurements = interleave({{"torch::optim", [&] { return microseconds_a_step(stock, milliseconds); }},
                                        {"Levin", [&] { return microseconds_a_step(levin, milliseconds); }}},
                                       options);
  report.table(pair.name + ", " + shape.name, "us a step", measurements);
  const auto speed = ratio(measurements, "torch::optim", "Levin");
  std::string key = pair.name;
  std::transform(key.begin(), key.end(), key.begin(), [](char c) { return std::tolower(c); });
  key += bar ? "_small" : "_large";
  if (bar) {
    report.at_least(key, speed, *bar);
  } else {
    report.number(key, speed);
  }
}

int run(const Options& options) {
  pin_to_one_core();
  const std::vector<Shape> shapes = {{"400 tensors of 256", 400, 256},
                                     {"4 tensors of 4194304", 4, options.quick ? 4096 : 4'194'304}};
  Report report("optimizers");
  for (const auto& pair : make_pairs()) {
    measure(shapes[0], pair, options, report, 5);
    measure(shapes[1], pair, options, report, std::nullopt);
  }
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 15);
  return guarded([&] { return run(options); });
}

}  // namespace bench::optimizers
