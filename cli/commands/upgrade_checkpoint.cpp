#include "levin/cli/commands/upgrade_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"
#include "levin/core/version.h"
#include "levin/optim/lr_scheduler.h"
#include "levin/optim/optimizer.h"
#include "levin/trainer/callback.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

// "0.2.0" -> {0, 2, 0}. What is not a number ends the list.
std::vector<int> numbers_of_version(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int number = 0; at < end; ++at) {
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    at = after;
    if (at == end || *at != '.') break;
  }
  return numbers;
}

std::string text_of(const ConfigNode* node) {
  return node != nullptr && node->is_scalar() ? node->text : "";
}

// ---- names ----------------------------------------------------------------------------------------------------------

template <class Interface>
std::string present_class(const std::string& name) {
  const std::string present = Registry<Interface>::instance().class_of_alias(name);
  return present.empty() ? name : present;
}

template <class Interface>
void rename_value(ConfigNode* node, const std::string& path, std::vector<std::string>& changes) {
  if (text_of(node).empty()) return;
  const std::string present = present_class<Interface>(node->text);
  if (present == node->text) return;
  changes.push_back(path + ": " + cut_text(node->text) + " is " + present);
  *node = ConfigNode::scalar(present);
}

// "callbacks.NAME" or "callbacks.NAME(monitor=val_loss)". A part that the present name has already is left alone.
void rename_callbacks(ConfigNode& values, std::vector<std::string>& changes) {
  constexpr std::string_view prefix = "callbacks.";
  for (ConfigEntry& entry : values.entries) {
    if (!entry.key.starts_with(prefix)) continue;
    const size_t end = std::min(entry.key.find('('), entry.key.size());
    const std::string name = entry.key.substr(prefix.size(), end - prefix.size());
    const std::string present = std::string(prefix) + present_class<Callback>(name) + entry.key.substr(end);
    if (present == entry.key || std::as_const(values).find(present) != nullptr) continue;
    changes.push_back(cut_text(entry.key, 160) + " is " + cut_text(present, 160));
    entry.key = present;
  }
}

// "callbacks.OLD.NAME" -> "callbacks.NEW.NAME", as the values were renamed.
void rename_tensors(State& state, const ConfigNode& before, const ConfigNode& after) {
  for (size_t k = 0; k < before.entries.size(); ++k) {
    const std::string old_prefix = before.entries[k].key + ".", new_prefix = after.entries[k].key + ".";
    if (old_prefix == new_prefix) continue;
    std::map<std::string, at::Tensor> renamed;
    for (auto& [name, tensor] : state.tensors) {
      const bool is_below = name.starts_with(old_prefix);
      renamed[is_below ? new_prefix + name.substr(old_prefix.size()) : name] = tensor;
    }
    state.tensors = std::move(renamed);
  }
}

// ---- files ----------------------------------------------------------------------------------------------------------

void move_into_place(const std::string& from, const std::string& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) throw CheckpointError("saving checkpoint " + to + ": " + code.message() + ".");
  const fs::path folder = fs::path(to).parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

bool is_same(const State& one, const State& other) {
  if (!one.values.same_as(other.values) || one.tensors.size() != other.tensors.size()) return false;
  return std::all_of(one.tensors.begin(), one.tensors.end(), [&](const auto& item) {
    const auto found = other.tensors.find(item.first);
    return found != other.tensors.end() && bitwise_equal(item.second, found->second);
  });
}

// Replaces `to` only by a file that has been read back. A file that could not be written leaves nothing.
void write_verified(const std::string& to, const State& state) {
  const std::string made = temporary_name(to);
  try {
    const LockedFile lock = write_checkpoint(made, state);
    if (!is_same(state, read_checkpoint(made))) {
      throw CheckpointError("saving checkpoint " + to +
                            ": the new file does not read back as it was written. Check the disk.");
    }
    move_into_place(made, to);
  } catch (...) {
    std::error_code ignored;
    fs::remove(made, ignored);
    throw;
  }
}

std::string upgraded_name(const fs::path& path) {
  return (path.parent_path() / (path.stem().string() + "-upgraded" + path.extension().string())).string();
}

bool exists(const std::string& path) {
  std::error_code code;
  return fs::exists(fs::symlink_status(path, code));
}

// Of a folder, the record alone names classes; the ranks' files are copied, or stay.
void write_upgraded(const std::string& from, const std::string& to, const ConfigNode& values) {
  if (!is_sharded_checkpoint(from)) {
    State state = read_checkpoint(from);
    rename_tensors(state, state.values, values);
    state.values = values;
    return write_verified(to, state);
  }
  (void)read_sharded_checkpoint(from);  // throws if a part is missing or damaged
  State record = read_checkpoint(sharded_record(from));
  record.values = values;
  if (from == to) return write_verified(sharded_record(to), record);
  const std::string made = temporary_name(to);
  std::error_code code;
  fs::copy(from, made, fs::copy_options::recursive, code);
  if (code) {
    fs::remove_all(made);
    throw CheckpointError("saving checkpoint " + to + ": " + code.message() + ".");
  }
  try {
    write_verified(sharded_record(made), record);
    (void)read_sharded_checkpoint(made);
    move_into_place(made, to);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(made, ignored);
    throw;
  }
}

