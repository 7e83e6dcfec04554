#include "levin/callbacks/lora.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "levin/adapters/inner_model.h"
#include "levin/adapters/lora.h"
#include "levin/adapters/lora_layer.h"
#include "levin/adapters/saved_lora.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/weights_at_end.h"

namespace levin {

namespace {

constexpr size_t kMaxUnusedNames = 3;  // in a message

using Each = std::map<std::string, double>;

bool are_near(const LoRAScalings& one, const LoRAScalings& other) {
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); };
  if (one.index() != other.index()) return false;
  if (const auto* single = std::get_if<double>(&one)) return near(*single, std::get<double>(other));
  const auto &a = std::get<Each>(one), &b = std::get<Each>(other);
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [&](const auto& x, const auto& y) {
           return x.first == y.first && near(x.second, y.second);
         });
}

std::string text_of(const LoRAScalings& scalings) {
  const auto* one = std::get_if<double>(&scalings);
  return one != nullptr ? number_text(*one) : "factors that differ by layer";
}

}  // namespace

LoRA::LoRA(LoRAOptions options) : options_(checked(std::move(options), "LoRAOptions")) {}

void LoRA::adapt_model(Trainer& trainer, LightningModule& module) {
  if (options_.quantize != Quantize::none && trainer.strategy().sharding().shards_modules()) {
    throw ConfigError("LoRAOptions.quantize: " + enum_name(options_.quantize) + " is not possible with the strategy " +
                      trainer.strategy().name() +
                      ", which computes with weights of its own type. Leave quantize out, or use ddp.");
  }
  const InnerModel inner = inner_model(module);
  apply_lora(*inner.module, options_, inner.outer);
  scalings_ = lora_scalings(module);
  checked_ = false;
}

// A module whose products Levin does not see, such as one compiled ahead of time, would train nothing.
void LoRA::check_used(LightningModule& module) {
  if (std::exchange(checked_, true)) return;
  std::vector<std::string> unused;
  const auto layers = lora_layers(module);
  for (const auto& [name, layer] : layers) {
    if (layer->uses() == 0) unused.push_back(name);
  }
  const size_t count = unused.size();
  if (count == 0) return;
  unused.resize(std::min(count, kMaxUnusedNames));
  const std::string names = join(unused) + (count > kMaxUnusedNames ? ", …" : "");
  if (count == layers.size()) {
    throw Error("LoRA: the first batch did not compute with the weight of any adapted layer (" + names +
                "), so the adapters have no effect. Adapt layers that the module computes with through linear, matmul, "
                "mm or addmm, embedding or a convolution; a module compiled ahead of time cannot be adapted.");
  }
  Console::instance().warn("LoRA: the first batch did not use " +
                           count_of(static_cast<int64_t>(count), "adapted layer") + " of " +
                           std::to_string(layers.size()) + ": " + names + ".");
}

void LoRA::on_train_batch_end(Trainer&, LightningModule& module, const at::Tensor& loss, const Batch&, int64_t) {
  if (loss.defined()) check_used(module);
}

void LoRA::on_validation_batch_end(Trainer&, LightningModule& module, const Batch&, int64_t, int64_t) {
  check_used(module);
}

void LoRA::on_test_batch_end(Trainer&, LightningModule& module, const Batch&, int64_t, int64_t) {
  check_used(module);
}

void LoRA::on_predict_batch_end(Trainer&, LightningModule& module, const at::Tensor&, const Batch&, int64_t, int64_t) {
  check_used(module);
}

void LoRA::on_fit_end(Trainer& trainer, LightningModule& module) {
  if (options_.save_to.empty() || trainer.plan().fast_dev_run) return;
  const WeightsAtEnd weights(trainer, module, options_.save_weights);
  save_lora(*inner_model(module).module, options_.save_to, weights, trainer.is_global_zero());
  module.print("wrote " + options_.save_to + ", an adapter in PEFT's layout, with " + weights.text());
}

State LoRA::weights_to_save(const LightningModule&) const {
  State state;
  state.set(kLoRAScaling, scalings_);
  return state;
}

State LoRA::state_dict() const {
  State state;
  state.set("scaling", scalings_);
  return state;
}

void LoRA::load_state_dict(const State& saved) {
  const auto scalings = saved.get<LoRAScalings>("scaling");
  if (are_near(scalings, scalings_)) return;
  throw CheckpointError("LoRA: the checkpoint's adapters are scaled by " + text_of(scalings) +
                        ", and this run's lora_alpha, r and use_rslora give " + text_of(scalings_) +
                        ". Give the values of the checkpoint's run.");
}

}  // namespace levin
