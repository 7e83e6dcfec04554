// Measures what batches by length save: training passes of a small encoder over the verses of the King James Bible,
// byte by byte (Debian's bible-kjv-text), in batches of 32 verses padded to 512 bytes, of 32 padded to the longest of
// each, and of 8192 bytes with verses of similar length together. The measurement is bytes of text per second, without
// padding.
#include <torch/torch.h>

#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/length_batch_sampler.h"
#include "levin/data/text/padded_texts.h"
#include "models/bible.h"
#include "rounds.h"

namespace bench::token_batches {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxLength = 512, kBatch = 32, kMaxTokens = 8192;

struct Encoder : torch::nn::Module {
  static constexpr int64_t kWidth = 32;
  torch::nn::Embedding embedding{torch::nn::EmbeddingOptions(256, kWidth)};
  torch::nn::Embedding places{torch::nn::EmbeddingOptions(kMaxLength, kWidth)};
  torch::nn::TransformerEncoderLayer layer{
      torch::nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(2 * kWidth).dropout(0)};
  torch::nn::Linear head{kWidth, 2};

  Encoder() {
    register_module("embedding", embedding);
    register_module("places", places);
    register_module("layer", layer);
    register_module("head", head);
  }
  // x: (batch, length) int64, 0 where it is padded.
  torch::Tensor forward(const torch::Tensor& x) {
    const auto padded = x.eq(0);
    const auto input = (embedding(x) + places(torch::arange(x.size(1)))).transpose(0, 1);  // (length, batch, width)
    return head(layer->forward(input, {}, padded).select(0, 0));
  }
};

std::shared_ptr<levin::PaddedTexts> verses(levin::Padding padding, size_t count) {
  auto texts = std::make_shared<levin::PaddedTexts>(kMaxLength, 0, padding);
  std::istringstream lines(bible_text());
  std::string line;
  std::getline(lines, line);  // the title
  for (size_t i = 0; i < count && std::getline(lines, line); ++i) {
    std::vector<int32_t> bytes;
    for (const char c : line) bytes.push_back(static_cast<unsigned char>(c));
    if (!bytes.empty()) texts->add(bytes, static_cast<int64_t>(i % 2));
  }
  return texts;
}

struct Way {
  std::string name;
  std::shared_ptr<levin::PaddedTexts> texts;
  levin::DataLoaderOptions options;
};

std::vector<Way> ways(size_t count) {
  return {
      {"32, padded to 512", verses(levin::Padding::max_length, count), {.batch_size = kBatch, .shuffle = true}},
      {"32, padded to the longest", verses(levin::Padding::longest, count), {.batch_size = kBatch, .shuffle = true}},
      {"8192 bytes, by length",
       verses(levin::Padding::longest, count),
       {.shuffle = true, .max_tokens = kMaxTokens, .bucket_by_length = true}}};
}

// The fraction of padding in the batches of an epoch.
double padding_fraction(const Way& way) {
  levin::DataLoader loader(way.texts, way.options);
  int64_t padding = 0, all = 0;
  loader.start(0);
  for (levin::Batch batch; loader.next(batch);) {
    padding += batch[0].eq(0).sum().item<int64_t>();
    all += batch[0].numel();
  }
  return static_cast<double>(padding) / static_cast<double>(all);
}

Candidate training(const Way& way, int64_t bytes_of_round) {
  auto loader = std::make_shared<levin::DataLoader>(way.texts, way.options);
  auto model = std::make_shared<Encoder>();
  return {way.name, [=, epoch = int64_t{0}]() mutable {
            loader->start(epoch++);
            const auto start = Clock::now();
            int64_t bytes = 0;
            for (levin::Batch batch; bytes < bytes_of_round && loader->next(batch);) {
              bytes += batch[0].ne(0).sum().item<int64_t>();
              model->zero_grad();
              torch::nn::functional::cross_entropy(model->forward(batch[0]), batch[1]).backward();
            }
            return static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - start).count();
          }};
}

int run(const Options& options) {
  pin_to_one_core();
  torch::manual_seed(0);
  Report report("token_batches");
  std::vector<Candidate> candidates;
  std::vector<Measurement> padding;
  for (const Way& way : ways(options.quick ? 500 : 31'102)) {
    padding.push_back(measurement_of(way.name, {100 * padding_fraction(way)}));
    candidates.push_back(training(way, options.quick ? 2'000 : 150'000));
  }
  report.table("padding of an epoch", "%", padding);
  const auto measurements = interleave(candidates, options);
  report.table("training a small encoder", "bytes/s", measurements);
  report.number("by_length_to_fixed", ratio(measurements, "8192 bytes, by length", "32, padded to 512"));
  report.number("by_length_to_longest", ratio(measurements, "8192 bytes, by length", "32, padded to the longest"));
  report.write();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  const auto options = read_options(argc, argv, 5);
  return guarded([&] { return run(options); });
}

}  // namespace bench::token_batches
