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
#include "levin/core/process/main_guard.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/optim/select_rows.h"
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

void check_resizable(const Run& run) {
  const bool has_replicas = run.strategy->placement().replica_slots().size() > 1;
  if (has_replicas || run.strategy->sharding().is_sharded()) {
    throw Error(run.strategy->name() +
                " has parts or copies of the parameters, whose number of rows cannot change. Use one device, or ddp.");
  }
  for (const auto& callback : run.entry.callbacks) {
    if (!callback->averages_weights()) continue;
    throw Error(callback->state_key() + " keeps an average of the weights, which new rows do not have. Remove it.");
  }
}

// An error of one rank is thrown on all of them, before any has changed something.
void on_all_ranks(RankCollectives& ranks, const std::function<void()>& check) {
  if (ranks.world_size() == 1) return check();
  std::string problem;
  try {
    check();
  } catch (...) {
    problem = exception_text(std::current_exception());
  }
  const std::vector<std::string> problems = ranks.gather(problem);
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) throw Error("on rank " + std::to_string(rank) + ": " + problems[rank]);
  }
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

void FabricRun::select_rows(size_t optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                            int64_t kept) {
  Run& run = begin();
  on_all_ranks(run.strategy->ranks(), [&] { check_selection(run, optimizer, params, rows, kept); });
  std::string tensors;
  for (const auto& item : modules_->named_parameters()) {
    if (contains(params, item.value())) tensors += (tensors.empty() ? "" : ", ") + item.key();
  }
  check_same_selection(run, tensors, rows, kept);
  run.fit.engine->finish_checks(/*receives_flags=*/true);
  roll_back_if_due(run);
  run.checkpoint_writer.finish();
  run.newest_checkpoint.clear();  // it has the old rows
  run.fit.rows_changed = true;
  resize(run, [&] { levin::select_rows(run.fit.optimizers()[optimizer].optimizer(), params, rows, kept); });
  for (const auto& item : modules_->named_parameters()) {
    if (contains(params, item.value())) resized_.insert(item.key());
  }
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

void FabricRun::resize_as_saved(Run& run, const State& checkpoint, const State& own) {
  std::set<std::string> names = resized_;
  if (own.has("resized")) {  // absent: of an earlier version
    for (const std::string& name : own.get<std::vector<std::string>>("resized")) names.insert(name);
  }
  if (names.empty()) return;
  const State saved = checkpoint.part("model");
  const auto parameters = modules_->named_parameters();
  State resized = module_state(*modules_);
  std::vector<std::pair<at::Tensor, at::Tensor>> changes;  // parameters, and their values in the file
  for (const std::string& name : names) {
    const at::Tensor* parameter = parameters.find(name);
    const auto found = saved.tensors.find(name);
    if (parameter == nullptr || found == saved.tensors.end()) continue;  // check_weights() reports it
    if (parameter->dim() == 0 || found->second.dim() != parameter->dim()) continue;
    if (parameter->sizes().slice(1) != found->second.sizes().slice(1)) continue;
    if (parameter->sizes() != found->second.sizes()) changes.emplace_back(*parameter, found->second);
    resized.tensors[name] = found->second;
  }
  check_weights(*modules_, resized, checkpoint, run.entry.ckpt_path);
  if (!changes.empty()) {
    check_resizable(run);
    resize(run, [&] {
      for (const auto& [parameter, value] : changes) {
        replace_leaf_data(parameter, at::empty(value.sizes(), parameter.options().requires_grad(false)));
      }
    });
  }
  resized_ = std::move(names);
}

}  // namespace levin
