#include "rounds.h"

#include <ATen/Parallel.h>
#include <sched.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace bench {

namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

const Measurement* find(const std::vector<Measurement>& measurements, const std::string& name) {
  const auto found =
      std::find_if(measurements.begin(), measurements.end(), [&](const Measurement& f) { return f.name == name; });
  return found == measurements.end() ? nullptr : &*found;
}

}  // namespace

Options read_options(int argc, char** argv, int rounds) {
  Options options{.rounds = rounds};
  CLI::App app("A benchmark of Levin; docs/performance.md explains its results.");
  app.add_option("--rounds", options.rounds, "measured rounds")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--quick", options.quick, "one round of little work, to see that the program runs");
  app.add_option("words", options.words, "see docs/performance.md");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (options.quick) options.rounds = 1;
  return options;
}

int guarded(const std::function<int()>& program) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a table is seen when it is ready, in a pipe too
  try {
    return program();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench: %s\n", error.what());
    return 1;
  }
}

std::vector<Measurement> interleave(const std::vector<Candidate>& candidates, const Options& options) {
  std::vector<std::vector<double>> rounds(candidates.size());
  for (size_t k = 0; k < candidates.size() && !options.quick; ++k) candidates[k].run();
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t k = 0; k < candidates.size(); ++k) {
      const size_t turn = (k + static_cast<size_t>(round)) % candidates.size();
      rounds[turn].push_back(candidates[turn].run());
    }
  }
  std::vector<Measurement> measurements;
  for (size_t k = 0; k < candidates.size(); ++k)
    measurements.push_back(measurement_of(candidates[k].name, std::move(rounds[k])));
  return measurements;
}

Measurement measurement_of(std::string name, std::vector<double> rounds) {
  if (rounds.empty()) throw std::invalid_argument("no round of " + name);
  const auto [lowest, highest] = std::minmax_element(rounds.begin(), rounds.end());
  Measurement measurement{std::move(name), median_of(rounds), *lowest, *highest};
  measurement.rounds = std::move(rounds);
  return measurement;
}

std::optional<double> compare(const std::vector<Measurement>& measurements, const std::string& name,
                              const std::string& to, const std::function<double(double, double)>& value) {
  const Measurement* a = find(measurements, name);
  const Measurement* b = find(measurements, to);
  if (a == nullptr || b == nullptr) return std::nullopt;
  std::vector<double> values;
  for (size_t k = 0; k < a->rounds.size(); ++k) values.push_back(value(a->rounds[k], b->rounds[k]));
  return median_of(values);
}

std::optional<double> ratio(const std::vector<Measurement>& measurements, const std::string& name,
                            const std::string& to) {
  return compare(measurements, name, to, [](double a, double b) { return a / b; });
}

void pin_to_one_core() {
  at::set_num_threads(1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  for (int core = CPU_SETSIZE - 1; core >= 0; --core) {
    if (!CPU_ISSET(core, &cores)) continue;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    break;
  }
  sched_setaffinity(0, sizeof cores, &cores);
}

std::filesystem::path result_folder() {
  const char* folder = std::getenv("LEVIN_BENCH_DIR");
  std::filesystem::path path(folder != nullptr ? folder : "build/bench");
  std::filesystem::create_directories(path);
  return path;
}

Report::Report(std::string name)
    : name_(std::move(name)),
      out_({{"name", name_},
            {"cpu", cpu_model()},
            {"cores", std::thread::hardware_concurrency()},
            {"threads", at::get_num_threads()},
            {"libtorch", TORCH_VERSION}}) {}

void Report::table(const std::string& title, const std::string& unit, const std::vector<Measurement>& measurements) {
  std::printf("%s\n  %-34s %12s %20s %8s\n", title.c_str(), "", unit.c_str(), "lowest - highest", "ratio");
  auto& rows = out_["tables"][title];
  rows["unit"] = unit;
  for (const auto& measurement : measurements) {
    const double to_first = *ratio(measurements, measurement.name, measurements[0].name);
    std::printf("  %-34s %12.2f %10.2f - %7.2f %8.3f\n", measurement.name.c_str(), measurement.median,
                measurement.lowest, measurement.highest, to_first);
    rows["figures"][measurement.name] = {{"median", measurement.median},
                                         {"lowest", measurement.lowest},
                                         {"highest", measurement.highest},
                                         {"rounds", measurement.rounds},
                                         {"ratio", to_first}};
  }
  std::printf("\n");
  save();  // what is known stays if a later part fails or takes too long
}

void Report::number(const std::string& key, std::optional<double> value) {
  if (!value) return;
  std::printf("%-36s %10.3f\n", key.c_str(), *value);
  out_[key] = *value;
}

void Report::at_most(const std::string& key, std::optional<double> value, double limit) {
  target(key, value, "at most", limit);
}

void Report::at_least(const std::string& key, std::optional<double> value, double limit) {
  target(key, value, "at least", limit);
}

void Report::target(const std::string& key, std::optional<double> value, const char* kind, double limit) {
  if (!value) {
    std::printf("%-36s %10s   %s %g: not measured, its peer did not take part\n", key.c_str(), "-", kind, limit);
    return;
  }
  const bool met = std::string(kind) == "at most" ? *value <= limit : *value >= limit;
  std::printf("%-36s %10.3f   %s %g: %s\n", key.c_str(), *value, kind, limit, met ? "met" : "NOT MET");
  out_[key] = *value;
  out_["bars"][key] = {{"value", *value}, {kind, limit}, {"met", met}};
}

void Report::peers(const nlohmann::json& versions) {
  out_["peers"] = versions;
}

std::filesystem::path Report::save() const {
  std::filesystem::path path = result_folder() / (name_ + ".json");
  std::ofstream file(path);
  file << out_.dump(1) << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  return path;
}

void Report::write() const {
  std::printf("written to %s\n", save().c_str());
}

}  // namespace bench
