#include "levin/strategies/process/ddp.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "levin/core/rank_status.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/process/replay_watch.h"
#include "levin/strategies/tape/tape_recorder.h"

namespace levin {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// c10d has this hook for float16; this one is for bfloat16, whose range is float32's.
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

}  // namespace

struct DDP::Engine {
  Group group;
  std::vector<std::string> names;  // of the reducer's parameters
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // the reducer calls it where the set of unused parameters changes

  void drop_reducer() {
    logger.reset();
    reducer.reset();
  }
};

DDP::DDP(DDPOptions options)
    : ParallelStrategy(options.process_group_backend, options.timeout, options.startup_timeout),
      options_(checked(options, "DDPOptions")) {}
DDP::DDP(DDP&&) noexcept = default;
DDP::~DDP() = default;

void DDP::set_up(const ModuleTensors& module, bool training) {
  module_ = module;
  check_same_shapes(module_);
  if (!engine_) engine_ = std::make_unique<Engine>();
  engine_->group = group("gradients");
  set_up_batch_norm(training);
  std::vector<at::Tensor> all = tensors_of(module_.parameters);
  for (const auto& [name, tensor] : module_.buffers) all.push_back(tensor);
  broadcast_tensors(engine_->group, std::move(all));
  await_first_step();
  if (training) make_reducer();
}

void DDP::tear_down() {
  watch_.reset();
  if (engine_) engine_->drop_reducer();
  tear_down_batch_norm();
  notes_ = at::Tensor();
  module_ = {};
  trained_.clear();
}

std::vector<bool> DDP::trained() const {
  std::vector<bool> flags;
  flags.reserve(module_.parameters.size());
  for (const auto& [name, tensor] : module_.parameters) flags.push_back(tensor.requires_grad());
  return flags;
}

void DDP::make_reducer() {
  trained_ = trained();
  engine_->drop_reducer();
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
  notes_ =
      at::zeros({static_cast<int64_t>(kRankNotes)}, params[0].options().requires_grad(false)).set_requires_grad(true);
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
  engine_->reducer = std::make_shared<c10d::Reducer>(
      params, std::move(buckets), engine_->group, sparse, cap, options_.find_unused_parameters,
      options_.gradient_as_bucket_view, std::move(names), first_cap, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, std::vector<int64_t>());
  engine_->logger = std::make_shared<c10d::Logger>(engine_->reducer);
  engine_->reducer->set_logger(engine_->logger);
  learns_graph_ = options_.static_graph;
  if (learns_graph_) engine_->reducer->set_static_graph();
  if (options_.comm_hook == CommHook::fp16_compress) {
    engine_->reducer->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  } else if (options_.comm_hook == CommHook::bf16_compress) {
    engine_->reducer->register_comm_hook(std::make_unique<Bfloat16Hook>(engine_->group));
  }
}

void DDP::before_forward(bool sync) {
  if (!sync && options_.static_graph) {
    throw ConfigError(
        "DDPOptions.static_graph: a static graph is reduced in every backward pass, but accumulate_grad_batches and "
        "micro_batch_size skip reductions. Remove static_graph.");
  }
  if (!sync || !engine_ || !engine_->reducer) return;
  if (trained() != trained_) make_reducer();  // layers were frozen or unfrozen, on every rank alike
  if (!engine_->reducer) return;
  engine_->reducer->prepare_for_forward();
  if (options_.broadcast_buffers) broadcast_tensors(engine_->group, tensors_of(module_.buffers));
}

bool DDP::reduces(bool sync) const {
  return sync && engine_ && engine_->reducer;
}

RankNotes DDP::backward(const at::Tensor& loss, bool sync, const RankNotes& own) {
  if (!reduces(sync)) {
    gradient_.backward(loss);
    return {};
  }
  if (world_size() > 1) return notes_of(backward_and_reduce(loss, notes_tensor(own)));
  (void)backward_and_reduce(loss, notes_.detach());  // zeros: a single rank need not read what it says
  return own;
}

at::Tensor DDP::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  if (reduces(sync)) return backward_and_reduce(loss.defined() ? loss : zero_loss(), own);
  if (loss.defined()) return ParallelStrategy::backward_recorded(loss, sync, own);
  return sync ? own : at::Tensor();
}

at::Tensor DDP::backward_and_reduce(const at::Tensor& loss, const at::Tensor& own) {
  const RankWait waiting(self() + " is in a backward pass, which waits for the others' gradients");
  const at::Tensor whole = with_notes(loss, own);
  engine_->reducer->prepare_for_backward(options_.find_unused_parameters ? std::vector<at::Tensor>{whole}
                                                                         : std::vector<at::Tensor>{});
  backward_of(whole);
  // The first step of a static graph only records its order; Python queues this call in backward itself.
  if (std::exchange(learns_graph_, false)) engine_->reducer->delay_all_reduce();
  finish_reduction();
  first_step_done();
  return notes_.grad().detach();
}

