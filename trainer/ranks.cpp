#include "levin/trainer/ranks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>
#include <exception>
#include <mutex>

#include "levin/core/console.h"
#include "levin/core/seed.h"
#include "levin/strategies/cluster_environment.h"
#include "levin/strategies/launcher.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace {

constexpr char kFailed = '!';  // an error's text follows; else a result's
constexpr char kDone = '=';

// One line an option: "trainer.max_epochs: 3".
void flatten(const ConfigNode& node, const std::string& path, std::string& lines) {
  for (const auto& entry : node.entries) flatten(entry.value, path + "." + entry.key, lines);
  for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], path + "[" + std::to_string(k) + "]", lines);
  if (node.is_scalar()) lines += path + ": " + node.text + "\n";
}

// The line in which two texts first differ.
std::string different_line(const std::string& one, const std::string& other) {
  size_t start = 0;
  for (size_t k = 0; k < one.size() && k < other.size() && one[k] == other[k]; ++k) {
    if (one[k] == '\n') start = k + 1;
  }
  return start < one.size() ? one.substr(start, one.find('\n', start) - start) : "nothing";
}

// What happened on a rank, as a text that can be sent.
std::string outcome(const std::function<std::string()>& task) {
  try {
    return kDone + task();
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

}  // namespace

void start_ranks(Run& run) {
  if (!run.strategy->is_distributed()) return;
  std::optional<World> world = find_world(process_variables());
  if (!world && run.plan.devices * run.plan.num_nodes > 1) {
    LaunchOptions options;
    options.local_ranks = run.plan.devices;
    options.num_nodes = run.plan.num_nodes;
    options.max_restarts = run.options.max_restarts;
    std::exit(launch(options));
  }
  if (world) Console::instance().set_rank(static_cast<int>(world->rank));
  run.strategy->join(world.value_or(World()));
  if (restarts_so_far() > 0) run.plan.auto_resume = true;
}

void check_same_options(Run& run) {
  if (!run.has_peers()) return;
  std::string own;
  flatten(write_options(run.options), "trainer", own);
  own += "seed: " + std::to_string(default_seed()) + "\n";
  const auto all = run.strategy->gather(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw ConfigError("ranks differ in their options: rank 0 has \"" + different_line(all[0], all[rank]) + "\", rank " +
                      std::to_string(rank) + " has \"" + different_line(all[rank], all[0]) +
                      "\". Start all ranks with the same configuration.");
  }
}

void check_same_batches(Run& run, int64_t batches) {
  if (!run.has_peers()) return;
  const at::Tensor all = run.strategy->gather(at::tensor(batches, at::kLong));
  std::string counts;
  bool same = true;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const auto count = all.const_data_ptr<int64_t>()[rank];
    same = same && count == batches;
    counts += (rank > 0 ? ", " : "") + (count == kUnlimited ? std::string("unknown") : std::to_string(count));
  }
  if (same) return;
  throw ConfigError("fit: the ranks' training loaders have different numbers of batches (rank by rank: " + counts +
                    "), so some would wait for others for ever. Give every rank the same number of samples, set "
                    "limit_train_batches, or leave the sharding to use_distributed_sampler.");
}

ModuleTensors module_tensors(const LightningModule& module) {
  ModuleTensors all;
  for (const auto& item : module.named_parameters()) all.parameters.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.buffers.emplace_back(item.key(), item.value());
  return all;
}

std::string on_rank_zero(Run& run, const std::function<std::string()>& task) {
  if (!run.has_peers()) return task();
  std::exception_ptr own;
  std::string text;
  if (run.strategy->rank() == 0) {
    text = outcome([&] {
      try {
        return task();
      } catch (...) {
        own = std::current_exception();  // rank 0 throws it as it is
        throw;
      }
    });
  }
  text = run.strategy->broadcast(text);
  if (own) std::rethrow_exception(own);
  if (text[0] == kFailed) throw Error("rank 0: " + text.substr(1));
  return text.substr(1);
}

void once_per_node(Run& run, const std::function<void()>& task) {
  if (!run.has_peers()) return task();
  std::exception_ptr own;
  std::string text(1, kDone);
  if (run.strategy->world().local_rank == 0) {
    text = outcome([&]() -> std::string {
      try {
        task();
      } catch (...) {
        own = std::current_exception();
        throw;
      }
      return "";
    });
  }
  const auto all = run.strategy->gather(text);
  if (own) std::rethrow_exception(own);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == kFailed) throw Error("rank " + std::to_string(rank) + ": " + all[rank].substr(1));
  }
}

// Lightning: all ranks draw the same numbers, so that dropout masks the same units of every rank's samples.
void separate_random_numbers(Run& run) {
  const int64_t rank = run.strategy->rank();
  if (!run.has_peers() || rank == 0) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(
      mix_seed(mix_seed(default_seed(), static_cast<uint64_t>(rank)), static_cast<uint64_t>(run.progress.global_step)));
}

void send_notes(Run& run) {
  if (!run.has_peers()) return;
  if (run.stop) run.strategy->note(RankNote::stop);
  if (run.cut_wanted) run.strategy->note(RankNote::cut_epoch);
}

void hear_notes(Run& run) {
  if (!run.has_peers()) return;
  if (run.strategy->heard(RankNote::stop)) run.stop_agreed = true;
  if (run.strategy->heard(RankNote::cut_epoch)) run.epoch_cut = true;
}

void agree_on_stop(Run& run) {
  if (!run.has_peers()) return;
  const at::Tensor wishes = at::tensor({run.stop ? 1.0 : 0.0, run.cut_wanted ? 1.0 : 0.0});
  const at::Tensor all = run.strategy->reduce(wishes, ReduceOp::max);
  run.stop = run.stop_agreed = all[0].item<double>() > 0;
  if (all[1].item<double>() > 0) run.epoch_cut = true;
}

void sync_epoch_metrics(Run& run, MetricStore& store) {
  if (run.has_peers()) store.sync_epoch(*run.strategy);
}

void sync_step_metrics(Run& run, MetricStore& store) {
  if (run.has_peers()) store.sync_step(*run.strategy);
}

}  // namespace levin
