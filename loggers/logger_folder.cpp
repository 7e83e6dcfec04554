#include "levin/loggers/logger_folder.h"

#include <filesystem>
#include <map>
#include <utility>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/joined_name.h"
#include "levin/loggers/run_folder.h"

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
  return (fs::path(save_dir_.empty() ? default_root_dir : save_dir_) / name_).string();
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
  if (!version_.empty()) return set_path((std::filesystem::path(below) / version_).string());
  if (const std::string shared = folder_for_all(below); !shared.empty()) return set_path(shared);
  set_path(resume ? folder_to_resume(below) : claim_run_folder(below));
  keep_for_all(below, path_);
}

void LoggerFolder::start_again(const std::string& default_root_dir, bool resume) {
  if (!path_.empty()) return;
  const std::string below = experiment(default_root_dir);
  const std::string of_job = version_.empty() && folder_for_all(below).empty() ? folder_of_job(below) : "";
  if (of_job.empty()) return start(default_root_dir, resume);
  set_path(of_job);
  keep_for_all(below, path_);
}

void LoggerFolder::own() const {
  mark_job(path_);
}

std::vector<std::string> LoggerFolder::earlier() const {
  const std::string below = std::filesystem::path(path_).parent_path().string();
  const std::vector<int64_t> all = run_versions(below);
  std::vector<std::string> folders;
  for (auto number = all.rbegin(); number != all.rend(); ++number) {
    std::string folder = version_folder(below, *number);
    if (folder != path_) folders.push_back(std::move(folder));
  }
  const bool numbered = folders.size() < all.size();
  return numbered ? folders : std::vector<std::string>();
}

std::string path_of_only_file(const std::string& who, const std::string& path, const std::string& default_root_dir,
                              const std::string& name) {
  namespace fs = std::filesystem;
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
