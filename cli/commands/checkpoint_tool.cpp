#include "levin/cli/commands/checkpoint_tool.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/commands/upgrade_checkpoint.h"
#include "levin/cli/config/arguments.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/storage/open_store.h"
#include "levin/core/tensors.h"

namespace levin {

namespace {

std::string shown(const std::string& name) {
  return cut_text(name, 160);
}

// ---- values ------------------------------------------------------------------------------------------------------

void compare(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines);

void compare_maps(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines) {
  for (const auto& entry : a.entries) {
    const std::string here = join_path(path, entry.key);
    const ConfigNode* other = b.find(entry.key);
    if (other != nullptr) compare(entry.value, *other, here, lines);
    if (other == nullptr) lines.push_back("value " + shown(here) + ": only in the first, " + entry.value.shown());
  }
  for (const auto& entry : b.entries) {
    if (a.find(entry.key) != nullptr) continue;
    lines.push_back("value " + shown(join_path(path, entry.key)) + ": only in the second, " + entry.value.shown());
  }
}

void compare(const ConfigNode& a, const ConfigNode& b, const std::string& path, std::vector<std::string>& lines) {
  if (a.same_as(b)) return;
  if (a.is_map() && b.is_map()) return compare_maps(a, b, path, lines);
  if (a.is_list() && b.is_list() && a.items.size() == b.items.size()) {
    for (size_t i = 0; i < a.items.size(); ++i) {
      compare(a.items[i], b.items[i], path + "[" + std::to_string(i) + "]", lines);
    }
    return;
  }
  const auto text = [](const ConfigNode& node) {
    return node.is_list() ? "a list of " + std::to_string(node.items.size()) : node.shown();
  };
  lines.push_back("value " + shown(path) + ": " + text(a) + " and " + text(b));
}

// The run's folder of a folder of checkpoints: usually that is its folder "checkpoints".
std::string run_folder_of(const std::string& checkpoints) {
  std::filesystem::path folder = checkpoints;
  if (!is_remote(checkpoints)) folder = folder.lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return (folder.filename() == "checkpoints" ? folder.parent_path() : folder).string();
}

// Where the file is, and where its callbacks wrote it, if it was moved since.
std::vector<std::string> run_folders(const CheckpointFile& file) {
  std::error_code code;
  const auto path = std::filesystem::absolute(file.file().path(), code);
  std::vector<std::string> folders = {run_folder_of(path.parent_path().string())};
  const ConfigNode* callbacks = file.values().find("callbacks");
  if (callbacks == nullptr || !callbacks->is_map()) return folders;
  for (const auto& callback : callbacks->entries) {
    const ConfigNode* dirpath = callback.value.find("dirpath");
    if (dirpath != nullptr && dirpath->is_scalar() && (dirpath->text.starts_with('/') || is_remote(dirpath->text))) {
      folders.push_back(run_folder_of(dirpath->text));
    }
  }
  return folders;
}

std::string from_run_folder(const std::string& text, const std::vector<std::string>& folders) {
  for (const auto& folder : folders) {
    const bool is_below = text.starts_with(folder) && (text.size() == folder.size() || text[folder.size()] == '/');
    if (is_below && folder.size() > 1) return "RUN" + text.substr(folder.size());
  }
  return text;
}

// Paths below the run's folder, among values and keys, as paths from there.
void shorten_paths(ConfigNode& node, const std::vector<std::string>& folders) {
  node.text = from_run_folder(node.text, folders);
  for (auto& item : node.items) shorten_paths(item, folders);
  for (auto& entry : node.entries) {
    entry.key = from_run_folder(entry.key, folders);
    shorten_paths(entry.value, folders);
  }
}

// Values of a checkpoint; another program's metadata.
ConfigNode values_of(const CheckpointFile& file) {
  if (file.is_checkpoint()) {
    ConfigNode values = file.values();
    shorten_paths(values, run_folders(file));
    return values;
  }
  ConfigNode values = ConfigNode::map();
  for (const auto& [key, value] : file.file().metadata())
    values.set("metadata." + key, ConfigNode::scalar(value, true));
  return values;
}

// ---- tensors -----------------------------------------------------------------------------------------------------

std::string kind_text(const SafetensorsEntry& entry) {
  return std::string(safetensors_dtype(entry.dtype)) + " " + shape_text(entry.shape);
}

// The number of differing elements, and the largest difference. Both tensors have the same shape.
std::string largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto wide = a.is_complex() || b.is_complex() ? at::kComplexDouble : at::kDouble;
  // int64 has no wider type: its differences may wrap.
  const bool whole = a.scalar_type() == at::kLong && b.scalar_type() == at::kLong;
  const at::Tensor x = whole ? a : a.to(wide), y = whole ? b : b.to(wide);
  const at::Tensor both_nan = x.isnan().logical_and(y.isnan());
  const auto numbers = x.ne(y).logical_and(both_nan.logical_not()).sum().item<int64_t>();
  if (numbers == 0 && a.scalar_type() != b.scalar_type()) return "the same numbers";
  if (numbers == 0) return "the numbers are equal, their bits differ (-0.0, NaN)";
  const auto one_sided = x.isnan().logical_xor(y.isnan()).sum().item<int64_t>();
  // NaN where a side has it, or where both are the same infinity: neither is a distance.
  const at::Tensor difference = x.sub(y).abs().to(at::kDouble).nan_to_num(0.0, std::numeric_limits<double>::infinity());
  const auto largest = difference.max().item<double>();
  return "largest difference " + number_text(largest) + ", " + std::to_string(numbers) + " of " +
         std::to_string(a.numel()) + " differ" +
         (one_sided == 0 ? "" : ", NaN on one side in " + std::to_string(one_sided));
}

std::map<std::string, const SafetensorsEntry*> by_name(const CheckpointFile& file) {
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const auto& entry : file.file().entries()) entries[entry.name] = &entry;
  return entries;
}

