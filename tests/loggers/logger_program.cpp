// A logger that a test drives from outside, so that the test can kill it, or the server it sends to, at any time.
//
//   logger_program CLASS OPTIONS FOLDER [resume]      OPTIONS: a JSON object
//
// Each line of standard input is a JSON list, a call; each call is answered by a line on standard output: its result.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "levin/core/options/registry.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/stop_signal.h"
#include "levin/loggers/logger.h"
#include "levin/loggers/send_outbox.h"

namespace logger_program {
namespace {

using Json = nlohmann::json;
using levin::ConfigNode;

ConfigNode node_of(const Json& json) {
  if (json.is_string()) return ConfigNode::scalar(json.get<std::string>(), true);
  if (json.is_object()) {
    ConfigNode map = ConfigNode::map();
    for (const auto& [key, value] : json.items()) map.set(key, node_of(value));
    return map;
  }
  if (json.is_array()) {
    ConfigNode list = ConfigNode::list();
    for (const auto& item : json) list.items.push_back(node_of(item));
    return list;
  }
  return json.is_null() ? ConfigNode() : ConfigNode::scalar(json.dump());
}

Json json_of(const ConfigNode& node) {
  if (!node.is_map()) return node.quoted ? Json(node.text) : Json::parse(node.text);
  Json map = Json::object();
  for (const auto& entry : node.entries) map[entry.key] = json_of(entry.value);
  return map;
}

double number_of(const Json& json) {
  return json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();  // "nan", "inf"
}

levin::MetricList metrics_of(const Json& json) {
  levin::MetricList metrics;
  for (const auto& [name, value] : json.items()) metrics.emplace_back(name, number_of(value));
  return metrics;
}

levin::LogTable table_of(const Json& json) {
  levin::LogTable table{json.at("columns").get<std::vector<std::string>>(), {}};
  for (const auto& row : json.at("data")) {
    auto& cells = table.rows.emplace_back();
    for (const auto& cell : row)
      cells.push_back(cell.is_string() ? levin::LogTable::Cell(cell.get<std::string>())
                                       : levin::LogTable::Cell(cell.get<double>()));
  }
  return table;
}

// Calls as fast as they go: rows of ten values from step `from` on; the result is the time for one in microseconds.
Json flood(levin::Logger& logger, int64_t from, int64_t count) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = from; step < from + count; ++step) {
    levin::MetricList row;
    for (int k = 0; k < 10; ++k) row.emplace_back("metric_" + std::to_string(k), static_cast<double>(step) + 0.1 * k);
    logger.log_metrics(row, {step, 1.7e9 + static_cast<double>(step)});
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(count);
}

Json call(levin::Logger& logger, const Json& arguments) {
  const std::string what = arguments.at(0);
  const auto at = [&](size_t k) { return levin::LogPoint(arguments.at(k).get<int64_t>(), 0); };
  if (what == "metrics") logger.log_metrics(metrics_of(arguments.at(2)), at(1));
  if (what == "system") logger.log_system(metrics_of(arguments.at(2)), at(1));
  if (what == "status") logger.log_status(metrics_of(arguments.at(2)), at(1));
  if (what == "flood") return flood(logger, arguments.at(1), arguments.at(2));
  if (what == "hparams") logger.log_hyperparams(node_of(arguments.at(1)));
  if (what == "final") logger.log_final_metrics(metrics_of(arguments.at(2)), at(1));
  if (what == "text") logger.log_text(arguments.at(2), arguments.at(3), at(1));
  if (what == "table") logger.log_table(arguments.at(2), table_of(arguments.at(3)), at(1));
  if (what == "histogram")
    logger.log_histogram(arguments.at(2),
                         {.min = 0,
                          .max = 2,
                          .count = 3,
                          .sum = 3,
                          .sum_squares = 5,
                          .nonfinite = 1,
                          .edges = {0, 1, 2},
                          .counts = {1, 2}},
                         at(1));
  if (what == "artifact") logger.log_artifact(arguments.at(2), arguments.at(3), at(1));
  if (what == "own") logger.own_folder();
  if (what == "save") logger.save();
  if (what == "finalize") logger.finalize(arguments.at(1));
  if (what == "log_dir") return logger.log_dir();
  if (what == "takes") return logger.takes();
  if (what == "state") return json_of(logger.state_dict().values);
  if (what == "load") {
    levin::State state;
    if (!arguments.at(1).empty()) state.values = node_of(arguments.at(1));
    logger.load_state_dict(state);
  }
  return "done";
}

int drive(int count, char** arguments) {
  const levin::WriteErrorsScope writes;  // as the Trainer has
  levin::add_builtins();
  const auto logger =
      levin::Registry<levin::Logger>::instance().make({arguments[1], node_of(Json::parse(arguments[2])), {}}, "logger");
  logger->start(arguments[3], count > 4 && std::string(arguments[4]) == "resume");
  std::cout << Json("started") << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << call(*logger, Json::parse(line)) << std::endl;
  return 0;
}

// logger_program send FOLDER SECONDS
int send(char** arguments) {
  for (const std::string& folder : levin::outbox_folders(arguments[2])) {
    const levin::OutboxReport report = levin::send_outbox(folder, levin::Seconds(std::stod(arguments[3])));
    std::cout << Json{{"delivered", report.delivered},
                      {"waiting", report.waiting},
                      {"dropped", report.dropped},
                      {"refused", report.refused},
                      {"problem", report.problem}}
              << std::endl;
  }
  return 0;
}

}  // namespace

int run_program(int count, char** arguments) {
  return levin::main_guard(
      [&] { return std::string(arguments[1]) == "send" ? send(arguments) : drive(count, arguments); });
}

}  // namespace logger_program
