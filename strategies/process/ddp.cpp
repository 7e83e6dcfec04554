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

// c10d's reducer of the parameters that are trained together.
struct DDP::GradientReducer {
  std::vector<bool> trained;       // by parameter of the module
  std::vector<std::string> names;  // of the parameters that are reduced
  at::Tensor notes;                // (kRankNotes) zeros, one more parameter
  bool learns_graph = false;       // it has not yet recorded a backward of its static graph
  std::shared_ptr<c10d::Reducer> reducer = nullptr;
  std::shared_ptr<c10d::Logger> logger = nullptr;  // the reducer calls it where the set of unused parameters changes

  [[nodiscard]] bool shares_parameters(const std::vector<bool>& others) const {
    for (size_t k = 0; k < trained.size(); ++k) {
      if (trained[k] && others[k]) return true;
    }
    return false;
  }
  ~GradientReducer() { logger.reset(); }  // before the reducer that it watches
};

struct DDP::Engine {
  Group group;
  std::vector<std::unique_ptr<GradientReducer>> reducers;  // no two of them have a parameter in common
  GradientReducer* current = nullptr;                      // of the parameters that were trained last; null: none
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
  reduces_ = training && world_size() > 1;
  (void)find_reducer();
}

void DDP::tear_down() {
  watch_.reset();
  drop_reducers();
  tear_down_batch_norm();
  module_ = {};
  reduces_ = takes_turns_ = false;
}

void DDP::drop_reducers() {
  if (!engine_) return;
  engine_->current = nullptr;
  engine_->reducers.clear();
}

std::vector<bool> DDP::trained() const {
  std::vector<bool> flags;
  flags.reserve(module_.parameters.size());
  for (const auto& [name, tensor] : module_.parameters) flags.push_back(tensor.requires_grad());
  return flags;
}

// Note [Which parameters are reduced]
// A reducer waits for the gradient of each of its parameters, so its parameters are those that require gradients when
// backward begins: layers are frozen and unfrozen, and the optimizers of a GAN take turns within one step. A reducer is
// kept as long as no other has a parameter in common with it, so that optimizers that take turns each have their own.
// Every rank freezes the same layers.
DDP::GradientReducer* DDP::find_reducer() {
  if (!reduces_) return nullptr;
  const std::vector<bool> now = trained();
  if (engine_->current != nullptr && engine_->current->trained == now) return engine_->current;
  const auto found = std::find_if(engine_->reducers.begin(), engine_->reducers.end(),
                                  [&](const auto& made) { return made->trained == now; });
  if (found != engine_->reducers.end()) {
    engine_->current = found->get();
  } else {
    engine_->current = nullptr;
    std::erase_if(engine_->reducers, [&](const auto& made) { return made->shares_parameters(now); });
    if (std::find(now.begin(), now.end(), true) == now.end()) return nullptr;
    engine_->reducers.push_back(make_reducer(now));
    engine_->current = engine_->reducers.back().get();
  }
  return engine_->current;
}

DDP::GradientReducer* DDP::reducer_of_backward() {
  if (!reduces_) return nullptr;
  const GradientReducer* before = engine_->current;
  GradientReducer* own = find_reducer();
  if (own != before) takes_turns_ = true;
  if (own != before && own != nullptr) own->reducer->prepare_for_forward();
  return own;
}

std::unique_ptr<DDP::GradientReducer> DDP::make_reducer(const std::vector<bool>& trained) const {
  auto made = std::make_unique<GradientReducer>();
  made->trained = trained;
  std::vector<at::Tensor> params;
  std::unordered_map<size_t, std::string> names;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    names[params.size()] = name;
    made->names.push_back(name);
    params.push_back(tensor);
  };
  for (size_t k = 0; k < trained.size(); ++k) {
    if (trained[k]) add(module_.parameters[k].first, module_.parameters[k].second);
  }
  made->notes =
      at::zeros({static_cast<int64_t>(kRankNotes)}, params[0].options().requires_grad(false)).set_requires_grad(true);
  add("the notes of ranks", made->notes);
  const auto cap = static_cast<int64_t>(options_.bucket_cap_mb * (1 << 20));
  const int64_t first_cap = std::min<int64_t>(cap, c10d::kDefaultFirstBucketBytes);
  const std::vector<size_t> sizes = {static_cast<size_t>(first_cap), static_cast<size_t>(cap)};
  const std::vector<bool> sparse(params.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(params, sizes, sparse));
  // The last parameters' gradients are ready first.
  std::reverse(buckets.begin(), buckets.end());
  made->reducer = std::make_shared<c10d::Reducer>(params, std::move(buckets), engine_->group, sparse, cap,
                                                  options_.find_unused_parameters, options_.gradient_as_bucket_view,
                                                  std::move(names), first_cap, /*skip_all_reduce_unused_params=*/false,
                                                  /*use_python_reducer=*/false, std::vector<int64_t>());
  made->logger = std::make_shared<c10d::Logger>(made->reducer);
  made->reducer->set_logger(made->logger);
  made->learns_graph = options_.static_graph;
  if (made->learns_graph) made->reducer->set_static_graph();
  if (options_.comm_hook == CommHook::fp16_compress) {
    made->reducer->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  } else if (options_.comm_hook == CommHook::bf16_compress) {
    made->reducer->register_comm_hook(std::make_unique<Bfloat16Hook>(engine_->group));
  }
  return made;
}

