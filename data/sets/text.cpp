#include "levin/data/sets/text.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/text/make_tokenizer.h"
#include "levin/data/text/text_reader.h"

namespace levin {

namespace {

// One byte per token if it fits: blocks become int64 when they are gathered.
at::Tensor as_tensor(const std::vector<int32_t>& tokens, int64_t vocab_size) {
  const auto count = static_cast<int64_t>(tokens.size());
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): from_blob is older than const; to() copies
  const at::Tensor wide = at::from_blob(const_cast<int32_t*>(tokens.data()), {count}, at::kInt);
  return wide.to(vocab_size <= 256 ? at::kByte : at::kInt, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

TextFile::TextFile(TextFileOptions options) : options_(checked(std::move(options), "TextFileOptions")) {
  save_hyperparameters(options_);
  if (options_.max_tokens > 0 && options_.max_tokens < options_.block_size) {
    throw ConfigError("TextFileOptions.max_tokens: must be at least block_size, " +
                      std::to_string(options_.block_size) + ", or no block fits into a batch; got " +
                      std::to_string(options_.max_tokens) + ".");
  }
  if (options_.val_fraction + options_.test_fraction < 1) return;
  throw ConfigError("TextFileOptions.test_fraction: val_fraction, " + number_text(options_.val_fraction) +
                    ", and test_fraction, " + number_text(options_.test_fraction) +
                    ", leave nothing to train on. Their sum must be below 1.");
}

void TextFile::setup(Stage stage) {
  if (tokenizer_ == nullptr) tokenizer_ = make_tokenizer(options_.tokenizer, options_.pattern);
  const bool wants_test = stage == Stage::test && test_ == nullptr;
  const bool wants_train = (stage == Stage::fit || stage == Stage::validate) && train_ == nullptr;
  if (!wants_test && !wants_train) return;
  if (wants_test && options_.test_fraction == 0) {
    throw ConfigError("TextFileOptions.test_fraction: 0 holds nothing out for a test. Set the share of the text.");
  }
  const at::Tensor tokens = read_tokens();
  const auto share = [&](double fraction) {
    return static_cast<int64_t>(static_cast<double>(tokens.size(0)) * fraction);
  };
  const int64_t tested = share(options_.test_fraction), validated = share(options_.val_fraction);
  const int64_t trained = tokens.size(0) - validated - tested;
  if (wants_test) {
    test_ = blocks(tokens.narrow(0, trained + validated, tested), "the test");
    return;
  }
  if (options_.val_fraction > 0) val_ = blocks(tokens.narrow(0, trained, validated), "validation");
  train_ = blocks(tokens.narrow(0, 0, trained), "training");
}

std::string TextFile::read_document() const {
  if (options_.path.empty()) throw ConfigError("TextFileOptions.path: expected a text file, found an empty path.");
  return read_text(options_.path);
}

at::Tensor TextFile::read_tokens() {
  const std::string text = read_document();
  const at::Tensor tokens = as_tensor(tokenizer_->encode(text), vocab_size());
  const int64_t count = tokens.size(0);
  bytes_per_token_ = count == 0 ? 0 : static_cast<double>(text.size()) / static_cast<double>(count);
  return tokens;
}

std::shared_ptr<TokenBlocks> TextFile::blocks(const at::Tensor& tokens, const char* part) const {
  if (tokens.size(0) > options_.block_size) return std::make_shared<TokenBlocks>(tokens, options_.block_size);
  throw DataError("TextFile: " + (options_.path.empty() ? "the text" : options_.path) + " gives " +
                  count_of(tokens.size(0), "token") + " for " + part + ", expected at least " +
                  std::to_string(options_.block_size + 1) +
                  " (.block_size and one more). Give more text, a smaller .block_size or another .val_fraction or "
                  ".test_fraction.");
}

void TextFile::teardown(Stage /*stage*/) {
  train_ = val_ = test_ = nullptr;  // the tokenizer stays, because predictions are decoded afterwards
}

int64_t TextFile::vocab_size() const {
  if (tokenizer_ == nullptr) throw DataError("TextFile: call setup() before vocab_size().");
  return tokenizer_->vocab_size();
}

int64_t TextFile::blocks_of_batch() const {
  return options_.max_tokens > 0 ? options_.max_tokens / options_.block_size : options_.batch_size;
}

std::shared_ptr<Loader> TextFile::loader(const std::shared_ptr<TokenBlocks>& blocks, bool is_training) const {
  if (blocks == nullptr) throw DataError("TextFile: call setup() with the stage before asking for its loaders.");
  return std::make_shared<DataLoader>(blocks,
                                      DataLoaderOptions{.batch_size = blocks_of_batch(),
                                                        .drop_last = is_training && options_.drop_last,
                                                        .num_workers = options_.num_workers},
                                      std::make_shared<BlockSampler>(*blocks, is_training && options_.shuffle));
}

std::shared_ptr<Loader> TextFile::train_dataloader() {
  const std::shared_ptr<Loader> whole = loader(train_, true);
  if (options_.length_warmup.batches == 0) return whole;
  return std::make_shared<SequenceLengthWarmup>(whole, options_.block_size, options_.length_warmup);
}

Loaders TextFile::val_dataloader() {
  if (options_.val_fraction == 0) return {};
  return loader(val_, false);
}

Loaders TextFile::test_dataloader() {
  return loader(test_, false);
}

Loaders TextFile::predict_dataloader() {
  if (tokenizer_ == nullptr) throw DataError("TextFile: call setup(Stage::predict) before predict_dataloader().");
  const at::Tensor prompt = as_tensor(tokenizer_->encode(options_.prompt), INT32_MAX).to(at::kLong);
  const auto prompts = std::make_shared<TensorDataset>(
      std::vector<at::Tensor>{prompt.unsqueeze(0).expand({options_.num_samples, prompt.size(0)})});
  return std::make_shared<DataLoader>(prompts, DataLoaderOptions{.batch_size = options_.batch_size});
}

std::vector<std::string> TextFile::prediction_text(const at::Tensor& prediction) const {
  if (tokenizer_ == nullptr || prediction.dim() != 2 || prediction.scalar_type() != at::kLong) return {};
  const at::Tensor tokens = prediction.cpu().contiguous();  // (samples, tokens)
  std::vector<std::string> texts;
  for (int64_t i = 0; i < tokens.size(0); ++i) {
    const at::Tensor row = tokens.select(0, i);
    texts.push_back(tokenizer_->decode({row.const_data_ptr<int64_t>(), static_cast<size_t>(row.numel())}));
  }
  return texts;
}

}  // namespace levin
