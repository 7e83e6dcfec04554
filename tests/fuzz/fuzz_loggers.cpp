// libFuzzer target: what a run that is resumed finds in its folder from an earlier session, damaged or of another
// program. The first byte of an input selects the file, and the rest is its content:
//
//   c metrics.csv, j metrics.jsonl and t an event file of TensorBoard, after a line with the number of rows or bytes
//     that the checkpoint counts
//   q runs.sqlite     r run.json     o outbox.jsonl and, after a line "%%%%", outbox.position
//
// For any bytes, the logger continues: what it logs can be read back, or it has reported why it cannot write.
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fuzz_support.h"
#include "levin/cli/runs/metrics_reader.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/core/files/files.h"
#include "levin/core/files/sqlite.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/loggers/csv_logger.h"
#include "levin/loggers/json_lines_logger.h"
#include "levin/loggers/run_recorder.h"
#include "levin/loggers/spill_file.h"
#include "levin/loggers/sqlite_logger.h"
#include "levin/loggers/tensorboard_logger.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr double kLoss = 0.625;
constexpr int64_t kStep = 70;

std::string reported;  // the last message of the console

const std::string& root() {
  static const test::TemporaryFolder folder;
  return folder.path();
}

// The folder of the run, empty.
std::string new_folder() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root())) fs::remove_all(entry.path(), ignored);
  fs::create_directories(root() + "/run");
  return root() + "/run";
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

int64_t number_of_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  int64_t number = 0;
  (void)std::from_chars(line.data(), line.data() + line.size(), number);
  rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  return number;
}

void resume(Logger& logger, const State& saved) {
  logger.start(root(), /*resume=*/true);
  logger.own_folder();
  logger.load_state_dict(saved);
  ConfigNode hparams = ConfigNode::map();
  hparams.set("lr", ConfigNode::scalar("0.1"));
  logger.log_hyperparams(hparams);
  logger.log_metrics({{"epoch", 1}, {"loss", kLoss}}, {kStep, 1.8e9});
  logger.log_text("note", "text", {kStep, 1.8e9});
  logger.save();
  (void)logger.state_dict();
  logger.log_final_metrics({{"loss", kLoss}}, {kStep, 1.8e9});
  logger.finalize("success");
}

void check_series(const std::string& folder) {
  MetricsReader reader(folder);
  (void)reader.update();
  const auto found = reader.series().find("loss");
  expect(found != reader.series().end() && !found->second.steps.empty() && found->second.steps.back() == kStep &&
             found->second.values.back() == kLoss,
         "what is logged can be read back");
}

void resume_csv(std::string_view rest) {
  const std::string folder = new_folder();
  State saved;
  const int64_t rows = number_of_line(rest);
  write(folder + "/metrics.csv", rest);
  saved.set("rows", rows);
  saved.set("columns", std::vector<std::string>{"epoch", "loss", "step"});
  CSVLogger logger({.save_dir = root(), .name = "", .version = "run"});
  resume(logger, rows < 0 ? State() : saved);
  if (reported.empty()) check_series(folder);
}

void resume_json_lines(std::string_view rest) {
  const std::string folder = new_folder();
  State saved;
  const int64_t bytes = number_of_line(rest);
  write(folder + "/metrics.jsonl", rest);
  saved.set("jsonl_bytes", bytes);
  JSONLinesLogger logger({.save_dir = root(), .name = "", .version = "run"});
  resume(logger, bytes < 0 ? State() : saved);
  if (reported.empty()) check_series(folder);
}

// Each record: a length of 8 bytes, its checksum, the event, its checksum.
void check_records(const std::string& path) {
  const std::string text = read_file(path);
  size_t at = 0;
  while (at + 16 <= text.size()) {
    uint64_t length = 0;
    std::memcpy(&length, text.data() + at, sizeof length);
    expect(length <= text.size() - at - 16, "a record is within the file", path);
    at += 16 + length;
  }
  expect(at == text.size() && text.find("loss") != std::string::npos, "an event file holds whole records", path);
}

