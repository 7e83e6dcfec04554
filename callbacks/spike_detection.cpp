#include "levin/callbacks/spike_detection.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/nonfinite_loss_error.h"
#include "levin/trainer/plan/run_plan.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr uint64_t kMaxFileBytes = 64 << 20;
constexpr int64_t kEveryEpoch = -1;

SpikeDetectionOptions checked_options(SpikeDetectionOptions options) {
  Problems problems;
  check_options(options, "SpikeDetectionOptions", problems);
  if (!options.atol && !options.rtol) {
    problems.add({}, "SpikeDetectionOptions", "atol and rtol are both null, so every rise would be a spike. Set one.");
  }
  problems.throw_if_any();
  return options;
}

// The loss that hooks see is divided by the window it belongs to, which may be shorter at the end of an epoch.
double window_size(const Trainer& trainer, int64_t batch_idx) {
  const int64_t batches = trainer.accumulate_grad_batches();
  const int64_t left = trainer.num_training_batches() - (batch_idx - batch_idx % batches);
  return static_cast<double>(std::max<int64_t>(1, std::min(batches, left)));
}

}  // namespace

SpikeDetection::SpikeDetection(SpikeDetectionOptions options) : options_(checked_options(std::move(options))) {}

void SpikeDetection::setup(Trainer& trainer, LightningModule&, Stage stage) {
  if (stage != Stage::fit) return;
  losses_.clear();
  seen_ = 0;
  excluded_.clear();
  fs::path path = options_.exclude_batches_path.empty() ? trainer.plan().root_dir : options_.exclude_batches_path;
  if (path.extension() != ".json") path /= "skip_batches.json";
  path_ = absolute_path(path.string());
  std::error_code code;
  if (!fs::exists(path_, code)) return;
  read_excluded();
  if (trainer.global_rank() == 0) {
    Console::instance().print("SpikeDetection: " + path_ + " names " + count_of(excluded_.size(), "batch", "batches") +
                              " to leave out.");
  }
}

void SpikeDetection::on_train_batch_end(Trainer& trainer, LightningModule& module, const at::Tensor& loss, const Batch&,
                                        int64_t batch_idx) {
  // A rank without a loss still joins the others' decision.
  const bool has_loss = loss.defined() && loss.numel() == 1;
  const double divided_by = module.automatic_optimization() ? window_size(trainer, batch_idx) : 1;
  const double value = has_loss ? loss.item().toDouble() * divided_by : 0;
  const bool spike = has_loss && seen_ >= options_.warmup && is_spike(value);
  if (trainer.strategy().ranks().any(spike)) stop(trainer, value, batch_idx);
  if (!has_loss || !std::isfinite(value)) return;
  ++seen_;
  losses_.push_back(value);
  if (static_cast<int64_t>(losses_.size()) > options_.window) losses_.pop_front();
}

double SpikeDetection::mean() const {
  return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
}

bool SpikeDetection::is_spike(double loss) const {
  // In Lightning an infinite loss is a spike with finite_only false; here it is ignored like NaN.
  if (!std::isfinite(loss)) return options_.finite_only;
  if (!is_better(options_.mode, losses_.back(), loss)) return false;  // no worse than the batch before
  const double reference = mean();
  const double distance = std::abs(loss - reference);
  return (!options_.atol || distance >= *options_.atol) &&
         (!options_.rtol || distance >= std::abs(*options_.rtol * reference));
}

// Lightning writes only indices, which name different samples in every epoch, and overwrites the file; here epoch and
// index are added to the file.
std::string SpikeDetection::write_down(Trainer& trainer, int64_t batch_idx) {
  const int64_t epoch = trainer.current_epoch();
  if (batch_idx > 0) excluded_.emplace(epoch, batch_idx - 1);
  excluded_.emplace(epoch, batch_idx);
  try {
    if (trainer.global_rank() == 0) write_excluded();
  } catch (const Error& error) {
    return std::string("They could not be written down: ") + error.what();
  }
  return "This batch and the one before it are now in " + path_ +
         "; run again, from a checkpoint before this step if there is one, and they are left out.";
}

void SpikeDetection::stop(Trainer& trainer, double loss, int64_t batch_idx) {
  const std::string written = write_down(trainer, batch_idx);
  throw Error("SpikeDetection: the training loss is " + number_text(loss) + " in epoch " +
              std::to_string(trainer.current_epoch()) + ", batch " + std::to_string(batch_idx) + " (global step " +
              std::to_string(trainer.global_step()) + "); the mean of the last " + std::to_string(losses_.size()) +
              " is " + number_text(mean()) + ". " + written);
}

void SpikeDetection::on_train_batch_start(Trainer& trainer, LightningModule&, const Batch&, int64_t batch_idx) {
  if (is_excluded(trainer.current_epoch(), batch_idx)) trainer.skip_batch();
}

void SpikeDetection::on_exception(Trainer& trainer, LightningModule&, const std::exception& error) {
  if (!options_.finite_only || dynamic_cast<const NonFiniteLossError*>(&error) == nullptr) return;
  Console::instance().print("SpikeDetection: " + write_down(trainer, trainer.batch_idx()));
}

bool SpikeDetection::is_excluded(int64_t epoch, int64_t batch_idx) const {
  return excluded_.contains({epoch, batch_idx}) || excluded_.contains({kEveryEpoch, batch_idx});
}

// A list of {"epoch", "batch_idx"}; Lightning's files are lists of indices.
void SpikeDetection::read_excluded() {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError("SpikeDetection: " + path_ + ": " + what +
                      " Expected a list such as [{\"epoch\": 0, \"batch_idx\": 17}]. Fix the file or remove it.");
  };
  const Json list = parse_json(read_file(path_, kMaxFileBytes));
  if (list.is_discarded()) refuse("it is not JSON.");
  if (!list.is_array()) refuse("it holds no list.");
  const auto number = [](const Json& item) { return item.is_number_integer() && item.get<int64_t>() >= 0; };
  for (const Json& item : list) {
    if (number(item)) {
      excluded_.emplace(kEveryEpoch, item.get<int64_t>());
    } else if (item.is_object() && number(item.value("epoch", Json())) && number(item.value("batch_idx", Json()))) {
      excluded_.emplace(item["epoch"].get<int64_t>(), item["batch_idx"].get<int64_t>());
    } else {
      refuse("an item is " + cut_text(item.dump(-1, ' ', true, Json::error_handler_t::replace)) + ".");
    }
  }
}

void SpikeDetection::write_excluded() const {
  Json list = Json::array();
  for (const auto& [epoch, batch_idx] : excluded_) {
    if (epoch == kEveryEpoch) list.push_back(batch_idx);
    if (epoch != kEveryEpoch) list.push_back({{"epoch", epoch}, {"batch_idx", batch_idx}});
  }
  make_folder(fs::path(path_).parent_path().string());
  write_file_durably(path_, list.dump(1) + "\n");
}

State SpikeDetection::state_dict() const {
  State state;
  state.set("losses", std::vector<double>(losses_.begin(), losses_.end()));
  state.set("seen", seen_);
  return state;
}

void SpikeDetection::load_state_dict(const State& saved) {
  const auto losses = saved.get<std::vector<double>>("losses");
  losses_.assign(losses.begin(), losses.end());
  seen_ = saved.get<int64_t>("seen");
  if (seen_ > 0 && losses_.empty()) {
    throw CheckpointError("SpikeDetection: the saved state counts " + count_of(seen_, "loss", "losses") +
                          " and holds none. It is damaged; use another checkpoint.");
  }
}

}  // namespace levin
