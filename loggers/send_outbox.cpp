#include "levin/loggers/send_outbox.h"

#include <algorithm>
#include <filesystem>

#include "levin/core/options/error.h"
#include "levin/core/process/folder_lock.h"
#include "levin/loggers/mlflow_client.h"

namespace levin {

namespace fs = std::filesystem;

std::vector<std::string> outbox_folders(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code code;
  const auto add = [&](const fs::path& path) {
    if (fs::exists(path / "mlflow.json", code) && fs::exists(fs::symlink_status(path / "outbox.jsonl", code)))
      found.push_back(path.string());
  };
  add(folder);
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    if (fs::is_directory(entry->symlink_status(code))) add(entry->path());  // what a link leads to is another's
  }
  std::sort(found.begin(), found.end());
  return found;
}

OutboxReport send_outbox(const std::string& folder, Seconds timeout) {
  const auto run = read_mlflow_run(folder);
  if (!run)
    throw Error(folder +
                " has no mlflow.json, which names the server of the run. Name the folder of a run of MLFlowLogger.");
  const FolderLock lock(folder, std::chrono::milliseconds(0));
  MlflowClient client(folder, *run, mlflow_credentials(process_variables(), run->tracking_uri, NamedBy::folder, folder),
                      {});
  OutboxOptions options;
  options.who = folder;
  options.where = "the server " + run->tracking_uri;
  options.most_bytes = INT64_MAX;
  Outbox outbox(folder, options, [&](std::span<const SpilledEvent> events, const auto& cancelled) {
    return client.deliver(events, cancelled);
  });
  outbox.start();
  return outbox.finish(timeout);
}

}  // namespace levin
