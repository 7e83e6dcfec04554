#include "levin/trainer/state/sharded_state.h"

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
#include "levin/optim/clip_grad.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/step/update_scope.h"

namespace levin {

namespace {

// Which parameter of which optimizer a tensor "optimizers.0.3.exp_avg" of a checkpoint belongs to, and what it is.
struct OptimizerTensor {
  at::Tensor param;
  StateLayout layout = StateLayout::elementwise;
};

std::optional<size_t> leading_number(std::string_view& text) {
  size_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (code != std::errc{} || length >= text.size() || text[length] != '.') return std::nullopt;
  text.remove_prefix(length + 1);
  return number;
}

std::optional<OptimizerTensor> optimizer_tensor(const Fit& fit, std::string_view key) {
  constexpr std::string_view prefix = "optimizers.";
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  const auto index = leading_number(key);
  if (!index) return std::nullopt;
  const auto param = leading_number(key);
  if (!param) return std::nullopt;
  const auto optimizer = fit.optimizers().at(*index).shared();
  return OptimizerTensor{optimizer->parameters().at(*param), optimizer->layout(std::string(key))};
}

// ---- the full tensors, on rank 0 -----------------------------------------------------------------------------------

// A tensor of optimizers' state that some ranks have. Others may have no part of its parameter.
struct StateTensor {
  at::ScalarType type = at::kFloat;
  double scalar = 0;                // its value, if it is a scalar
  int64_t rank = 0;                 // the lowest that has it, if it has its own shape
  std::vector<int64_t> shape = {};  // the same
};

// Every rank's tensors of optimizers' state, by key.
std::map<std::string, StateTensor> tensors_of_ranks(RankCollectives& ranks, const Fit& fit, const State& checkpoint) {
  std::string lines;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    const auto found = optimizer_tensor(fit, key);
    if (!found) continue;
    char value[64];
    std::snprintf(value, sizeof value, "%a", found->layout == StateLayout::scalar ? tensor.item().toDouble() : 0.0);
    lines += key + " " + std::to_string(static_cast<int>(tensor.scalar_type())) + " " + value;
    if (found->layout == StateLayout::own_shape) {
      lines += " " + std::to_string(ranks.rank());
      for (const int64_t size : tensor.sizes()) lines += " " + std::to_string(size);
    }
    lines += "\n";
  }
  std::map<std::string, StateTensor> all;
  std::istringstream merged(ranks.merge_lines(lines));
  for (std::string line; std::getline(merged, line);) {
    std::istringstream columns(line);
    std::string key, value;
    int type = 0;
    columns >> key >> type >> value;
    StateTensor tensor{static_cast<at::ScalarType>(type), std::strtod(value.c_str(), nullptr)};
    columns >> tensor.rank;
    for (int64_t size = 0; columns >> size;) tensor.shape.push_back(size);
    const auto known = all.find(key);
    if (known == all.end() || tensor.rank < known->second.rank) all[key] = std::move(tensor);
  }
  return all;
}

void put(int64_t rank, State& checkpoint, const std::string& key, at::Tensor full) {
  if (rank == 0) checkpoint.tensors[key] = std::move(full);
  if (rank != 0) checkpoint.tensors.erase(key);
}

void make_full(Strategy& strategy, const Fit& fit, State& checkpoint) {
  const std::map<std::string, at::Tensor> tensors = checkpoint.tensors;
  for (const auto& [key, tensor] : tensors) {
    if (!tensor.defined() || !strategy.sharding().shard_range(tensor)) continue;
    put(strategy.ranks().rank(), checkpoint, key,
        strategy.sharding().full_tensor_on_rank_zero(tensor, strategy.sharding().local_shard(tensor)));
  }
  for (const auto& [key, known] : tensors_of_ranks(strategy.ranks(), fit, checkpoint)) {
    const OptimizerTensor found = *optimizer_tensor(fit, key);
    const auto own = tensors.find(key);
    if (found.layout == StateLayout::scalar) {
      put(strategy.ranks().rank(), checkpoint, key, at::scalar_tensor(known.scalar, known.type));
    } else if (found.layout == StateLayout::own_shape) {
      const at::Tensor none = at::zeros(known.shape, known.type);
      const at::Tensor all =
          strategy.ranks().gather(own == tensors.end() ? none : own->second.to(at::kCPU).contiguous());
      put(strategy.ranks().rank(), checkpoint, key, all[known.rank].clone());
    } else if (strategy.sharding().shard_range(found.param)) {
      const at::Tensor part = own == tensors.end() ? at::empty({0}, known.type) : own->second;
      put(strategy.ranks().rank(), checkpoint, key, strategy.sharding().full_tensor_on_rank_zero(found.param, part));
    }
  }
}

// ---- shards ---------------------------------------------------------------------------------------------------------

// Rank 0 writes what is the same on all ranks. Each rank writes the optimizers' tensors that are not elementwise: a
// rank without a part of their parameter, as rank 0 may be, has none of them.
State parts_to_write(const Strategy& strategy, const Fit& fit, const State& checkpoint) {
  State own;
  if (strategy.ranks().rank() == 0) own.values = checkpoint.values;
  std::map<std::string, Piece> parts;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (!tensor.defined()) continue;
    const auto found = optimizer_tensor(fit, key);
    const bool is_part = found && found->layout == StateLayout::elementwise;
    const auto place = strategy.sharding().shard_range(is_part ? found->param : tensor);
    if (place && place->numel() > 0) {
      own.tensors[key] = is_part ? tensor : strategy.sharding().local_shard(tensor);
      parts[key] = {place->flat_offset(), place->shape};
    } else if (!place && (strategy.ranks().rank() == 0 || found)) {
      own.tensors[key] = tensor;
    }
  }
  own.set("parts", parts);
  return own;
}

}  // namespace

