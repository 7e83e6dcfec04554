#include "levin/loggers/logger_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/write_remedy.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/this_process.h"
#include "levin/core/storage/open_store.h"
#include "levin/core/storage/staging.h"
#include "levin/loggers/run_recorder.h"

namespace levin {

namespace {

// Of the run whose loggers start now: the folder of each experiment.
thread_local std::map<std::filesystem::path, std::string> folders_of_run;
thread_local int runs_starting = 0;

std::string folder_for_all(const std::string& experiment) {
  const auto found = folders_of_run.find(std::filesystem::path(experiment).lexically_normal());
  return found == folders_of_run.end() ? "" : found->second;
}

void keep_for_all(const std::string& experiment, const std::string& folder) {
  if (runs_starting > 0) folders_of_run[std::filesystem::path(experiment).lexically_normal()] = folder;
}

}  // namespace

namespace fs = std::filesystem;

namespace {

constexpr const char* kVersion = "version_";
constexpr const char* kJobFile = "slurm_job";

// "12_3\n/usr/bin/levin fit --config run.yaml \n": a job's script may run several commands, each with a folder. Nothing
// outside of Slurm.
std::optional<std::string> job_text() {
  const auto job = slurm_job(process_variables());
  if (!job) return std::nullopt;
  std::string text = job->id + "\n";
  for (const std::string& word : own_command_line()) text += word + " ";
  return text + "\n";
}

// Returns N of "version_N"; nothing for similar names: "version_007", which is not the folder of run 7, and numbers
// that are too large or leave no room for larger ones.
std::optional<int64_t> version_of(const std::string& name) {
  constexpr int64_t largest = INT64_MAX / 2;
  const std::string prefix = kVersion;
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + prefix.size(), end, number);
  const bool whole = code == std::errc() && stop == end && number >= 0 && number <= largest;
  return whole && name == prefix + std::to_string(number) ? std::optional(number) : std::nullopt;
}

}  // namespace