std::shared_ptr<StepRecorder> DDP::make_recorder() {
  auto refuse = [](const std::string& what) {
    throw ConfigError("TrainerOptions.record_steps: DDPOptions." + what + ". Remove one.");
  };
  const std::string unused = " finds on the host which parameters a step uses, which a recording does not repeat";
  if (options_.find_unused_parameters) refuse("find_unused_parameters" + unused);
  if (options_.static_graph) refuse("static_graph" + unused);
  if (options_.comm_hook != CommHook::none) {
    refuse("comm_hook runs on c10d's thread, where a recording does not see it");
  }
  gradient_.reuse_nothing();
  if (device().is_cpu()) return std::make_shared<TapeRecorder>();
  if (group("gradients")->getBackendType() != c10d::ProcessGroup::BackendType::NCCL) {
    throw ConfigError(
        "TrainerOptions.record_steps: with DDPOptions.process_group_backend: gloo, gradients of a GPU are reduced on "
        "the host, which a captured step cannot wait for. Use nccl or auto.");
  }
  if (!watch_ && world_size() > 1) watch_ = std::make_unique<ReplayWatch>(device(), self(), timeout());
  return accelerator(device().type()).make_recorder(device());
}

// Note [Gradients belong to a stream]
// LibTorch runs a node that accumulates a gradient on the stream on which it was made, and c10d's reducer keeps those
// nodes. They were made on the default stream, which cannot be captured: so the reducer is made anew on the recorder's,
// and steps that run as they are run there too, or every gradient would be handed from one stream to the other.
bool DDP::use_recorder_stream() {
  if (device().is_cpu() || !reduces(/*sync=*/true)) return false;
  make_reducer();
  return true;
}

void DDP::run_replay(c10::function_ref<void()> replay) {
  if (!device().is_cpu()) {  // does not wait for anyone; the device does
    replay();
    if (watch_) watch_->launched();
    return;
  }
  const RankWait waiting(self() + " is in a recorded step, which waits for the others' gradients");
  with_rank_errors(replay);
}

void DDP::backward_of(const at::Tensor& whole) {
  try {
    with_rank_errors([&] { gradient_.backward(whole); });
  } catch (const c10::Error&) {
    for (const auto& [name, tensor] : module_.parameters) {
      if (tensor.grad().defined() && tensor.grad().is_sparse()) throw Error("ddp: " + sparse_gradient_text(name));
    }
    throw;
  }
}

void DDP::with_rank_errors(c10::function_ref<void()> communicate) const {
  try {
    communicate();
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const bool is_ranks = dynamic_cast<const RankError*>(&error) != nullptr;
    if (!is_ranks && text.find("/gloo/") == std::string::npos) throw;  // the model's own
    throw RankError(self() + ": reducing gradients failed: " + text.substr(0, text.find('\n')) +
                    ". Another rank ended or hangs; see its output.");
  }
}

// Of every trained parameter, and 0; undefined if there is none.
at::Tensor DDP::zero_loss() const {
  at::Tensor nothing;
  for (const auto& [name, tensor] : module_.parameters) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor part = tensor.sum().mul(0);
    nothing = nothing.defined() ? nothing.add(part) : part;
  }
  return nothing;
}

RankNotes DDP::backward_without_loss(bool sync, const RankNotes& own) {
  const at::Tensor nothing = sync ? zero_loss() : at::Tensor();
  return nothing.defined() ? backward(nothing, true, own) : RankNotes();
}

// Note [Notes travel with gradients]
// Ranks must agree, before each update, on whether a loss was not finite or a stop was requested. A separate all_reduce
// costs as much as reducing a small model, so the notes are the gradient of one more parameter: sum(parameter * notes),
// which is 0, is added to the loss, and the reducer sums the notes over ranks as it does gradients.
at::Tensor DDP::with_notes(const at::Tensor& loss, const at::Tensor& own) {
  notes_.mutable_grad() = at::Tensor();
  return loss + (notes_ * own.to(notes_.options().requires_grad(false))).sum().to(loss.scalar_type());
}

// rebuild_buckets() checks whether every bucket was reduced. Python calls it before the next forward, after the update
// with unreduced gradients.
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
    if (options_.static_graph) {
      throw Error("ddp: static_graph: this step's backward pass is not that of the first step: no gradient of " +
                  unused + ". Remove static_graph, or use every parameter in every step as in the first.");
    }
    throw Error("ddp: the loss does not depend on " + unused +
                ", so the other ranks wait for their gradients. Freeze these parameters, use them, or set "
                "find_unused_parameters: true (a search in every step).");
  }
}

}  // namespace levin
