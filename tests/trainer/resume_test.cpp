// A run that was stopped anywhere and resumed ends bitwise identical to an uninterrupted one: weights, optimizer
// state, metrics.csv and every checkpoint.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "levin/callbacks/model_checkpoint.h"
#include "levin/callbacks/progress_bar.h"
#include "levin/core/files/files.h"
#include "levin/core/process/log.h"
#include "levin/levin.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"

namespace levin::resume_test {
namespace {

namespace fs = std::filesystem;
namespace F = torch::nn::functional;
using test::TemporaryFolder;

/// How one run is set up; everything else is the same.
struct Setup {
  const char* name;
  std::string optimizer = "SGD";  // or Adam
  bool one_cycle = false;
  std::string precision = "32-true";
  int64_t num_workers = 0;
  int64_t accumulate = 1;
  CheckInterval val_check_interval = 1.0;
  const char* batches = "of four";  // or by length, or combined
};

void PrintTo(const Setup& setup, std::ostream* out) {
  *out << setup.name;
}

constexpr int64_t kEpochs = 3;
constexpr int64_t kBatches = 7;

// Dropout, so that random numbers count; step, epoch and evaluation metrics; a stop where the test wants it.
class Net : public LightningModule {
 public:
  explicit Net(Setup setup) : setup_(std::move(setup)) { register_module("layers", layers_); }
  torch::Tensor training_step(const Batch& batch, int64_t) override {
    const auto loss = F::mse_loss(layers_->forward(batch[0]), batch[1]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("largest", loss, {.on_step = false, .on_epoch = true, .reduce_fx = ReduceFx::max});
    return loss;
  }
  void validation_step(const Batch& batch, int64_t) override {
    // Random on purpose: a validation that is run again must see the same numbers.
    log("val_loss", F::mse_loss(layers_->forward(batch[0]), batch[1]) + torch::rand({}));
    ++validation_batches;
    if (on_validation_batch) on_validation_batch(trainer(), validation_batches);
  }
  void on_train_batch_end(const torch::Tensor&, const Batch&, int64_t) override {
    // What a target network does: weights that change after the callbacks have run.
    const torch::NoGradGuard no_grad;
    layers_->parameters().back().mul_(0.999);
    if (after_batch) after_batch(trainer());
  }
  OptimizerConfig configure_optimizers() override {
    OptimizerConfig config = setup_.optimizer == "Adam"
                                 ? OptimizerConfig(Adam(parameters(), {.lr = 0.01}))
                                 : OptimizerConfig(SGD(parameters(), {.lr = 0.01, .momentum = 0.9}));
    if (setup_.one_cycle) {
      config.schedule(OneCycleLR({.max_lr = {0.02}, .total_steps = kEpochs * kBatches}), {.interval = Interval::step});
    }
    return config;
  }

  int64_t validation_batches = 0;
  std::function<void(Trainer&, int64_t)> on_validation_batch = nullptr;
  std::function<void(Trainer&)> after_batch = nullptr;

 private:
  Setup setup_;
  torch::nn::Sequential layers_{torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                                torch::nn::Linear(8, 1)};
};

// Says that its samples are 1 to 5 tokens long.
class Lengths final : public Dataset {
 public:
  explicit Lengths(std::vector<at::Tensor> tensors) : rows_(std::move(tensors)) {}
  int64_t size() const override { return rows_.size(); }
  Batch get(int64_t index) const override { return rows_.get(index); }
  int64_t length(int64_t index) const override { return 1 + index % 5; }

