#include "levin/strategies/process/fsdp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/process_memory.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/observed_weight.h"
#include "levin/libtorch/operator_watch.h"
#include "levin/strategies/process/flat_unit.h"
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

// The module in units, of which each rank holds a shard: the state that the other parts work on.
class FSDP::Shards final : public Sharding {
 public:
  explicit Shards(FSDPOptions options) : options_(std::move(options)) {}
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;
  ~Shards() override { tear_down(); }

  [[nodiscard]] bool is_sharded() const override { return !units_.empty(); }
  [[nodiscard]] bool shards_modules() const override { return true; }
  [[nodiscard]] bool has_sharded_gradients() const override { return is_sharded() && options_.stage >= 2; }
  [[nodiscard]] bool has_sharded_weights() const override { return is_sharded() && options_.stage == 3; }
  [[nodiscard]] bool saves_shards() const override {
    return is_sharded() && options_.state_dict_type == StateDictType::sharded;
  }
  void begin_update() override;
  void end_update(bool changed) override;
  [[nodiscard]] std::optional<ShardRange> shard_range(const at::Tensor& parameter) const override;
  [[nodiscard]] at::Tensor local_shard(const at::Tensor& parameter) const override;
  [[nodiscard]] at::Tensor full_tensor(const at::Tensor& parameter, const at::Tensor& shard) override;
  [[nodiscard]] at::Tensor full_tensor_on_rank_zero(const at::Tensor& parameter, const at::Tensor& shard) override;
  [[nodiscard]] std::vector<at::Tensor> held() const override;
  [[nodiscard]] std::string sharding_text() const override;

  // For the other parts.
  [[nodiscard]] std::shared_ptr<void> begin_making(bool training);
  void note_norms(const torch::nn::Module& module);
  void set_up(const ModuleTensors& module, bool training, const std::function<void()>& set_up_batch_norm);
  void leave();
  void tear_down();
  void before_forward(bool sync);
  [[nodiscard]] at::Tensor backward(LossGradient& local, const at::Tensor& loss, bool sync, const at::Tensor& own);
  [[nodiscard]] bool places_by_unit() const { return places_by_unit_; }
  [[nodiscard]] UnitGatherer* gatherer() const { return gatherer_.get(); }
  [[nodiscard]] const FSDPOptions& options() const { return options_; }

 private:
  struct Index {
    size_t unit = 0;
    size_t entry = 0;
  };
  [[nodiscard]] ProcessRanks& ranks() const { return process_ranks(parts().ranks()); }
  [[nodiscard]] at::Device device() const { return parts().placement().device(); }
  [[nodiscard]] bool shards_weights(bool training) const;
  void make_units();
  void replay_others();
  void gather_full();
  [[nodiscard]] at::Tensor padded(const at::Tensor& parameter, const at::Tensor& shard) const;
  [[nodiscard]] at::Tensor put_together(const at::Tensor& parameter, const at::Tensor& padded_shards) const;
  void show_gradient_shards();
  void show_full_gradients();
  [[nodiscard]] const Index& index_of(const at::Tensor& parameter) const;

  FSDPOptions options_;
  ModuleTensors module_;
  std::vector<std::unique_ptr<FlatUnit>> units_;
  std::unordered_map<const c10::TensorImpl*, Index> index_;
  std::set<std::string> norms_;  // names of the parameters of normalization layers
  // Separate groups, so that all_gather and reduce_scatter do not wait for each other.
  ProcessRanks::Group parameters_group_;
  ProcessRanks::Group gradients_group_;
  std::unique_ptr<UnitGatherer> gatherer_;  // stage 3
  std::unique_ptr<ShardReducer> reducer_;
  std::unique_ptr<SpilledMemory> spilled_;  // from the construction of the module until set_up() is done
  bool places_by_unit_ = false;             // weights are moved to the device with their unit
  std::vector<std::pair<at::Tensor, at::Tensor>> full_gradients_;  // during an update: parameter and its gradient
};

class FSDP::Placement final : public RankPlacement {
 public:
  explicit Placement(Shards& shards) : shards_(shards) {}
  [[nodiscard]] std::shared_ptr<void> model_sharded_context(bool training) override {
    return shards_.begin_making(training);
  }
  void place(torch::nn::Module& module) override {
    shards_.note_norms(module);
    if (!shards_.places_by_unit()) return RankPlacement::place(module);
    keep(module);
    place_buffers(module, device());
  }

