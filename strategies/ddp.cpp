#include "levin/strategies/ddp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "levin/core/tensor_text.h"

namespace levin {

namespace {

using Milliseconds = std::chrono::milliseconds;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

Milliseconds milliseconds(Seconds time) {
  return std::chrono::duration_cast<Milliseconds>(time);
}

// c10d brings the float16 form; this is its like for bfloat16, whose range is float32's.
class Bfloat16Hook final : public c10d::CppCommHookInterface<Group> {
 public:
  explicit Bfloat16Hook(const Group& group) : CppCommHookInterface<Group>(group) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor& buffer = bucket.getBufferRef();
    std::vector<at::Tensor> small = {buffer.to(at::kBFloat16).div_(state_->getSize())};
    return state_->allreduce(small)->getFuture()->then(
        [buffer](c10::ivalue::Future& sum) {
          const at::Tensor& whole = buffer;
          whole.copy_(sum.value().toTensorVector()[0]);
          return c10::IValue(std::vector<at::Tensor>{whole});
        },
        c10::ListType::create(c10::TensorType::get()));
  }
};

std::vector<at::Tensor> tensors_of(const std::vector<std::pair<std::string, at::Tensor>>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::string shapes_text(const ModuleTensors& module) {
  std::string text;
  for (const auto* named : {&module.parameters, &module.buffers}) {
    for (const auto& [name, tensor] : *named) {
      text += name + " " + shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) +
              (tensor.requires_grad() ? " trained" : "") + "\n";
    }
  }
  return text;
}

// The first line in which two texts differ: (one's, other's).
std::pair<std::string, std::string> first_difference(const std::string& one, const std::string& other) {
  size_t line = 0;
  for (size_t k = 0; k < std::min(one.size(), other.size()) && one[k] == other[k]; ++k) {
    if (one[k] == '\n') line = k + 1;
  }
  auto cut = [&](const std::string& text) {
    const std::string rest = line < text.size() ? text.substr(line, text.find('\n', line) - line) : "";
    return rest.empty() ? std::string("nothing") : rest;
  };
  return {cut(one), cut(other)};
}

}  // namespace

struct DDP::Engine {
  Group group;
  std::vector<std::string> names;  // of the reducer's parameters
  std::unique_ptr<c10d::Reducer> reducer;
};

DDP::DDP(DDPOptions options) : options_(checked(options, "DDPOptions")) {}
DDP::DDP(DDP&&) noexcept = default;
DDP::~DDP() = default;

void DDP::join(const World& world) {
  world_ = world;
  collectives_ = std::make_unique<Collectives>(world, milliseconds(options_.startup_timeout));
}

void DDP::set_up(const ModuleTensors& module, bool training) {
  module_ = module;
  check_same_shapes();
  const std::string backend = options_.process_group_backend == "auto" ? "gloo" : options_.process_group_backend;
  if (!engine_) engine_ = std::make_unique<Engine>();
  engine_->group = collectives_->group(backend);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all = tensors_of(module_.parameters);
  for (auto& tensor : all) tensor = tensor.detach();
  for (const auto& [name, tensor] : module_.buffers) all.push_back(tensor);
  if (!all.empty()) c10d::broadcast_coalesced(engine_->group, all, 250 << 20);
  first_step_ = true;
  if (training) make_reducer();
}

void DDP::tear_down() {
  if (engine_) engine_->reducer.reset();
  notes_ = at::Tensor();
  module_ = {};
  trained_.clear();
}

// Before the first message about tensors: with other shapes on the other side it would hang, or mix weights up.
void DDP::check_same_shapes() {
  const std::string own = shapes_text(module_);
  const auto all = collectives_->gather(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto [first, other] = first_difference(all[0], all[rank]);
    throw ConfigError("ddp: the module differs between ranks: rank 0 has " + first + ", rank " + std::to_string(rank) +
                      " has " + other + ". Build it in the same way on every rank.");
  }
}

std::vector<bool> DDP::trained() const {
  std::vector<bool> flags;
  flags.reserve(module_.parameters.size());
  for (const auto& [name, tensor] : module_.parameters) flags.push_back(tensor.requires_grad());
  return flags;
}

