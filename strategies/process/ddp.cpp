#include "levin/strategies/process/ddp.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "levin/core/process/rank_status.h"
#include "levin/libtorch/reducer.h"
#include "levin/strategies/process/replay_watch.h"

namespace levin {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

at::ScalarType sent_type(CommHook hook) {
  if (hook == CommHook::none) return at::ScalarType::Undefined;
  return hook == CommHook::fp16_compress ? at::kHalf : at::kBFloat16;
}

constexpr const char* kFlagsName = "the flags of ranks";
constexpr const char* kBucketsKey = "gradient_buckets";

// Names of parameters by bucket.
using NamedBuckets = std::vector<std::vector<std::string>>;

// c10d's reducer of the parameters that are trained together.
struct GradientReducer {
  std::vector<bool> trained;       // by parameter of the module
  std::vector<std::string> names;  // of the parameters that are reduced
  at::Tensor flags;                // (kRankFlags) zeros, one more parameter
  bool learns_graph = false;       // it has not yet recorded a backward of its static graph
  std::unique_ptr<BucketReducer> reducer = nullptr;

  [[nodiscard]] bool shares_parameters(const std::vector<bool>& others) const {
    for (size_t k = 0; k < trained.size(); ++k) {
      if (trained[k] && others[k]) return true;
    }
    return false;
  }

  [[nodiscard]] NamedBuckets buckets() const {
    NamedBuckets named;
    for (const std::vector<size_t>& bucket : reducer->buckets()) {
      named.emplace_back();
      for (const size_t k : bucket) named.back().push_back(names[k]);
    }
    return named;
  }
};

std::vector<std::string> sorted_names(const NamedBuckets& buckets) {
  std::vector<std::string> names;
  for (const std::vector<std::string>& bucket : buckets) names.insert(names.end(), bucket.begin(), bucket.end());
  std::sort(names.begin(), names.end());
  return names;
}

// Backward passes whose gradients are averaged over the ranks while they run. Throws Error naming the parameters that
// got no gradient, unless find_unused_parameters is set.
class DDPGradients final : public GradientSync {
 public:
  explicit DDPGradients(DDPOptions options) : options_(std::move(options)) {}

  void set_up(const ModuleTensors& module, bool training) override;
  void tear_down() override;
  [[nodiscard]] State state_dict() const override;
  void load_state_dict(const State& saved) override;
  void before_forward(bool sync) override;
  [[nodiscard]] RankFlags backward(const at::Tensor& loss, bool sync, const RankFlags& own) override;
  [[nodiscard]] RankFlags backward_without_loss(bool sync, const RankFlags& own) override;

  // For the recorder.
  [[nodiscard]] at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own);
  [[nodiscard]] bool renew_reducer();
  void with_rank_errors(c10::function_ref<void()> communicate) const;

 private:
  [[nodiscard]] ProcessRanks& ranks() const { return process_ranks(parts().ranks()); }
  [[nodiscard]] GradientReducer* find_reducer();
  [[nodiscard]] GradientReducer* reducer_of_backward();
  [[nodiscard]] std::unique_ptr<GradientReducer> reducer_of(const std::vector<bool>& trained) const;
  void drop_reducers();
  [[nodiscard]] std::map<std::vector<std::string>, NamedBuckets> all_buckets() const;
  [[nodiscard]] GradientBuckets known_buckets(const std::vector<at::Tensor>& params,
                                              const std::vector<std::string>& names) const;
  [[nodiscard]] at::Tensor backward_and_reduce(GradientReducer& own, const at::Tensor& loss, const at::Tensor& flags);
  [[nodiscard]] at::Tensor zero_loss() const;
  void backward_of(const at::Tensor& total);
  void finish_reduction(GradientReducer& own) const;
  [[nodiscard]] std::vector<bool> trained() const;
  [[nodiscard]] static at::Tensor with_flags(const GradientReducer& own, const at::Tensor& loss,
                                             const at::Tensor& flags);

  DDPOptions options_;
  ModuleTensors module_;
  Group group_;
  std::vector<std::unique_ptr<GradientReducer>> reducers_;    // no two of them have a parameter in common
  std::map<std::vector<std::string>, NamedBuckets> buckets_;  // of reducers that were dropped or saved, by their names
  GradientReducer* current_ = nullptr;                        // of the parameters that were trained last; null: none
  bool reduces_ = false;                                      // it trains on several ranks
  bool takes_turns_ = false;  // steps freeze parameters between their forward and backward passes
};

// On CPUs, and on GPUs over NCCL.
class DDPRecorder final : public DeviceStepRecorder {
 public:
  DDPRecorder(DDPOptions options, DDPGradients& gradients) : options_(std::move(options)), gradients_(gradients) {}

