#include "levin/strategies/process/fsdp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/freed_memory.h"
#include "levin/core/tensor_text.h"
#include "levin/dispatch/observed_weight.h"
#include "levin/strategies/process/operator_watch.h"
#include "levin/strategies/process/shard_reducer.h"
#include "levin/strategies/process/spilled_memory.h"
#include "levin/strategies/process/unit_gatherer.h"

namespace levin {

namespace {

std::optional<at::ScalarType> scalar_type(ShardDtype dtype) {
  switch (dtype) {
    case ShardDtype::same: return std::nullopt;
    case ShardDtype::float32: return at::kFloat;
    case ShardDtype::bfloat16: return at::kBFloat16;
    case ShardDtype::float16: return at::kHalf;
  }
  return std::nullopt;
}

// Note [Normalization layers keep their type]
// LibTorch's normalizations take bfloat16 inputs with float32 weights and statistics, as without fsdp, but not float32
// inputs or statistics with bfloat16 weights. So param_dtype leaves these layers out, as PyTorch's FSDP does with
// BatchNorm. As for weight decay, their class has "Norm" in its name.
std::set<std::string> norm_parameters(const torch::nn::Module& module) {
  std::set<std::string> names;
  const auto add = [&](const std::string& owner, const torch::nn::Module& layer) {
    if (layer.name().find("Norm") == std::string::npos) return;
    for (const auto& item : layer.named_parameters(/*recurse=*/false)) {
      names.insert(owner.empty() ? item.key() : owner + "." + item.key());
    }
  };
  for (const auto& item : module.named_modules("", /*include_self=*/false)) add(item.key(), *item.value());
  return names;
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Units that hold either parameters of `apart` or others, in the order of their first parameters.
std::vector<NamedTensors> units_by_type(const NamedTensors& params, const std::set<std::string>& apart, int64_t bytes) {
  NamedTensors kinds[2];
  std::unordered_map<std::string, size_t> position;
  for (const auto& named : params) {
    position.emplace(named.first, position.size());
    kinds[apart.contains(named.first) ? 1 : 0].push_back(named);
  }
  std::vector<NamedTensors> units = unit_parameters(kinds[0], bytes);
  for (auto& unit : unit_parameters(kinds[1], bytes)) units.push_back(std::move(unit));
  std::sort(units.begin(), units.end(), [&](const NamedTensors& one, const NamedTensors& other) {
    return position.at(one[0].first) < position.at(other[0].first);
  });
  return units;
}

// Note [Returning freed memory]
// glibc maps large blocks individually and unmaps each when it is freed, but raises its threshold to the size of any
// freed block, up to 32 MiB: from then on units, gradients and the module's first weights come from a heap that keeps
// all free memory below a block in use. So the threshold is fixed here; a block above it costs page faults each time.
void keep_freed_memory_small() {
  set_freed_memory({.largest_block = 1 << 20});
}

}  // namespace

struct FSDP::Engine {
  std::set<std::string> norms;  // names of the parameters of normalization layers
  Group parameters;             // separate groups, so that all_gather and reduce_scatter do not wait for each other
  Group gradients;
  std::unique_ptr<UnitGatherer> gatherer;  // stage 3
  std::unique_ptr<ShardReducer> reducer;
};

FSDP::FSDP(FSDPOptions options)
    : ParallelStrategy(options.process_group_backend, options.timeout, options.startup_timeout),
      options_(checked(options, "FSDPOptions")) {}
FSDP::FSDP(FSDP&&) noexcept = default;
FSDP::~FSDP() {
  tear_down();
}

// Whether no rank ever needs the whole model.
bool FSDP::shares_weights(bool training) const {
  return training && options_.stage == 3 && world_size() > 1;
}

std::shared_ptr<void> FSDP::model_sharded_context(bool training) {
  places_by_unit_ = shares_weights(training);
  if (!places_by_unit_ || options_.spill_dir == "off") return nullptr;
  if (!spilled_) spilled_ = std::make_unique<SpilledMemory>(options_.spill_dir);
  return std::make_shared<SpilledMemory::Scope>(*spilled_);
}

void FSDP::place(torch::nn::Module& module) {
  if (!engine_) engine_ = std::make_unique<Engine>();
  if (options_.param_dtype != ShardDtype::same) engine_->norms = norm_parameters(module);
  if (!places_by_unit_) return ParallelStrategy::place(module);
  keep_module(module);
  place_buffers(module, device());
}

void FSDP::set_up(const ModuleTensors& module, bool training) {
  module_ = module;
  check_same_shapes(module_);
  if (!engine_) engine_ = std::make_unique<Engine>();
  engine_->parameters = group("parameters");
  engine_->gradients = group("gradients");
  // An evaluation outside of fit keeps unsharded weights: there are no gradients and no optimizer state.
  const bool shares = training && world_size() > 1;
  std::vector<at::Tensor> all = tensors_of(module_.buffers);
  if (!shares) {
    for (const auto& [name, tensor] : module_.parameters) all.push_back(tensor);
  }
  broadcast_tensors(engine_->parameters, std::move(all));
  set_up_batch_norm(training);
  await_first_step();
  if (shares) make_units();
  for (const auto& [name, tensor] : module_.parameters) {  // no unit contains empty parameters
    if (places_by_unit_ && tensor.numel() == 0) tensor.set_data(tensor.to(device()));
  }
  if (spilled_) spilled_->move_to_memory();  // buffers, and tensors that are not registered
  spilled_.reset();
}

void FSDP::make_units() {
  if (options_.cpu_offload && device().is_cpu()) {
    Console::instance().warn(
        "FSDPOptions.cpu_offload: this run is on the CPU, as is its optimizer's state, so this option has no effect.");
  }
  keep_freed_memory_small();
  FlatUnit::Options layout{rank(), world_size(), {}, options_.stage < 3, {}};
  if (options_.cpu_offload) layout.part_device = at::kCPU;
  layout.device = device();
  // One unit at a time, as each is made: no rank needs a copy of all weights to send them.
  layout.agree = [&](at::Tensor& whole) {
    std::vector<at::Tensor> message = {whole};
    wait_for(*engine_->parameters->broadcast(message), *engine_->parameters, "receiving the weights of rank 0");
  };
  const std::set<std::string> norms = std::exchange(engine_->norms, {});
  for (const auto& params :
       units_by_type(module_.parameters, norms, static_cast<int64_t>(options_.unit_mb * (1 << 20)))) {
    const bool keeps_type = norms.contains(params[0].first);
    layout.compute_dtype = keeps_type ? std::nullopt : scalar_type(options_.param_dtype);
    units_.push_back(std::make_unique<FlatUnit>(params, layout));
    if (options_.stage == 3) units_.back()->free_whole();  // before the next one is made: never all at once
    for (size_t i = 0; i < params.size(); ++i) {
      index_[params[i].second.unsafeGetTensorImpl()] = {units_.size() - 1, i};
    }
  }
  if (units_.empty()) return;
  return_freed_memory();
  ShardReducer::Options reduction;
  reduction.ranks = world_size();
  reduction.keeps_whole = options_.stage == 1;
  reduction.takes_every_backward = options_.stage == 3;
  reduction.dtype = scalar_type(options_.reduce_dtype);
  if (options_.stage == 3) {
    engine_->gatherer =
        std::make_unique<UnitGatherer>(units_, engine_->parameters, cpu_group("order"), options_.prefetch);
    reduction.unit_is_done = [this](size_t unit) { engine_->gatherer->free(unit); };
    reduction.next_is_sent = [this] { engine_->gatherer->note_reduction(); };
  }
  engine_->reducer = std::make_unique<ShardReducer>(units_, engine_->gradients, std::move(reduction));
}

void FSDP::leave() {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  const bool is_whole = options_.stage < 3 && std::all_of(units_.begin(), units_.end(), [](const auto& unit) {
                          return unit->whole().scalar_type() == unit->part().scalar_type();
                        });
  for (const auto& [param, index] : index_) {
    // The gradients are parts, which could no longer be distinguished from wholes.
    if (options_.stage >= 2) units_[index.unit]->entries()[index.entry].param.mutable_grad() = at::Tensor();
  }
  if (!is_whole) {
    for (const auto& unit : units_) {
      for (const auto& entry : unit->entries()) {
        const at::Tensor whole = whole_of(entry.param, part_of(entry.param)).to(unit->whole().device());
        entry.param.set_data(observed_like(entry.param, whole));
      }
    }
  }
  engine_->reducer.reset();
  engine_->gatherer.reset();
  index_.clear();
  units_.clear();
}

// After leave() there are no units. Without it the run has failed: the module then has this rank's part in stage 3, and
// the whole otherwise.
void FSDP::tear_down() {
  if (engine_) {
    engine_->reducer.reset();
    engine_->gatherer.reset();
  }
  tear_down_batch_norm();
  if (options_.stage == 3) {
    for (const auto& unit : units_) unit->show_part();
  }
  whole_gradients_.clear();
  index_.clear();
  units_.clear();
  spilled_.reset();  // left by a set-up that failed
  module_ = {};
}

void FSDP::before_forward(bool sync) {
  if (!is_sharded()) return;
  if (engine_->gatherer) {
    begin_first_step();
    engine_->gatherer->begin_step();
  }
  if (sync && options_.broadcast_buffers) broadcast_tensors(engine_->gradients, tensors_of(module_.buffers));
}

RankNotes FSDP::backward(const at::Tensor& loss, bool sync, const RankNotes& own) {
  const at::Tensor heard = backward_recorded(loss, sync, sync ? notes_tensor(own) : at::Tensor());
  return heard.defined() ? notes_of(heard) : RankNotes();
}

RankNotes FSDP::backward_without_loss(bool sync, const RankNotes& own) {
  return backward({}, sync, own);
}

at::Tensor FSDP::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  // Inside an accumulation window gradients are not reduced until its end, unless earlier gradients are parts, which
  // were zeroed in place.
  const bool has_parts = is_sharded() && loss.defined() && engine_->reducer->has_parts();
  const bool reduces = is_sharded() && (sync || options_.stage == 3 || has_parts);
  if (reduces) engine_->reducer->begin();
  if (loss.defined()) {
    gradient_.backward(loss);
  } else if (reduces) {
    replay_others();
  }
  return reduces ? finish_backward(own) : own;
}

// On a rank without a loss: takes part in what the others communicate in their backward passes.
void FSDP::replay_others() {
  if (!engine_->gatherer) return;
  engine_->gatherer->replay_rest([this](size_t count) { engine_->reducer->send_first(count); });
}

// `own`: undefined inside an accumulation window.
at::Tensor FSDP::finish_backward(const at::Tensor& own) {
  if (engine_->gatherer) engine_->gatherer->end_step();
  at::Tensor heard = engine_->reducer->end(own);
  if (own.defined()) first_step_done();
  return heard;
}

void FSDP::begin_evaluation() {
  ParallelStrategy::begin_evaluation();
  if (engine_ && engine_->gatherer) engine_->gatherer->keep_all();
}

void FSDP::end_evaluation() {
  ParallelStrategy::end_evaluation();
  if (engine_ && engine_->gatherer) engine_->gatherer->free_all();
}

void FSDP::begin_update() {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  if (engine_->gatherer) engine_->gatherer->free_all();
  show_gradient_parts();
  for (const auto& unit : units_) unit->show_part();
}

void FSDP::end_update(bool changed) {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  if (changed && !engine_->gatherer) gather_wholes();
  for (const auto& unit : units_) unit->show_whole();
  show_gradient_wholes();
}

void FSDP::gather_wholes() {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto& unit : units_) {
    at::Tensor whole = unit->whole();
    at::Tensor part = unit->part().to(whole.options());
    works.push_back(engine_->parameters->_allgather_base(whole, part));
  }
  for (const auto& work : works) work->wait();
}