void compare_tensors(const CheckpointFile& a, const CheckpointFile& b, std::vector<std::string>& lines) {
  const auto first = by_name(a), second = by_name(b);
  for (const auto& [name, entry] : first) {
    const std::string tensor = "tensor " + shown(name) + ": ";
    const auto found = second.find(name);
    if (found == second.end()) {
      lines.push_back(tensor + "only in the first, " + kind_text(*entry));
      continue;
    }
    const at::Tensor x = a.read(*entry), y = b.read(*found->second);
    const bool same_kind = kind_text(*entry) == kind_text(*found->second);
    if (same_kind && bitwise_equal(x, y)) continue;
    std::string what = same_kind ? kind_text(*entry) : kind_text(*entry) + " and " + kind_text(*found->second);
    if (entry->shape == found->second->shape && x.numel() > 0) what += ", " + largest_difference(x, y);
    lines.push_back(tensor + what);
  }
  for (const auto& [name, entry] : second) {
    if (!first.contains(name)) lines.push_back("tensor " + shown(name) + ": only in the second, " + kind_text(*entry));
  }
}

enum class Compared { everything, tensors };

// One line for each difference; none if the tensors are bitwise identical and the values equal. Paths are compared from
// the folder of each file's run, so that runs in two folders can be equal. Reads one pair of tensors at a time. Throws
// CheckpointError if a file is damaged.
std::vector<std::string> checkpoint_differences(const CheckpointFile& a, const CheckpointFile& b, Compared compared) {
  std::vector<std::string> lines;
  if (compared == Compared::everything) compare(values_of(a), values_of(b), "", lines);
  compare_tensors(a, b, lines);
  return lines;
}

using Accept = CheckpointFile::Accept;
using Rows = std::vector<std::vector<std::string>>;

struct Action {
  const char* name;
  const char* files;
  const char* doc;
  size_t least_files;
  size_t most_files;
};

constexpr std::array kActions{
    Action{"inspect", "FILE", "what it is, where training would continue from it, every tensor", 1, 1},
    Action{"verify", "FILE…", "check all bytes of each file; exit status 1 if one is damaged", 1, SIZE_MAX},
    Action{"diff", "[--tensors] A B",
           "what differs between two files; with --tensors, their tensors alone: weights, and states of optimizers and "
           "callbacks. Exit status 0 if nothing differs, 1 if something does",
           2, 2},
    Action{"consolidate", "DIR OUT",
           "put a sharded checkpoint together in one file, for any strategy and number of ranks", 2, 2},
    Action{
        "upgrade", "FILE|FOLDER [--output OUT | --in-place]",
        "give checkpoints of earlier versions the present names; a folder's are upgraded with those below it. Without "
        "an option the new file is NAME-upgraded.ckpt, and the old one stays",
        1, 1}};

