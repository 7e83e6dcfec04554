#include "levin/trainer/measured_metrics.h"

#include <cctype>
#include <vector>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/run/run_access.h"

namespace levin {

namespace {

std::vector<std::string> monitored_names(const Trainer& trainer) {
  std::vector<std::string> names;
  for (const auto& [name, value] : trainer.callback_metrics()) names.push_back(name);
  return names;
}

// Names such as val_loss, valid.loss, acc/val and Eval-F1; value_loss belongs to training.
bool names_a_validation(const std::string& metric) {
  if (metric.starts_with("val") && !metric.starts_with("valu")) return true;
  std::string word;
  for (const char c : metric + ".") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "val" || word == "valid" || word == "validation" || word == "eval" || word == "dev") return true;
    word.clear();
  }
  return false;
}

std::string batch_only_text(const std::string& who, const std::string& metric) {
  return who + ": metric \"" + metric +
         "\" is logged per batch only (on_step), so a validation as a whole has no value to compare. Log it with "
         ".on_epoch = true.";
}

}  // namespace

std::optional<int64_t> measured_at(const Trainer& trainer, const std::string& metric) {
  Run& run = RunAccess::of(trainer);
  run.refresh_callback_metrics();
  const auto found = run.entry.measured_at.find(metric);
  if (found == run.entry.measured_at.end()) return std::nullopt;
  return found->second;
}

bool may_still_be_measured(const Trainer& trainer) {
  const Run& run = RunAccess::of(trainer);
  return run.progress.processed == 0 || (trainer.has_validation() && run.entry.validations == 0);
}

bool validation_follows(const Trainer& trainer) {
  return RunAccess::of(trainer).fit.epoch.validation_follows;
}

std::string missing_metric_text(const Trainer& trainer, const std::string& who, const std::string& metric) {
  if (RunAccess::of(trainer).entry.batch_only.contains(metric)) return batch_only_text(who, metric);
  const std::vector<std::string> names = monitored_names(trainer);
  return who + ": metric \"" + metric + "\" was never logged by epoch " + std::to_string(trainer.current_epoch()) +
         ". Logged: " + join(names) + "." + did_you_mean(metric, names);
}

std::string missed_by_sanity_check(const Trainer& trainer, const std::string& who, const std::string& metric) {
  const std::vector<std::string> names = monitored_names(trainer);
  for (const std::string& name : names) {
    if (name == metric) return "";
  }
  if (RunAccess::of(trainer).entry.batch_only.contains(metric)) return batch_only_text(who, metric);
  if (names.empty() || metric.empty()) return "";
  const std::string hint = did_you_mean(metric, names);
  const std::string text = who + ": metric \"" + metric +
                           "\" was not logged by the validation of the sanity check. Logged: " + join(names) + "." +
                           hint;
  if (names_a_validation(metric)) {
    return text + " If only later validations log it, set TrainerOptions.num_sanity_val_steps to 0.";
  }
  if (!hint.empty()) Console::instance().warn(text + " Training continues, as it may log the metric itself.");
  return "";
}

}  // namespace levin