// Replaces whole gradients (stage 1, or set by the user) by this rank's part of them, in the same memory.
void FSDP::show_gradient_parts() {
  whole_gradients_.clear();
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const auto& entry = unit->entries()[i];
      const at::Tensor grad = entry.param.grad();
      const bool is_whole = grad.defined() && (options_.stage == 1 || grad.numel() != unit->place(i).size);
      if (!is_whole) continue;
      const PartPlace place = unit->place(i);
      whole_gradients_.emplace_back(entry.param, grad);
      at::Tensor part = grad.reshape({-1}).narrow(0, place.begin, place.size).to(unit->part().options());
      entry.param.mutable_grad() = place.size > 0 ? part : at::Tensor();
    }
  }
}

void FSDP::show_gradient_wholes() {
  for (auto& [param, grad] : std::exchange(whole_gradients_, {})) param.mutable_grad() = grad;
}

const FSDP::Index& FSDP::index_of(const at::Tensor& parameter) const {
  const auto found = index_.find(parameter.unsafeGetTensorImpl());
  if (found != index_.end()) return found->second;
  throw Error("fsdp: a tensor of shape " + shape_text(parameter.sizes()) +
              " is not a parameter of the module. Pass optimizers the tensors that the module's parameters() returns.");
}

std::optional<PartPlace> FSDP::place_of(const at::Tensor& parameter) const {
  const auto found = index_.find(parameter.unsafeGetTensorImpl());
  if (found == index_.end()) return std::nullopt;
  return units_[found->second.unit]->place(found->second.entry);
}

