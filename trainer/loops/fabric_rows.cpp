// Parameters whose number of rows changes during the run of a Fabric.
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/optim/select_rows.h"
#include "levin/trainer/lightning_optimizer.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/step/step_engine.h"

namespace levin {

namespace {

void check_resizable(const Run& run) {
  const bool has_replicas = run.strategy->placement().replica_slots().size() > 1;
  if (!has_replicas && !run.strategy->sharding().is_sharded()) return;
  throw Error(run.strategy->name() +
              " has parts or copies of the parameters, whose number of rows cannot change. Use one device, or ddp.");
}

}  // namespace

void FabricRun::select_rows(size_t optimizer, const std::vector<at::Tensor>& params, const at::Tensor& rows,
                            int64_t kept) {
  Run& run = begin();
  check_resizable(run);
  if (run.fit.window_is_open()) {
    throw Error("gradients wait for an optimizer step, and they have the old rows. Call it after the optimizer step.");
  }
  resize(run, [&] { levin::select_rows(run.fit.optimizers()[optimizer].optimizer(), params, rows, kept); });
  for (const auto& item : modules_->named_parameters()) {
    const auto is_it = [&](const at::Tensor& one) { return one.is_same(item.value()); };
    if (std::any_of(params.begin(), params.end(), is_it)) resized_.insert(item.key());
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
  if (!own.has("resized")) return;  // of an earlier version
  const auto names = own.get<std::vector<std::string>>("resized");
  if (names.empty()) return;
  check_resizable(run);
  const State saved = checkpoint.part("model");
  const auto parameters = modules_->named_parameters();
  resize(run, [&] {
    for (const std::string& name : names) {
      const at::Tensor* parameter = parameters.find(name);
      const auto found = saved.tensors.find(name);
      if (parameter == nullptr || found == saved.tensors.end()) continue;  // restore_weights() reports it
      if (parameter->dim() == 0 || found->second.dim() != parameter->dim()) continue;
      if (parameter->sizes().slice(1) != found->second.sizes().slice(1)) continue;
      replace_leaf_data(*parameter, at::empty(found->second.sizes(), parameter->options().requires_grad(false)));
    }
  });
  resized_.insert(names.begin(), names.end());
}

}  // namespace levin
