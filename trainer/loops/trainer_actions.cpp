// Actions of a Trainer for callbacks and modules: checkpoints, and a pass over the training batches.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files.h"
#include "levin/metrics/update_undo.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/step/loss_weights.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// A pass over the training batches that is not part of training. However it ends, the running epoch, what was logged
// and the loader are as they were before.
class PassAside {
 public:
  explicit PassAside(Run& run)
      : run_(run),
        loader_state_(loader().state()),
        place_(run.entry.place),
        phase_(std::exchange(run.entry.phase, Phase::train)),
        outputs_(std::exchange(run.entry.outputs, {})),
        logged_(run.entry.train_metrics) {
    if (run.fit.batches != nullptr) run.fit.batches->lend_loader();
  }
  ~PassAside() {
    metrics_.restore();
    run_.entry.train_metrics = std::move(logged_);
    run_.entry.outputs = std::move(outputs_);
    run_.entry.phase = phase_;
    run_.entry.place = place_;
    (void)take_loss_weight(run_.fit);
  }
  PassAside(const PassAside&) = delete;
  PassAside& operator=(const PassAside&) = delete;

  template <class Pass>
  void run(Pass pass) {
    try {
      pass(loader());
    } catch (...) {
      restore_loader();
      throw;
    }
    restore_loader();
  }

 private:
  [[nodiscard]] Loader& loader() const { return *run_.fit.train.loaders[0]; }
  void restore_loader() const {
    if (!loader_state_.empty()) loader().load_state(loader_state_);
  }

  Run& run_;
  State loader_state_;
  MetricStore::Place place_;
  Phase phase_;
  StepOutput outputs_;
  MetricStore logged_;
  metrics::UpdateUndo metrics_ = {};
  RandomState random_state_ = {};
  at::AutoGradMode no_gradients_{false};
};

void check_may_pass(const Run& run) {
  const std::string who = "forward_training_batches: ";
  if (run.fit.train.loaders.empty()) {
    throw Error(who + "there are no training batches here. Call it in a hook of fit.");
  }
  if (run.entry.place.hook == Hook::training_step) {
    throw Error(who + "it was called in training_step, which it calls itself. Call it in a hook of fit.");
  }
  if (!run.entry.module->automatic_optimization()) {
    throw Error(who + "training_step of a module with manual optimization trains, so it cannot run without training.");
  }
}

void check_has_module(const Run& run, const std::string& who) {
  if (run.entry.module != nullptr) return;
  throw Error(who +
              (run.entry.stage ? ": the module of the last entry point was destroyed." : ": there is no module yet.") +
              " Call fit or an evaluation first.");
}

// Rank 0 alone has the loggers' positions. The others wait until the file is written, and fail if it cannot be; after a
// failure of this rank nobody may be asked.
void write_on_rank_zero(Run& run, const std::string& path, const State& checkpoint) {
  const auto write = [&] {
    write_checkpoint(path, checkpoint);
    return std::string();
  };
  if (!run.entry.failing) {
    (void)on_rank_zero(*run.strategy, write);
  } else if (run.strategy->rank() == 0) {
    write();
  }
}

}  // namespace

void Trainer::forward_training_batches() {
  Run& run = *run_;
  check_may_pass(run);
  PassAside aside(run);
  aside.run([&run](Loader& loader) {
    BatchStream stream(loader, run.fit.train.num_batches[0]);
    end_together(*run.strategy, stream);
    stream.start(run.progress.epoch);
    for (Batch fetched; stream.next(fetched);) {
      run.entry.place = {Hook::none, std::max<int64_t>(1, fetched.size()), 0, 1};
      const Batch batch = transfer_batch(run, fetched, 0);
      const ForwardScope forward(*run.precision, run.strategy->device().type());
      call_module(run.entry, Hook::training_step,
                  [&](LightningModule& m) { return m.training_step(batch, stream.index()); });
      (void)take_loss_weight(run.fit);
    }
  });
}

void Trainer::save_checkpoint(const std::string& path, bool weights_only) {
  check_has_module(*run_, "save_checkpoint");
  if (run_->entry.failing && run_->strategy->is_sharded()) {
    throw CheckpointError("checkpoint " + path + ": " + run_->strategy->name() +
                          " needs all ranks for one, and after a failure they cannot be asked. Continue from an older "
                          "one.");
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (run_->strategy->rank() == 0 && !folder.empty()) make_folder(folder);
  CheckpointRequest request{path};
  request.state = gather_checkpoint(*run_, weights_only);
  prepare_for_writing(*run_->strategy, run_->fit, request);
  if (request.shard) {
    write_sharded_checkpoint(path, request.state, *request.shard);
    run_->strategy->barrier();  // no rank continues before the record is written
  } else {
    write_on_rank_zero(*run_, path, request.state);
  }
  ++run_->entry.saves.good;
  if (weights_only) return;
  run_->newest_checkpoint = path;
  run_->fit.saved_batches = run_->progress.total_batches;
}

void Trainer::request_checkpoint(CheckpointRequest request) {
  check_has_module(*run_, "request_checkpoint");
  levin::request_checkpoint(*run_, std::move(request));
  if (!run_->entry.running) capture_checkpoints(*run_);  // there is no batch to wait for
}

bool Trainer::state_is_saved() const {
  return run_->fit.saved_batches == run_->progress.total_batches;
}

uint64_t Trainer::estimated_checkpoint_bytes() const {
  check_has_module(*run_, "estimated_checkpoint_bytes");
  uint64_t weights = 0;
  uint64_t trained = 0;
  for (const auto& parameter : run_->entry.module->parameters()) {
    weights += parameter.nbytes();
    if (parameter.requires_grad()) trained += parameter.nbytes();
  }
  for (const auto& buffer : run_->entry.module->buffers()) weights += buffer.nbytes();
  uint64_t saved_state = 0;
  for (auto& wrapped : run_->fit.optimizers) {
    for (const auto& [name, tensor] : wrapped.optimizer().state().tensors) saved_state += tensor.nbytes();
  }
  // Most optimizers keep two numbers per weight, and none before their first step.
  return weights + (saved_state > 0 ? saved_state : 2 * trained);
}

void Trainer::finish_checkpoints() {
  run_->checkpoint_writer.finish();
}

}  // namespace levin