at::Tensor FSDP::part_of(const at::Tensor& parameter) const {
  const Index& index = index_of(parameter);
  return units_[index.unit]->in_part(units_[index.unit]->part(), index.entry);
}

// This rank's part on the CPU, padded to the longest part of any rank.
at::Tensor FSDP::padded(const at::Tensor& parameter, const at::Tensor& part) const {
  const Index& index = index_of(parameter);
  const FlatUnit& unit = *units_[index.unit];
  int64_t longest = 0;
  for (int64_t r = 0; r < world_size(); ++r) longest = std::max(longest, unit.place_on(index.entry, r).size);
  at::Tensor own = at::zeros({longest}, part.options().device(at::kCPU));
  own.narrow(0, 0, part.numel()).copy_(part);
  return own;
}

// `padded_parts`: (ranks, longest).
at::Tensor FSDP::put_together(const at::Tensor& parameter, const at::Tensor& padded_parts) const {
  const Index& index = index_of(parameter);
  const FlatUnit& unit = *units_[index.unit];
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; r < world_size(); ++r) {
    parts.push_back(padded_parts[r].narrow(0, 0, unit.place_on(index.entry, r).size));
  }
  return at::cat(parts).view(unit.entries()[index.entry].shape);
}

at::Tensor FSDP::whole_of(const at::Tensor& parameter, const at::Tensor& part) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  return put_together(parameter, gather(padded(parameter, part)));
}

at::Tensor FSDP::whole_on_rank_zero(const at::Tensor& parameter, const at::Tensor& part) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  const at::Tensor all = gather_on_rank_zero(padded(parameter, part));
  return all.defined() ? put_together(parameter, all) : at::Tensor();
}

std::vector<at::Tensor> FSDP::held() const {
  std::vector<at::Tensor> tensors;
  for (const auto& unit : units_) {
    tensors.push_back(unit->whole());
    tensors.push_back(unit->part());
  }
  return tensors;
}

std::string FSDP::sharding_text() const {
  if (!is_sharded()) return "";
  return "fsdp stage " + std::to_string(options_.stage) + " in " + count_of(units_.size(), "unit");
}

}  // namespace levin
