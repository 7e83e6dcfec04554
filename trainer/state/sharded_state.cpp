#include "levin/trainer/state/sharded_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "levin/checkpoint/checkpoint_writer.h"
#include "levin/checkpoint/sharded_record.h"
#include "levin/core/console.h"
#include "levin/optim/clip_grad.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/update_scope.h"

namespace levin {

namespace {

// Which parameter of which optimizer a tensor "optimizers.0.3.exp_avg" of a checkpoint belongs to.
struct OptimizerKey {
  size_t optimizer = 0;
  size_t param = 0;
  std::string name;
};

std::optional<size_t> leading_number(std::string_view& text) {
  size_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (code != std::errc{} || length >= text.size() || text[length] != '.') return std::nullopt;
  text.remove_prefix(length + 1);
  return number;
}

std::optional<OptimizerKey> optimizer_key(std::string_view key) {
  constexpr std::string_view prefix = "optimizers.";
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  const auto optimizer = leading_number(key);
  if (!optimizer) return std::nullopt;
  const auto param = leading_number(key);
  if (!param) return std::nullopt;
  return OptimizerKey{*optimizer, *param, std::string(key)};
}

at::Tensor parameter_of(const Fit& fit, const OptimizerKey& key) {
  return fit.optimizers.at(key.optimizer).shared()->parameters().at(key.param);
}

// Counters and the like: one number per parameter, whatever its size.
bool is_counter(const std::string& name) {
  return name == "step" || name == "mu_product";
}

// ---- wholes --------------------------------------------------------------------------------------------------------

// The state that some rank has for a parameter: another may have none of it.
struct KeptTensor {
  at::ScalarType type = at::kFloat;
  double counter = 0;
};

// Every rank's tensors of optimizers' state, by key; counters with their values.
std::map<std::string, KeptTensor> kept_by_any(RankCollectives& ranks, const State& checkpoint) {
  std::string own;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    const auto parsed = optimizer_key(key);
    if (!parsed) continue;
    char value[64];
    std::snprintf(value, sizeof value, "%a", is_counter(parsed->name) ? tensor.item().toDouble() : 0.0);
    own += key + " " + std::to_string(static_cast<int>(tensor.scalar_type())) + " " + value + "\n";
  }
  std::map<std::string, KeptTensor> all;
  std::istringstream lines(ranks.merge_lines(own));
  std::string key;
  std::string value;
  for (int type = 0; lines >> key >> type >> value;) {
    all[key] = {static_cast<at::ScalarType>(type), std::strtod(value.c_str(), nullptr)};
  }
  return all;
}

void put(int64_t rank, State& checkpoint, const std::string& key, at::Tensor whole) {
  if (rank == 0) checkpoint.tensors[key] = std::move(whole);
  if (rank != 0) checkpoint.tensors.erase(key);
}

void make_whole(Strategy& strategy, const Fit& fit, State& checkpoint) {
  const std::map<std::string, at::Tensor> tensors = checkpoint.tensors;
  for (const auto& [key, tensor] : tensors) {
    if (!tensor.defined() || !strategy.place_of(tensor)) continue;
    put(strategy.rank(), checkpoint, key, strategy.whole_on_rank_zero(tensor, strategy.part_of(tensor)));
  }
  for (const auto& [key, kept] : kept_by_any(strategy, checkpoint)) {
    const OptimizerKey parsed = *optimizer_key(key);
    if (is_counter(parsed.name)) {
      put(strategy.rank(), checkpoint, key, at::scalar_tensor(kept.counter, kept.type));
      continue;
    }
    const at::Tensor param = parameter_of(fit, parsed);
    if (!strategy.place_of(param)) continue;
    const auto own = tensors.find(key);
    const at::Tensor part = own == tensors.end() ? at::empty({0}, kept.type) : own->second;
    put(strategy.rank(), checkpoint, key, strategy.whole_on_rank_zero(param, part));
  }
}

// ---- parts ---------------------------------------------------------------------------------------------------------

// Rank 0 writes what is the same on all ranks; each rank writes its counters, because rank 0 may have none.
State parts_to_write(const Strategy& strategy, const Fit& fit, const State& checkpoint) {
  State own;
  if (strategy.rank() == 0) own.values = checkpoint.values;
  std::map<std::string, Piece> parts;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (!tensor.defined()) continue;
    const auto parsed = optimizer_key(key);
    const bool is_part = parsed && !is_counter(parsed->name);
    const auto place = strategy.place_of(is_part ? parameter_of(fit, *parsed) : tensor);
    if (place && place->size > 0) {
      own.tensors[key] = is_part ? tensor : strategy.part_of(tensor);
      parts[key] = {place->begin, place->shape};
    } else if (!place && (strategy.rank() == 0 || parsed)) {
      own.tensors[key] = tensor;
    }
  }
  own.set("parts", parts);
  return own;
}

}  // namespace

