#include "levin/cli/commands/help_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "levin/cli/config/run_config.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/options/error.h"
#include "levin/core/process/parts.h"

namespace levin {

namespace {

std::vector<std::string> lines_of(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (text_width(text) > width) {
    const size_t most = bytes_of_columns(text, width);
    size_t end = text[most] == ' ' ? most : text.rfind(' ', most);
    if (end == std::string_view::npos || end == 0) end = text.rfind('|', most - 1);  // names of an enum
    const bool broken = end == std::string_view::npos || end == 0;
    if (broken) end = most;
    const bool keeps_bar = !broken && text[end] == '|';
    lines.emplace_back(text.substr(0, end + (keeps_bar ? 1 : 0)));
    text.remove_prefix(end + (broken ? 0 : 1));
  }
  if (!text.empty() || lines.empty()) lines.emplace_back(text);
  return lines;
}

// The last column takes the rest of `width`.
std::vector<size_t> column_widths(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& widest,
                                  size_t width) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], text_width(row[i]));
  }
  size_t used = 2;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    widths[i] = std::min(widths[i], widest[i]);
    used += widths[i] + 2;
  }
  widths.back() = width > used + 20 ? width - used : 20;
  return widths;
}

// A row of cells, each cell wrapped within its column.
std::string row_text(const std::vector<std::string>& row, const std::vector<size_t>& widths) {
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    cells.push_back(lines_of(row[i], widths[i]));
    height = std::max(height, cells.back().size());
  }
  std::string out;
  for (size_t line = 0; line < height; ++line) {
    std::string text = "  ";
    for (size_t i = 0; i < cells.size(); ++i)
      text += padded_to(line < cells[i].size() ? cells[i][line] : "", widths[i]) + "  ";
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& widest, size_t width) {
  if (rows.empty()) return "";
  const std::vector<size_t> widths = column_widths(rows, widest, width);
  std::string out;
  for (const auto& row : rows) out += row_text(row, widths);
  return out;
}

// Where a class comes from, in the order of the sections: the user's program and plugins come first.
enum class Origin { own, levin, example, article };
constexpr std::array kOrigins{std::pair{Origin::own, "yours"}, std::pair{Origin::levin, "Levin's"},
                              std::pair{Origin::example, "examples (examples/models)"},
                              std::pair{Origin::article, "of articles that Levin reproduces (docs/articles)"}};

Origin origin_of(const ClassEntry& entry) {
  const std::string_view file = entry.file;
  if (file.find("examples/models/articles/") != std::string_view::npos) return Origin::article;
  if (file.find("examples/models/") != std::string_view::npos) return Origin::example;
  return file.find("/builtins/") != std::string_view::npos ? Origin::levin : Origin::own;
}

// One table, so that its columns are aligned, in sections where there are several origins.
std::string classes_table(const ClassKind& kind, int width) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::pair<std::string, size_t>> sections;  // title, rows
  for (const auto& [origin, title] : kOrigins) {
    const size_t before = rows.size();
    for (const auto& entry : kind.classes) {
      if (origin_of(entry) == origin) rows.push_back({entry.name, entry.doc});
    }
    if (rows.size() > before) sections.emplace_back(title, rows.size() - before);
  }
  if (rows.empty()) return "  none\n";
  const auto all = static_cast<size_t>(width);
  const std::vector<size_t> widths = column_widths(rows, {all / 2}, all);
  std::string out;
  size_t begin = 0;
  for (const auto& [title, count] : sections) {
    if (sections.size() > 1) out += " " + title + "\n";
    for (size_t row = begin; row < begin + count; ++row) out += row_text(rows[row], widths);
    begin += count;
  }
  return out;
}

std::vector<FieldInfo> top_level_fields() {
  std::vector<FieldInfo> fields = describe_options<RunConfig>();
  for (auto& field : fields) {
    if (field.name != "trainer") continue;  // RunConfig keeps it as a tree
    field.type = "map";
    field.default_text = "{}";
  }
  return fields;
}