// `to`: "": next to it, or in place.
void upgrade_one(const std::string& path, std::string to, bool in_place) {
  const std::string from = in_place ? followed_links(path) : path;
  ConfigNode values = read_checkpoint_values(is_sharded_checkpoint(from) ? sharded_record(from) : from);
  const std::string version_before = text_of(std::as_const(values).find("levin_version"));
  std::vector<std::string> changes;
  try {
    changes = upgrade_values(values);
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": " + error.what());
  }
  if (changes.empty())
    return Console::instance().print(path + ": of Levin " + version() + " already; nothing was written");
  if (in_place) to = from;
  if (to.empty()) to = upgraded_name(path);
  if (!in_place && exists(to)) {
    throw CheckpointError(
        to + ": the file exists. Remove it, give another one as --output, or replace the checkpoint with --in-place.");
  }
  write_upgraded(from, to, values);
  Console::instance().print(path + ": upgraded to Levin " + version() + (in_place ? "" : ", in " + to));
  for (const std::string& change : changes) Console::instance().print("  " + change);
}

// Checkpoints in a folder, sorted: files and folders of shards. Links lead to files that are found too, or are another
// folder's.
void find_checkpoints(const fs::path& folder, std::vector<std::string>& found) {
  std::error_code code;
  std::vector<fs::path> names;
  for (const std::string& name : names_in(folder.string())) names.push_back(folder / name);
  std::sort(names.begin(), names.end());
  for (const fs::path& path : names) {
    if (fs::is_symlink(path, code)) continue;
    const bool is_checkpoint = path.extension() == ".ckpt" && !path.stem().string().ends_with("-upgraded");
    if (is_checkpoint && (fs::is_regular_file(path, code) || is_sharded_checkpoint(path.string()))) {
      found.push_back(path.string());
    } else if (fs::is_directory(path, code) && path.extension() != ".ckpt") {
      find_checkpoints(path, found);
    }
  }
}

bool upgrade_folder(const std::string& folder, const UpgradeTarget& target) {
  std::vector<std::string> found;
  find_checkpoints(folder, found);
  if (found.empty()) throw CheckpointError(folder + ": there is no checkpoint in it (NAME.ckpt).");
  bool good = true;
  for (const std::string& path : found) {
    try {
      std::string to;
      if (!target.output.empty()) {
        to = (fs::path(target.output) / fs::path(path).lexically_relative(folder)).string();
        make_checkpoint_folder(to);
      }
      upgrade_one(path, to, target.in_place);
    } catch (const CheckpointError& error) {
      Console::instance().error(error.what());
      good = false;
    }
  }
  return good;
}

}  // namespace

std::vector<std::string> upgrade_values(ConfigNode& values) {
  const std::string written_by = text_of(std::as_const(values).find("levin_version"));
  const std::vector<int> then = numbers_of_version(written_by), now = numbers_of_version(version());
  if (then > now) {
    throw CheckpointError("Levin " + cut_text(written_by) + " wrote it, which is newer than this one, " + version() +
                          ". Use that Levin, or a newer one");
  }
  std::vector<std::string> changes;
  if (ConfigNode* model = values.find("model_class"); model != nullptr && model->is_map()) {
    rename_value<LightningModule>(model->find("class_path"), "model_class", changes);
  }
  for (ConfigEntry& entry : values.entries) {
    if (!entry.value.is_map()) continue;
    ConfigNode* name = entry.value.find("name");
    if (entry.key.starts_with("optimizers.")) rename_value<Optimizer>(name, entry.key, changes);
    if (entry.key.starts_with("lr_schedulers.")) rename_value<LRScheduler>(name, entry.key, changes);
  }
  rename_callbacks(values, changes);
  if (then != now) {
    changes.push_back(std::string("levin_version: ") + (written_by.empty() ? "none" : cut_text(written_by)) + " is " +
                      version());
    values.set("levin_version", ConfigNode::scalar(version(), true));
    if (!written_by.empty()) values.set("upgraded_from", ConfigNode::scalar(written_by, true));
  }
  return changes;
}

bool upgrade_checkpoints(const std::string& path, const UpgradeTarget& target) {
  if (!target.output.empty() && exists(target.output)) {
    throw CheckpointError(target.output + ": it exists. Give a different name.");
  }
  std::error_code code;
  if (fs::is_directory(path, code) && !is_sharded_checkpoint(path)) return upgrade_folder(path, target);
  if (!target.output.empty()) make_checkpoint_folder(target.output);
  upgrade_one(path, target.output, target.in_place);
  return true;
}

}  // namespace levin