 private:
  Shards& shards_;
};

class FSDP::Gradients final : public GradientSync {
 public:
  explicit Gradients(Shards& shards) : shards_(shards) {}
  void before_forward(bool sync) override { shards_.before_forward(sync); }
  [[nodiscard]] RankFlags backward(const at::Tensor& loss, bool sync, const RankFlags& own) override {
    const at::Tensor all = shards_.backward(local(), loss, sync, sync ? flags_tensor(own) : at::Tensor());
    return all.defined() ? flags_of(all) : RankFlags();
  }
  [[nodiscard]] RankFlags backward_without_loss(bool sync, const RankFlags& own) override {
    return backward({}, sync, own);
  }

 private:
  Shards& shards_;
};

// Steps are not recorded, but ranks may exchange flags on the device.
class FSDP::Recorder final : public StrategyRecorder {
 public:
  explicit Recorder(Shards& shards) : shards_(shards) {}
  [[nodiscard]] at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) override {
    return shards_.backward(parts().gradients().local(), loss, sync, own);
  }
  [[nodiscard]] bool has_flags_on_device() const override {
    return !parts().placement().device().is_cpu() && !shards_.options().cpu_offload;
  }

 private:
  Shards& shards_;
};

FSDP::FSDP(FSDPOptions options)
    : ParallelStrategy(options.process_group_backend, options.timeout, options.startup_timeout) {
  shards_ = &make<Shards>(checked(std::move(options), "FSDPOptions"));
  make<Placement>(*shards_);
  make<Gradients>(*shards_);
  make<Recorder>(*shards_);
}

void FSDP::set_up(const ModuleTensors& module, bool training) {
  shards_->set_up(module, training, [&] { set_up_batch_norm(training); });
  Strategy::set_up(module, training);
}

void FSDP::begin_evaluation() {
  ParallelStrategy::begin_evaluation();
  if (shards_->gatherer() != nullptr) shards_->gatherer()->keep_all();
}

void FSDP::end_evaluation() {
  ParallelStrategy::end_evaluation();
  if (shards_->gatherer() != nullptr) shards_->gatherer()->free_all();
}

void FSDP::leave() {
  shards_->leave();
}

void FSDP::tear_down() {
  Strategy::tear_down();
  shards_->tear_down();
  tear_down_batch_norm();
}

// Whether no rank ever needs the whole model.
bool FSDP::Shards::shards_weights(bool training) const {
  return training && options_.stage == 3 && ranks().world_size() > 1;
}

std::shared_ptr<void> FSDP::Shards::begin_making(bool training) {
  places_by_unit_ = shards_weights(training);
  if (!places_by_unit_ || options_.spill_dir == "off") return nullptr;
  if (!spilled_) spilled_ = std::make_unique<SpilledMemory>(options_.spill_dir);
  return std::make_shared<SpilledMemory::Scope>(*spilled_);
}

void FSDP::Shards::note_norms(const torch::nn::Module& module) {
  if (options_.param_dtype != ShardDtype::same) norms_ = norm_parameters(module);
}

void FSDP::Shards::set_up(const ModuleTensors& module, bool training, const std::function<void()>& set_up_batch_norm) {
  module_ = module;
  ranks().check_same_shapes(module_);
  parameters_group_ = ranks().group("parameters");
  gradients_group_ = ranks().group("gradients");
  // An evaluation outside of fit keeps unsharded weights: there are no gradients and no optimizer state.
  const bool shards = training && ranks().world_size() > 1;
  std::vector<at::Tensor> all = tensors_of(module_.buffers);
  if (!shards) {
    for (const auto& [name, tensor] : module_.parameters) all.push_back(tensor);
  }
  ranks().broadcast_tensors(parameters_group_, std::move(all));
  set_up_batch_norm();
  ranks().await_first_step();
  if (shards) make_units();
  for (const auto& [name, tensor] : module_.parameters) {  // no unit contains empty parameters
    if (places_by_unit_ && tensor.numel() == 0) tensor.set_data(tensor.to(device()));
  }
  if (spilled_) spilled_->move_to_memory();  // buffers, and tensors that are not registered
  spilled_.reset();
}

