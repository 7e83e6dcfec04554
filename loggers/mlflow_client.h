// Finds or creates a run on an MLflow tracking server, through its REST API 2.0, and sends the events of an outbox to
// it.
//
// An event's members, after "n" and "v":
//   "k":"metrics","step":49,"t":1700000000123,"i":[["train_loss",0.5],…]    values that are not finite are strings
//   "k":"params","i":[["lr","0.1"],…]       "k":"tags","i":[…]
//   "k":"status","status":"FINISHED","t":…
//   "k":"text","to":"texts/sample/49.md","text":"…"
//   "k":"file","to":"checkpoints/a.ckpt","file":"outbox_files/1"    a copy, removed once it is delivered
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "levin/core/files/http.h"
#include "levin/core/process/this_process.h"
#include "levin/loggers/outbox.h"

namespace levin {

/// What identifies a run and its server: mlflow.json in the run's folder. It never holds credentials.
struct MlflowRun {
  std::string uuid = "";  // Levin's, a tag of the run: finds a run that was made just before a crash
  std::string tracking_uri = "";
  std::string experiment_name = "";
  std::string artifact_location = "";  // of an experiment that is made
  std::string run_name = "";
  std::map<std::string, std::string> tags = {};
  int64_t start_time = 0;         // milliseconds since 1970
  std::string run_id = "";        // the server's; "": not made yet
  std::string artifact_uri = "";  // where the server wants files
};

/// Reads mlflow.json of a folder; returns nothing if it is missing or invalid.
[[nodiscard]] std::optional<MlflowRun> read_mlflow_run(const std::string& folder);
void write_mlflow_run(const std::string& folder, const MlflowRun& run);

/// MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN.
struct MlflowCredentials {
  std::string user = "";
  std::string password = "";
  std::string token = "";
};

/// Who named a server: the user, by an option of the run, or a file that may be a stranger's.
enum class NamedBy { user, folder };

/// Returns the credentials of the environment (MLFLOW_TRACKING_URI may hold some too) for the server at `tracking_uri`.
/// None, with a warning from `who`, if MLFLOW_TRACKING_URI names another server, or none and only a folder names this
/// one.
[[nodiscard]] MlflowCredentials mlflow_credentials(const Variables& variables, const std::string& tracking_uri,
                                                   NamedBy named_by, const std::string& who);

/// The longest time to connect, and for a whole request.
struct MlflowTimeouts {
  Seconds connect = Seconds(10);
  Seconds request = Seconds(30);
};

/// One run on a server. Used by one thread at a time.
class MlflowClient {
 public:
  MlflowClient(std::string folder, MlflowRun run, MlflowCredentials credentials, MlflowTimeouts timeouts);
  ~MlflowClient();
  MlflowClient(const MlflowClient&) = delete;
  MlflowClient& operator=(const MlflowClient&) = delete;

  /// Delivers the first event, or the first events in one request.
  Delivery deliver(std::span<const SpilledEvent> events, const std::function<bool()>& cancelled);

 private:
  struct Batch;
  using Failure = std::optional<Delivery>;

  HttpAnswer call(const std::string& method, const std::string& path, const nlohmann::json& body);
  HttpAnswer send(HttpRequest request);
  Failure ensure_run();
  Failure find_experiment(std::string& id);
  Failure find_run(const std::string& experiment);
  Failure create_run(const std::string& experiment);
  Failure read_run();
  void remember_run(const nlohmann::json& info);
  Delivery send_batch(std::span<const SpilledEvent> events);
  Delivery send_status(const nlohmann::json& event);
  Delivery send_artifact(const nlohmann::json& event);
  void remove_delivered();

  std::string folder_;
  MlflowRun run_;
  MlflowCredentials credentials_;
  MlflowTimeouts timeouts_;
  std::function<bool()> cancelled_ = {};
  bool is_known_ = false;          // the server has the run
  size_t most_events_ = SIZE_MAX;  // of a batch, after a refusal: to find the event that the server does not want
  std::vector<std::string> delivered_files_ = {};
};

}  // namespace levin