void resume_events(std::string_view rest) {
  const std::string folder = new_folder();
  const int64_t bytes = number_of_line(rest);
  const std::string name = "events.out.tfevents.1764000000.node1.4711.0";
  write(folder + "/" + name, rest);
  State saved;
  saved.set("event_files", std::vector<std::string>{name});
  saved.set("event_bytes", std::vector<int64_t>{bytes});
  saved.set("last_step", kStep - 1);
  TensorBoardLogger logger({.save_dir = root(), .name = "", .version = "run"});
  resume(logger, saved);
  if (!reported.empty()) return;
  expect(logger.files().size() >= 1, "there is a file of events");
  check_records(logger.files().back());
}

// Of the numbers in all runs, the newest is the one that was logged last.
void resume_sqlite(std::string_view rest) {
  (void)new_folder();
  const std::string path = root() + "/runs.sqlite";
  write(path, rest);
  State saved;
  saved.set<std::string>("run", "0123456789abcdef");
  State rows;
  for (const char* table : {"metrics", "texts", "tables", "histograms", "artifacts"}) rows.set<int64_t>(table, 2);
  saved.put("rows", rows);
  {
    SQLiteLogger logger({.path = path, .busy_timeout = Seconds(0.01)});
    resume(logger, saved);
  }
  if (!reported.empty()) return;
  SqliteFile file(path, Seconds(0.01));
  SqliteStatement last = file.prepare(
      "SELECT metrics.value, metrics.step FROM metrics JOIN names ON names.id = metrics.name WHERE names.name = 'loss' "
      "ORDER BY metrics.id DESC LIMIT 1");
  expect(last.step() && last.number(0) == kLoss && last.integer(1) == kStep, "what is logged can be read back");
}

void resume_record(std::string_view rest) {
  const std::string folder = new_folder();
  write(folder + "/run.json", rest);
  write(folder + "/a.ckpt", "x");
  for (const bool continues : {true, false}) {
    RunRecorder recorder(folder);
    RunProgress progress;
    progress.started = progress.now = 1.8e9;
    progress.step = progress.windows = kStep;
    progress.progress = 0.5;
    progress.time_split = {{"data", 1.0}};
    recorder.begin(progress, continues);
    recorder.log_metrics({{"loss", kLoss}}, {kStep, 1.8e9});
    recorder.add_checkpoint({folder + "/a.ckpt", kStep, 1, 1.8e9, 0.5});
    recorder.write(progress);
    progress.now += 1;
    progress.status = "success";
    recorder.write(progress);
    const RunRecord record = read_run_record(folder);
    expect(record.unreadable.empty() && record.step == kStep && record.status == RunStatus::success,
           "a run that continues has a record", record.unreadable);
  }
}

void resume_outbox(std::string_view rest) {
  const std::string folder = new_folder();
  const std::vector<std::string> files = sections_of(rest, 2);
  write(folder + "/outbox.jsonl", files[0]);
  if (files.size() > 1) write(folder + "/outbox.position", files[1]);
  int64_t number = 0;
  {
    SpillFile queue(folder, 1 << 20);
    (void)queue.next(3, 1000);
    expect(queue.push(R"("k":"tags","i":[])", 1), "there is room for an event");
    number = queue.last_number();
    const auto all = queue.next(SIZE_MAX, SIZE_MAX);
    expect(!all.empty() && all.back().number == number, "the event that was added last comes last");
    for (const SpilledEvent& event : all) {
      expect(nlohmann::json::accept(event.line), "an event is JSON", event.line);
    }
    queue.acknowledge(all[all.size() / 2].number, 0);
    queue.sync();
  }
  SpillFile again(folder, 1 << 20);
  expect(again.last_number() == number, "the numbers go on", std::to_string(again.last_number()));
  (void)again.cut(0, [](const SpilledEvent&) { return true; });
  expect(again.waiting_events() == 0 && again.waiting_values() == 0, "all events can be cut");
}

void resume_kind(char kind, std::string_view rest) {
  switch (kind) {
    case 'c': return resume_csv(rest);
    case 'j': return resume_json_lines(rest);
    case 't': return resume_events(rest);
    case 'q': return resume_sqlite(rest);
    case 'r': return resume_record(rest);
    case 'o': return resume_outbox(rest);
    default: return;
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  reported.clear();
  try {
    resume_kind(input[0], input.substr(1));
    if (reported.empty()) ++Counts::instance().whole;
  } catch (const Error& error) {
    expect_good_message(error.what(), 2000);
  }
  check_planted(reported, "The missing ones are lost");
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string& text) {
    expect_good_message(text, 3000);
    reported = text;
  });
}

}  // namespace levin::fuzz