constexpr std::array kCommandDocs{
    std::pair{"new FOLDER", "write a project with a model, its data and a run file"},
    std::pair{"fit", "train the model"},
    std::pair{"validate", "evaluate on the validation set"},
    std::pair{"test", "evaluate on the test set"},
    std::pair{"predict", "predict; --output FILE writes the predictions"},
    std::pair{"check FILE…", "find the mistakes of a run file without training"},
    std::pair{"checkpoint ACTION FILE…", "inspect, verify, diff, consolidate or upgrade checkpoints"},
    std::pair{"submit --config FILE…", "hand a run to Slurm; --dry-run prints the job's script"},
    std::pair{"plan cluster …", "predict step times on many devices from a step measured here"},
    std::pair{"plan memory …", "predict the memory of a step, and what to recompute to reduce it"},
    std::pair{"sweep FILE", "train with many values of options, and find the best"},
    std::pair{"tune --config FILE…", "find a batch size that fits, and a learning rate"},
    std::pair{"top [RUN]", "a live run in the terminal: progress, curves, ranks"},
    std::pair{"export --config FILE…", "write the model for onnxruntime, or for Hugging Face's libraries"},
    std::pair{"convert FILE", "turn a config file of LightningCLI into a run file"},
    std::pair{"pack FOLDER STORE", "pack a folder of images into shards of smaller images"},
    std::pair{"runs [FOLDER]", "a table of all runs below a folder, sorted and filtered"},
    std::pair{"report RUN…", "one HTML page about runs: health, curves, differences"},
    std::pair{"list [KIND]", "the classes that a run file can name; with --plugins also the classes of your libraries"},
    std::pair{"schema", "a JSON schema of run files, for editors"},
    std::pair{"completion SHELL", "a script that completes commands and options in bash, zsh or fish"},
    std::pair{"help [NAME]", "every option of a class, of the trainer, or of a command: levin help fit"},
};

// The options of the commands that run a model, with a line for --output where the command has it.
std::string run_options_table(bool has_output, int width) {
  std::vector<std::vector<std::string>> rows = {
      {"-c, --config FILE", "a run file; several are merged from left to right"},
      {"--trainer.NAME=VALUE", "override of one option; also --trainer.NAME VALUE"},
      {"--ckpt_path FILE", "the checkpoint: a file, the folder of a run, best or last"},
      {"--init-method tcp://HOST:PORT", "with --rank R --world-size N: be one of N processes that connect there"},
      {"--print_config", "print the configuration as it would run, and stop"},
      {"--log_level LEVELS", "what run.log says: debug, or data=debug,info; --log_format json"},
      {"-h, --help", "help; after a subcommand with all its options"},
      {"--version", "version of Levin and of LibTorch"}};
  if (has_output) {
    rows.insert(rows.begin() + 3, std::vector<std::string>{
                                      "--output FILE",
                                      "write the predictions to FILE: .csv (a row per sample), .jsonl (an object per "
                                      "sample), .safetensors or .npy; levin help PredictionWriter has more options"});
  }
  const auto all = static_cast<size_t>(std::max(width, 0));
  return table(rows, {all / 2}, all);
}

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
      {"Continuing", {"auto_resume", "auto_requeue", "stop_grace", "upload_every"}},
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
// a list of values is, as many of its words as fit into two lines.
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

const ClassKind* kind_at(const std::vector<ClassKind>& kinds, const std::string& where) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const ClassKind& kind) { return kind.where == where; });
  return found == kinds.end() ? nullptr : &*found;
}

std::string default_text(const FieldInfo& field) {
  constexpr std::string_view key = "class_path: ";
  const std::string text = one_line_text(field.default_text);
  return text.starts_with(key) && text.find(':', key.size()) == std::string::npos ? text.substr(key.size()) : text;
}

std::string wrapped(const std::string& text, int width, int indent) {
  const auto pad = static_cast<size_t>(std::max(indent, 0));
  const auto all = static_cast<size_t>(std::max(width, 1));
  std::string out;
  for (const auto& line : lines_of(text, all > pad + 20 ? all - pad : 20)) out += std::string(pad, ' ') + line + "\n";
  return out;
}

std::string described(const std::string& name, const std::string& doc, int width) {
  return "  " + name + "\n" + wrapped(doc, width, 6);
}

