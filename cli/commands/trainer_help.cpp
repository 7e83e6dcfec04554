#include "levin/cli/commands/trainer_help.h"

#include <algorithm>
#include <cctype>

#include "levin/cli/commands/help_text.h"
#include "levin/core/error.h"

namespace levin {

namespace {

struct Group {
  const char* title;
  std::vector<std::string> names;  // the most used first
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"How long",
       {"max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "fast_dev_run", "overfit_batches"}},
      {"On what", {"accelerator", "devices", "precision", "strategy", "num_nodes"}},
      {"Logging, checkpoints, callbacks",
       {"callbacks", "logger", "log", "default_root_dir", "log_every_n_steps", "enable_checkpointing",
        "enable_progress_bar", "enable_model_summary", "profiler"}},
      {"Batches",
       {"accumulate_grad_batches", "micro_batch_size", "lr_scale", "limit_train_batches", "limit_val_batches",
        "limit_test_batches", "limit_predict_batches", "reload_dataloaders_every_n_epochs"}},
      {"Validation", {"val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps", "inference_mode"}},
      {"Gradients and losses", {"gradient_clip_val", "gradient_clip_algorithm", "nonfinite_loss", "detect_anomaly"}},
      {"Continuing", {"auto_resume", "auto_requeue", "stop_grace"}},
      {"Memory and speed",
       {"recompute", "num_threads", "deterministic", "benchmark", "float32_matmul_precision", "channels_last",
        "record_steps", "cuda_graph", "barebones"}},
      {"Several ranks", {"use_distributed_sampler", "sync_batchnorm", "max_restarts", "oversubscribe"}}};
  return all;
}

std::string lower(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

// As much of the meaning as fits into a line: whole parts between semicolons. Where the first part alone is longer, as
// those that list the values are, as many of its words as fit into two lines.
std::string short_meaning(const FieldInfo& option, size_t widest, size_t width) {
  const size_t gap = std::max(widest, option.name.size()) - option.name.size() + 2;
  const std::string name = "  " + option.name + std::string(gap, ' ');
  const size_t room = width > name.size() + 20 ? width - name.size() : 20;
  std::string text = option.doc;
  while (text.size() > room) {
    const size_t part = text.rfind("; ");
    if (part == std::string::npos) break;
    text.resize(part);
  }
  if (text.size() <= room) return name + text + "\n";
  const size_t end = std::min(text.rfind(' ', room), text.size());
  std::string rest = text.substr(std::min(end + 1, text.size()));
  if (rest.size() > room) {
    rest.resize(room - 1);
    rest.resize(std::min(rest.rfind(' '), rest.size()));
    rest += "…";
  }
  return name + text.substr(0, end) + "\n" + std::string(name.size(), ' ') + rest + "\n";
}

std::string overview(const std::vector<FieldInfo>& options, int width) {
  constexpr size_t widest = 24;  // the width of most names; longer ones take more
  std::vector<Group> all = groups();
  Group others{"Others", {}};
  for (const auto& option : options) {
    const bool is_listed = std::any_of(all.begin(), all.end(), [&](const Group& group) {
      return std::find(group.names.begin(), group.names.end(), option.name) != group.names.end();
    });
    if (!is_listed) others.names.push_back(option.name);
  }
  if (!others.names.empty()) all.push_back(others);
  std::string out =
      "Options of the trainer: trainer: {NAME: VALUE}, or --trainer.NAME=VALUE.\n"
      "levin help trainer.NAME explains one of them.\n";
  for (const auto& group : all) {
    out += std::string(group.title) + "\n";
    for (const auto& name : group.names) {
      for (const auto& option : options) {
        if (option.name == name) out += short_meaning(option, widest, static_cast<size_t>(std::max(width, 0)));
      }
    }
  }
  return out + "levin list strategies (precisions, profilers, …) describes these classes.\n";
}

}  // namespace

bool is_about_trainer(const std::string& topic) {
  const std::string name = lower(topic);
  return name == "trainer" || name.starts_with("trainer.");
}

std::string trainer_help(const std::string& topic, const std::vector<FieldInfo>& options, int width,
                         Problems& problems) {
  const size_t dot = topic.find('.');
  if (dot == std::string::npos) return overview(options, width);
  const std::string name = topic.substr(dot + 1);
  std::vector<std::string> known;
  for (const auto& option : options) {
    known.push_back(option.name);
    if (option.name != lower(name)) continue;
    return "trainer." + option.name + "\n" + wrapped(option.doc + ".", width, 2) +
           wrapped("type: " + option.type, width, 2) + wrapped("default: " + option.default_text, width, 2) +
           wrapped(
               "in a run file: trainer: {" + option.name + ": …}; on the command line: --trainer." + option.name + "=…",
               width, 2);
  }
  problems.add({}, "help",
               "the trainer has no option \"" + cut_text(name) + "\"." + did_you_mean(name, known) +
                   " levin help trainer lists all.");
  return "";
}

}  // namespace levin