// ---- text --------------------------------------------------------------------------------------------------------

// Columns as wide as necessary; numbers are right-aligned.
void print_rows(const Rows& rows, const std::string& numeric) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += "  " + (numeric[i] == 'n' ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    Console::instance().print(line);
  }
}

// The message without the leading path.
std::string without_path(const std::string& message, const std::string& path) {
  std::string text = message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  while (text.ends_with('.')) text.pop_back();
  return text;
}

// " Did you mean …?" for a missing file, if its folder has one with a similar name.
std::string near_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (fs::exists(fs::symlink_status(path, code))) return "";
  const fs::path folder = fs::path(path).parent_path();
  std::vector<std::string> names;
  fs::directory_iterator entry(folder.empty() ? "." : folder, code);
  for (; !code && entry != fs::directory_iterator() && names.size() < 10000; entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  const std::string near = nearest_name(fs::path(path).filename().string(), names);
  return near.empty() ? "" : " Did you mean \"" + (folder / near).string() + "\"?";
}

// ---- inspect -----------------------------------------------------------------------------------------------------

// "model", "optimizers.0", "callbacks.EMA": the part of the run that a tensor belongs to.
std::string section_of(const std::string& name) {
  const size_t first = name.find('.');
  std::string head = name.substr(0, first);
  if (first == std::string::npos || (head != "optimizers" && head != "lr_schedulers" && head != "callbacks"))
    return head;
  return name.substr(0, name.find('.', first + 1));
}