void prepare_for_writing(Strategy& strategy, const Fit& fit, CheckpointRequest& request) {
  if (!strategy.is_sharded() || !request.link_to.empty()) return;
  if (!strategy.saves_shards()) return make_whole(strategy, fit, request.state);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  char save[32];
  std::snprintf(save, sizeof save, "%llx",
                static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
  request.shard = ShardPlace{strategy.rank(), strategy.world_size(), strategy.broadcast(save)};
  request.state = parts_to_write(strategy, fit, request.state);
}

State reduced_gradients(Sharding& sharding, const LightningModule& module) {
  State state;
  for (const auto& item : module.named_parameters()) {
    const auto place = sharding.place_of(item.value());
    if (!place || !item.value().requires_grad()) continue;
    const at::Tensor part = item.value().grad();
    const at::Tensor none = at::zeros({place->size}, sharding.part_of(item.value()).options());
    state.tensors[item.key()] = sharding.whole_of(item.value(), part.defined() ? part : none);
  }
  return state;
}

State optimizer_parts(const Sharding& sharding, const Optimizer& optimizer, const State& whole) {
  State parts;
  parts.values = whole.values;
  const auto params = optimizer.parameters();
  for (const auto& [key, tensor] : whole.tensors) {
    std::string_view name = key;
    const auto index = leading_number(name);
    const auto place = index && *index < params.size() ? sharding.place_of(params[*index]) : std::nullopt;
    const bool fits = place && tensor.sizes() == at::IntArrayRef(place->shape);
    if (!place || (!fits && !is_counter(std::string(name)))) {
      parts.tensors[key] = tensor;  // the optimizer reports what is wrong with it
    } else if (place->size > 0) {   // a rank without any of the parameter has no state for it
      const bool counts = is_counter(std::string(name));
      parts.tensors[key] = counts ? tensor : tensor.reshape({-1}).narrow(0, place->begin, place->size);
    }
  }
  return parts;
}

void restore_parts(Sharding& sharding, const LightningModule& module, const State& checkpoint) {
  const at::NoGradGuard no_grad;
  const State saved = checkpoint.part("model");
  for (const auto& item : module.named_parameters()) {
    const auto place = sharding.place_of(item.value());
    if (!place) continue;
    sharding.part_of(item.value()).copy_(saved.tensor(item.key()).reshape({-1}).narrow(0, place->begin, place->size));
  }
  UpdateScope update(sharding);
  update.changed();
}

at::Tensor norm_over_ranks(RankCollectives& ranks, const std::vector<at::Tensor>& params) {
  // All ranks have the same parameters, but one may have a gradient of none of them, or only of those of one type: what
  // it sends must not depend on that.
  const bool is_double = std::any_of(params.begin(), params.end(),
                                     [](const at::Tensor& param) { return param.scalar_type() == at::kDouble; });
  const at::Device device = params.empty() ? at::Device(at::kCPU) : params[0].device();
  const at::Tensor own = get_total_norm(params).to(device, is_double ? at::kDouble : at::kFloat);
  return ranks.sum_on_device(own.square()).sqrt_();
}

}  // namespace levin
