// Actions of a Trainer for callbacks and modules: checkpoints, a pass over the training batches, and what is logged
// besides what `log` reduces.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/staging.h"
#include "levin/loggers/histogram.h"
#include "levin/loggers/image.h"
#include "levin/loggers/logger.h"
#include "levin/metrics/update_undo.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/state/checkpoint.h"
#include "levin/trainer/state/sharded_state.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// A pass over the training batches that is not part of training. However it ends, the running epoch, what was logged
// and the loader are restored.
class PassAside {
 public:
  explicit PassAside(Run& run)
      : run_(run),
        loader_state_(loader().state_dict()),
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
    if (!loader_state_.empty()) loader().load_state_dict(loader_state_);
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
    write_single_checkpoint(path, checkpoint);
    put_staged(path);
    return std::string();
  };
  if (!run.entry.failing) {
    (void)on_rank_zero(run.strategy->ranks(), write);
  } else if (run.strategy->ranks().rank() == 0) {
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
    end_together(run.strategy->ranks(), stream);
    stream.start(run.progress.epoch);
    for (Batch fetched; stream.next(fetched);) {
      run.entry.place = {.batch_size = std::max<int64_t>(1, fetched.size())};
      const Batch batch = transfer_batch(run, fetched, 0);
      (void)run.fit.engine->forward(batch, stream.index());
    }
  });
}

void Trainer::save_checkpoint(const std::string& path_or_url, bool weights_only) {
  const std::string path = staged(path_or_url);
  check_has_module(*run_, "save_checkpoint");
  if (run_->entry.failing && run_->strategy->sharding().is_sharded()) {
    throw CheckpointError("checkpoint " + path + ": " + run_->strategy->name() +
                          " needs all ranks for one, and after a failure they cannot be asked. Continue from an older "
                          "one.");
  }
  if (run_->strategy->ranks().rank() == 0) make_checkpoint_folder(path);
  CheckpointRequest request{path};
  request.state = gather_checkpoint(*run_, weights_only);
  prepare_for_writing(*run_->strategy, run_->fit, request);
  if (request.shard) {
    write_sharded_checkpoint(path, request.state, *request.shard);
    (void)on_rank_zero(run_->strategy->ranks(), [&] {  // no rank continues before the record is written
      put_staged(path);
      return std::string();
    });
  } else {
    write_on_rank_zero(*run_, path, request.state);
  }
  ++run_->entry.saves.good;
  if (weights_only) return;
  note_whole_save(*run_, path);
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
  for (auto& wrapped : run_->fit.optimizers()) {
    for (const auto& [name, tensor] : wrapped.optimizer().state_dict().tensors) saved_state += tensor.nbytes();
  }
  // Most optimizers keep two numbers per weight, and none before their first step.
  return weights + (saved_state > 0 ? saved_state : 2 * trained);
}

void Trainer::finish_checkpoints() {
  run_->checkpoint_writer.finish();
}

namespace {

void check_name(const char* call, std::string_view name) {
  if (name.empty()) throw Error(std::string(call) + ": a value needs a name.");
  if (!has_control_character(name)) return;
  throw Error(std::string(call) + "(\"" + cut_text(std::string(name)) +
              "\"): the name holds a line end or another control character, which no table can show. Choose another "
              "name.");
}

// Rows of every logger have their counters under these names.
void check_metric_name(const char* call, std::string_view name) {
  check_name(call, name);
  if (!is_counter_name(name)) return;
  throw Error(std::string(call) + "(\"" + std::string(name) + "\"): " + std::string(name) +
              " is the name of the counter in the rows of the loggers. Choose another name.");
}

// Whether a value of this kind is written; a warning is logged once if no logger takes it.
bool is_wanted(const Run& run, LogKind kind, const char* call, const char* what) {
  if (!run.writes_logs()) return false;
  if (run.log_stream->takes(kind)) return true;
  Console::instance().warn(std::string(call) + ": no logger of this run takes " + what +
                           ". Add one that does, such as TensorBoardLogger.");
  return false;
}

}  // namespace