void FSDP::Shards::make_units() {
  if (options_.cpu_offload && device().is_cpu()) {
    Console::instance().warn(
        "FSDPOptions.cpu_offload: this run is on the CPU, as is its optimizer's state, so this option has no effect.");
  }
  keep_freed_memory_small();
  FlatUnit::Options layout{ranks().rank(), ranks().world_size(), {}, options_.stage < 3, {}};
  if (options_.cpu_offload) layout.part_device = at::kCPU;
  layout.device = device();
  // One unit at a time, as each is made: no rank needs a copy of all weights to send them.
  layout.agree = [&](at::Tensor& whole) {
    std::vector<at::Tensor> message = {whole};
    wait_for(*parameters_group_->broadcast(message), *parameters_group_, "receiving the weights of rank 0");
  };
  const std::set<std::string> norms = std::exchange(norms_, {});
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
  reduction.ranks = ranks().world_size();
  reduction.keeps_whole = options_.stage == 1;
  reduction.takes_every_backward = options_.stage == 3;
  reduction.dtype = scalar_type(options_.reduce_dtype);
  if (options_.stage == 3) {
    gatherer_ =
        std::make_unique<UnitGatherer>(units_, parameters_group_, ranks().cpu_group("order"), options_.prefetch);
    reduction.unit_is_done = [this](size_t unit) { gatherer_->free(unit); };
    reduction.next_is_sent = [this] { gatherer_->note_reduction(); };
  }
  reducer_ = std::make_unique<ShardReducer>(units_, gradients_group_, std::move(reduction));
}

void FSDP::Shards::leave() {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  const bool is_whole = options_.stage < 3 && std::all_of(units_.begin(), units_.end(), [](const auto& unit) {
                          return unit->whole().scalar_type() == unit->part().scalar_type();
                        });
  for (const auto& [param, index] : index_) {
    // The gradients are shards, which could no longer be distinguished from full gradients.
    if (options_.stage >= 2) units_[index.unit]->entries()[index.entry].param.mutable_grad() = at::Tensor();
  }
  if (!is_whole) {
    for (const auto& unit : units_) {
      for (const auto& entry : unit->entries()) {
        const at::Tensor whole = full_tensor(entry.param, local_shard(entry.param)).to(unit->whole().device());
        entry.param.set_data(observed_like(entry.param, whole));
      }
    }
  }
  reducer_.reset();
  gatherer_.reset();
  index_.clear();
  units_.clear();
}

// After leave() there are no units. If leave() was not called, the run has failed: the module then holds this rank's
// shard in stage 3, and the full weights otherwise.
void FSDP::Shards::tear_down() {
  reducer_.reset();
  gatherer_.reset();
  if (options_.stage == 3) {
    for (const auto& unit : units_) unit->show_part();
  }
  full_gradients_.clear();
  index_.clear();
  units_.clear();
  spilled_.reset();  // left by a set-up that failed
  module_ = {};
}

void FSDP::Shards::before_forward(bool sync) {
  if (!is_sharded()) return;
  if (gatherer_) {
    ranks().begin_first_step();
    gatherer_->begin_step();
  }
  if (sync && options_.broadcast_buffers) ranks().broadcast_tensors(gradients_group_, tensors_of(module_.buffers));
}

// `own`: undefined inside an accumulation window.
at::Tensor FSDP::Shards::backward(LossGradient& local, const at::Tensor& loss, bool sync, const at::Tensor& own) {
  // Inside an accumulation window gradients are not reduced until its end, unless earlier gradients are shards,
  // which were zeroed in place.
  const bool has_shards = is_sharded() && loss.defined() && reducer_->has_shards();
  const bool reduces = is_sharded() && (sync || options_.stage == 3 || has_shards);
  if (reduces) reducer_->begin();
  if (loss.defined()) {
    local.backward(loss);
  } else if (reduces) {
    replay_others();
  }
  if (!reduces) return own;
  if (gatherer_) gatherer_->end_step();
  at::Tensor all = reducer_->end(own);
  if (own.defined()) ranks().first_step_done();
  return all;
}

// On a rank without a loss: takes part in what the others communicate in their backward passes.
void FSDP::Shards::replay_others() {
  if (!gatherer_) return;
  gatherer_->replay_rest([this](size_t count) { reducer_->send_first(count); });
}

void FSDP::Shards::begin_update() {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  if (gatherer_) gatherer_->free_all();
  show_gradient_shards();
  for (const auto& unit : units_) unit->show_part();
}

void FSDP::Shards::end_update(bool changed) {
  if (!is_sharded()) return;
  const OperatorWatch::Unseen unseen;
  if (changed && !gatherer_) gather_full();
  for (const auto& unit : units_) unit->show_whole();
  show_full_gradients();
}

