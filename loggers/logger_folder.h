// The folder that a logger of files writes to: <save_dir>/<name>/<version>, as in Lightning. Below the folder of an
// experiment, runs have version_0, version_1, ….
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// Returns N of the folders version_N, ascending.
[[nodiscard]] std::vector<int64_t> run_versions(const std::string& experiment);

[[nodiscard]] std::string version_folder(const std::string& experiment, int64_t version);

/// Creates a folder exclusively, even if many jobs start at once. Throws Error naming path and cause.
[[nodiscard]] std::string claim_run_folder(const std::string& experiment);

/// Returns the newest folder of a fit, in which a resumed run continues; creates one if there is none. A folder of an
/// evaluation, which its run.json tells, stays as it is. Many jobs that resume at once get the same folder. Throws
/// Error naming path and cause.
[[nodiscard]] std::string folder_to_resume(const std::string& experiment);

/// Returns the other version_N next to the folder of a run, newest first; none unless it is a version_N itself.
[[nodiscard]] std::vector<std::string> earlier_folders(const std::string& folder);

/// In a Slurm job, writes the job and its command to a file in the folder.
void mark_job(const std::string& folder);

/// Returns the newest folder that this command of the job started before Slurm requeued it; "" if there is none.
[[nodiscard]] std::string folder_of_job(const std::string& experiment);

/// During its lifetime, loggers that start on this thread with the same save_dir and name and without a version share
/// one version_N. Without it, each gets its own.
class LoggersOfOneRun {
 public:
  LoggersOfOneRun();
  ~LoggersOfOneRun();
  LoggersOfOneRun(const LoggersOfOneRun&) = delete;
  LoggersOfOneRun& operator=(const LoggersOfOneRun&) = delete;
};

/// The folder of one logger, chosen by start().
class LoggerFolder {
 public:
  /// An empty `save_dir`: the trainer's default_root_dir; an empty `version`: the first free version_N. Throws
  /// ConfigError if `name` or `version` leads out of `save_dir`.
  LoggerFolder(std::string save_dir, std::string name, std::string version);

  /// Choose the folder as Logger::start and start_again say. Later calls do nothing. Throw Error naming path and cause.
  void start(const std::string& default_root_dir, bool resume);
  void start_again(const std::string& default_root_dir, bool resume);
  /// Does what Logger::own_folder says.
  void own() const;

  /// "" before start.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the path of a file in the folder.
  [[nodiscard]] std::string path_of(const std::string& file) const;
  /// Returns what Logger::earlier_log_dirs says.
  [[nodiscard]] std::vector<std::string> earlier() const;

 private:
  void set_path(std::string path);
  [[nodiscard]] std::string experiment(const std::string& default_root_dir) const;

  std::string save_dir_;
  std::string name_;
  std::string version_;
  std::string path_ = "";
};

/// Returns the path for a logger that writes a single file: `path`, or `name` in `default_root_dir` if it is empty.
/// Creates its folder. Throws Error naming `who`, path and cause.
[[nodiscard]] std::string path_of_only_file(const std::string& who, const std::string& path,
                                            const std::string& default_root_dir, const std::string& name);

}  // namespace levin
