#include "ddp_article.h"

#include <ATen/CPUGeneratorImpl.h>

#include "levin/core/process/console.h"

LEVIN_REGISTER_MODEL(EightWeights, "a linear model of eight weights: DDP equals gradient accumulation");
LEVIN_REGISTER_DATA(EightNumbers, "the eight samples that EightWeights is trained on");

EightWeights::EightWeights(EightWeightsOptions options) : options_(levin::checked(options, "EightWeightsOptions")) {
  weight_ = register_parameter("weight", torch::ones({8}));
  save_hyperparameters(options_);
}

torch::Tensor EightWeights::training_step(const levin::Batch& batch) {
  return (batch[0] * weight_).sum();
}

levin::OptimizerConfig EightWeights::configure_optimizers() {
  return levin::SGD(parameters(), {.lr = options_.lr, .momentum = options_.momentum});
}

void EightWeights::on_train_end() {
  std::string text = "weights:";
  for (int64_t k = 0; k < weight_.numel(); ++k) {
    std::array<char, 16> number = {};
    std::snprintf(number.data(), number.size(), " %.4f", weight_[k].item<double>());
    text += number.data();
  }
  levin::Console::instance().print(text);
}

EightNumbers::EightNumbers(EightNumbersOptions options) : options_(levin::checked(options, "EightNumbersOptions")) {}

std::shared_ptr<levin::Loader> EightNumbers::train_dataloader() {
  // A separate generator, so that the run's random numbers do not change.
  const auto samples = torch::rand({8, 8}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{0}));
  // Sample k goes to rank k % n: n ranks' batches one after another.
  const int64_t at_once = options_.batch_size * options_.interleave;
  std::vector<int64_t> order;
  for (int64_t start = 0; start < 8; start += at_once) {
    for (int64_t rank = 0; rank < options_.interleave; ++rank) {
      for (int64_t k = start + rank; k < std::min<int64_t>(8, start + at_once); k += options_.interleave) {
        order.push_back(k);
      }
    }
  }
  return levin::DataLoader(levin::TensorDataset{samples}, {.batch_size = options_.batch_size},
                           std::make_shared<levin::SubsetSampler>(order));
}
