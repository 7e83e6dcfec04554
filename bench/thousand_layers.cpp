// Peak memory and time of a training step of a thousand Linear layers (examples/models/articles/thousand_layers.h),
// without recomputation and in 2 to 1000 segments: JSON and a plot. The minimum is near the square root of
// 1000.
//
//   bench_thousand_layers [--rounds N] [--quick]
#include "models/articles/thousand_layers.h"

#include "levin/core/process/console.h"
#include "peak_memory.h"
#include "plot.h"
#include "rounds.h"
#include "stopwatch.h"

namespace bench::thousand_layers {

namespace {

constexpr int64_t kWidth = 32;
constexpr double kMiB = 1 << 20;

struct Work {
  int64_t layers = 1000;
  int64_t batch = 2048;
  int64_t steps = 4;
  std::vector<int64_t> segments = {0, 2, 8, 32, 100, 1000};  // 0: nothing is computed again
  int64_t best = 32, fewer = 8, more = 100;                  // of these; best: next to the square root of layers

  /// The input of one layer, which it keeps for backward.
  [[nodiscard]] double input_mib() const { return static_cast<double>(batch * kWidth * 4) / kMiB; }
};

struct Measured {
  double mib = 0;
  double ms = 0;  // of a step
};

Measured train(const Work& work, int64_t segments) {
  const auto data = std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{
      torch::randn({work.batch * work.steps, kWidth}), torch::randint(10, {work.batch * work.steps}, torch::kLong)});
  const auto watch = std::make_shared<Stopwatch>();
  levin::TrainerOptions options{.max_epochs = 1, .callbacks = {watch}, .barebones = true};
  if (segments > 0) options.recompute = levin::RecomputeOptions{.modules = {"layers"}, .segments = segments};
  const PeakMemory memory;
  torch::manual_seed(1);
  ThousandLayers model({.layers = work.layers, .width = kWidth, .in_features = kWidth});
  levin::Trainer trainer(options);
  trainer.fit(model, std::make_shared<levin::DataLoader>(data, levin::DataLoaderOptions{.batch_size = work.batch}));
  return {memory.mib(), watch->microseconds_a_step() / 1e3};
}

std::string name_of(int64_t segments) {
  return segments == 0 ? "no recomputation" : std::to_string(segments) + " segments";
}

// Chen 2016: the inputs of k segments and of the layers within one segment, plus the weights.
Curve sublinear(const Work& work) {
  const ThousandLayers model({.layers = work.layers, .width = kWidth, .in_features = kWidth});
  double weights = 0;
  for (const auto& parameter : model.parameters()) weights += static_cast<double>(parameter.nbytes()) / kMiB;
  const auto n = static_cast<double>(work.layers);
  Curve curve{"k + n/k inputs, and weights", {}, /*is_measured=*/false};
  for (double k = 2; k <= n; k *= 1.05) curve.points.push_back({k, weights + (k + n / k) * work.input_mib()});
  return curve;
}

Panel panel(const std::string& title, const std::vector<int64_t>& segments,
            const std::vector<Measurement>& measurements) {
  Curve measured{"in segments", {}}, without{"without", {}, /*is_measured=*/false};
  for (size_t k = 0; k < segments.size(); ++k) {
    if (segments[k] == 0) continue;
    measured.points.push_back({static_cast<double>(segments[k]), measurements[k].median});
    without.points.push_back({static_cast<double>(segments[k]), measurements[0].median});
  }
  return {title, {measured, without}};
}

int run(const Options& options) {
  pin_to_one_core();
  levin::Console::instance().capture([](const std::string&) {});
  const Work quick{.layers = 64, .steps = 1, .segments = {0, 2, 8, 32, 64}, .best = 8, .fewer = 2, .more = 32};
  const Work work = options.quick ? quick : Work{};
  const std::vector<int64_t>& segments = work.segments;
  std::vector<std::vector<double>> peaks(segments.size());
  std::vector<Candidate> candidates;
  for (size_t k = 0; k < segments.size(); ++k) {
    candidates.push_back({name_of(segments[k]), [&, k] {
                            const Measured measured = train(work, segments[k]);
                            peaks[k].push_back(measured.mib);
                            return measured.ms;
                          }});
  }
  const auto times = interleave(candidates, options);
  std::vector<Measurement> memory;
  for (size_t k = 0; k < segments.size(); ++k) memory.push_back(measurement_of(name_of(segments[k]), peaks[k]));

  const std::string what = std::to_string(work.layers) + " Linear layers of " + std::to_string(kWidth) +
                           ", batches of " + std::to_string(work.batch) + ", one thread";
  Report report("thousand_layers");
  report.table("peak memory of " + what, "MiB", memory);
  report.table("time of a step of " + what, "ms", times);
  const std::string best = name_of(work.best);
  const double kept = static_cast<double>(work.best - 1 + work.layers / work.best) / static_cast<double>(work.layers);
  report.at_most("memory_of_best_to_none", ratio(memory, best, name_of(0)), 2 * kept);  // weights count too
  report.at_most("memory_of_best_to_fewer_segments", ratio(memory, best, name_of(work.fewer)), 1);
  report.at_most("memory_of_best_to_more_segments", ratio(memory, best, name_of(work.more)), 1);
  report.at_most("time_of_best_to_none", ratio(times, best, name_of(0)), 1.34);
  report.write();
  Plot plot{what, "segments", {panel("peak memory, MiB", segments, memory), panel("a step, ms", segments, times)}};
  plot.panels[0].curves.push_back(sublinear(work));
  const auto picture = result_folder() / "thousand_layers.svg";
  write_plot(picture, plot);
  std::printf("written to %s\n", picture.c_str());
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::thousand_layers
