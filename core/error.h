// Errors that a user can fix. Every message says where, what (the value seen) and how to fix it.
//
//   throw Error("EarlyStopping: metric \"val_loss\" was never logged. Logged: train_loss. Set .monitor.");
//
// Subclasses exist only if code must react to the kind of error, not to its text.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace levin {

/// Anything that a user can fix; what() is a plain sentence without a C++ stack.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One or more mistakes in the options of a run. what() holds one line per problem.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<std::string> problems);
  explicit ConfigError(std::string problem);

  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

/// A checkpoint cannot be written, read or trusted; names the path.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A data set, a sample or a loader failed; names the file or the sample's index.
class DataError : public Error {
 public:
  using Error::Error;
};

/// The run was asked to end from outside; `signal_number` is the signal received (Ctrl-C: SIGINT), 0 if it was a file
/// called "stop" in the run's folder.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal_number);
  Interrupted(int signal_number, const std::string& what) : Error(what), signal_number_(signal_number) {}
  [[nodiscard]] int signal_number() const { return signal_number_; }

 private:
  int signal_number_;
};

/// Joins names for a message: "a, b, c"; "none" if there are none.
[[nodiscard]] std::string join(const std::vector<std::string>& names);

/// `text` for a message: on one line, control characters escaped, truncated after `most_bytes`.
[[nodiscard]] std::string cut_text(const std::string& text, size_t most_bytes = 80);

/// The known name closest to `name` (edit distance at most a third of its length, case ignored), or "".
[[nodiscard]] std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

/// " Did you mean \"x\"?" if a known name is near, else "".
[[nodiscard]] std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

}  // namespace levin
