#include "levin/cli/commands/run_report.h"

#include <ATen/core/Formatting.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "levin/callbacks/progress_bar.h"
#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/sweep/trial_result.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/staging.h"
#include "levin/core/tensors.h"
#include "levin/trainer/checkpoint_callback.h"
#include "levin/trainer/measured_metrics.h"
#include "levin/trainer/plan/stop_after.h"

namespace levin {

namespace {

// A text for a terminal: invalid UTF-8 and control characters except newline and tab become U+FFFD.
std::string printable(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    result += length == 0 || is_control ? "\xef\xbf\xbd" : text.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return result;
}

// Prints the first predictions as text, each short one on one line; returns false if the data module has no text for
// them.
bool print_texts(const DataModule& data, const std::vector<at::Tensor>& predictions) {
  constexpr int64_t kMost = 20;
  Console& console = Console::instance();
  int64_t sample = 0;
  for (const at::Tensor& prediction : predictions) {
    const std::vector<std::string> texts = data.prediction_text(prediction);
    if (texts.empty()) return false;
    for (const std::string& text : texts) {
      if (sample == kMost) return true;
      const bool is_short = text.size() <= 60 && text.find('\n') == std::string::npos;
      console.print("sample " + std::to_string(sample++) + ":" + (is_short ? " " : "\n") + printable(text));
    }
  }
  return true;
}

using nlohmann::json;

// A run that was complete when it was started again has logged nothing in this process: its file has all values.
void add_metrics(Trainer& trainer, json& result) {
  Metrics metrics = trainer.callback_metrics();
  MetricsReader reader(trainer.log_dir());
  try {
    reader.update();
  } catch (const Error&) {
    // the fit succeeded nevertheless: the values at its end are used
  }
  result["measured_at"] = json::object();  // in training batches done
  for (const auto& [name, value] : metrics) {
    if (const auto batches = measured_at(trainer, name)) result["measured_at"][name] = *batches;
  }
  for (const auto& [name, series] : reader.series()) {
    if (!series.values.empty()) metrics.emplace(name, series.values.back());
  }
  result["metrics"] = metrics;
}

void add_checkpoints(Trainer& trainer, bool stopped, json& result) {
  result["checkpoints"] = json::object();
  result["best"] = json::array();
  for (Checkpoint* callback : checkpoint_callbacks(trainer.callbacks())) {
    for (const char* which : {"best", "last", "interrupted"}) {
      const std::string path = callback->checkpoint_path(trainer, which);
      if (path.empty() || (which == std::string("interrupted") && !stopped)) continue;
      const SavedPosition saved = position_of_checkpoint(path);
      if (saved.step >= 0) result["checkpoints"][path] = {{"step", saved.step}, {"batches", saved.batches}};
    }
    const BestCheckpoint best = callback->best_checkpoint();
    if (best.monitor.empty() || !best.score) continue;
    result["best"].push_back(
        {{"monitor", best.monitor}, {"mode", best.mode}, {"value", *best.score}, {"checkpoint", best.path}});
  }
}

}  // namespace

std::string best_or_current(Trainer& trainer) {
  return first_checkpoint_path(trainer.callbacks(), trainer, "best").empty() ? "" : "best";
}

void report_fit(Trainer& trainer) {
  Console& console = Console::instance();
  const std::string best = first_checkpoint_path(trainer.callbacks(), trainer, "best");
  if (!trainer.loggers().empty()) console.print("logs:        " + shown_path(trainer.log_dir()));
  if (!best.empty()) console.print("checkpoint:  " + shown_path(best));
  if (trainer.callback<ProgressBar>() != nullptr) return;  // it has printed the duration
  console.print("took:        " + readable_duration(trainer.elapsed()) + "; the run has " +
                count_of(trainer.global_step(), "step") + " in " + count_of(trainer.current_epoch(), "epoch"));
}

void report_metrics(const std::string& what, const std::vector<Metrics>& results) {
  std::set<std::string> names;
  size_t widest = 0;
  for (const auto& result : results) {
    for (const auto& [name, value] : result) {
      names.insert(name);
      widest = std::max(widest, name.size());
    }
  }
  Console& console = Console::instance();
  console.print(what + " metrics" + (names.empty() ? ": none were logged" : ":"));
  for (const auto& name : names) {
    std::string line = "  " + name + std::string(widest - name.size(), ' ');
    for (const auto& result : results) {
      const auto found = result.find(name);
      line += "  " + (found == result.end() ? std::string("-") : formatted("%.4f", found->second));
    }
    console.print(line);
  }
}

void report_predictions(const Trainer& trainer, const Predictions& predictions, const DataModule* data) {
  Console& console = Console::instance();
  for (size_t k = 0; k < predictions.size(); ++k) {
    int64_t samples = 0;
    for (const auto& batch : predictions[k]) samples += batch.dim() == 0 ? 1 : batch.size(0);
    const std::string loader = predictions.size() > 1 ? " of loader " + std::to_string(k) : "";
    console.print("predictions" + loader + ": " + count_of(samples, "sample") + " in " +
                  count_of(predictions[k].size(), "batch", "batches") + ", took " +
                  readable_duration(trainer.elapsed()));
    if (predictions[k].empty()) continue;
    const at::Tensor& batch = predictions[k][0];
    if (data != nullptr && print_texts(*data, predictions[k])) continue;
    std::ostringstream first;
    first << (batch.dim() == 0 ? batch : batch.narrow(0, 0, std::min<int64_t>(4, batch.size(0))));
    console.print("first batch " + shape_text(batch.sizes()) + ", its first rows:\n" + first.str());
  }
}

void write_result_file(Trainer& trainer, bool stopped) {
  const auto path = process_variables()("LEVIN_RESULT_FILE");
  if (!path || !trainer.is_global_zero()) return;
  const bool paused =
      stopped && stop_after(process_variables()).is_reached(trainer.current_epoch(), trainer.global_step());
  json result;
  result["status"] = paused ? "paused" : stopped ? "interrupted" : "success";
  add_metrics(trainer, result);
  add_checkpoints(trainer, stopped, result);
  write_output(*path, result.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace levin