void print_sections(const SafetensorsFile& file) {
  struct Section {
    std::string name;
    size_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Section> sections;
  for (const auto& entry : file.entries()) {
    Section& section = sections[section_of(entry.name)];
    ++section.tensors;
    section.bytes += entry.bytes();
  }
  Rows rows{{"section", "tensors", "bytes", ""}};
  for (const auto& [name, section] : sections) {
    rows.push_back({cut_text(name), std::to_string(section.tensors), std::to_string(section.bytes),
                    section.bytes < 1024 ? "" : bytes_text(section.bytes)});
  }
  rows.push_back({"values and header", "", std::to_string(file.header_bytes()), ""});
  Console::instance().print("");
  print_rows(rows, "tnnt");
}

void print_tensors(const SafetensorsFile& file) {
  Rows rows{{"tensor", "dtype", "shape", "bytes"}};
  for (const auto& entry : file.entries()) {
    rows.push_back({cut_text(entry.name, 160), safetensors_dtype(entry.dtype), shape_text(entry.shape),
                    std::to_string(entry.bytes())});
  }
  std::sort(rows.begin() + 1, rows.end());
  Console::instance().print("");
  print_rows(rows, "tttn");
}

void print_value(const std::string& name, const std::string& text) {
  Console::instance().print(name + ":" + std::string(name.size() < 16 ? 16 - name.size() : 1, ' ') + text);
}

void print_tree(const std::string& name, const ConfigNode* node) {
  if (node == nullptr || node->is_null() || (node->is_map() && node->entries.empty())) return;
  std::string text = to_yaml(*node, 2);
  while (text.ends_with('\n')) text.pop_back();
  Console::instance().print(name + ":\n" + text);
}

void print_values(const ConfigNode& values) {
  for (const char* name : {"levin_version", "epoch", "global_step"}) {
    const ConfigNode* value = values.find(name);
    print_value(name, value == nullptr ? "missing" : cut_text(value->text));
  }
  const ConfigNode* model = values.find("model_class");
  const ConfigNode* name = model == nullptr ? nullptr : model->find("class_path");
  const ConfigNode* precision = values.find("model_precision");
  if (name != nullptr && precision != nullptr)
    print_value("model", cut_text(name->text) + ", " + cut_text(precision->text));
  const ConfigNode* progress = values.find("progress");
  const ConfigNode* epoch = progress == nullptr ? nullptr : progress->find("epochs");
  const ConfigNode* batch = progress == nullptr ? nullptr : progress->find("next_batch");
  if (epoch != nullptr && batch != nullptr) {
    print_value("continues", "epoch " + cut_text(epoch->text) + ", batch " + cut_text(batch->text));
  } else {
    print_value("continues", "nowhere: it holds weights only");
  }
  print_tree("hyper_parameters", values.find("hyper_parameters"));
  std::string others;
  for (const auto& entry : values.entries) others += (others.empty() ? "" : ", ") + cut_text(entry.key);
  print_value("values", others);
}

int inspect(const std::string& given) {
  const std::string path = is_sharded_checkpoint(given) ? sharded_record(given) : given;
  const CheckpointFile checkpoint(path, Accept::any_safetensors);
  const SafetensorsFile& file = checkpoint.file();
  Console::instance().print(path + ": " +
                            (checkpoint.is_checkpoint() ? "a Levin checkpoint" : "a safetensors file, not Levin's") +
                            ", " + bytes_text(file.size()) + ", " + count_of(file.entries().size(), "tensor"));
  if (checkpoint.is_checkpoint()) print_values(checkpoint.values());
  if (!checkpoint.is_checkpoint()) {
    for (const auto& [key, value] : file.metadata()) print_value("metadata " + cut_text(key), cut_text(value, 500));
  }
  print_sections(file);
  print_tensors(file);
  return kExitOk;
}

// ---- verify ------------------------------------------------------------------------------------------------------

// All errors in the tensors' data.
std::vector<std::string> damage_of(const CheckpointFile& checkpoint) {
  const auto& entries = checkpoint.file().entries();
  std::vector<std::string> found(entries.size());
  read_in_parallel(entries.size(), checkpoint.file().size(), [&](size_t i) {
    try {
      checkpoint.verify(entries[i]);
    } catch (const CheckpointError& error) {
      found[i] = without_path(error.what(), checkpoint.file().path());
    }
  });
  std::erase(found, "");
  return found;
}

bool verify(const std::string& path) {
  Console& console = Console::instance();
  try {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      const State whole = read_sharded_checkpoint(path);
      console.print(path + ": good, a sharded checkpoint of " + count_of(whole.tensors.size(), "tensor"));
      return true;
    }
    const CheckpointFile checkpoint(path, Accept::any_safetensors);
    const std::vector<std::string> damage = damage_of(checkpoint);
    std::string said = damage.empty() ? "good" : "damaged";
    for (const auto& each : damage) said += (each == damage[0] ? ": " : "; ") + each;
    if (damage.empty()) {
      said +=
          ", " + count_of(checkpoint.file().entries().size(), "tensor") + ", " + bytes_text(checkpoint.file().size());
      if (!checkpoint.is_checkpoint())
        said += " (not Levin's: it has no checksums, so only its header could be checked)";
    }
    console.print(path + ": " + said);
    return damage.empty();
  } catch (const CheckpointError& error) {
    console.print(path + ": bad: " + without_path(error.what(), path) + "." + near_file(path));
    return false;
  } catch (const std::exception& error) {  // an error in one file must not prevent the check of the others
    console.print(path + ": bad: cannot be checked: " + error.what());
    return false;
  }
}

int verify_all(const std::vector<std::string>& paths) {
  size_t bad = 0;
  for (const auto& path : paths) bad += verify(path) ? 0 : 1;
  return bad == 0 ? kExitOk : kExitRunFailed;
}

// ---- consolidate -------------------------------------------------------------------------------------------------

int consolidate(const std::string& folder, const std::string& out) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) {
    throw CheckpointError(folder +
                          ": not a folder. Only a sharded checkpoint, which is a folder, can be consolidated.");
  }
  if (std::filesystem::exists(std::filesystem::symlink_status(out, code))) {
    throw CheckpointError(out + ": the file exists. Give a different name.");
  }
  const State whole = read_sharded_checkpoint(folder);
  write_checkpoint(out, whole);
  Console::instance().print(out + ": " + count_of(whole.tensors.size(), "tensor") + " of " + folder);
  return kExitOk;
}

// ---- diff --------------------------------------------------------------------------------------------------------

