// A text for language models: read from a file, converted to tokens, cut into blocks.
//
//   data: {class_path: TextFile, init_args: {path: book.txt, block_size: 128, batch_size: 16}}
//
// Batches: x (batch, block_size) int64 and y, the token that follows each. The end of the text is for validation, and
// the part given by test_fraction after that for the test. To predict, a batch is the prompt, once per sample wanted:
// (num_samples, tokens of the prompt).
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/data/data_module.h"
#include "levin/data/loading/sequence_length_warmup.h"
#include "levin/data/text/text_blocks.h"
#include "levin/data/text/text_tokenizer.h"

namespace levin {

/// Options of TextFile.
struct TextFileOptions {
  std::string path = "";           // plain, gzip or .Z
  std::string tokenizer = "byte";  // "byte", a .tiktoken file, a tokenizer.json or the folder with it
  EnumOption<BpePattern> pattern = BpePattern::gpt2;  // how a .tiktoken file's BPE cuts words
  int64_t block_size = 128;                           // tokens of a sample
  int64_t batch_size = 16;                            // blocks of a batch
  int64_t max_tokens = 0;                             // of a batch, instead of batch_size; 0: batch_size blocks
  double val_fraction = 0.1;                          // of the tokens, from the end, before the test tokens
  double test_fraction = 0;                           // of the tokens, from the end
  int64_t num_workers = 0;                            // the tokens are in memory: more is rarely faster
  bool shuffle = true;                                // the training blocks
  bool drop_last = false;                             // leave out an incomplete last training batch
  std::string prompt = "\n";                          // what predictions continue
  int64_t num_samples = 1;                            // continuations of the prompt
  SequenceLengthWarmupOptions length_warmup = {};     // of the training batches
  template <class = void>
  static auto fields() {
    using O = TextFileOptions;
    return levin::fields(
        field("path", &O::path, "the text: plain, gzip or .Z").ranks_may_differ(),
        field("tokenizer", &O::tokenizer,
              "byte, a .tiktoken file, Hugging Face's tokenizer.json or its folder, or a folder with vocab.json and "
              "merges.txt")
            .not_empty(),
        field("pattern", &O::pattern, "how the BPE of a .tiktoken file cuts words: as its tokens were made"),
        field("block_size", &O::block_size, "tokens of a sample").min(1),
        field("batch_size", &O::batch_size, "blocks of a batch").min(1),
        field("max_tokens", &O::max_tokens,
              "tokens of a batch, at most: as many blocks as fit, instead of batch_size; 0: batch_size")
            .min(0),
        field("val_fraction", &O::val_fraction, "of the tokens, before the test tokens, for validation")
            .min(0.0)
            .below(1.0),
        field("test_fraction", &O::test_fraction, "of the tokens, from the end, for the test").min(0.0).below(1.0),
        field("num_workers", &O::num_workers, "threads that fetch batches ahead").min(0).max(1024).ranks_may_differ(),
        field("shuffle", &O::shuffle, "a new order and a new start of the training blocks every epoch"),
        field("drop_last", &O::drop_last, "leave out an incomplete last training batch"),
        field("prompt", &O::prompt, "what predictions continue").not_empty(),
        field("num_samples", &O::num_samples, "continuations of the prompt").min(1),
        field("length_warmup", &O::length_warmup, "training batches of short sequences first; batches: 0: none"));
  }
};

/// One document as blocks of tokens. The constructor throws ConfigError for options that contradict each other; setup()
/// throws DataError for a file that cannot be read or is too short, and ConfigError for a test without test_fraction.
class TextFile : public DataModule {
 public:
  using Options = TextFileOptions;
  explicit TextFile(Defaults = {}) : TextFile(TextFileOptions()) {}
  explicit TextFile(TextFileOptions options);

  void setup(Stage stage) override;
  void teardown(Stage stage) override;
  std::shared_ptr<Loader> train_dataloader() override;
  Loaders val_dataloader() override;
  Loaders test_dataloader() override;
  Loaders predict_dataloader() override;
  std::vector<std::string> prediction_text(const at::Tensor& prediction) const override;

  [[nodiscard]] const TextFileOptions& options() const { return options_; }
  /// Returns the number of the tokenizer's tokens. Throws DataError before setup().
  [[nodiscard]] int64_t vocab_size() const;
  /// Returns the average size of a token in bytes; 0 before the document is read.
  [[nodiscard]] double bytes_per_token() const { return bytes_per_token_; }

 protected:
  /// Returns the text; a derived class may take it from elsewhere. Throws DataError.
  [[nodiscard]] virtual std::string read_document() const;

 private:
  [[nodiscard]] std::shared_ptr<Loader> loader(const std::shared_ptr<TokenBlocks>& blocks, bool is_training) const;
  [[nodiscard]] std::shared_ptr<TokenBlocks> blocks(const at::Tensor& tokens, const char* part) const;
  at::Tensor read_tokens();
  [[nodiscard]] int64_t blocks_of_batch() const;

  TextFileOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_ = nullptr;
  std::shared_ptr<TokenBlocks> train_ = nullptr;
  std::shared_ptr<TokenBlocks> val_ = nullptr;  // null if nothing is held out
  std::shared_ptr<TokenBlocks> test_ = nullptr;
  double bytes_per_token_ = 0;
};

}  // namespace levin