void DDP::make_reducer() {
  trained_ = trained();
  engine_->reducer.reset();
  engine_->names.clear();
  std::vector<at::Tensor> params;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, tensor] : module_.parameters) {
    if (!tensor.requires_grad()) continue;
    names[params.size()] = name;
    engine_->names.push_back(name);
    params.push_back(tensor);
  }
  notes_ = at::Tensor();
  if (params.empty()) return;
  notes_ = at::zeros({kRankNotes}, params[0].options().requires_grad(false)).set_requires_grad(true);
  names[params.size()] = "the notes of ranks";
  engine_->names.push_back(names[params.size()]);
  params.push_back(notes_);
  const auto cap = static_cast<int64_t>(options_.bucket_cap_mb * (1 << 20));
  const int64_t first_cap = std::min<int64_t>(cap, c10d::kDefaultFirstBucketBytes);
  const std::vector<size_t> sizes = {static_cast<size_t>(first_cap), static_cast<size_t>(cap)};
  const std::vector<bool> sparse(params.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(params, sizes, sparse));
  // The last parameters' gradients are ready first.
  std::reverse(buckets.begin(), buckets.end());
  engine_->reducer = std::make_unique<c10d::Reducer>(
      params, std::move(buckets), engine_->group, sparse, cap, options_.find_unused_parameters,
      options_.gradient_as_bucket_view, std::move(names), first_cap, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, std::vector<int64_t>());
  learns_graph_ = options_.static_graph;
  if (learns_graph_) engine_->reducer->set_static_graph();
  if (options_.comm_hook == CommHook::fp16_compress) {
    engine_->reducer->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  } else if (options_.comm_hook == CommHook::bf16_compress) {
    engine_->reducer->register_comm_hook(std::make_unique<Bfloat16Hook>(engine_->group));
  }
}

void DDP::before_forward(bool sync) {
  if (!sync || !engine_ || !engine_->reducer) return;
  if (trained() != trained_) make_reducer();  // layers were frozen or unfrozen, on every rank alike
  if (!engine_->reducer) return;
  engine_->reducer->prepare_for_forward();
  if (options_.broadcast_buffers && !module_.buffers.empty()) {
    const at::NoGradGuard no_grad;
    c10d::broadcast_coalesced(engine_->group, tensors_of(module_.buffers), 250 << 20);
  }
}

void DDP::backward(const at::Tensor& loss, bool sync) {
  if (!sync || !engine_ || !engine_->reducer) return gradient_.backward(loss);
  const at::Tensor whole = with_notes(loss);
  engine_->reducer->prepare_for_backward(options_.find_unused_parameters ? std::vector<at::Tensor>{whole}
                                                                         : std::vector<at::Tensor>{});
  gradient_.backward(whole);
  // The first step of a static graph only learns its order; Python queues this call in backward itself.
  if (std::exchange(learns_graph_, false)) engine_->reducer->delay_all_reduce();
  finish_reduction();
  read_notes();
  if (std::exchange(first_step_, false)) collectives_->set_timeout(milliseconds(options_.timeout));
}

void DDP::backward_without_loss() {
  at::Tensor nothing;
  for (const auto& [name, tensor] : module_.parameters) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor part = tensor.sum().mul(0);
    nothing = nothing.defined() ? nothing.add(part) : part;
  }
  if (nothing.defined()) backward(nothing, true);
}

// Note [Notes travel with gradients]
// Ranks must agree, before each update, on whether a loss was not finite or somebody wants to stop. A message of its
// own costs as much as reducing a small model, so the notes are the gradient of one more parameter: the loss gets
// sum(parameter * notes), which is 0, added to it, and the reducer sums the notes over ranks as it does gradients.
at::Tensor DDP::with_notes(const at::Tensor& loss) {
  if (!notes_.defined()) return loss;
  notes_.mutable_grad() = at::Tensor();
  const at::Tensor own = at::tensor(at::ArrayRef<double>(own_notes_.data(), own_notes_.size()));
  own_notes_.fill(0);
  return loss + (notes_ * own.to(notes_.options())).sum().to(loss.scalar_type());
}

void DDP::read_notes() {
  if (!notes_.defined()) return;
  const at::Tensor sums = notes_.grad().to(at::kCPU, at::kDouble).contiguous();
  std::copy_n(sums.const_data_ptr<double>(), notes_heard_.size(), notes_heard_.begin());
}

// rebuild_buckets() looks whether every bucket was reduced. Python does it before the next forward, when the step with
// unreduced gradients has been taken already.
void DDP::finish_reduction() {
  try {
    engine_->reducer->rebuild_buckets();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("did not receive grad for rank [0-9]+: ([0-9 ]+)"))) throw;
    std::string unused;
    std::istringstream indices(found[1].str());
    for (size_t index = 0; indices >> index;) {
      if (index < engine_->names.size()) unused += (unused.empty() ? "" : ", ") + engine_->names[index];
    }
    throw Error("ddp: the loss does not depend on " + unused +
                ", so the other ranks wait for their gradients. Freeze these parameters, use them, or set "
                "find_unused_parameters: true (a search in every step).");
  }
}

at::Tensor DDP::reduce(const at::Tensor& value, ReduceOp op) {
  return collectives_->reduce(value, op);
}

bool DDP::any(bool value) {
  if (world_.size == 1) return value;
  return collectives_->reduce(at::scalar_tensor(value ? 1.0 : 0.0), ReduceOp::max).item<float>() > 0;
}

void DDP::barrier() {
  collectives_->barrier();
}

at::Tensor DDP::gather(const at::Tensor& value) {
  return collectives_->gather(value);
}

std::vector<std::string> DDP::gather(const std::string& text) {
  return collectives_->gather(text);
}

std::string DDP::broadcast(const std::string& text) {
  return collectives_->broadcast(text);
}

}  // namespace levin