void DDP::before_forward(bool sync) {
  if (!sync && options_.static_graph) {
    throw ConfigError(
        "DDPOptions.static_graph: a static graph is reduced in every backward pass, but accumulate_grad_batches and "
        "micro_batch_size skip reductions. Remove static_graph.");
  }
  if (!sync || !reduces_) return;
  GradientReducer* own = takes_turns_ ? engine_->current : find_reducer();
  if (own != nullptr) own->reducer->prepare_for_forward();
  if (options_.broadcast_buffers) broadcast_tensors(engine_->group, tensors_of(module_.buffers));
}

RankNotes DDP::backward(const at::Tensor& loss, bool sync, const RankNotes& own) {
  GradientReducer* reducer = sync ? reducer_of_backward() : nullptr;
  if (reducer != nullptr) return notes_of(backward_and_reduce(*reducer, loss, notes_tensor(own)));
  gradient_.backward(loss);
  return sync && world_size() == 1 ? own : RankNotes();
}

at::Tensor DDP::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  GradientReducer* reducer = sync ? reducer_of_backward() : nullptr;
  if (reducer != nullptr) return backward_and_reduce(*reducer, loss.defined() ? loss : zero_loss(), own);
  if (loss.defined()) return ParallelStrategy::backward_recorded(loss, sync, own);
  return sync ? own : at::Tensor();
}

at::Tensor DDP::backward_and_reduce(GradientReducer& own, const at::Tensor& loss, const at::Tensor& notes) {
  const RankWait waiting(self() + " is in a backward pass, which waits for the others' gradients");
  const at::Tensor whole = with_notes(own, loss, notes);
  own.reducer->prepare_for_backward(options_.find_unused_parameters ? std::vector<at::Tensor>{whole}
                                                                    : std::vector<at::Tensor>{});
  backward_of(whole);
  // The first step of a static graph only records its order; Python queues this call in backward itself.
  if (std::exchange(own.learns_graph, false)) own.reducer->delay_all_reduce();
  finish_reduction(own);
  first_step_done();
  return own.notes.grad().detach();
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
  if (device().is_cpu()) return false;
  drop_reducers();
  return find_reducer() != nullptr;
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
at::Tensor DDP::with_notes(const GradientReducer& own, const at::Tensor& loss, const at::Tensor& notes) {
  own.notes.mutable_grad() = at::Tensor();
  return loss + (own.notes * notes.to(own.notes.options().requires_grad(false))).sum().to(loss.scalar_type());
}

// rebuild_buckets() checks whether every bucket was reduced. Python calls it before the next forward, after the update
// with unreduced gradients.
void DDP::finish_reduction(GradientReducer& own) const {
  try {
    own.reducer->rebuild_buckets();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("did not receive grad for rank [0-9]+: ([0-9 ]+)"))) throw;
    std::string unused;
    std::istringstream indices(found[1].str());
    for (size_t index = 0; indices >> index;) {
      if (index < own.names.size()) unused += (unused.empty() ? "" : ", ") + own.names[index];
    }
    if (options_.static_graph) {
      throw Error("ddp: static_graph: this step's backward pass is not that of the first step: no gradient of " +
                  unused + ". Remove static_graph, or use every parameter in every step as in the first.");
    }
    throw Error("ddp: the loss does not depend on " + unused +
                ", which require gradients, so the other ranks wait for them. Use these parameters, freeze them until "
                "backward has returned (toggle_optimizer does so for the parameters of other optimizers), or set "
                "find_unused_parameters: true (a search in every step).");
  }
}

}  // namespace levin
