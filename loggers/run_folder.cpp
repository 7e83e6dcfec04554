#include "levin/loggers/run_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "levin/core/error.h"
#include "levin/core/files.h"
#include "levin/core/slurm_job.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

constexpr const char* kVersion = "version_";
constexpr const char* kJobFile = "slurm_job";

// "12_3\n/usr/bin/levin fit --config run.yaml\n": a job's script may run several commands, each with a folder. Nothing
// outside of Slurm.
std::optional<std::string> job_text() {
  const auto job = slurm_job(process_variables());
  if (!job) return std::nullopt;
  std::string command = read_file("/proc/self/cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  return job->id + "\n" + command + "\n";
}

}  // namespace

std::vector<int64_t> run_versions(const std::string& experiment) {
  std::vector<int64_t> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(experiment, code)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const char* digits = name.c_str() + std::string(kVersion).size();
    const char* end = name.c_str() + name.size();
    if (!name.starts_with(kVersion) || std::from_chars(digits, end, number).ptr != end || digits == end) continue;
    found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string version_folder(const std::string& experiment, int64_t version) {
  return (fs::path(experiment) / (kVersion + std::to_string(version))).string();
}

std::string claim_run_folder(const std::string& experiment) {
  make_folder(experiment);
  const std::vector<int64_t> taken = run_versions(experiment);
  for (int64_t number = taken.empty() ? 0 : taken.back() + 1;; ++number) {
    const std::string folder = version_folder(experiment, number);
    std::error_code code;
    if (fs::create_directory(folder, code)) return folder;  // false: it was there
    if (code && code != std::errc::file_exists) {
      throw Error("cannot create " + folder + ": " + code.message() + ".");
    }
  }
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
    if (fs::exists(file) && read_file(file.string()) == *text) return folder;
  }
  return "";
}

}  // namespace levin
