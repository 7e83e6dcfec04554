// Shared by the tests of optim/: every class in its registry, PyTorch's recorded numbers, small problems.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "levin/core/options/registry.h"
#include "levin/optim/adafactor.h"
#include "levin/optim/adagrad.h"
#include "levin/optim/adam.h"
#include "levin/optim/composed_schedulers.h"
#include "levin/optim/cosine_schedulers.h"
#include "levin/optim/cyclic_schedulers.h"
#include "levin/optim/lars.h"
#include "levin/optim/lbfgs.h"
#include "levin/optim/lookahead.h"
#include "levin/optim/muon.h"
#include "levin/optim/reduce_lr_on_plateau.h"
#include "levin/optim/sam.h"
#include "levin/optim/schedule_free_adamw.h"
#include "levin/optim/sgd.h"
#include "levin/optim/step_schedulers.h"
#include "support/paths.h"

namespace levin::testing {

template <class Interface, class T>
void add_once(const std::string& name) {
  auto& registry = Registry<Interface>::instance();
  if (!registry.find(name)) registry.template add<T>(name, name);
}

inline void register_optim() {
  add_once<Optimizer, SGD>("SGD");
  add_once<Optimizer, Adam>("Adam");
  add_once<Optimizer, AdamW>("AdamW");
  add_once<Optimizer, RMSprop>("RMSprop");
  add_once<Optimizer, Adagrad>("Adagrad");
  add_once<Optimizer, Adadelta>("Adadelta");
  add_once<Optimizer, Adafactor>("Adafactor");
  add_once<Optimizer, Adamax>("Adamax");
  add_once<Optimizer, NAdam>("NAdam");
  add_once<Optimizer, RAdam>("RAdam");
  add_once<Optimizer, LBFGS>("LBFGS");
  add_once<Optimizer, LARS>("LARS");
  add_once<Optimizer, LAMB>("LAMB");
  add_once<Optimizer, Muon>("Muon");
  add_once<Optimizer, ScheduleFreeAdamW>("ScheduleFreeAdamW");
  add_once<Optimizer, SAM>("SAM");
  add_once<Optimizer, Lookahead>("Lookahead");
  add_once<LRScheduler, StepLR>("StepLR");
  add_once<LRScheduler, MultiStepLR>("MultiStepLR");
  add_once<LRScheduler, ConstantLR>("ConstantLR");
  add_once<LRScheduler, LinearLR>("LinearLR");
  add_once<LRScheduler, ExponentialLR>("ExponentialLR");
  add_once<LRScheduler, PolynomialLR>("PolynomialLR");
  add_once<LRScheduler, CosineAnnealingLR>("CosineAnnealingLR");
  add_once<LRScheduler, CosineWithWarmup>("CosineWithWarmup");
  add_once<LRScheduler, CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts");
  add_once<LRScheduler, OneCycleLR>("OneCycleLR");
  add_once<LRScheduler, CyclicLR>("CyclicLR");
  add_once<LRScheduler, SequentialLR>("SequentialLR");
  add_once<LRScheduler, ChainedScheduler>("ChainedScheduler");
  add_once<LRScheduler, ReduceLROnPlateau>("ReduceLROnPlateau");
}

inline nlohmann::json reference(const std::string& file) {
  std::ifstream stream(test::source_dir() + "/tests/data/reference/" + file);
  return nlohmann::json::parse(stream);
}

/// JSON as the tree a YAML file would give; {"StepLR": {…}} in a list of schedulers becomes class_path and init_args.
inline ConfigNode config_of(const nlohmann::json& json) {
  if (json.is_null()) return {};
  if (json.is_string()) return ConfigNode::scalar(json.get<std::string>(), true);
  if (json.is_array()) {
    ConfigNode list = ConfigNode::list();
    for (const auto& item : json) {
      if (!item.is_object()) {
        list.items.push_back(config_of(item));
        continue;
      }
      ConfigNode spec = ConfigNode::map();
      spec.set("class_path", ConfigNode::scalar(item.items().begin().key()));
      spec.set("init_args", config_of(item.items().begin().value()));
      list.items.push_back(spec);
    }
    return list;
  }
  if (!json.is_object()) return ConfigNode::scalar(json.dump());
  ConfigNode map = ConfigNode::map();
  for (const auto& [key, value] : json.items()) map.set(key, config_of(value));
  return map;
}

template <class Interface>
std::shared_ptr<Interface> make(const std::string& name, const nlohmann::json& init_args) {
  register_optim();
  return Registry<Interface>::instance().make({name, config_of(init_args), {}}, "test");
}

/// Leaf tensors of mixed shapes with fixed values.
inline std::vector<at::Tensor> make_params(at::ScalarType type = at::kDouble) {
  std::vector<at::Tensor> params;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 4}, {5}, {}}) {
    const int64_t count = c10::multiply_integers(shape);
    auto values = at::arange(1, count + 1, at::kDouble).mul_(0.37 * static_cast<double>(params.size() + 1)).sin_();
    params.push_back(values.reshape(shape).to(type).requires_grad_(true));
  }
  return params;
}

/// A bowl with a twist: its gradient depends on the values, so that errors grow.
inline at::Tensor loss_of(const std::vector<at::Tensor>& params) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const auto& param : params) {
    const auto p = param.to(at::kDouble);
    loss = loss + (p - 0.3).pow(2).sum() + (p * 1.7).cos().sum();
  }
  return loss;
}

/// One step of any optimizer on loss_of(params).
inline void train_step(Optimizer& optimizer, const std::vector<at::Tensor>& params) {
  optimizer.step([&] {
    optimizer.zero_grad();
    auto loss = loss_of(params);
    loss.backward();
    return loss;
  });
}

inline bool bitwise_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

/// Runs `action`, which must throw E whose message holds every part.
template <class E, class Action>
void expect_error(Action action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown; expected a message with \"" << parts[0] << "\"";
  } catch (const E& error) {
    for (const auto& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "no \"" << part << "\" in: " << error.what();
    }
  }
}

}  // namespace levin::testing