  [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override;
  [[nodiscard]] at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) override {
    return gradients_.backward_recorded(loss, sync, own);
  }
  [[nodiscard]] bool has_flags_on_device() const override { return !is_on_cpu(); }
  void run_replay(c10::function_ref<void()> replay) override;
  void tear_down() override { watch_.reset(); }
  [[nodiscard]] bool use_recorder_stream() override { return !is_on_cpu() && gradients_.renew_reducer(); }
  [[nodiscard]] bool replays_together() const override { return !is_on_cpu() && parts().ranks().world_size() > 1; }

 private:
  [[nodiscard]] bool is_on_cpu() const { return parts().placement().device().is_cpu(); }

  DDPOptions options_;
  DDPGradients& gradients_;
  std::unique_ptr<ReplayWatch> watch_;  // of recorded steps on a GPU
};

void DDPGradients::set_up(const ModuleTensors& module, bool training) {
  module_ = module;
  group_ = ranks().group("gradients");
  reduces_ = training && ranks().world_size() > 1;
  (void)find_reducer();
}

void DDPGradients::tear_down() {
  drop_reducers();
  buckets_.clear();
  module_ = {};
  reduces_ = takes_turns_ = false;
}

void DDPGradients::drop_reducers() {
  current_ = nullptr;
  buckets_ = all_buckets();
  reducers_.clear();
}

// Note [Order of sums]
// Gloo and NCCL sum the ranks' values of each part of a bucket in another order, so the last bits of a gradient depend
// on its place in a bucket. c10d fills the buckets of the first step in the reverse order of the parameters, and then
// once more in the order in which the gradients became ready. A run that continues from a checkpoint must not begin
// with the buckets of a first step: they are saved, and a reducer that is made again gets the buckets that it had.
std::map<std::vector<std::string>, NamedBuckets> DDPGradients::all_buckets() const {
  auto all = buckets_;
  for (const auto& made : reducers_) {
    NamedBuckets named = made->buckets();
    all[sorted_names(named)] = std::move(named);
  }
  return all;
}

// The buckets that a reducer of these parameters had; none if it is the first, or if the tensors of a bucket are no
// longer of one kind.
GradientBuckets DDPGradients::known_buckets(const std::vector<at::Tensor>& params,
                                            const std::vector<std::string>& names) const {
  const auto found = buckets_.find(sorted_names({names}));
  if (found == buckets_.end()) return {};
  std::unordered_map<std::string, size_t> index;
  for (size_t k = 0; k < names.size(); ++k) index[names[k]] = k;
  GradientBuckets buckets;
  for (const std::vector<std::string>& bucket : found->second) {
    buckets.emplace_back();
    for (const std::string& name : bucket) {
      const size_t k = index.at(name);
      const at::Tensor& first = params[buckets.back().empty() ? k : buckets.back().front()];
      if (params[k].scalar_type() != first.scalar_type() || params[k].device() != first.device()) return {};
      buckets.back().push_back(k);
    }
  }
  return buckets;
}

State DDPGradients::state_dict() const {
  State state;
  std::vector<NamedBuckets> buckets;
  for (const auto& [names, named] : all_buckets()) buckets.push_back(named);
  if (!buckets.empty()) state.set(kBucketsKey, buckets);
  return state;
}

void DDPGradients::load_state_dict(const State& saved) {
  if (!reduces_ || !saved.has(kBucketsKey)) return;
  drop_reducers();
  for (NamedBuckets& named : saved.get<std::vector<NamedBuckets>>(kBucketsKey)) {
    std::erase(named, std::vector<std::string>());
    std::vector<std::string> names = sorted_names(named);
    const bool is_once_each = std::adjacent_find(names.begin(), names.end()) == names.end();
    if (is_once_each) buckets_[std::move(names)] = std::move(named);
  }
  (void)find_reducer();
}

std::vector<bool> DDPGradients::trained() const {
  std::vector<bool> flags;
  flags.reserve(module_.parameters.size());
  for (const auto& [name, tensor] : module_.parameters) flags.push_back(tensor.requires_grad());
  return flags;
}

// Note [Which parameters are reduced]
// A reducer waits for the gradient of each of its parameters, so its parameters are all that require gradients when
// backward begins: layers are frozen and unfrozen, and the optimizers of a GAN take turns within one step. A reducer is
// kept as long as no other has a parameter in common with it, so that optimizers that take turns each have their own.
// Every rank freezes the same layers.
GradientReducer* DDPGradients::find_reducer() {
  if (!reduces_) return nullptr;
  const std::vector<bool> now = trained();
  if (current_ != nullptr && current_->trained == now) return current_;
  const auto found =
      std::find_if(reducers_.begin(), reducers_.end(), [&](const auto& made) { return made->trained == now; });
  if (found != reducers_.end()) {
    current_ = found->get();
  } else {
    current_ = nullptr;
    buckets_ = all_buckets();
    std::erase_if(reducers_, [&](const auto& made) { return made->shares_parameters(now); });
    if (std::find(now.begin(), now.end(), true) == now.end()) return nullptr;
    reducers_.push_back(reducer_of(now));
    current_ = reducers_.back().get();
  }
  return current_;
}

