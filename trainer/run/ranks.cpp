#include "levin/trainer/run/ranks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/rank_status.h"
#include "levin/core/random.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/strategies/launch/launcher.h"
#include "levin/strategies/launch/rank_process.h"
#include "levin/strategies/process/rank_difference.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/module_access.h"
#include "levin/trainer/plan/auto_requeue.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/random_state.h"

namespace levin {

namespace {

constexpr char kFailed = '!';  // an error's text follows; else a result's
constexpr char kDone = '=';

const char* phase_name(const Run& run) {
  if (run.entry.sanity_checking) return "sanity check";
  switch (run.entry.phase) {
    case Phase::idle: return "between phases";
    case Phase::train: return "train";
    case Phase::validate: return "validate";
    case Phase::test: return "test";
    case Phase::predict: return "predict";
  }
  return "";
}

// The outcome of a task on this rank: a string for the other ranks, and the exception that is rethrown here.
struct Outcome {
  std::string text = std::string(1, kDone);
  std::exception_ptr error = nullptr;
};

Outcome attempt(const std::function<std::string()>& task) {
  Outcome outcome;
  try {
    outcome.text += task();
  } catch (const std::exception& error) {
    outcome.text = kFailed + exception_text(error);
    outcome.error = std::current_exception();
  } catch (...) {  // the others must learn of it
    outcome.error = std::current_exception();
    outcome.text = kFailed + exception_text(outcome.error);
  }
  return outcome;
}

Outcome attempt_without_result(const std::function<void()>& task) {
  return attempt([&] {
    task();
    return std::string();
  });
}

// The result sent by rank `rank`; throws its error.
std::string result_of(size_t rank, const std::string& text) {
  if (text[0] == kFailed) throw Error("rank " + std::to_string(rank) + ": " + text.substr(1));
  return text.substr(1);
}

// The launcher of a replaced node has started its ranks once; the launchers of the other nodes have restarted theirs.
double agreed_restarts(Run& run) {
  const auto own = static_cast<double>(restarts_so_far());
  if (!launched_by_levin() || run.plan.num_nodes == 1 || !run.has_peers()) return own;
  return run.strategy->ranks().reduce(at::tensor({own}), ReduceOp::max).item<double>();
}

}  // namespace

void start_ranks(Run& run) {
  run.started_again = is_requeued(run.options) && !run.plan.fast_dev_run;
  if (!run.strategy->ranks().is_distributed()) return;
  std::optional<World> world = find_world(process_variables());
  if (!world && run.plan.devices * run.plan.num_nodes > 1) {
    LaunchOptions options;
    options.local_ranks = run.plan.devices;
    options.num_nodes = run.plan.num_nodes;
    options.max_restarts = run.options.max_restarts;
    options.stop_grace = run.options.stop_grace;
    std::exit(launch(options));
  }
  if (launched_by_levin()) stay_with_launcher();
  if (world) Console::instance().set_rank(static_cast<int>(world->rank));
  run.strategy->ranks().join(world.value_or(World()));
  if (world) {
    log::strategy.info("rank {} of {} has joined, found by {}, rendezvous at {}:{}", world->rank, world->size,
                       world->source, world->master_address, world->master_port);
  }
  if (world && !world->place_is_known) check_found_place(run.options, run.plan, run.strategy->ranks().world());
  if (agreed_restarts(run) > 0) run.started_again = run.auto_resume = true;
}

bool check_same_batches(RankCollectives& ranks, int64_t batches, bool has_state) {
  if (ranks.world_size() == 1) return has_state;
  const at::Tensor all = ranks.gather(at::tensor({batches, has_state ? int64_t{1} : int64_t{0}}, at::kLong));
  std::string counts;
  bool same = true;
  bool any_has_state = false;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto count = all.const_data_ptr<int64_t>()[2 * rank];
    any_has_state = any_has_state || all.const_data_ptr<int64_t>()[2 * rank + 1] != 0;
    same = same && count == batches;
    counts += (rank > 0 ? ", " : "") + (count == kUnlimited ? std::string("unknown") : std::to_string(count));
  }
  if (same) return any_has_state;
  throw ConfigError("fit: the ranks' training loaders have different numbers of batches (rank by rank: " + counts +
                    "), so some would wait for others forever. Give every rank the same number of samples, set "
                    "limit_train_batches, or leave the sharding to use_distributed_sampler.");
}

ModuleTensors module_tensors(const LightningModule& module) {
  ModuleTensors all;
  std::unordered_set<const c10::TensorImpl*> seen;  // a layer that is registered twice has its first name
  const auto is_new = [&](const at::Tensor& tensor) { return seen.insert(tensor.unsafeGetTensorImpl()).second; };
  for (const auto& item : module.named_parameters()) {
    if (is_new(item.value())) all.parameters.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (is_new(item.value())) all.buffers.emplace_back(item.key(), item.value());
  }
  return all;
}

