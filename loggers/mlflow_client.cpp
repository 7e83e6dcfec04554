#include "levin/loggers/mlflow_client.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/files/json_depth.h"
#include "levin/core/files/url_text.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/storage/staging.h"

namespace levin {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr const char* kRunTag = "levin.run";
constexpr const char* kProxy = "mlflow-artifacts:";
// Of one log-batch request, and of all kinds together 1000.
constexpr size_t kMaxMetrics = 1000;
constexpr size_t kMaxParams = 100;
constexpr size_t kMaxTags = 100;

std::string run_file(const std::string& folder) {
  return (fs::path(folder) / "mlflow.json").string();
}

Json parsed(const std::string& text) {
  return parse_json(text);
}

// The server's own words, if there are any.
std::string message_of(const HttpAnswer& answer) {
  const Json json = parsed(answer.body);
  const bool is_mlflow = json.is_object() && json.contains("message") && json["message"].is_string();
  const std::string text = is_mlflow ? json["message"].get<std::string>() : answer.body;
  return text.empty() ? "" : ": " + cut_text(text, 400);
}

std::string error_code(const HttpAnswer& answer) {
  const Json json = parsed(answer.body);
  const bool has_code = json.is_object() && json.contains("error_code") && json["error_code"].is_string();
  return has_code ? json["error_code"].get<std::string>() : "";
}

std::string problem_of(const HttpAnswer& answer) {
  if (answer.status == 0) return answer.problem + ".";
  std::string text = "HTTP status " + std::to_string(answer.status) + message_of(answer);
  if (!answer.location.empty())
    text += ": it redirects to " + split_credentials(answer.location).url + "; use that as tracking_uri";
  if (answer.status == 401 || answer.status == 403)
    text += ". Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN";
  return text.ends_with('.') ? text : text + ".";
}

// A name with its value.
bool is_pair(const Json& item) {
  return item.is_array() && item.size() == 2 && item[0].is_string() && (item[1].is_string() || item[1].is_number());
}

// Checks that an event has the members of its kind: strings, whole numbers, or lists of pairs.
bool is_whole_event(const Json& event) {
  const auto is_text = [&](const char* key) { return event.contains(key) && event[key].is_string(); };
  const auto is_number = [&](const char* key) { return event.contains(key) && event[key].is_number_integer(); };
  const auto are_pairs = [&](const char* key) {
    return event.contains(key) && event[key].is_array() && std::all_of(event[key].begin(), event[key].end(), is_pair);
  };
  if (!event.is_object() || !is_text("k")) return false;
  const std::string kind = event["k"];
  if (kind == "metrics") return are_pairs("i") && is_number("t") && is_number("step");
  if (kind == "params" || kind == "tags") return are_pairs("i");
  if (kind == "status") return is_text("status") && is_number("t");
  if (kind == "text") return is_text("to") && is_text("text");
  return kind == "file" && is_text("to") && is_text("file");
}

// The event of a line; empty if the line is damaged, or of another program.
Json event_of(const SpilledEvent& spilled) {
  Json event = parsed(spilled.line);
  return is_whole_event(event) ? event : Json::object();
}

Delivery failed(const HttpAnswer& answer, Delivery::Kind otherwise, size_t count = 0) {
  if (answer.is_passing())
    return {Delivery::Kind::again, 0, problem_of(answer), answer.retry_after.value_or(Seconds(0))};
  // Credentials can be put right, and a redirect's target can be named: nothing is given up for them.
  const bool is_about_access = answer.status == 401 || answer.status == 403 || answer.status / 100 == 3;
  if (is_about_access || otherwise == Delivery::Kind::halted) return {Delivery::Kind::halted, 0, problem_of(answer)};
  return {otherwise, count, problem_of(answer)};
}

}  // namespace

