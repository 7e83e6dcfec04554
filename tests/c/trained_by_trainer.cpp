// Trains the model of a run file with the Trainer, on the numbers of train.c, and prints its weights as train.c does.
#include <ATen/ops/empty.h>

#include <cstdio>
#include <cstring>

#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/core/process/main_guard.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"

namespace {

constexpr int64_t kSamples = 8;
constexpr int64_t kFeatures = 4;
constexpr int64_t kBatches = 5;

std::shared_ptr<levin::Dataset> make_data() {
  const at::Tensor x = at::empty({kBatches * kSamples, kFeatures});
  const at::Tensor y = at::empty({kBatches * kSamples, 1});
  for (int64_t i = 0; i < kBatches * kSamples; ++i) {
    for (int64_t j = 0; j < kFeatures; ++j) {
      x.mutable_data_ptr<float>()[i * kFeatures + j] = static_cast<float>((7 * i + 3 * j) % 16) / 8 - 1;
    }
    y.mutable_data_ptr<float>()[i] = static_cast<float>((5 * i) % 8) / 8;
  }
  return std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{x, y});
}

void print_weights(const torch::nn::Module& module) {
  for (const auto& weight : module.named_parameters()) {
    std::printf("%s", weight.key().c_str());
    const at::Tensor values = weight.value().detach().contiguous();
    for (int64_t k = 0; k < values.numel(); ++k) {
      uint32_t bits = 0;
      std::memcpy(&bits, values.const_data_ptr<float>() + k, sizeof bits);
      std::printf(" %08X", bits);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return levin::main_guard([&] {
    if (argc != 2) throw levin::Error("usage: trained_by_trainer RUN_FILE");
    levin::add_builtins();
    levin::Problems problems;
    const levin::ResolvedRun run = levin::resolve_run({levin::ConfigFile{argv[1]}}, levin::RunPlace::here, problems);
    problems.throw_if_any();
    const levin::RunParts parts = levin::make_parts(run.config);
    levin::Trainer trainer(run.trainer);
    trainer.fit(*parts.model, levin::DataLoader(make_data(), {.batch_size = kSamples}));
    print_weights(*parts.model);
  });
}
