#include "levin/loggers/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>

#include "levin/core/console.h"
#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/slurm_job.h"
#include "levin/core/temporary_file.h"
#include "levin/core/this_process.h"

namespace levin {

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

// N of "version_N"; none of what only looks like it: "version_007", which is not the folder of run 7, a number that is
// too large, or so large that those after it would be.
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

}  // namespace

std::string claim_run_folder(const std::string& experiment) {
  make_experiment(experiment);
  const std::vector<int64_t> taken = run_versions(experiment);
  for (int64_t number = taken.empty() ? 0 : taken.back() + 1;; ++number) {
    const std::string folder = version_folder(experiment, number);
    if (::mkdir(folder.c_str(), 0777) == 0) return folder;
    if (errno != EEXIST) throw Error("cannot create " + folder + ": " + system_error_text(errno) + ".");
  }
}

std::string folder_to_resume(const std::string& experiment) {
  make_experiment(experiment);
  const std::vector<int64_t> before = run_versions(experiment);
  const std::string folder = version_folder(experiment, before.empty() ? 0 : before.back());
  make_folder(folder);
  return folder;
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
    const std::string folder = version_folder(experiment, version);
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

}  // namespace levin