void FSDP::Shards::gather_full() {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const auto& unit : units_) {
    at::Tensor whole = unit->whole();
    at::Tensor part = unit->part().to(whole.options());
    works.push_back(parameters_group_->_allgather_base(whole, part));
  }
  for (const auto& work : works) work->wait();
}

// Replaces whole gradients (stage 1, or set by the user) by this rank's part of them, in the same memory.
void FSDP::Shards::show_gradient_shards() {
  full_gradients_.clear();
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const auto& entry = unit->entries()[i];
      const at::Tensor grad = entry.param.grad();
      const bool is_whole = grad.defined() && (options_.stage == 1 || grad.numel() != unit->range(i).numel());
      if (!is_whole) continue;
      const ShardRange range = unit->range(i);
      full_gradients_.emplace_back(entry.param, grad);
      at::Tensor part = range.of(grad).to(unit->part().options());
      entry.param.mutable_grad() = range.numel() > 0 ? part : at::Tensor();
    }
  }
}

void FSDP::Shards::show_full_gradients() {
  for (auto& [param, grad] : std::exchange(full_gradients_, {})) param.mutable_grad() = grad;
}

const FSDP::Shards::Index& FSDP::Shards::index_of(const at::Tensor& parameter) const {
  const auto found = index_.find(parameter.unsafeGetTensorImpl());
  if (found != index_.end()) return found->second;
  throw Error("fsdp: a tensor of shape " + shape_text(parameter.sizes()) +
              " is not a parameter of the module. Pass optimizers the tensors that the module's parameters() returns.");
}

std::optional<ShardRange> FSDP::Shards::shard_range(const at::Tensor& parameter) const {
  const auto found = index_.find(parameter.unsafeGetTensorImpl());
  if (found == index_.end()) return std::nullopt;
  return units_[found->second.unit]->range(found->second.entry);
}

at::Tensor FSDP::Shards::local_shard(const at::Tensor& parameter) const {
  const Index& index = index_of(parameter);
  return units_[index.unit]->in_part(units_[index.unit]->part(), index.entry);
}

// This rank's shard on the CPU, flattened and padded to the longest shard of any rank.
at::Tensor FSDP::Shards::padded(const at::Tensor& parameter, const at::Tensor& shard) const {
  const Index& index = index_of(parameter);
  int64_t longest = 0;
  for (int64_t r = 0; r < ranks().world_size(); ++r) {
    longest = std::max(longest, units_[index.unit]->range_on(index.entry, r).numel());
  }
  at::Tensor own = at::zeros({longest}, shard.options().device(at::kCPU));
  own.narrow(0, 0, shard.numel()).copy_(shard.reshape({-1}));
  return own;
}

// `padded_shards`: (ranks, longest).
at::Tensor FSDP::Shards::put_together(const at::Tensor& parameter, const at::Tensor& padded_shards) const {
  const Index& index = index_of(parameter);
  const FlatUnit& unit = *units_[index.unit];
  const at::Tensor full = at::empty(unit.entries()[index.entry].shape, padded_shards.options());
  for (int64_t r = 0; r < ranks().world_size(); ++r) {
    const ShardRange range = unit.range_on(index.entry, r);
    range.of(full).copy_(padded_shards[r].narrow(0, 0, range.numel()).view(range.sizes));
  }
  return full;
}

at::Tensor FSDP::Shards::full_tensor(const at::Tensor& parameter, const at::Tensor& shard) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  return put_together(parameter, ranks().gather(padded(parameter, shard)));
}

at::Tensor FSDP::Shards::full_tensor_on_rank_zero(const at::Tensor& parameter, const at::Tensor& shard) {
  const OperatorWatch::Unseen unseen;
  const at::NoGradGuard no_grad;
  const at::Tensor all = ranks().gather_on_rank_zero(padded(parameter, shard));
  return all.defined() ? put_together(parameter, all) : at::Tensor();
}

std::vector<at::Tensor> FSDP::Shards::held() const {
  std::vector<at::Tensor> tensors;
  for (const auto& unit : units_) {
    tensors.push_back(unit->whole());
    tensors.push_back(unit->part());
  }
  return tensors;
}

std::string FSDP::Shards::sharding_text() const {
  if (!is_sharded()) return "";
  return "fsdp stage " + std::to_string(options_.stage) + " in " + count_of(units_.size(), "unit");
}

}  // namespace levin
