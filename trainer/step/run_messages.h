// The messages of a run's parts, in the words of the interface that the run belongs to.
#pragma once

#include <string>

namespace levin {

/// Prints a line about the run on rank 0: on standard output, or for a guest as a warning.
void note_of_run(std::string text);
/// Logs a warning about the run.
void warn_of_run(std::string text);

/// A scope in which the messages of this thread are a guest's: its process owns standard output, and its user does not
/// know the Trainer's options. `reword` returns the text for the user who has called `call`.
class GuestMessages {
 public:
  using Reword = std::string (*)(const std::string& call, std::string text);

  GuestMessages(const std::string& call, Reword reword);
  ~GuestMessages();
  GuestMessages(const GuestMessages&) = delete;
  GuestMessages& operator=(const GuestMessages&) = delete;

  [[nodiscard]] std::string reworded(std::string text) const;

 private:
  const std::string& call_;
  Reword reword_;
  const GuestMessages* outer_;
};

}  // namespace levin