void prepare_for_writing(Strategy& strategy, const Fit& fit, CheckpointRequest& request) {
  if (!request.link_to.empty()) return;
  if (!strategy.sharding().is_sharded()) {  // otherwise checked in the first update, where parameters are shards
    for (size_t i = 0; i < fit.optimizers().size(); ++i) {
      fit.optimizers()[i].shared()->check_layouts(request.state.part("optimizers." + std::to_string(i)));
    }
    return;
  }
  if (!strategy.sharding().saves_shards()) return make_full(strategy, fit, request.state);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  char save[32];
  std::snprintf(save, sizeof save, "%llx",
                static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
  request.shard = ShardPlace{strategy.ranks().rank(), strategy.ranks().world_size(), strategy.ranks().broadcast(save)};
  request.state = parts_to_write(strategy, fit, request.state);
}

State reduced_gradients(Sharding& sharding, const LightningModule& module) {
  State state;
  for (const auto& item : module.named_parameters()) {
    const auto place = sharding.shard_range(item.value());
    if (!place || !item.value().requires_grad()) continue;
    const at::Tensor part = item.value().grad();
    const at::Tensor none = at::zeros(place->sizes, sharding.local_shard(item.value()).options());
    state.tensors[item.key()] = sharding.full_tensor(item.value(), part.defined() ? part : none);
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
    const auto place = index && *index < params.size() ? sharding.shard_range(params[*index]) : std::nullopt;
    if (!place) {
      parts.tensors[key] = tensor;  // the optimizer reports what is wrong with it
      continue;
    }
    const bool is_elementwise = optimizer.layout(std::string(name)) == StateLayout::elementwise;
    const bool fits = tensor.sizes() == at::IntArrayRef(place->shape);
    if (is_elementwise && !fits) {
      parts.tensors[key] = tensor;    // as above
    } else if (place->numel() > 0) {  // a rank without any of the parameter has no state for it
      parts.tensors[key] = is_elementwise ? place->of(tensor) : tensor;
    }
  }
  return parts;
}

void restore_parts(Sharding& sharding, LightningModule& module, const State& checkpoint, const std::string& path) {
  restore_weights(module, checkpoint, path, [&](const at::Tensor& own, const at::Tensor& saved) {
    const auto place = sharding.shard_range(own);
    place ? sharding.local_shard(own).copy_(place->of(saved)) : own.copy_(saved);
  });
  UpdateScope update(sharding);
  update.changed();
}

at::Tensor norm_over_ranks(RankCollectives& ranks, const std::vector<at::Tensor>& params) {
  // All ranks have the same parameters, but one may have a gradient of none of them, or only of parameters of one type:
  // what it sends must not depend on that.
  const bool is_double = std::any_of(params.begin(), params.end(),
                                     [](const at::Tensor& param) { return param.scalar_type() == at::kDouble; });
  const at::Device device = params.empty() ? at::Device(at::kCPU) : params[0].device();
  const at::Tensor own = get_total_norm(params).to(device, is_double ? at::kDouble : at::kFloat);
  return ranks.sum_on_device(own.square()).sqrt_();
}

}  // namespace levin