GradientReducer* DDPGradients::reducer_of_backward() {
  if (!reduces_) return nullptr;
  const GradientReducer* before = current_;
  GradientReducer* own = find_reducer();
  if (own != before) takes_turns_ = true;
  if (own != before && own != nullptr) own->reducer->prepare_for_forward();
  return own;
}

std::unique_ptr<GradientReducer> DDPGradients::reducer_of(const std::vector<bool>& trained) const {
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
  made->flags =
      at::zeros({static_cast<int64_t>(kRankFlags)}, params[0].options().requires_grad(false)).set_requires_grad(true);
  add(kFlagsName, made->flags);
  const ReducerOptions options{.bucket_bytes = static_cast<int64_t>(options_.bucket_cap_mb * (1 << 20)),
                               .buckets = known_buckets(params, made->names),
                               .find_unused_parameters = options_.find_unused_parameters,
                               .gradient_as_bucket_view = options_.gradient_as_bucket_view,
                               .static_graph = options_.static_graph,
                               .sent_type = sent_type(options_.comm_hook)};
  made->reducer = std::make_unique<BucketReducer>(params, std::move(names), group_, options);
  made->learns_graph = options_.static_graph;
  return made;
}

void DDPGradients::before_forward(bool sync) {
  if (!sync && options_.static_graph) {
    throw ConfigError(
        "DDPOptions.static_graph: a static graph is reduced in every backward pass, but accumulate_grad_batches and "
        "micro_batch_size skip reductions. Remove static_graph.");
  }
  if (!sync || !reduces_) return;
  GradientReducer* own = takes_turns_ ? current_ : find_reducer();
  if (own != nullptr) own->reducer->prepare_for_forward();
  if (options_.broadcast_buffers) ranks().broadcast_tensors(group_, tensors_of(module_.buffers));
}

RankFlags DDPGradients::backward(const at::Tensor& loss, bool sync, const RankFlags& own) {
  GradientReducer* reducer = sync ? reducer_of_backward() : nullptr;
  if (reducer != nullptr) return flags_of(backward_and_reduce(*reducer, loss, flags_tensor(own)));
  local().backward(loss);
  return sync && ranks().world_size() == 1 ? own : RankFlags();
}

at::Tensor DDPGradients::backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) {
  GradientReducer* reducer = sync ? reducer_of_backward() : nullptr;
  if (reducer != nullptr) return backward_and_reduce(*reducer, loss.defined() ? loss : zero_loss(), own);
  if (loss.defined()) local().backward(loss);
  return sync ? own : at::Tensor();
}

at::Tensor DDPGradients::backward_and_reduce(GradientReducer& own, const at::Tensor& loss, const at::Tensor& flags) {
  const RankWait waiting(ranks().self() + " is in a backward pass, which waits for the others' gradients");
  const at::Tensor total = with_flags(own, loss, flags);
  own.reducer->prepare_for_backward(options_.find_unused_parameters ? std::vector<at::Tensor>{total}
                                                                    : std::vector<at::Tensor>{});
  backward_of(total);
  // The first step of a static graph only records its order; Python queues this call in backward itself.
  if (std::exchange(own.learns_graph, false)) own.reducer->delay_all_reduce();
  finish_reduction(own);
  ranks().first_step_done();
  return own.flags.grad().detach();
}

std::shared_ptr<StepRecorder> DDPRecorder::make_recorder() {
  auto refuse = [](const std::string& what) {
    throw ConfigError("TrainerOptions.record_steps: DDPOptions." + what + ". Remove one.");
  };
  const std::string unused = " finds on the host which parameters a step uses, which a recording does not repeat";
  if (options_.find_unused_parameters) refuse("find_unused_parameters" + unused);
  if (options_.static_graph) refuse("static_graph" + unused);
  if (options_.comm_hook != CommHook::none) {
    refuse("comm_hook runs on c10d's thread, where a recording does not see it");
  }
  ProcessRanks& ranks = process_ranks(parts().ranks());
  if (!is_on_cpu() && ranks.group("gradients")->getBackendType() != c10d::ProcessGroup::BackendType::NCCL) {
    throw ConfigError(
        "TrainerOptions.record_steps: with DDPOptions.process_group_backend: gloo, gradients of a GPU are reduced on "
        "the host, which a captured step cannot wait for. Use nccl or auto.");
  }
  if (!is_on_cpu() && !watch_ && ranks.world_size() > 1) {
    watch_ = std::make_unique<ReplayWatch>(parts().placement().device(), ranks.self(), ranks.timeout());
  }
  return DeviceStepRecorder::make_recorder();
}

