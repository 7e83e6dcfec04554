#include "levin/callbacks/checkpoint_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <regex>
#include <string_view>

#include "levin/core/files/files.h"
#include "levin/core/options/config_node.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/tensors.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

const std::regex& spec_pattern() {
  static const std::regex pattern(R"((0?)(\d{0,2})(?:\.(\d{1,2}))?([dfeEgG%]?))");
  return pattern;
}

bool is_whole(const std::string& metric) {
  return metric == "epoch" || metric == "step";
}

// A metric's name as part of a file name, without slashes and control characters.
std::string in_file_name(std::string metric) {
  for (char& c : metric) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '_';
  }
  return metric;
}

std::string printed(const std::string& format, double value) {
  return formatted(format.c_str(), value);
}

}  // namespace

std::string versioned_path(const std::string& folder, const std::string& stem, int64_t version) {
  const std::string counter = version == 0 ? "" : "-v" + std::to_string(version);
  return (fs::path(folder) / (stem + counter + ".ckpt")).string();
}

int64_t free_version(const std::string& folder, const std::string& stem,
                     const std::function<bool(const std::string& path)>& is_taken) {
  int64_t version = 0;
  while (is_taken(versioned_path(folder, stem, version))) ++version;
  return version;
}

bool is_same_folder(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (!has_no_nul(one) || !has_no_nul(other)) return false;
  std::error_code code;
  const fs::path first = fs::weakly_canonical(one, code);
  if (code) return false;
  const fs::path second = fs::weakly_canonical(other, code);
  return !code && first == second;
}

bool is_same_file(const std::string& one, const std::string& other) {
  const fs::path first(one), second(other);
  return first.filename() == second.filename() &&
         is_same_folder(first.parent_path().string(), second.parent_path().string());
}

std::string name_within(const std::string& path, const std::string& folder) {
  constexpr std::string_view suffix = ".ckpt";
  const std::string start = (fs::path(folder) / "").string();
  if (!path.starts_with(start) || !path.ends_with(suffix)) return "";
  const std::string name = path.substr(start.size());
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) return "";
  if (!is_path_below(name)) return "";
  return name.substr(name.rfind('/') + 1) == suffix ? "" : name;
}

std::string folder_problem(const std::string& folder, uint64_t bytes) {
  fs::path there(folder);
  std::error_code code;
  while (!fs::exists(there, code) && there.has_parent_path() && there.parent_path() != there) {
    there = there.parent_path();
  }
  if (!fs::is_directory(there, code)) return there.string() + " is not a folder.";
  if (::access(there.c_str(), W_OK | X_OK) != 0) {
    return "nothing can be written to " + there.string() + ": " + system_error_text(errno) + ".";
  }
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) != 0) return "";  // the file system does not report it
  const uint64_t free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (free_bytes >= bytes) return "";
  return there.string() + " has " + bytes_text(free_bytes) + " free, and two checkpoints take up to " +
         bytes_text(bytes) + ".";
}

CheckpointName::CheckpointName(const std::string& text, bool insert_names) {
  auto refuse = [&](const std::string& why) {
    throw Error("ModelCheckpointOptions.filename: \"" + text + "\": " + why +
                ". Write {name} or {name:.2f}, e.g. \"{epoch}-{val_loss:.2f}\".");
  };
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = text.find_first_of("{}", at);
    Part part{text.substr(at, open - at), "", ""};
    if (open == std::string::npos) {
      parts_.push_back(part);
      break;
    }
    const size_t close = text.find_first_of("{}", open + 1);
    if (text[open] == '}' || close == std::string::npos || text[close] == '{')
      refuse("a brace is not closed or not opened");
    const std::string inside = text.substr(open + 1, close - open - 1);
    const size_t colon = inside.find(':');
    part.metric = inside.substr(0, colon);
    if (colon != std::string::npos) part.spec = inside.substr(colon + 1);
    if (part.metric.empty()) refuse("{} names no metric");
    if (!std::regex_match(part.spec, spec_pattern())) refuse("the format \"" + part.spec + "\" is not known");
    if (insert_names) part.text += in_file_name(part.metric) + "=";
    parts_.push_back(part);
    at = close + 1;
  }
  std::string example;
  for (const Part& part : parts_) example += part.text + (part.metric.empty() ? "" : "0");
  if (name_within("/folder/" + example + ".ckpt", "/folder").empty()) {
    refuse("it must name a file below dirpath, without \"..\", empty parts and control characters");
  }
}

std::string CheckpointName::number(const Part& part, double value) {
  std::smatch match;
  std::regex_match(part.spec, match, spec_pattern());
  const std::string flags = "%" + match[1].str() + match[2].str();
  const std::string precision = match[3].matched ? "." + match[3].str() : "";
  const std::string kind = match[4];
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (kind == "%") return printed(flags + (precision.empty() ? ".6" : precision) + "f", value * 100) + "%";
  if (kind == "d") return printed(flags + ".0f", std::round(value));
  if (!kind.empty()) return printed(flags + precision + kind, value);
  if (is_whole(part.metric)) return printed(flags + ".0f", value);
  if (part.spec.empty()) return number_text(value);
  return printed(flags + precision + "g", value);
}

std::vector<std::string> CheckpointName::metrics() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!part.metric.empty() && !is_whole(part.metric)) names.push_back(part.metric);
  }
  return names;
}

std::string CheckpointName::format(const Metrics& metrics) const {
  std::string name;
  for (const Part& part : parts_) {
    name += part.text;
    if (part.metric.empty()) continue;
    const auto found = metrics.find(part.metric);
    if (found == metrics.end()) {
      std::vector<std::string> known;
      for (const auto& [logged, value] : metrics) known.push_back(logged);
      Console::instance().warn("ModelCheckpointOptions.filename: metric \"" + part.metric +
                               "\" was not logged; the name shows nan. Logged: " + join(known) + "." +
                               did_you_mean(part.metric, known));
    }
    name += number(part, found == metrics.end() ? std::nan("") : found->second);
  }
  return name;
}

}  // namespace levin
