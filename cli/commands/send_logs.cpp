#include "levin/cli/commands/send_logs.h"

#include "levin/cli/commands/help_text.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/loggers/send_outbox.h"

namespace levin {

namespace {

constexpr Seconds kPatience = Seconds(60);  // of each run

std::string send_logs_usage(int width) {
  return "levin runs send [FOLDER…]\n\n" +
         wrapped(
             "Sends what runs at or below each FOLDER (default: the current one) logged and could not send, because "
             "their server did not answer: values of MLFlowLogger. Credentials come from the environment, as in a run, "
             "but are sent only to the server that MLFLOW_TRACKING_URI names.",
             width);
}

// Whether nothing is left. A folder that is not in order does not keep the values of the others.
bool send_one(const std::string& folder) {
  Console& console = Console::instance();
  OutboxReport report;
  try {
    report = send_outbox(folder, kPatience);
  } catch (const Error& error) {
    console.error(error.what());
    return false;
  }
  std::string line = folder + ": sent " + count_of(report.delivered, "value");
  if (report.waiting > 0) line += ", " + std::to_string(report.waiting) + " are left: " + report.problem;
  if (report.refused > 0) line += "; the server refused " + std::to_string(report.refused);
  if (report.damaged > 0) line += "; " + std::to_string(report.damaged) + " could not be sent";
  console.print(line);
  return report.waiting == 0;
}

}  // namespace

int run_send_logs(const std::vector<std::string>& words, int width) {
  Console& console = Console::instance();
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    console.print(send_logs_usage(width));
    return kExitOk;
  }
  for (const std::string& word : words) {
    if (!word.starts_with("-")) continue;
    console.error("levin runs send: takes folders only, got \"" + cut_text(word) + "\". See levin runs send --help.");
    return kExitBadConfig;
  }
  bool is_done = true;
  std::vector<std::string> found;
  for (const std::string& word : words.empty() ? std::vector<std::string>{"."} : words) {
    const std::vector<std::string> here = outbox_folders(word);
    found.insert(found.end(), here.begin(), here.end());
  }
  const std::vector<std::string> folders = distinct_folders(found);
  for (const std::string& folder : folders) is_done = send_one(folder) && is_done;
  if (folders.empty()) console.print("Nothing waits to be sent.");
  return is_done ? kExitOk : kExitPartly;
}

}  // namespace levin