std::optional<MlflowRun> read_mlflow_run(const std::string& folder) {
  std::error_code code;
  if (!fs::exists(run_file(folder), code)) return std::nullopt;
  const Json json = parsed(read_file(run_file(folder), 1 << 20));
  if (!json.is_object()) return std::nullopt;
  try {
    MlflowRun run;
    run.uuid = json.value("uuid", "");
    run.tracking_uri = json.value("tracking_uri", "");
    run.experiment_name = json.value("experiment_name", "");
    run.artifact_location = json.value("artifact_location", "");
    run.run_name = json.value("run_name", "");
    run.tags = json.value("tags", std::map<std::string, std::string>{});
    run.start_time = json.value("start_time", int64_t{0});
    run.run_id = json.value("run_id", "");
    run.artifact_uri = json.value("artifact_uri", "");
    if (run.uuid.empty() || run.tracking_uri.empty()) return std::nullopt;
    return run;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void write_mlflow_run(const std::string& folder, const MlflowRun& run) {
  const Json json = {{"uuid", run.uuid},
                     {"tracking_uri", run.tracking_uri},
                     {"experiment_name", run.experiment_name},
                     {"artifact_location", run.artifact_location},
                     {"run_name", run.run_name},
                     {"tags", run.tags},
                     {"start_time", run.start_time},
                     {"run_id", run.run_id},
                     {"artifact_uri", run.artifact_uri}};
  (void)write_file_durably(run_file(folder), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

MlflowCredentials mlflow_credentials(const Variables& variables, const std::string& tracking_uri, NamedBy named_by,
                                     const std::string& who) {
  const SplitUrl named = split_credentials(variables("MLFLOW_TRACKING_URI").value_or(""));
  MlflowCredentials found{variables("MLFLOW_TRACKING_USERNAME").value_or(""),
                          variables("MLFLOW_TRACKING_PASSWORD").value_or(""),
                          variables("MLFLOW_TRACKING_TOKEN").value_or("")};
  if (!named.user.empty()) found = {named.user, named.password, ""};
  const std::string origin = url_origin(tracking_uri);
  if (named.url.empty() ? named_by == NamedBy::user : !origin.empty() && url_origin(named.url) == origin) return found;
  if (found.user.empty() && found.password.empty() && found.token.empty()) return found;
  Console::instance().warn(who + ": the credentials of the environment are not sent to " + cut_text(tracking_uri, 200) +
                           (named.url.empty() ? ", a server that only this folder names."
                                              : ", because MLFLOW_TRACKING_URI names another server.") +
                           " If they belong to this server, set MLFLOW_TRACKING_URI to its URL.");
  return {};
}

MlflowClient::MlflowClient(std::string folder, MlflowRun run, MlflowCredentials credentials, MlflowTimeouts timeouts)
    : folder_(std::move(folder)), run_(std::move(run)), credentials_(std::move(credentials)), timeouts_(timeouts) {
  while (run_.tracking_uri.ends_with('/')) run_.tracking_uri.pop_back();
}

MlflowClient::~MlflowClient() {
  remove_delivered();
}

HttpAnswer MlflowClient::send(HttpRequest request) {
  request.user = credentials_.user;
  request.password = credentials_.password;
  request.token = credentials_.token;
  request.connect_timeout = timeouts_.connect;
  request.timeout = timeouts_.request;
  request.cancelled = cancelled_;
  return http_request(request);
}

HttpAnswer MlflowClient::call(const std::string& method, const std::string& path, const Json& body) {
  HttpRequest request;
  request.method = method;
  request.url = run_.tracking_uri + "/api/2.0/mlflow/" + path;
  if (method != "GET") {
    request.headers = {"Content-Type: application/json"};
    request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return send(std::move(request));
}

MlflowClient::Failure MlflowClient::find_experiment(std::string& id) {
  const std::string query = "experiments/get-by-name?experiment_name=" + url_encoded(run_.experiment_name);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const HttpAnswer found = call("GET", query, {});
    if (found.is_success()) {
      const Json json = parsed(found.body);
      const Json experiment = json.is_object() ? json.value("experiment", Json::object()) : Json::object();
      id = experiment.value("experiment_id", "");
      if (experiment.value("lifecycle_stage", "active") == "deleted")
        return Delivery{Delivery::Kind::halted, 0,
                        "the experiment \"" + run_.experiment_name +
                            "\" was deleted there. Restore it, or choose another experiment_name."};
      if (!id.empty()) return std::nullopt;
      return Delivery{Delivery::Kind::halted, 0, "the answer is not one of MLflow's. Check tracking_uri."};
    }
    if (error_code(found) != "RESOURCE_DOES_NOT_EXIST") return failed(found, Delivery::Kind::halted);
    Json body = {{"name", run_.experiment_name}};
    if (!run_.artifact_location.empty()) body["artifact_location"] = run_.artifact_location;
    const HttpAnswer made = call("POST", "experiments/create", body);
    if (made.is_success()) {
      id = parsed(made.body).at("experiment_id").get<std::string>();
      return std::nullopt;
    }
    // Another run may have made it meanwhile.
    if (error_code(made) != "RESOURCE_ALREADY_EXISTS") return failed(made, Delivery::Kind::halted);
  }
  return Delivery{Delivery::Kind::again, 0,
                  "the experiment \"" + run_.experiment_name + "\" is neither there nor can it be made."};
}

void MlflowClient::remember_run(const Json& info) {
  run_.run_id = info.at("run_id").get<std::string>();
  run_.artifact_uri = info.value("artifact_uri", "");
  is_known_ = true;
  write_mlflow_run(folder_, run_);
}

// A run that this folder's run has made before it could note its id.
MlflowClient::Failure MlflowClient::find_run(const std::string& experiment) {
  const HttpAnswer found = call("POST", "runs/search",
                                {{"experiment_ids", {experiment}},
                                 {"filter", std::string("tags.\"") + kRunTag + "\" = '" + run_.uuid + "'"},
                                 {"max_results", 1}});
  if (!found.is_success()) return failed(found, Delivery::Kind::halted);
  const Json json = parsed(found.body);
  // An answer without runs has none that were found.
  if (json.contains("runs") && !json.at("runs").empty()) remember_run(json.at("runs").at(0).at("info"));
  return std::nullopt;
}

MlflowClient::Failure MlflowClient::create_run(const std::string& experiment) {
  Json tags = Json::array({{{"key", kRunTag}, {"value", run_.uuid}}});
  for (const auto& [key, value] : run_.tags) tags.push_back({{"key", key}, {"value", value}});
  Json body = {{"experiment_id", experiment}, {"start_time", run_.start_time}, {"tags", tags}};
  if (!run_.run_name.empty()) body["run_name"] = run_.run_name;
  if (run_.tags.contains("mlflow.user")) body["user_id"] = run_.tags.at("mlflow.user");
  const HttpAnswer made = call("POST", "runs/create", body);
  if (!made.is_success()) return failed(made, Delivery::Kind::halted);
  remember_run(parsed(made.body).at("run").at("info"));
  return std::nullopt;
}

MlflowClient::Failure MlflowClient::read_run() {
  const HttpAnswer found = call("GET", "runs/get?run_id=" + url_encoded(run_.run_id), {});
  if (!found.is_success()) return failed(found, Delivery::Kind::halted);
  remember_run(parsed(found.body).at("run").at("info"));
  return std::nullopt;
}

MlflowClient::Failure MlflowClient::ensure_run() {
  if (is_known_) return std::nullopt;
  if (!run_.run_id.empty()) return read_run();
  std::string experiment;
  if (Failure failure = find_experiment(experiment)) return failure;
  if (Failure failure = find_run(experiment)) return failure;
  return is_known_ ? std::nullopt : create_run(experiment);
}

Delivery MlflowClient::deliver(std::span<const SpilledEvent> events, const std::function<bool()>& cancelled) {
  cancelled_ = cancelled;
  remove_delivered();  // the outbox has noted by now that they were delivered
  try {
    if (Failure failure = ensure_run()) return *failure;
    const Json first = event_of(events.front());
    const std::string kind = first.value("k", "");
    if (kind == "metrics" || kind == "params" || kind == "tags") return send_batch(events);
    if (kind == "status") return send_status(first);
    if (kind == "text" || kind == "file") return send_artifact(first);
    return {Delivery::Kind::damaged, 1,
            "event " + std::to_string(events.front().number) + " is not an event of MLFlowLogger: " +
                cut_text(events.front().line.substr(0, events.front().line.find_last_not_of('\n') + 1)) + "."};
  } catch (const Json::exception& error) {
    return {Delivery::Kind::again, 0, std::string("the answer is not one of MLflow's: ") + error.what() + "."};
  }
}

struct MlflowClient::Batch {
  Json metrics = Json::array();
  Json params = Json::array();
  Json tags = Json::array();

  // False, and unchanged, if the event does not belong into this request any more.
  bool take(const Json& event) {
    const std::string kind = event.value("k", "");
    if (kind != "metrics" && kind != "params" && kind != "tags") return false;
    const Json& items = event.at("i");
    Json& list = kind == "metrics" ? metrics : kind == "params" ? params : tags;
    const size_t most = kind == "metrics" ? kMaxMetrics : kind == "params" ? kMaxParams : kMaxTags;
    const bool is_empty = metrics.empty() && params.empty() && tags.empty();
    if (!is_empty && (list.size() + items.size() > most ||
                      metrics.size() + params.size() + tags.size() + items.size() > kMaxMetrics))
      return false;
    if (kind != "metrics") {
      for (const Json& item : items) list.push_back({{"key", item.at(0)}, {"value", item.at(1)}});
      return true;
    }
    for (const Json& item : items) {
      list.push_back(
          {{"key", item.at(0)}, {"value", item.at(1)}, {"timestamp", event.at("t")}, {"step", event.at("step")}});
    }
    return true;
  }
};

// If the server refuses several events at once, they are tried in ever smaller batches, so that only those are given up
// that it does not want.
Delivery MlflowClient::send_batch(std::span<const SpilledEvent> events) {
  Batch batch;
  size_t count = 0;
  while (count < events.size() && count < most_events_ && batch.take(event_of(events[count]))) ++count;
  const HttpAnswer answer = call("POST", "runs/log-batch",
                                 {{"run_id", run_.run_id},
                                  {"metrics", std::move(batch.metrics)},
                                  {"params", std::move(batch.params)},
                                  {"tags", std::move(batch.tags)}});
  if (answer.is_success()) {
    if (most_events_ != SIZE_MAX) most_events_ = std::min(kMaxMetrics, 2 * most_events_);
    return {Delivery::Kind::delivered, count};
  }
  if (answer.status == 404) return failed(answer, Delivery::Kind::halted);  // the run was deleted there
  const Delivery failure = failed(answer, Delivery::Kind::refused, count);
  if (failure.kind != Delivery::Kind::refused || count <= 1) return failure;
  most_events_ = count / 2;
  return send_batch(events.first(most_events_));
}

Delivery MlflowClient::send_status(const Json& event) {
  Json body = {{"run_id", run_.run_id}, {"status", event.at("status")}};
  if (event.at("status") != "RUNNING") body["end_time"] = event.at("t");
  const HttpAnswer answer = call("POST", "runs/update", body);
  if (answer.is_success()) return {Delivery::Kind::delivered, 1};
  return failed(answer, answer.status == 404 ? Delivery::Kind::halted : Delivery::Kind::refused, 1);
}

Delivery MlflowClient::send_artifact(const Json& event) {
  const std::string to = event.at("to");
  if (!is_path_below(to))  // a server resolves "..", and would store the file elsewhere
    return {Delivery::Kind::damaged, 1, cut_text(to, 200) + " is not a path below the run's files."};
  if (!run_.artifact_uri.starts_with(kProxy))
    return {Delivery::Kind::refused, 1,
            "the run's files are at " + split_credentials(run_.artifact_uri).url + ", where " + to +
                " cannot be sent. Start the server with --serve-artifacts."};
  std::string path = run_.artifact_uri.substr(std::string(kProxy).size());
  if (path.starts_with("//")) path = path.find('/', 2) == std::string::npos ? "" : path.substr(path.find('/', 2));
  while (path.starts_with('/')) path.erase(0, 1);
  if (!path.empty() && !is_path_below(path))
    return {
        Delivery::Kind::halted, 0,
        "the server reports the run's files at " + cut_text(run_.artifact_uri, 200) + ", which is not a valid path."};
  HttpRequest request;
  request.method = "PUT";
  request.url = run_.tracking_uri + "/api/2.0/mlflow-artifacts/artifacts/" + url_encoded(path + "/" + to, "/");
  request.headers = {"Content-Type: application/octet-stream"};
  std::string file;
  if (event.at("k") == "text") {
    request.body = event.at("text");
  } else {
    // Only copies of this folder: an outbox from a stranger must name no other file, neither to send nor to remove.
    const fs::path name = event.at("file").get<std::string>();
    file = (fs::path(folder_) / name).string();
    if (name.parent_path() != "outbox_files" || !is_inside(file, folder_))
      return {Delivery::Kind::damaged, 1, cut_text(name.string(), 200) + " is not a file of the outbox."};
    std::error_code code;
    const fs::file_status status = fs::symlink_status(file, code);
    if (!fs::is_regular_file(status))
      return {Delivery::Kind::damaged, 1,
              cut_text(file, 400) + (fs::exists(status) ? " is not a regular file" : " is gone") +
                  ", and cannot be sent as " + cut_text(to, 200) + "."};
    request.body_file = file;
  }
  const HttpAnswer answer = send(std::move(request));
  if (!answer.is_success()) return failed(answer, Delivery::Kind::refused, 1);
  if (!file.empty()) delivered_files_.push_back(file);
  return {Delivery::Kind::delivered, 1};
}

void MlflowClient::remove_delivered() {
  std::error_code code;
  for (const std::string& file : std::exchange(delivered_files_, {})) {
    const NotedRemoval removal(file);
    fs::remove(file, code);
  }
}

}  // namespace levin
