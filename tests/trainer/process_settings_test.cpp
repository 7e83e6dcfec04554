// When an entry point of the Trainer ends, the settings of the process are unchanged.
#include "support/process_settings.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <iterator>
#include <stdexcept>

#include "levin/data/loading/dataloader.h"
#include "levin/loggers/csv_logger.h"
#include "levin/trainer/trainer.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::process_settings_test {
namespace {

using namespace test;

TrainerOptions options_of(const TemporaryFolder& folder) {
  TrainerOptions options;
  options.max_epochs = 2;
  options.log_every_n_steps = 1;
  options.enable_progress_bar = options.enable_model_summary = false;
  options.precision = "bf16-true";
  options.deterministic = true;
  options.float32_matmul_precision = MatmulPrecision::medium;
  options.logger = CSVLogger({.save_dir = folder.path(), .name = "", .version = "run"});
  options.default_root_dir = folder.path();
  return options;
}

DataLoader shuffled() {
  const at::Tensor x = torch::linspace(-1, 1, 96).view({24, 4});
  return DataLoader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, x.sum(1, true)}),
                    {.batch_size = 4, .shuffle = true, .num_workers = 1, .seed = 3});
}

// The program's own handlers, until the test ends.
class OwnHandlers {
 public:
  OwnHandlers() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_NODEFER;
    for (size_t k = 0; k < std::size(kSignals); ++k) ::sigaction(kSignals[k], &action, &before_[k]);
  }
  ~OwnHandlers() {
    for (size_t k = 0; k < std::size(kSignals); ++k) ::sigaction(kSignals[k], &before_[k], nullptr);
  }
  OwnHandlers(const OwnHandlers&) = delete;
  OwnHandlers& operator=(const OwnHandlers&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGPIPE};
  struct sigaction before_[std::size(kSignals)] = {};
};

TEST(TrainerProcess, IsUnchangedAfterEachEntryPoint) {
  const TemporaryFolder folder;
  TinyModule module;
  const OwnHandlers handlers;
  const ProcessSettings before;
  {
    Trainer trainer(options_of(folder));
    trainer.fit(module, shuffled(), shuffled());
    expect_unchanged(before);
    (void)trainer.validate(module, shuffled());
    expect_unchanged(before);
    (void)trainer.test(module, shuffled());
    expect_unchanged(before);
  }
  expect_unchanged(before);
}

TEST(TrainerProcess, IsUnchangedAfterAFitThatFails) {
  const TemporaryFolder folder;
  TinyModule module;
  module.on_training_step = [](int64_t batch_idx) {
    if (batch_idx == 2) throw std::runtime_error("the program's own error");
  };
  const ProcessSettings before;
  Trainer trainer(options_of(folder));
  EXPECT_THROW(trainer.fit(module, shuffled()), std::runtime_error);
  expect_unchanged(before);
}

}  // namespace
}  // namespace levin::process_settings_test
