// Tokens in files as data for language models, mapped: a corpus may be larger than the memory.
//
//   data: {class_path: TokenFileData, init_args: {path: train.bin, val_path: val.bin, block_size: 1024}}
//
// Batches: x (batch, block_size) int64 and y, the token that follows each. write_token_file() writes such a file.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/files/token_file.h"
#include "levin/data/loading/dataset.h"

namespace levin {

/// Options of TokenFileDataset.
struct TokenFileDatasetOptions {
  int64_t block_size = 128;
  int64_t vocab_size = 0;  // ids from it on are an error; 0: any id is taken
  EnumOption<TokenType> dtype = TokenType::uint16;
  double start = 0;  // the part of the tokens that is used, as shares of them
  double end = 1;
};

/// Blocks of a file's tokens. Sample i: x, the tokens i … i + block_size - 1, and y, the tokens one position later:
/// (block_size) int64 both. A BlockSampler visits adjacent ones.
class TokenFileDataset final : public Dataset {
 public:
  /// `path`: a file or a folder of files (TokenFiles). Throws DataError if the part has fewer than block_size + 1
  /// tokens.
  explicit TokenFileDataset(const std::string& path, TokenFileDatasetOptions options = {});

  [[nodiscard]] int64_t size() const override { return count_ - options_.block_size; }
  [[nodiscard]] Batch get(int64_t index) const override;
  [[nodiscard]] bool has_get_batch() const override { return true; }
  /// Throws DataError for an id that is not within the vocabulary.
  [[nodiscard]] Batch get_batch(const at::Tensor& indices) const override;

  /// Returns the index of the sample's first token.
  [[nodiscard]] std::string sample_id(int64_t index) const override { return std::to_string(index); }

  [[nodiscard]] int64_t block_size() const { return options_.block_size; }
  /// Tokens of the part.
  [[nodiscard]] int64_t num_tokens() const { return count_; }

 private:
  TokenFiles files_;
  TokenFileDatasetOptions options_;
  int64_t first_ = 0;
  int64_t count_ = 0;
};

/// Options of TokenFileData.
struct TokenFileDataOptions {
  std::string path = "";
  std::string val_path = "";   // "": val_fraction of path
  std::string test_path = "";  // "": none
  EnumOption<TokenType> dtype = TokenType::uint16;
  int64_t block_size = 128;
  int64_t vocab_size = 0;
  int64_t batch_size = 16;
  double val_fraction = 0;  // of the tokens, from the end
  int64_t num_workers = 0;
  bool shuffle = true;     // the training blocks
  bool drop_last = false;  // leave out an incomplete last training batch
  template <class = void>
  static auto fields() {
    using O = TokenFileDataOptions;
    return levin::fields(
        field("path", &O::path, "the tokens to train on: a .bin or .npy file, or a folder of such files")
            .not_empty()
            .ranks_may_differ(),
        field("val_path", &O::val_path, "to validate on; \"\": val_fraction of path").ranks_may_differ(),
        field("test_path", &O::test_path, "to test and predict on; \"\": none").ranks_may_differ(),
        field("dtype", &O::dtype, "of the ids in .bin files"),
        field("block_size", &O::block_size, "tokens of a sample").min(1),
        field("vocab_size", &O::vocab_size, "ids from it on are an error; 0: any id is taken").min(0),
        field("batch_size", &O::batch_size, "blocks of a batch").min(1),
        field("val_fraction", &O::val_fraction, "of the tokens, from the end, for validation").min(0.0).below(1.0),
        field("num_workers", &O::num_workers, "threads that fetch batches ahead").min(0).max(1024).ranks_may_differ(),
        field("shuffle", &O::shuffle, "a new order and a new start of the training blocks every epoch"),
        field("drop_last", &O::drop_last, "leave out an incomplete last training batch"));
  }
};

/// Files of tokens as blocks, for training, validation and test. setup() throws DataError as TokenFileDataset does.
class TokenFileData final : public DataModule {
 public:
  using Options = TokenFileDataOptions;
  explicit TokenFileData(TokenFileDataOptions options);

  void setup(Stage stage) override;
  void teardown(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override { return test_dataloader(); }

 private:
  [[nodiscard]] std::shared_ptr<TokenFileDataset> part(const std::string& path, double start, double end) const;
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<TokenFileDataset>& tokens, bool is_training) const;

  TokenFileDataOptions options_;
  std::shared_ptr<TokenFileDataset> train_ = nullptr;
  std::shared_ptr<TokenFileDataset> val_ = nullptr;  // null if there is nothing to validate on
  std::shared_ptr<TokenFileDataset> test_ = nullptr;
};

}  // namespace levin