std::string on_rank_zero(RankCollectives& ranks, const std::function<std::string()>& task) {
  if (ranks.world_size() == 1) return task();
  const Outcome own = ranks.rank() == 0 ? attempt(task) : Outcome();
  const std::string text = ranks.broadcast(own.text);
  if (own.error) std::rethrow_exception(own.error);
  return result_of(0, text);
}

void on_every_rank(RankCollectives& ranks, const std::function<void()>& task) {
  if (ranks.world_size() == 1) return task();
  const auto all = ranks.gather(attempt_without_result(task).text);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == kFailed) throw Error("on rank " + std::to_string(rank) + ": " + all[rank].substr(1));
  }
}

void once_per_node(RankCollectives& ranks, const std::function<void()>& task) {
  if (ranks.world_size() == 1) return task();
  const Outcome own = ranks.world().local_rank == 0 ? attempt_without_result(task) : Outcome();
  const auto all = ranks.gather(own.text);
  if (own.error) std::rethrow_exception(own.error);
  for (size_t rank = 0; rank < all.size(); ++rank) (void)result_of(rank, all[rank]);
}

// In Lightning all ranks draw the same numbers, so dropout masks the same units of every rank's samples.
void separate_random_numbers(const RankCollectives& ranks, int64_t global_step) {
  const int64_t rank = ranks.mesh().data().index();
  if (rank == 0) return;
  const uint64_t seed =
      mix_seed(mix_seed(default_seed(), static_cast<uint64_t>(rank)), static_cast<uint64_t>(global_step));
  seed_accelerators(seed);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

void note_place(const Run& run, int64_t batch) {
  log::set_position(run.progress.epoch, run.progress.global_step);
  if (!run.has_peers()) return;
  RankStatus::instance().set_position(phase_name(run), run.progress.epoch, batch, run.progress.global_step);
}

void cut_epoch(const RankCollectives& ranks, Epoch& epoch) {
  (ranks.world_size() > 1 ? epoch.cut_wanted : epoch.cut) = true;
}

RankZeroBuffers::RankZeroBuffers(const Run& run) : run_(run) {
  renew();
}

void RankZeroBuffers::renew() {
  if (!run_.has_peers()) return;
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, at::Tensor>> buffers = module_tensors(*run_.entry.module).buffers;
  if (run_.strategy->ranks().rank() == 0) return run_.strategy->ranks().copy_from_rank_zero(buffers);
  std::vector<std::pair<std::string, at::Tensor>> received = buffers;
  for (auto& [name, tensor] : received) tensor = tensor.detach().clone();
  run_.strategy->ranks().copy_from_rank_zero(received);
  for (size_t k = 0; k < buffers.size(); ++k) {
    const at::Tensor buffer = buffers[k].second.detach();
    if (at::equal(buffer, received[k].second)) continue;
    kept_.push_back({buffer, buffer.clone(), received[k].second});
    buffer.copy_(received[k].second);
  }
}

RankZeroBuffers::~RankZeroBuffers() {
  const at::NoGradGuard no_grad;
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    if (at::equal(kept->buffer, kept->received)) kept->buffer.copy_(kept->own);
  }
}

void end_together(RankCollectives& ranks, BatchStream& stream) {
  if (ranks.world_size() > 1) stream.agree_by([&ranks](bool more) { return !ranks.any(!more); });
}

int agreed_signal(RankCollectives& ranks, int own) {
  const at::Tensor most = ranks.reduce(at::tensor({static_cast<double>(own)}), ReduceOp::max);
  return static_cast<int>(most.item<double>());
}

void agree_on_stop(Run& run) {
  if (!run.has_peers()) return;
  run.entry.time_split.enter(StepPart::communication);
  Epoch& epoch = run.fit.epoch;
  const at::Tensor own =
      at::tensor({run.entry.stop ? 1.0 : 0.0, epoch.cut_wanted ? 1.0 : 0.0, epoch.has_loss ? 1.0 : 0.0});
  const at::Tensor all = run.strategy->ranks().reduce(own, ReduceOp::max);
  run.entry.stop = run.entry.stop_agreed = all[0].item<double>() > 0;
  if (all[1].item<double>() > 0) epoch.cut = true;
  epoch.has_loss = all[2].item<double>() > 0;
  run.entry.time_split.enter(StepPart::other);
}

void sync_epoch_metrics(RankCollectives& ranks, MetricStore& store, const std::vector<int64_t>& idle_loaders) {
  if (ranks.world_size() == 1) return;
  store.sync_epoch(ranks, /*keep_states=*/false, idle_loaders);
  for (const std::string& name : store.take_unsynced()) {
    if (ranks.rank() != 0) continue;
    Console::instance().warn("log(\"" + name +
                             "\"): the value of the epoch counts only rank 0's samples, and the other "
                             "ranks' values differ. Log it with .sync_dist = true for the value of all samples.");
  }
}

void sync_step_metrics(Run& run, MetricStore& store) {
  if (!run.has_peers() || !store.syncs_steps()) return;
  run.entry.time_split.enter(StepPart::communication);
  store.sync_step(run.strategy->ranks());
  run.entry.time_split.enter(StepPart::other);
}

