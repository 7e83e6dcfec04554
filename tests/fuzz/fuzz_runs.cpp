// libFuzzer target: an input is the files of a run's folder, in sections separated by lines "%%%%"; the first line of a
// section is the file's name. What `levin runs`, `levin report` and `levin top` do with such a folder, alone and next
// to a good run, ends in text or in Error, for any bytes.
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fuzz_support.h"
#include "levin/cli/commands/top_view.h"
#include "levin/cli/config/text_layout.h"
#include "levin/cli/runs/report_page.h"
#include "levin/cli/runs/run_folder.h"
#include "levin/cli/runs/run_list.h"
#include "levin/cli/runs/run_table.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 5> kNames{"run.json", "metrics.csv", "metrics.jsonl", "hparams.yaml", "config.yaml"};
constexpr double kNow = 1.8e9;

// good: a run of another program, with which the first one is compared.
class Folders {
 public:
  Folders() {
    fs::create_directories(run());
    fs::create_directories(good());
    std::ofstream(good() + "/run.json")
        << R"({"status": "success", "started": 1764000000, "ended": 1764000060, "step": 3, "host": "a", "pid": 1,
               "metrics": {"train_loss": {"last": 0.5, "min": 0.5, "max": 1, "last_step": 2, "min_step": 2,
               "max_step": 0}}, "monitor": {"name": "train_loss", "mode": "min", "best": 0.5}})";
    std::ofstream(good() + "/metrics.csv") << "epoch,step,train_loss\n0,0,1\n0,1,0.7\n0,2,0.5\n";
    std::ofstream(good() + "/hparams.yaml") << "lr: 0.1\n";
  }
  [[nodiscard]] std::string run() const { return root_ / "run"; }
  [[nodiscard]] std::string good() const { return root_ / "good"; }
  [[nodiscard]] const std::string& all() const { return root_.path(); }

 private:
  test::TemporaryFolder root_;
};

const Folders& folders() {
  static const Folders made;
  return made;
}

// Returns the contents of metrics.csv or metrics.jsonl, whichever `levin report` reads.
std::string write_files(std::string_view input) {
  for (const char* name : kNames) fs::remove(folders().run() + "/" + name);
  std::string metrics;
  for (const std::string& section : sections_of(input, kNames.size())) {
    const size_t line = std::min(section.find('\n'), section.size());
    const std::string name = section.substr(0, line);
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) continue;
    const std::string content = section.substr(std::min(line + 1, section.size()));
    std::ofstream(folders().run() + "/" + name, std::ios::binary) << content;
  }
  for (const char* name : {"metrics.csv", "metrics.jsonl"}) {
    std::ifstream file(folders().run() + "/" + name, std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), {}};
  }
  return "";
}

bool same(const MetricSeries& one, const MetricSeries& other) {
  const auto equal = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  return one.steps == other.steps &&
         std::equal(one.values.begin(), one.values.end(), other.values.begin(), other.values.end(), equal);
}

// A file that grows while it is read gives the same as the whole file.
void check_growing_file(const std::string& metrics, const MetricsReader& whole) {
  const bool is_csv = fs::exists(folders().run() + "/metrics.csv");
  const std::string path = folders().run() + (is_csv ? "/metrics.csv" : "/metrics.jsonl");
  MetricsReader growing(folders().run());
  std::ofstream file(path, std::ios::binary);
  file << metrics.substr(0, metrics.size() / 2) << std::flush;
  (void)growing.update();
  file << metrics.substr(metrics.size() / 2) << std::flush;
  (void)growing.update();
  const auto& one = growing.series();
  const auto& other = whole.series();
  const bool equal = std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && same(a.second, b.second);
  });
  expect(equal && growing.bad_lines() == whole.bad_lines(), "a growing file reads as the whole file", metrics);
}

size_t count_of_text(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The tags of a page itself. Everything that comes from files is text in it.
void check_page(const std::vector<std::string>& runs) {
  static const size_t scripts = [] {
    return count_of_text(report_page(collect_report({folders().good()})), "<script");
  }();
  const std::string page = report_page(collect_report(runs));
  expect(count_of_text(page, "<script") <= scripts, "no script of a file is in the page", page);
  expect(count_of_text(page, "<img") == 0 && count_of_text(page, "<iframe") == 0, "no tag of a file is in the page");
  expect(page.size() < (size_t{8} << 20), "a page is not endless");
  for (const char* broken : {" d=\"Mnan", " d=\"Minf", "Lnan", " nan\"", " inf\"", "\"nan", "\"inf", "\"-nan"}) {
    const size_t at = page.find(broken);
    expect(at == std::string::npos, "every point of a chart is finite",
           at == std::string::npos ? "" : page.substr(at > 100 ? at - 100 : 0, 300));
  }
  const bool has_control = std::any_of(
      page.begin(), page.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t'; });
  expect(!has_control, "a page holds no control characters", page);
}

void check_top(const RunRecord& record, const MetricsReader& reader) {
  for (const auto& [columns, rows] : {std::pair{80, 24}, {200, 60}, {20, 5}, {1, 1}}) {
    TopCurves curves;
    choose_curves(curves, metrics_in_order(reader.series()), curves_for(columns));
    const auto lines = top_view(record, reader.series(), curves, columns, rows, kNow, "note");
    expect(lines.size() <= static_cast<size_t>(rows), "a view has no more lines than the terminal");
    for (const TopLine& line : lines) {
      std::string text;
      for (const TopPiece& piece : line) text += piece.text;
      expect(text_width(text) <= static_cast<size_t>(columns), "a line is no wider than the terminal", text);
      expect(std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
             "a line holds no control characters", text);
    }
  }
  (void)plain_line(record, reader.series(), kNow);
  (void)end_text(record);
}

void check_list(std::vector<ListedRun> runs) {
  const std::string text = runs_as_json(runs);
  expect(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }),
         "the list as JSON is ASCII", text);
  expect(nlohmann::json::accept(text), "the list as JSON can be read", text);
  for (const int width : {40, 80, 300}) (void)run_table(runs, {width, {}});
  const RunColumns columns(runs);
  for (const char* order : {"-started", "duration", "best", "name", "-step"}) sort_runs(runs, order);
  for (const char* filter : {"duration>1h", "name~a", "status=failed", "step<=3", "started>2026-11-01"}) {
    const auto holds = parse_filter(filter, columns);
    for (const ListedRun& run : runs) (void)holds(run);
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  const std::string metrics = write_files(input);
  try {
    const RunRecord record = read_run_record(folders().run());
    MetricsReader reader(folders().run());
    (void)reader.update();
    check_list(read_runs({folders().run(), folders().good()}, folders().all()));
    check_page({folders().run()});
    check_page({folders().run(), folders().good()});
    check_top(record, reader);
    if (!metrics.empty()) check_growing_file(metrics, reader);
    ++Counts::instance().whole;
    check_planted(record.unreadable, "expected a JSON object");
  } catch (const Error& error) {
    expect_good_message(cut_text(error.what(), 400), 2000);
  }
}

void begin() {
  Counts::print_at_exit();
  Console::instance().capture([](const std::string&) {});
}

}  // namespace levin::fuzz
