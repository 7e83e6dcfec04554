// Errors that a user can fix. Every message names the position, the value found and the fix.
//
//   throw Error("EarlyStopping: metric \"val_loss\" was never logged. Logged: train_loss. Set .monitor.");
//
// Subclasses exist only if code must react to the kind of error, not to its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace levin {

/// Any error that a user can fix; what() is a plain sentence without a C++ stack.
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

/// A checkpoint that cannot be written, read or trusted; the message names the path.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint that a different version of Levin has written, in a format that this one does not know. It is intact.
class CheckpointFormatError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// A failure of a data set, a sample or a loader; the message names the file or the sample's index.
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

/// Joins names for a message: "a, b, c", or "a, b and 3 more" if there are more than `most`; "none" for an empty list.
[[nodiscard]] std::string join(const std::vector<std::string>& names, size_t most = SIZE_MAX);

/// Returns the parts of "a,b,c"; a separator at the end adds no part, and an empty text has none.
[[nodiscard]] std::vector<std::string> split(const std::string& text, char separator);

/// Returns `text` without blanks and tabs at its ends.
[[nodiscard]] std::string trimmed(const std::string& text);

/// Returns `text` for a message: on one line, with control characters escaped, truncated after `most_bytes`.
[[nodiscard]] std::string cut_text(const std::string& text, size_t most_bytes = 80);

/// Returns the known name closest to `name` (edit distance at most a third of its length, case ignored), or "".
[[nodiscard]] std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

/// Returns " Did you mean \"x\"?" if a known name is similar, else "".
[[nodiscard]] std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

// Messages about unknown names.

/// Returns the names in alphabetical order regardless of case, separated by commas, for lists in which a reader
/// searches.
[[nodiscard]] std::string sorted_names(std::vector<std::string> names);

/// Returns " Did you mean "Dog"? Known: Cat, Dog."; without the question if none of `known` is similar to `name`.
[[nodiscard]] std::string known_names(const std::string& name, const std::vector<std::string>& known);

// Counts in messages: "1 batch", "2 batches".

/// Returns the number and its noun: "1 batch", "2 batches"; `many` is the plural if it is not `one` with an s.
[[nodiscard]] std::string count_of(int64_t count, const std::string& one, const std::string& many = "");

// Numbers for people; number_text() is for programs.

/// Formats like printf, at most 511 bytes: formatted("%.1f %%", percent).
[[nodiscard, gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);

/// So many digits at most: "4", "0.0007038", "1e-08", "nan", "-inf".
[[nodiscard]] std::string short_number(double value, int digits = 4);

// What messages call a signal that ends a run.

/// "Ctrl-C", "SIGTERM", …
[[nodiscard]] std::string stop_signal_name(int signal_number);

}  // namespace levin