 private:
  TensorDataset rows_;
};

std::shared_ptr<DataLoader> loader(int64_t samples, bool shuffle, int64_t num_workers) {
  const auto x = torch::arange(samples * 4, torch::kFloat).reshape({samples, 4}).mul(0.37).sin();
  return std::make_shared<DataLoader>(
      std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, x.sum(1, true)}),
      DataLoaderOptions{.batch_size = 4, .shuffle = shuffle, .num_workers = num_workers});
}

TrainerOptions options_of(const Setup& setup, const std::string& folder) {
  TrainerOptions options;
  options.max_epochs = kEpochs;
  options.num_threads = 1;  // auto chooses by the times of steps, and checkpoints hold its choice
  options.accumulate_grad_batches = setup.accumulate;
  options.val_check_interval = setup.val_check_interval;
  options.log_every_n_steps = 2;
  options.precision = setup.precision;
  // A scale that is too high again and again: 4 of 21 steps are skipped, or 1 of 9 windows. (Where the last step falls
  // on a save point, BeforeTheEndOfTraining finds no checkpoint of the epoch's end.)
  if (setup.precision == "float16") {
    options.precision = MixedPrecision(
        {.dtype = MixedDtype::float16, .scaler = GradScalerOptions{.init_scale = 1 << 14, .growth_interval = 4}});
  }
  options.callbacks = {
      ModelCheckpoint({.filename = "{epoch}-{step}", .save_last = true, .save_top_k = -1, .every_n_train_steps = 2}),
      ModelCheckpoint({.filename = "best", .monitor = "val_loss"})};
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.default_root_dir = folder;
  options.auto_resume = true;
  return options;
}

// Returns a loader with kBatches batches, as many as loader(26, …).
std::shared_ptr<Loader> train_loader(const Setup& setup) {
  const std::string batches = setup.batches;
  if (batches == "of four") return loader(26, true, setup.num_workers);
  if (batches == "combined") {
    return std::make_shared<CombinedLoader>(Loaders{loader(10, true, 0), loader(26, true, setup.num_workers)});
  }
  const auto x = torch::arange(26 * 4, torch::kFloat).reshape({26, 4}).mul(0.37).sin();
  const DataLoaderOptions by_length{
      .shuffle = true, .num_workers = setup.num_workers, .max_tokens = 15, .bucket_by_length = true};
  return std::make_shared<DataLoader>(std::make_shared<Lengths>(std::vector<at::Tensor>{x, x.sum(1, true)}), by_length);
}

struct Outcome {
  std::shared_ptr<Net> net;
  bool interrupted = false;
  int signal = -1;
};

Outcome run(const Setup& setup, const std::string& folder, const std::function<void(Net&)>& prepare = {}) {
  // A separate process would start with any seed; only the run's own matters.
  seed_everything(fs::exists(folder) ? 12345 : 7);
  Outcome result{std::make_shared<Net>(setup)};
  if (prepare) prepare(*result.net);
  Trainer trainer(options_of(setup, folder));
  try {
    trainer.fit(*result.net, train_loader(setup), {loader(9, false, 0)});
  } catch (const Interrupted& stopped) {
    result.interrupted = true;
    result.signal = stopped.signal_number();
  }
  return result;
}

// Of what the run's results are; run.json and run.log say when they were made, and how often it was continued.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "run.json" || log::is_log_file(name)) continue;
    files[fs::relative(entry.path(), folder).string()] = read_file(entry.path().string());
  }
  return files;
}

std::string first_difference(const std::string& expected, const std::string& seen) {
  const std::ptrdiff_t skipped = std::min<std::ptrdiff_t>(80, std::min(expected.size(), seen.size()));  // a checksum
  const auto place = std::mismatch(expected.begin() + skipped, expected.end(), seen.begin() + skipped, seen.end());
  const auto at = std::max<std::ptrdiff_t>(0, place.first - expected.begin() - 60);
  auto part = [&](const std::string& text) {
    return cut_text(text.substr(std::min(text.size(), size_t(at)), 160), 160);
  };
  return part(expected) + " became " + part(seen);
}

void expect_same_files(const std::map<std::string, std::string>& expected,
                       const std::map<std::string, std::string>& seen, const std::string& what) {
  for (const auto& [name, content] : expected) {
    const auto found = seen.find(name);
    ASSERT_NE(found, seen.end()) << what << ": " << name << " is missing";
    if (name.ends_with(".csv")) {
      EXPECT_EQ(found->second, content) << what << ": " << name;
    }
    EXPECT_TRUE(found->second == content)
        << what << ": " << name << " differs: " << first_difference(content, found->second);
  }
  for (const auto& [name, content] : seen)
    EXPECT_TRUE(expected.contains(name)) << what << ": " << name << " is left over";
}