// Note [Gradients belong to a stream]
// LibTorch runs a node that accumulates a gradient on the stream on which it was made, and c10d's reducer keeps those
// nodes. They were made on the default stream, which cannot be captured: so the reducer is made anew on the recorder's,
// and steps that run eagerly run there too, or every gradient would be handed from one stream to the other.
bool DDPGradients::renew_reducer() {
  drop_reducers();
  return find_reducer() != nullptr;
}

void DDPRecorder::run_replay(c10::function_ref<void()> replay) {
  if (!is_on_cpu()) {  // does not wait for other ranks; the device does
    replay();
    if (watch_) watch_->launched();
    return;
  }
  const RankWait waiting(process_ranks(parts().ranks()).self() +
                         " is in a recorded step, which waits for the others' gradients");
  gradients_.with_rank_errors(replay);
}

void DDPGradients::backward_of(const at::Tensor& total) {
  try {
    with_rank_errors([&] { local().backward(total); });
  } catch (const c10::Error&) {
    for (const auto& [name, tensor] : module_.parameters) {
      if (tensor.grad().defined() && tensor.grad().is_sparse()) throw Error("ddp: " + sparse_gradient_text(name));
    }
    throw;
  }
}

void DDPGradients::with_rank_errors(c10::function_ref<void()> communicate) const {
  try {
    communicate();
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const bool is_ranks = dynamic_cast<const RankError*>(&error) != nullptr;
    if (!is_ranks && text.find("/gloo/") == std::string::npos) throw;  // the model's own
    throw RankError(ranks().self() + ": reducing gradients failed: " + text.substr(0, text.find('\n')) +
                    ". Another rank ended or hangs; see its output.");
  }
}

// A loss of 0 that depends on every trained parameter; undefined if there is none.
at::Tensor DDPGradients::zero_loss() const {
  at::Tensor nothing;
  for (const auto& [name, tensor] : module_.parameters) {
    if (!tensor.requires_grad()) continue;
    const at::Tensor part = tensor.sum().mul(0);
    nothing = nothing.defined() ? nothing.add(part) : part;
  }
  return nothing;
}

RankFlags DDPGradients::backward_without_loss(bool sync, const RankFlags& own) {
  const at::Tensor nothing = sync ? zero_loss() : at::Tensor();
  return nothing.defined() ? backward(nothing, true, own) : RankFlags();
}

// Note [Flags travel with gradients]
// Ranks must agree, before each update, on whether a loss was not finite or a stop was requested. A separate all_reduce
// costs as much as reducing a small model, so the flags are the gradient of one more parameter: sum(parameter * flags),
// which is 0, is added to the loss, and the reducer sums the flags over ranks as it does gradients.
at::Tensor DDPGradients::with_flags(const GradientReducer& own, const at::Tensor& loss, const at::Tensor& flags) {
  own.flags.mutable_grad() = at::Tensor();
  return loss + (own.flags * flags.to(own.flags.options().requires_grad(false))).sum().to(loss.scalar_type());
}

// rebuild_buckets() checks whether every bucket was reduced. Python calls it before the next forward, after the update
// with unreduced gradients.
void DDPGradients::finish_reduction(GradientReducer& own) const {
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
      throw Error("ddp: static_graph: this step's backward pass differs from the first step's: no gradient of " +
                  unused + ". Remove static_graph, or use every parameter in every step as in the first.");
    }
    throw Error("ddp: the loss does not depend on " + unused +
                ", which require gradients, so the other ranks wait for them. Use these parameters, freeze them until "
                "backward has returned (toggle_optimizer does so for the parameters of other optimizers), or set "
                "find_unused_parameters: true (a search in every step).");
  }
}

}  // namespace

DDP::DDP(DDPOptions options)
    : ParallelStrategy(options.process_group_backend, options.timeout, options.startup_timeout) {
  options = checked(std::move(options), "DDPOptions");
  auto& gradients = make<DDPGradients>(options);
  make<DDPRecorder>(options, gradients);
}

void DDP::set_up(const ModuleTensors& module, bool training) {
  ProcessRanks& all = process_ranks(ranks());
  all.check_same_shapes(module);
  const Group group = all.group("gradients");
  set_up_batch_norm(training);
  std::vector<at::Tensor> tensors = tensors_of(module.parameters);
  for (const auto& [name, tensor] : module.buffers) tensors.push_back(tensor);
  all.broadcast_tensors(group, std::move(tensors));
  all.await_first_step();
  gradients().set_up(module, training);
}

void DDP::tear_down() {
  Strategy::tear_down();
  tear_down_batch_norm();
}

}  // namespace levin