std::vector<int64_t> run_versions(const std::string& experiment) {
  std::vector<int64_t> found;
  for (const std::string& name : names_in(experiment)) {
    if (const auto number = version_of(name)) found.push_back(*number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string version_folder(const std::string& experiment, int64_t version) {
  return (fs::path(experiment) / (kVersion + std::to_string(version))).string();
}

namespace {

void make_experiment(const std::string& experiment) {
  try {
    make_folder(experiment);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) +
                " The run's logs go there: set another default_root_dir, or save_dir of the logger, or logger: false.");
  }
}

bool is_of_evaluation(const std::string& folder) {
  const std::string command = recorded_command(folder);
  return command == "validate" || command == "test" || command == "predict";
}

}  // namespace

std::string claim_run_folder(const std::string& experiment) {
  make_experiment(experiment);
  const std::vector<int64_t> taken = run_versions(experiment);
  for (int64_t number = taken.empty() ? 0 : taken.back() + 1;; ++number) {
    std::string folder = version_folder(experiment, number);
    if (::mkdir(folder.c_str(), 0777) == 0) return folder;
    const int cause = errno;
    if (cause == EEXIST) continue;
    throw Error("cannot create " + folder + ": " + system_error_text(cause) + ". " + write_remedy(cause));
  }
}

std::string folder_to_resume(const std::string& experiment) {
  make_experiment(experiment);
  std::vector<int64_t> before = run_versions(experiment);
  const int64_t unused = before.empty() ? 0 : before.back() + 1;
  while (!before.empty() && is_of_evaluation(version_folder(experiment, before.back()))) before.pop_back();
  std::string folder = version_folder(experiment, before.empty() ? unused : before.back());
  make_folder(folder);
  return folder;
}

std::vector<std::string> earlier_folders(const std::string& folder) {
  const std::string below = fs::path(folder).parent_path().string();
  std::vector<int64_t> all = run_versions(below);
  std::reverse(all.begin(), all.end());
  std::vector<std::string> folders;
  for (const int64_t number : all) {
    std::string other = version_folder(below, number);
    if (other != folder) folders.push_back(std::move(other));
  }
  const bool numbered = folders.size() < all.size();
  return numbered ? folders : std::vector<std::string>();
}

void mark_job(const std::string& folder) {
  if (const auto text = job_text()) write_file_durably((fs::path(folder) / kJobFile).string(), *text);
}

std::string folder_of_job(const std::string& experiment) {
  const auto text = job_text();
  if (!text) return "";
  std::vector<int64_t> all = run_versions(experiment);
  std::reverse(all.begin(), all.end());
  for (const int64_t version : all) {
    std::string folder = version_folder(experiment, version);
    const fs::path file = fs::path(folder) / kJobFile;
    try {
      std::error_code code;
      if (fs::exists(file, code) && read_file(file.string()) == *text) return folder;
    } catch (const Error& error) {
      Console::instance().warn(std::string(error.what()) + " It is taken for another job's.");
    }
  }
  return "";
}

LoggersOfOneRun::LoggersOfOneRun() {
  if (runs_starting++ == 0) folders_of_run.clear();
}

LoggersOfOneRun::~LoggersOfOneRun() {
  if (--runs_starting == 0) folders_of_run.clear();
}

LoggerFolder::LoggerFolder(std::string save_dir, std::string name, std::string version)
    : save_dir_(std::move(save_dir)), name_(std::move(name)), version_(std::move(version)) {
  check_joined_name("the logger's name", name_, "save_dir");
  check_joined_name("the logger's version", version_, "save_dir");
}

std::string LoggerFolder::experiment(const std::string& default_root_dir) const {
  namespace fs = std::filesystem;
  return (fs::path(save_dir_.empty() ? default_root_dir : staged(save_dir_)) / name_).string();
}

std::string LoggerFolder::path_of(const std::string& file) const {
  return (std::filesystem::path(path_) / file).string();
}

void LoggerFolder::set_path(std::string path) {
  make_folder(path);
  path_ = std::move(path);
}

void LoggerFolder::start(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  const std::string below = experiment(default_root_dir);
  make_remote_folders(below);
  if (!version_.empty()) return set_path((std::filesystem::path(below) / version_).string());
  if (const std::string shared = folder_for_all(below); !shared.empty()) return set_path(shared);
  set_path(resume ? folder_to_resume(below) : claim_run_folder(below));
  keep_for_all(below, path_);
}

void LoggerFolder::start_again(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  const std::string below = experiment(default_root_dir);
  make_remote_folders(below);
  const std::string of_job = version_.empty() && folder_for_all(below).empty() ? folder_of_job(below) : "";
  if (of_job.empty()) return start(default_root_dir, resume);
  set_path(of_job);
  keep_for_all(below, path_);
}

void LoggerFolder::own() const {
  mark_job(path_);
}

std::vector<std::string> LoggerFolder::earlier() const {
  return earlier_folders(path_);
}

std::string path_of_only_file(const std::string& who, const std::string& path, const std::string& default_root_dir,
                              const std::string& name) {
  namespace fs = std::filesystem;
  if (is_remote(path) || (path.empty() && !staged_url(default_root_dir).empty())) {
    throw ConfigError(who +
                      ": it changes one file all the time, which an object store does not allow. Set path of the "
                      "logger to a file of this machine.");
  }
  const fs::path file = path.empty() ? fs::path(default_root_dir) / name : fs::path(path);
  std::error_code code;
  if (fs::is_directory(file, code)) {
    throw Error(who + ": " + file.string() + " is a folder. Set path of the logger to a file.");
  }
  try {
    if (file.has_parent_path()) make_folder(file.parent_path().string());
  } catch (const Error& error) {
    throw Error(who + ": " + error.what() + " Set " +
                (path.empty() ? "default_root_dir, or path of the logger," : "path of the logger") +
                " to a place where a folder can be made.");
  }
  return file.string();
}

}  // namespace levin
