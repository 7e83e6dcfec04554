// One process on two logical CPU devices with one core each: the step time with a pipeline and with dp, compared with
// one device with one thread, and with the best possible time on two devices.
//
//   bench_devices [--rounds N] [--quick]
//   bench_devices alone|micro_batches|pipeline|dp MODEL STEPS PARTS THREADS      one candidate: ms a step, faults a
//   step
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "levin/core/process/console.h"
#include "levin/levin.h"
#include "one_batch.h"
#include "peer.h"
#include "programs.h"
#include "rounds.h"

namespace bench::devices {

namespace {

namespace nn = torch::nn;
using Words = std::vector<std::string>;

// Two parts of equal work: many rows, whose activations cost memory; large weights, whose gradients are added up in
// every micro-batch.
struct Shape {
  int64_t width;
  int64_t batch;
  int64_t blocks = 4;  // of each part
};

Shape shape_of(const std::string& model) {
  if (model == "rows") return {256, 4096};
  if (model == "weights") return {1024, 256};
  throw std::runtime_error("no model is called " + model + ": rows, weights");
}

nn::Sequential part(const Shape& shape) {
  nn::Sequential blocks;
  for (int64_t k = 0; k < shape.blocks; ++k) {
    blocks->push_back(nn::Linear(shape.width, shape.width));
    blocks->push_back(nn::ReLU());
  }
  return blocks;
}

class TwoParts : public levin::LightningModule {
 public:
  explicit TwoParts(const Shape& shape) : shape_(shape), first_(part(shape)), second_(part(shape)) {
    register_module("first", first_);
    register_module("second", second_);
  }
  std::shared_ptr<nn::Module> clone(const std::optional<torch::Device>&) const override {
    return std::make_shared<TwoParts>(shape_);
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::mse_loss(levin::call(second_, levin::call(first_, batch[0])), batch[1]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::SGD(parameters(), {.lr = 1e-3}); }

 private:
  Shape shape_;
  nn::Sequential first_, second_;
};

// Excludes the first steps, which create the threads and their memory.
class StepWatch : public levin::Callback {
 public:
  static constexpr int64_t kFirst = 5;
  void on_train_batch_start(levin::Trainer&, levin::LightningModule&, const levin::Batch&, int64_t idx) override {
    if (idx != kFirst) return;
    faults_ = faults();
    start_ = Clock::now();
  }
  void on_train_batch_end(levin::Trainer&, levin::LightningModule&, const at::Tensor&, const levin::Batch&,
                          int64_t idx) override {
    const auto steps = static_cast<double>(idx + 1 - kFirst);
    if (steps <= 0) return;
    milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start_).count() / steps;
    faults_a_step = static_cast<double>(faults() - faults_) / steps;
  }
  double milliseconds = 0, faults_a_step = 0;

 private:
  using Clock = std::chrono::steady_clock;
  static int64_t faults() {
    rusage used = {};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  }
  Clock::time_point start_;
  int64_t faults_ = 0;
};

levin::TrainerOptions options_of(const std::string& kind, const Shape& shape, int64_t parts) {
  levin::TrainerOptions options;
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.accelerator = "cpu";
  options.devices = int64_t{kind == "pipeline" || kind == "dp" ? 2 : 1};
  if (kind == "micro_batches") options.micro_batch_size = shape.batch / parts;
  if (kind == "dp") options.strategy = "dp";
  if (kind == "pipeline") {
    options.strategy = levin::ModelParallel(
        {.placement = levin::Placement{{"first", 0}, {"second", 1}}, .pipeline = levin::PipelineOptions{parts}});
  }
  return options;
}

int run_alone(const Words& words) {
  if (words.size() != 5) throw std::runtime_error("usage: bench_devices KIND MODEL STEPS PARTS THREADS");
  levin::Console::instance().capture([](const std::string&) {});
  at::set_num_threads(std::stoi(words[4]));
  const Shape shape = shape_of(words[1]);
  torch::manual_seed(0);
  TwoParts model(shape);
  const auto watch = std::make_shared<StepWatch>();
  levin::TrainerOptions options = options_of(words[0], shape, std::stol(words[3]));
  options.max_steps = StepWatch::kFirst + std::stol(words[2]);
  options.callbacks = {watch};
  levin::Trainer(options).fit(
      model, std::make_shared<OneBatch>(
                 levin::Batch({torch::randn({shape.batch, shape.width}), torch::randn({shape.batch, shape.width})})));
  std::printf("[%.3f, %.0f]\n", watch->milliseconds, watch->faults_a_step);
  return 0;
}

Candidate own(std::string name, Words words) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_devices");
  words.insert(words.begin(), program.string());
  return {std::move(name), [words] { return Process(words, peer_log("devices")).answer()[0].get<double>(); }};
}

void measure(const std::string& model, const Options& options, Report& report) {
  const std::string steps = options.quick ? "1" : "10";
  const auto measurements = interleave(
      {own("one device, one thread", {"alone", model, steps, "1", "1"}),
       own("the same, 4 micro-batches", {"micro_batches", model, steps, "4", "1"}),
       own("the same, 8 micro-batches", {"micro_batches", model, steps, "8", "1"}),
       own("pipeline, 4 micro-batches", {"pipeline", model, steps, "4", "2"}),
       own("pipeline, 8 micro-batches", {"pipeline", model, steps, "8", "2"}),
       own("dp", {"dp", model, steps, "1", "2"}), own("one device, two threads", {"alone", model, steps, "1", "2"})},
      options);
  report.table(model, "ms a step", measurements);
  for (const double parts : {4.0, 8.0}) {
    const std::string micro = std::to_string(static_cast<int>(parts)) + " micro-batches";
    const std::string key = model + "_pipeline_" + std::to_string(static_cast<int>(parts));
    report.number(key + "_formula", (2 - 1 + parts) / (2 * parts));
    report.number(key + "_to_micro_batches", ratio(measurements, "pipeline, " + micro, "the same, " + micro));
    report.number(key + "_to_whole_batch", ratio(measurements, "pipeline, " + micro, "one device, one thread"));
  }
  report.number(model + "_dp", ratio(measurements, "dp", "one device, one thread"));
  report.number(model + "_two_threads", ratio(measurements, "one device, two threads", "one device, one thread"));
}

int run(const Options& options) {
  if (!options.words.empty()) return run_alone(options.words);
  ::setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);  // as the levin tool does
  Report report("devices");
  for (const char* model : {"rows", "weights"}) measure(model, options, report);
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 9);
  return guarded([&] { return run(options); });
}

}  // namespace bench::devices