namespace {

// One line per option: "trainer.max_epochs: 3".
void flatten(const ConfigNode& node, const std::string& path, std::string& lines) {
  if (node.may_differ) return;
  for (const auto& entry : node.entries) flatten(entry.value, join_path(path, cut_text(entry.key)), lines);
  for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], path + "[" + std::to_string(k) + "]", lines);
  if (node.entries.empty() && node.items.empty()) lines += path + ": " + to_yaml(node);
}

std::string shown(const std::string& line) {
  return line == "nothing" ? "no such option" : "\"" + line + "\"";
}

void compare_options(RankCollectives& ranks, const ConfigNode& own) {
  std::string lines;
  flatten(own, "", lines);
  const auto different = first_difference(ranks.gather(lines));
  if (!different) return;
  throw ConfigError("ranks differ in their options: rank 0 has " + shown(different->on_rank_zero) + ", rank " +
                    std::to_string(different->rank) + " has " + shown(different->on_rank) +
                    ". Start all ranks with the same configuration.");
}

ConfigNode quoted_text(const std::string& value) {
  return ConfigNode::scalar(value, true);
}

template <class Object>
std::string class_of(const Object& object) {
  return detail::readable_type_name(typeid(object));
}

// The common part of module and data module.
template <class Object>
ConfigNode describe(const Object& object) {
  ConfigNode node = ConfigNode::map();
  node.set("class_path", quoted_text(class_of(object)));
  if constexpr (std::derived_from<Object, LightningModule>) {
    const ConfigNode& init_args = ModuleAccess::made_from(object).init_args;
    if (!init_args.is_null()) node.set("init_args", init_args);
  }
  if (!object.hparams().is_null()) node.set("hparams", object.hparams());
  return node;
}

ConfigNode describe(const Optimizer& optimizer) {
  ConfigNode groups = ConfigNode::list();
  for (const auto& group : optimizer.param_groups()) {
    ConfigNode& node = groups.items.emplace_back(ConfigNode::map());
    node.set("params", ConfigNode::scalar(std::to_string(group.params.size())));
    node.set("lr", ConfigNode::scalar(number_text(group.lr)));
    if (group.has_momentum) node.set("momentum", ConfigNode::scalar(number_text(group.momentum)));
    if (group.has_weight_decay) node.set("weight_decay", ConfigNode::scalar(number_text(group.weight_decay)));
  }
  ConfigNode node = ValueType<ClassSpec>::write({optimizer.name(), optimizer.written_options(), {}});
  node.set("groups", std::move(groups));
  return node;
}

ConfigNode describe(const LRSchedulerConfig& config) {
  ConfigNode node = ValueType<ClassSpec>::write({config.scheduler->name(), config.scheduler->written_options(), {}});
  for (const auto& entry : write_options(config.options).entries) node.set(entry.key, entry.value);
  node.set("optimizer", ConfigNode::scalar(std::to_string(config.optimizer_index)));
  return node;
}

}  // namespace

void check_same_options(Run& run) {
  if (!run.has_peers()) return;
  ConfigNode own = ConfigNode::map();
  own.set("stage", quoted_text(enum_name(*run.entry.stage)));
  own.set("trainer", write_options(run.options));
  own.set("seed", ConfigNode::scalar(std::to_string(default_seed())));
  own.set("ckpt_path", quoted_text(run.entry.ckpt_path));
  if (run.kept_config) {
    for (const auto& entry : run.kept_config->config.entries) {
      if (entry.key != "trainer") own.set(entry.key, entry.value);  // the options of this Trainer are more specific
    }
  }
  if (own.find("model") == nullptr) own.set("model", describe(*run.entry.module));
  if (own.find("data") == nullptr && run.entry.data != nullptr) own.set("data", describe(*run.entry.data));
  compare_options(run.strategy->ranks(), own);
}

void check_same_optimizers(RankCollectives& ranks, const Fit& fit) {
  if (ranks.world_size() == 1) return;
  ConfigNode own = ConfigNode::map();
  ConfigNode& optimizers = own.set("optimizer", ConfigNode::list());
  for (const auto& wrapped : fit.optimizers()) optimizers.items.push_back(describe(*wrapped.shared()));
  ConfigNode& schedulers = own.set("lr_scheduler", ConfigNode::list());
  for (const auto& config : fit.schedulers) schedulers.items.push_back(describe(config));
  compare_options(ranks, own);
}

void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders) {
  if (ranks.world_size() == 1) return;
  ConfigNode list = ConfigNode::list();
  for (const auto& loader : loaders) {
    ConfigNode& node = list.items.emplace_back(ConfigNode::map());
    const Loader& one = *loader;
    node.set("class_path", quoted_text(class_of(one)));
    const ConfigNode options = one.written_options();
    for (const auto& entry : options.entries) node.set(entry.key, entry.value);
  }
  ConfigNode own = ConfigNode::map();
  own.set(name, std::move(list));
  compare_options(ranks, own);
}

}  // namespace levin
