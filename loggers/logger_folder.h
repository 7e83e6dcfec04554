// The folder that a logger of files writes into: <save_dir>/<name>/<version>, as Lightning's loggers have it.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// The loggers of one run: those that start on this thread while one of these lives, with the same save_dir and name
/// and without a version, share one version_N. Without it each has its own.
class LoggersOfOneRun {
 public:
  LoggersOfOneRun();
  ~LoggersOfOneRun();
  LoggersOfOneRun(const LoggersOfOneRun&) = delete;
  LoggersOfOneRun& operator=(const LoggersOfOneRun&) = delete;
};

class LoggerFolder {
 public:
  /// An empty `save_dir`: the trainer's default_root_dir; an empty `version`: the first free version_N. Throws
  /// ConfigError if `name` or `version` leads out of `save_dir`.
  LoggerFolder(std::string save_dir, std::string name, std::string version);

  /// As Logger::start and start_again. Only the first call does something. Throws Error naming path and cause.
  void start(const std::string& default_root_dir, bool resume);
  void start_again(const std::string& default_root_dir, bool resume);
  /// As Logger::own_folder.
  void own() const;

  /// "" before start.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Of a file in it.
  [[nodiscard]] std::string path_of(const std::string& file) const;
  /// As Logger::earlier_log_dirs.
  [[nodiscard]] std::vector<std::string> earlier() const;

 private:
  void set_path(std::string path);
  [[nodiscard]] std::string experiment(const std::string& default_root_dir) const;

  std::string save_dir_;
  std::string name_;
  std::string version_;
  std::string path_ = "";
};

/// Of a logger that writes a single file: `path`, or `name` in `default_root_dir` where it is empty. Its folder is
/// created. Throws Error naming `who`, path and cause.
[[nodiscard]] std::string path_of_only_file(const std::string& who, const std::string& path,
                                            const std::string& default_root_dir, const std::string& name);

}  // namespace levin