std::string options_table(const std::vector<FieldInfo>& fields, int width) {
  constexpr size_t kLeastMeaning = 32;  // columns; fewer would make a tall, thin one
  if (fields.empty()) return "  no options\n";
  std::vector<std::vector<std::string>> rows{{"option", "type", "default", "meaning"}};
  for (const auto& field : fields) rows.push_back({field.name, field.type, default_text(field), field.doc});
  const auto all = static_cast<size_t>(std::max(width, 0));
  const std::vector<size_t> widest{all, all / 5, all / 6};
  if (column_widths(rows, widest, all).back() >= kLeastMeaning) return table(rows, widest, all);
  std::string stacked;
  for (auto row = rows.begin() + 1; row != rows.end(); ++row) {
    stacked += wrapped(row->at(0) + " (" + row->at(1) + ", default " + row->at(2) + ")", width, 2) +
               wrapped(row->at(3), width, 6);
  }
  return stacked;
}

std::string own_options_table(std::vector<FieldInfo> fields, int width) {
  for (FieldInfo& field : fields) field.name = "--" + field.name;
  return options_table(fields, width);
}

std::string usage_text(int width) {
  std::vector<std::vector<std::string>> commands;
  for (const auto& [word, doc] : kCommandDocs) commands.push_back({word, doc});
  const auto all = static_cast<size_t>(std::max(width, 0));
  return "levin fit|validate|test|predict --config FILE… [--ckpt_path FILE] [overrides…]\n\n" +
         table(commands, {all / 2}, all) + "\nOptions\n" + run_options_table(/*has_output=*/false, width);
}

std::string command_help(Command command, const std::string& trainer, int width) {
  const bool has_output = command == Command::predict;
  std::string out = "levin " + command_word(command) + " --config FILE… [--ckpt_path FILE] " +
                    (has_output ? "[--output FILE]" : "[--print_config]") + " [overrides…]\n\n";
  out += wrapped(
      "Files and overrides are merged from left to right. An override is --PATH=VALUE or "
      "--PATH VALUE: --trainer.max_epochs=5, --model=Classifier --model.hidden=256, "
      "--trainer.callbacks.0.init_args.patience=3, --trainer.callbacks+=LearningRateMonitor.",
      width);
  out += "\nOptions\n" + run_options_table(has_output, width);
  out += "\nKeys of a run file\n" + options_table(top_level_fields(), width);
  return out + "\n" + trainer + "\n" +
         wrapped("levin list names the classes that a run file can use, levin help NAME describes the options of one.",
                 width);
}

std::string list_text(const std::string& kind, const std::vector<ClassKind>& kinds, int width, Problems& problems) {
  std::string out;
  std::vector<std::string> known;
  for (const auto& each : kinds) {
    known.push_back(each.name);
    if (!kind.empty() && each.name != kind && each.name != kind + "s") continue;
    out += (out.empty() ? "" : "\n") + each.name + " (" + each.where + ")\n" + classes_table(each, width);
  }
  if (out.empty()) problems.add({}, "list", "unknown kind \"" + cut_text(kind) + "\"." + known_names(kind, known));
  return out;
}

std::string class_help(const std::string& name, const std::vector<ClassKind>& kinds, int width, Problems& problems) {
  const std::string short_name = ClassSpec(name, {}).short_name();
  std::vector<std::string> known;
  std::string out;
  for (const auto& kind : kinds) {
    for (const auto& entry : kind.classes) {
      known.push_back(entry.name);
      if (entry.name != short_name) continue;
      out += (out.empty() ? "" : "\n") + entry.name + ": " + entry.doc + "\n";
      out += "In a run file at " + kind.where + ": {class_path: " + entry.name + ", init_args: {…}}\n\n";
      out += options_table(entry.describe != nullptr ? entry.describe() : std::vector<FieldInfo>{}, width);
    }
  }
  if (!out.empty()) return out;
  std::string why;
  for (const PartClass& each : part_classes()) {
    if (each.name == short_name) why = open_part_with(each.kind, each.name);
  }
  if (why.empty()) {
    why = "unknown class \"" + cut_text(name) + "\"." + known_names(short_name, known) +
          " For a class of a library, add --plugins FILE or --config FILE.";
  }
  problems.add({}, "help", why);
  return "";
}

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
