#include "rounds.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
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

}  // namespace

std::vector<Figure> interleave(const std::vector<Contender>& contenders, int rounds) {
  std::vector<Figure> figures;
  for (const auto& contender : contenders) {
    contender.run();
    figures.push_back({contender.name});
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t k = 0; k < contenders.size(); ++k) {
      const size_t turn = (k + static_cast<size_t>(round)) % contenders.size();
      figures[turn].rounds.push_back(contenders[turn].run());
    }
  }
  for (auto& figure : figures) {
    figure.median = median_of(figure.rounds);
    figure.lowest = *std::min_element(figure.rounds.begin(), figure.rounds.end());
    figure.highest = *std::max_element(figure.rounds.begin(), figure.rounds.end());
  }
  return figures;
}

double ratio(const Figure& figure, const Figure& to) {
  std::vector<double> ratios;
  for (size_t k = 0; k < figure.rounds.size(); ++k) ratios.push_back(figure.rounds[k] / to.rounds[k]);
  return median_of(ratios);
}

void pin_to_one_core() {
  at::set_num_threads(1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(std::thread::hardware_concurrency() - 1, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

void print_table(const std::string& title, const std::string& unit, const std::vector<Figure>& figures) {
  std::printf("%s\n  %-34s %12s %20s %8s\n", title.c_str(), "", unit.c_str(), "lowest - highest", "ratio");
  for (const auto& figure : figures) {
    std::printf("  %-34s %12.2f %10.2f - %7.2f %8.3f\n", figure.name.c_str(), figure.median, figure.lowest,
                figure.highest, ratio(figure, figures[0]));
  }
}

void write_json(const std::string& name, const std::string& unit, const std::vector<Figure>& figures,
                const std::vector<std::pair<std::string, double>>& extra) {
  nlohmann::json out = {{"name", name},
                        {"unit", unit},
                        {"cpu", cpu_model()},
                        {"cores", std::thread::hardware_concurrency()},
                        {"threads", at::get_num_threads()}};
  for (const auto& figure : figures) {
    out["figures"][figure.name] = {{"median", figure.median},
                                   {"lowest", figure.lowest},
                                   {"highest", figure.highest},
                                   {"rounds", figure.rounds},
                                   {"ratio", ratio(figure, figures[0])}};
  }
  for (const auto& [key, value] : extra) out[key] = value;
  const char* folder = std::getenv("LEVIN_BENCH_DIR");
  const std::filesystem::path path =
      std::filesystem::path(folder != nullptr ? folder : "build/bench") / (name + ".json");
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << out.dump(1) << "\n";
  std::printf("written to %s\n", path.c_str());
}

}  // namespace bench
