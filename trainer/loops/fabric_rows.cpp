// Parameters whose number of rows changes during the run of a Fabric.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/optim/select_rows.h"
#include "levin/trainer/averages_weights.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/state/model_match.h"
#include "levin/trainer/state/rollback.h"

namespace levin {

namespace {

bool contains(const std::vector<at::Tensor>& all, const at::Tensor& wanted) {
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& one) { return one.is_same(wanted); });
}

void check_same_selection(Run& run, const std::string& tensors, const at::Tensor& rows, int64_t kept) {
  if (!run.has_peers()) return;
  RankCollectives& ranks = run.strategy->ranks();
  const std::vector<std::string> all = ranks.gather(count_of(rows.numel(), "row") + " of " + tensors + ", of which " +
                                                    std::to_string(kept) + " are kept");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error("rank 0 selects " + all[0] + ", and rank " + std::to_string(rank) + " " + all[rank] +
                ". Every rank selects the same rows.");
  }
  const at::Tensor own = rows.to(run.strategy->placement().device()).contiguous(), first = own.clone();
  ranks.copy_from_rank_zero({{"rows", first}});
  if (ranks.any(!at::equal(own, first))) {
    throw Error(
        "the ranks select different rows. Compute them from what is the same on all ranks, or from rank 0's "
        "with fabric.broadcast.");
  }
}

}  // namespace

void FabricRun::check_resizable(const Run& run) {
  const bool has_replicas = run.strategy->placement().replica_slots().size() > 1;
  if (has_replicas || run.strategy->sharding().is_sharded()) {
    throw Error(run.strategy->name() +
                " has parts or copies of the parameters, whose number of rows cannot change. Use one device, or ddp.");
  }
  for (const auto& callback : run.entry.callbacks) {
    if (dynamic_cast<const AveragesWeights*>(callback.get()) == nullptr) continue;
    throw Error(callback->state_key() + " keeps an average of the weights, which new rows do not have. Remove it.");
  }
}

void FabricRun::select_rows(size_t optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                            int64_t kept) {
  check_outside_step();
  Run& run = begin();
  on_every_rank(run.strategy->ranks(), [&] { check_selection(run, optimizer, params, rows, kept); });
  std::vector<std::string> names;
  for (const auto& item : modules_->named_parameters()) {
    if (contains(params, item.value())) names.push_back(item.key());
  }
  check_same_selection(run, join(names), rows, kept);
  run.fit.engine->finish_checks(/*receives_flags=*/true);
  roll_back_if_due(run);
  run.checkpoint_writer.finish();
  run.newest_checkpoint.clear();  // it has the old rows
  run.fit.rows_changed = true;
  resize(run, [&] { levin::select_rows(run.fit.optimizers()[optimizer].optimizer(), params, rows, kept); });
  resized_.insert(names.begin(), names.end());
}

void FabricRun::check_selection(const Run& run, size_t optimizer, const std::vector<at::Tensor>& params,
                                const at::Tensor& rows, int64_t kept) const {
  check_resizable(run);
  if (run.fit.window_is_open()) {
    throw Error("gradients wait for an optimizer step, and they have the old rows. Call it after the optimizer step.");
  }
  check_select_rows(*config_.optimizers()[optimizer], params, rows, kept);
  for (size_t other = 0; other < config_.optimizers().size(); ++other) {
    const std::vector<at::Tensor> all = config_.optimizers()[other]->parameters();
    for (size_t k = 0; k < params.size() && other != optimizer; ++k) {
      if (!contains(all, params[k])) continue;
      throw Error("tensor " + std::to_string(k) + " is also a parameter of another optimizer, " +
                  config_.optimizers()[other]->name() +
                  ", whose state has the old rows. Give each tensor one optimizer.");
    }
  }
}

// Recordings are bound to the memory of the old rows, and ddp's buckets to their sizes.
void FabricRun::resize(Run& run, const std::function<void()>& change) {
  end_engine(run);
  if (!run.has_peers()) return change();
  run.strategy->tear_down();
  try {
    change();
  } catch (...) {
    run.strategy->set_up(module_tensors(*modules_), /*training=*/true);
    throw;
  }
  run.strategy->set_up(module_tensors(*modules_), /*training=*/true);
}

std::set<std::string> FabricRun::names_as_saved(const State& checkpoint) const {
  std::set<std::string> names = resized_;
  const State own = checkpoint.part("fabric");
  if (!own.has("resized")) return names;  // of an earlier version
  for (const std::string& name : own.get<std::vector<std::string>>("resized")) names.insert(name);
  return names;
}

State FabricRun::weights_as_saved(const State& checkpoint) const {
  State weights = module_state(*modules_);
  const State saved = checkpoint.part("model");
  for (const std::string& name : names_as_saved(checkpoint)) {
    const auto own = weights.tensors.find(name);
    const auto found = saved.tensors.find(name);
    if (own == weights.tensors.end() || found == saved.tensors.end()) continue;  // check_weights() reports it
    if (own->second.dim() == 0 || found->second.dim() != own->second.dim()) continue;
    if (own->second.sizes().slice(1) == found->second.sizes().slice(1)) own->second = found->second;
  }
  return weights;
}

std::vector<std::pair<at::Tensor, at::Tensor>> FabricRun::changed_rows(const State& weights) const {
  std::vector<std::pair<at::Tensor, at::Tensor>> changes;
  for (const auto& item : modules_->named_parameters()) {
    const auto found = weights.tensors.find(item.key());
    if (found == weights.tensors.end() || found->second.sizes() == item.value().sizes()) continue;
    changes.emplace_back(item.value(), found->second);
  }
  return changes;
}

void FabricRun::resize_as_saved(Run& run, const State& checkpoint) {
  const auto changes = changed_rows(weights_as_saved(checkpoint));
  resized_ = names_as_saved(checkpoint);
  if (changes.empty()) return;
  resize(run, [&] {
    for (const auto& [parameter, value] : changes) {
      replace_leaf_data(parameter, at::empty(value.sizes(), parameter.options().requires_grad(false)));
    }
  });
}

}  // namespace levin