const StepOutput& Trainer::step_output() const {
  return run_->entry.outputs;
}

void Trainer::log_now(const Metrics& metrics, int64_t step) {
  for (const auto& [name, value] : metrics) check_metric_name("log_now", name);
  for (const auto& [name, value] : metrics) run_->set_callback_metric(name, value, run_->batches_done());
  run_->write_metrics(metrics, step);
}

void Trainer::log_system(const Metrics& figures, int64_t step) {
  for (const auto& [name, value] : figures) check_metric_name("log_system", name);
  for (const auto& [name, value] : figures) {
    run_->logged_metrics.set(name, value);
    run_->set_callback_metric(name, value, run_->batches_done());
  }
  if (run_->writes_logs()) run_->log_stream->log_system({figures.begin(), figures.end()}, step);
}

// The copy is made here, the bins by the loggers' thread, once for all loggers.
void Trainer::log_histogram(std::string_view name, const at::Tensor& values) {
  check_name("log_histogram", name);
  if (!values.defined() || values.numel() == 0) {
    throw Error("log_histogram(\"" + std::string(name) +
                "\"): the tensor has no elements. Log it where it holds values.");
  }
  if (!is_wanted(*run_, LogKind::histograms, "log_histogram", "histograms")) return;
  const at::Tensor copy = values.detach().to(at::kCPU, values.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  const auto made = std::make_shared<std::optional<Histogram>>();
  run_->log_stream->log(LogKind::histograms, logging_step(), copy.nbytes(),
                        [name = std::string(name), copy, made](Logger& logger, const LogPoint& at) {
                          if (!*made) *made = histogram_of(copy);
                          logger.log_histogram(name, **made, at);
                        });
}

void Trainer::log_image(std::string_view name, const at::Tensor& image) {
  check_name("log_image", name);
  if (!is_wanted(*run_, LogKind::images, "log_image", "images")) return;
  if (!image.defined()) throw Error("log_image(\"" + std::string(name) + "\"): got no tensor.");
  const auto made = std::make_shared<const LogImage>(image_of(image.detach().cpu()));
  run_->log_stream->log(
      LogKind::images, logging_step(), made->samples.size(),
      [name = std::string(name), made](Logger& logger, const LogPoint& at) { logger.log_image(name, *made, at); });
}

void Trainer::log_text(std::string_view name, std::string_view text) {
  check_name("log_text", name);
  if (!is_wanted(*run_, LogKind::text, "log_text", "text")) return;
  run_->log_stream->log(LogKind::text, logging_step(), text.size(),
                        [name = std::string(name), text = std::string(text)](Logger& logger, const LogPoint& at) {
                          logger.log_text(name, text, at);
                        });
}

void Trainer::log_table(std::string_view name, LogTable table) {
  check_name("log_table", name);
  for (const auto& row : table.rows) {
    if (row.size() == table.columns.size()) continue;
    throw Error("log_table(\"" + std::string(name) + "\"): a row has " + std::to_string(row.size()) +
                " cells, and there are " + std::to_string(table.columns.size()) +
                " columns. Give each row all of them.");
  }
  if (!is_wanted(*run_, LogKind::tables, "log_table", "tables")) return;
  const size_t bytes = table.rows.size() * table.columns.size() * sizeof(LogTable::Cell);
  run_->log_stream->log(LogKind::tables, logging_step(), bytes,
                        [name = std::string(name), table = std::move(table)](Logger& logger, const LogPoint& at) {
                          logger.log_table(name, table, at);
                        });
}

void Trainer::log_artifact(const std::string& path, std::string_view name) {
  const std::string shown = name.empty() ? path.substr(path.rfind('/') + 1) : std::string(name);
  check_name("log_artifact", shown);
  if (!is_wanted(*run_, LogKind::artifacts, "log_artifact", "files")) return;
  run_->log_stream->log(LogKind::artifacts, logging_step(), 0,
                        [shown, path](Logger& logger, const LogPoint& at) { logger.log_artifact(shown, path, at); });
}

void Trainer::flush_logs() {
  run_->drain_logs();
}

}  // namespace levin
