#include "levin/cli/commands/checkpoint_tool.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/cli/commands/checkpoint_diff.h"
#include "levin/cli/commands/help_text.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/core/tensor_text.h"

namespace levin {

namespace {

using Accept = CheckpointFile::Accept;
using Rows = std::vector<std::vector<std::string>>;

struct Word {
  const char* name;
  const char* files;
  const char* doc;
  size_t least_files;
  size_t most_files;
};

constexpr std::array kWords{
    Word{"inspect", "FILE", "what it is, where training would continue from it, every tensor", 1, 1},
    Word{"verify", "FILE…", "check all bytes of each file; exit status 1 if one is damaged", 1, SIZE_MAX},
    Word{"diff", "[--tensors] A B",
         "what differs between two files; with --tensors, their tensors alone: weights, and states of optimizers and "
         "callbacks. Exit status 0 if nothing differs, 1 if something does",
         2, 2},
    Word{"consolidate", "DIR OUT",
         "put a sharded checkpoint together in one file, for any strategy and number of ranks", 2, 2}};

// ---- text --------------------------------------------------------------------------------------------------------

// Columns as wide as necessary; numbers are right-aligned.
void print_rows(const Rows& rows, const std::string& numeric) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += " " + (numeric[i] == 'n' ? pad + row[i] : row[i] + pad) + (i + 1 < row.size() ? " " : "");
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
  const std::string head = name.substr(0, first);
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
    throw CheckpointError(folder + ": it is no folder, so no sharded checkpoint. A file needs no consolidation.");
  }
  if (std::filesystem::exists(std::filesystem::symlink_status(out, code))) {
    throw CheckpointError(out + ": it exists already. Give another name.");
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

}  // namespace

std::string checkpoint_usage(int width) {
  std::string out = "levin checkpoint inspect|verify|diff|consolidate FILE…\n\n";
  for (const Word& word : kWords) {
    out += std::string("  levin checkpoint ") + word.name + " " + word.files + "\n" + wrapped(word.doc, width, 6);
  }
  return out + "\n" +
         wrapped(
             "The files are Levin's checkpoints, or safetensors files of any program; those have no checksums and no "
             "values. Nothing in them is run.",
             width);
}

int run_checkpoint_tool(const std::vector<std::string>& words, int width) {
  std::vector<std::string> known;
  for (const Word& word : kWords) known.emplace_back(word.name);
  std::vector<std::string> files;
  Compared compared = Compared::everything;
  for (const auto& word : words) {
    if (word == "-h" || word == "--help") {
      Console::instance().print(checkpoint_usage(width));
      return kExitOk;
    }
    if (word == "--tensors") {
      compared = Compared::tensors;
      continue;
    }
    if (word.starts_with("-") && word.size() > 1) {
      return wrong_use("checkpoint: unknown option \"" + cut_text(word) + "\". It takes --help, --tensors and files.");
    }
    files.push_back(word);
  }
  if (files.empty()) return wrong_use("checkpoint: what to do is missing. Known: " + join(known) + ".");
  const std::string name = files[0];
  files.erase(files.begin());
  const auto* const word =
      std::find_if(kWords.begin(), kWords.end(), [&](const Word& each) { return each.name == name; });
  if (word == kWords.end()) {
    return wrong_use("checkpoint: unknown subcommand \"" + cut_text(name) + "\"." + did_you_mean(name, known) +
                     " Known: " + join(known) + ".");
  }
  if (files.size() < word->least_files || files.size() > word->most_files) {
    return wrong_use(std::string("checkpoint ") + word->name + ": got " + count_of(files.size(), "file") +
                     ". Write levin checkpoint " + word->name + " " + word->files + ".");
  }
  if (compared == Compared::tensors && name != "diff") {
    return wrong_use("checkpoint " + name + " takes no --tensors; checkpoint diff does.");
  }
  if (name == "verify") return verify_all(files);
  try {
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