class Resume : public ::testing::TestWithParam<Setup> {
 protected:
  Resume() : folder_(base_.path() + "/run") {}

  // The undisturbed run; its folder is moved away, as the paths in the checkpoints must be the same.
  void SetUp() override {
    undisturbed_ = run(GetParam(), folder_);
    ASSERT_FALSE(undisturbed_.interrupted);
    files_ = contents(folder_);
    ASSERT_GE(files_.size(), 6u);
    fs::remove_all(folder_);
  }

  // Stops with `prepare`, continues with nothing, compares.
  void expect_same_end(const std::function<void(Net&)>& prepare, const std::string& what) {
    fs::remove_all(folder_);
    const Outcome stopped = run(GetParam(), folder_, prepare);
    ASSERT_TRUE(stopped.interrupted) << what;
    ASSERT_FALSE(run(GetParam(), folder_).interrupted) << what;
    expect_same_files(files_, contents(folder_), what);
  }

  test::CapturedConsole console_;
  TemporaryFolder base_;
  std::string folder_;
  Outcome undisturbed_;
  int64_t seen_ = 0;
  std::map<std::string, std::string> files_;
};

TEST_P(Resume, AfterAnyBatch) {
  for (int64_t batches = 1; batches <= kEpochs * kBatches; ++batches) {
    expect_same_end(
        [&](Net& net) {
          net.after_batch = [&](Trainer& trainer) {
            if (trainer.seen_batches() == batches) std::raise(SIGTERM);
          };
        },
        "after " + std::to_string(batches) + " batches");
    if (HasFailure()) return;
  }
}

// As though it had been killed before on_train_end: the newest checkpoint is from the end of the last epoch.
TEST_P(Resume, BeforeTheEndOfTraining) {
  ASSERT_FALSE(run(GetParam(), folder_).interrupted);
  const std::string checkpoints = folder_ + "/levin_logs/version_0/checkpoints/";
  if (fs::exists(checkpoints + "best.ckpt") && fs::remove(checkpoints + "last.ckpt")) {
    ASSERT_FALSE(run(GetParam(), folder_).interrupted);
  }
  expect_same_files(files_, contents(folder_), "resumed at its end");
}

TEST_P(Resume, InsideAValidation) {
  for (const int64_t batch : {1, 2, 5}) {
    expect_same_end(
        [&](Net& net) {
          net.on_validation_batch = [&](Trainer& trainer, int64_t) {
            if (!trainer.sanity_checking() && ++seen_ == batch) std::raise(SIGUSR1);
          };
          seen_ = 0;
        },
        "in validation batch " + std::to_string(batch));
    if (HasFailure()) return;
  }
}

TEST_P(Resume, AfterBeingStoppedInEveryBatch) {
  int64_t runs = 0;
  while (
      run(GetParam(), folder_, [](Net& net) { net.after_batch = [](Trainer&) { std::raise(SIGINT); }; }).interrupted) {
    ASSERT_LT(++runs, 100);
  }
  EXPECT_EQ(runs, kEpochs * kBatches);
  expect_same_files(files_, contents(folder_), "stopped in every batch");
}

INSTANTIATE_TEST_SUITE_P(
    Setups, Resume,
    ::testing::Values(Setup{.name = "Sgd"}, Setup{.name = "AdamOneCycle", .optimizer = "Adam", .one_cycle = true},
                      Setup{.name = "Bf16Workers", .optimizer = "Adam", .precision = "bf16-mixed", .num_workers = 2},
                      Setup{.name = "Accumulation", .optimizer = "Adam", .accumulate = 3},
                      Setup{.name = "LossScaling", .one_cycle = true, .precision = "float16"},
                      Setup{.name = "LossScalingAccumulation", .precision = "float16", .accumulate = 3},
                      Setup{.name = "ValidationInsideTheEpoch", .one_cycle = true, .val_check_interval = int64_t{3}},
                      Setup{.name = "BatchesByLength", .optimizer = "Adam", .num_workers = 2, .batches = "by length"},
                      Setup{.name = "CombinedLoaders", .optimizer = "Adam", .num_workers = 1, .batches = "combined"}),
    [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace levin::resume_test