int diff(const std::string& a, const std::string& b, Compared compared) {
  const CheckpointFile first(a, Accept::any_safetensors);
  const CheckpointFile second(b, Accept::any_safetensors);
  const std::vector<std::string> lines = checkpoint_differences(first, second, compared);
  for (const auto& line : lines) Console::instance().print(line);
  if (lines.empty()) Console::instance().print("equal: " + count_of(first.file().entries().size(), "tensor"));
  return lines.empty() ? kExitOk : kExitRunFailed;
}

int wrong_use(const std::string& what) {
  Console::instance().error(what + " See levin checkpoint --help.");
  return kExitBadConfig;
}

std::string checkpoint_usage(int width) {
  std::string out = "levin checkpoint inspect|verify|diff|consolidate|upgrade FILE…\n\n";
  for (const Action& action : kActions) {
    out += described(std::string("levin checkpoint ") + action.name + " " + action.files, action.doc, width);
  }
  return out + "\n" +
         wrapped(
             "The files are Levin's checkpoints, or safetensors files of any program; those have no checksums and no "
             "values. Nothing in them is run.",
             width);
}

}  // namespace

OwnArguments own_checkpoint_arguments() {
  OwnArguments own{
      {{"tensors", OwnOption::Kind::flag}, {"output", OwnOption::Kind::value}, {"in-place", OwnOption::Kind::flag}}};
  for (const Action& action : kActions) own.actions.emplace_back(action.name);
  return own;
}

int run_checkpoint_tool(const std::vector<std::string>& arguments, int width) {
  Problems problems;
  const std::vector<OwnOption> own = own_checkpoint_arguments().options;
  const SplitArguments read = split_arguments(arguments, own, problems);
  if (read.help) return print_usage(checkpoint_usage(width));
  refuse_rest(read.rest, own, SIZE_MAX, "", problems);
  if (!problems.empty()) return report_problems(problems, "nothing was done. See levin checkpoint --help.");
  const Compared compared = read.options.find("tensors") != nullptr ? Compared::tensors : Compared::everything;
  std::vector<std::string> files = read.rest;
  std::vector<std::string> known;
  for (const Action& action : kActions) known.emplace_back(action.name);
  if (files.empty()) return wrong_use("checkpoint: what to do is missing. Known: " + join(known) + ".");
  const std::string name = files[0];
  files.erase(files.begin());
  const auto* const action =
      std::find_if(kActions.begin(), kActions.end(), [&](const Action& each) { return each.name == name; });
  if (action == kActions.end()) {
    return wrong_use("checkpoint: unknown subcommand \"" + cut_text(name) + "\"." + did_you_mean(name, known) +
                     " Known: " + join(known) + ".");
  }
  if (files.size() < action->least_files || files.size() > action->most_files) {
    return wrong_use(std::string("checkpoint ") + action->name + ": got " + count_of(files.size(), "file") +
                     ". Write levin checkpoint " + action->name + " " + action->files + ".");
  }
  if (compared == Compared::tensors && name != "diff") {
    return wrong_use("checkpoint " + name + " takes no --tensors; checkpoint diff does.");
  }
  UpgradeTarget target;
  if (const ConfigNode* output = read.options.find("output"); output != nullptr) target.output = output->text;
  const ConfigNode* in_place = read.options.find("in-place");
  target.in_place = in_place != nullptr && in_place->text == "true";
  if (name != "upgrade" && (!target.output.empty() || target.in_place)) {
    return wrong_use("checkpoint " + name + " takes neither --output nor --in-place; checkpoint upgrade does.");
  }
  if (!target.output.empty() && target.in_place) {
    return wrong_use("checkpoint upgrade takes --output or --in-place, and got both.");
  }
  if (name == "verify") return verify_all(files);
  try {
    if (name == "upgrade") return upgrade_checkpoints(files[0], target) ? kExitOk : kExitRunFailed;
    if (name == "consolidate") return consolidate(files[0], files[1]);
    return name == "inspect" ? inspect(files[0]) : diff(files[0], files[1], compared);
  } catch (const CheckpointError& error) {
    const auto missing =
        std::find_if(files.begin(), files.end(), [](const auto& file) { return !near_file(file).empty(); });
    Console::instance().error(error.what() + (missing == files.end() ? "" : near_file(*missing)));
    return name == "diff" ? kExitBadConfig : kExitRunFailed;
  }
}

}  // namespace levin
