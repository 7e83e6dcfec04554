// libFuzzer target: the first byte of an input selects the kind of data file that the rest is: 'n' .npy, 'i' IDX, plain
// or gzipped, 'c' CSV, as rows and as columns, 't' text, plain or compressed, 'k' token ids, 'r' a file of BPE ranks,
// 's' a SentencePiece model, 'x' a CSV file of documents. For any bytes, the reader returns no more than the file holds
// or throws DataError, and a tokenizer of ranks restores any text.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sum.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "fuzz_support.h"
#include "guarded_memory.h"
#include "levin/core/files/csv.h"
#include "levin/core/options/error.h"
#include "levin/data/columns/csv_columns_file.h"
#include "levin/data/files/npy.h"
#include "levin/data/files/token_file.h"
#include "levin/data/sets/csv.h"
#include "levin/data/sets/idx.h"
#include "levin/data/sets/text_csv.h"
#include "levin/data/text/bpe.h"
#include "levin/data/text/sentence_piece.h"
#include "levin/data/text/text_reader.h"
#include "support/temporary_folder.h"

namespace levin::fuzz {
namespace {

constexpr size_t kMaxBytes = 64 << 20;
constexpr uint64_t kMaxUnpackedBytes = 1 << 20;

const ScratchFile& file() {
  static const ScratchFile scratch;
  return scratch;
}

void read_array(std::string_view bytes) {
  const at::Tensor values = map_npy(file().path());
  expect(values.nbytes() <= bytes.size(), "an array is no larger than its file");
  if (values.numel() > 0 && !values.is_complex()) (void)values.view({-1})[values.numel() - 1].item();
}

// With and without an index. A file that one of them reads is read by the other, with the same samples.
void read_rows(CsvDatasetOptions options) {
  const CsvDataset rows(options);
  options.max_in_memory = {0};
  const CsvDataset mapped(options);
  expect(rows.size() > 0, "a data set has rows");
  expect(mapped.size() == rows.size(), "an index finds the same rows");
  const int64_t last = rows.size() - 1, from = std::max<int64_t>(0, last - 40);
  const Batch some = rows.get_range(from, last + 1 - from), same = mapped.get_range(from, last + 1 - from);
  for (size_t i = 0; i < some.count(); ++i) {
    expect(at::equal(some[i].nan_to_num(), same[i].nan_to_num()), "an index finds the same values");
  }
  (void)rows.get(last);
}

void read_columns() {
  for (const bool header : {true, false}) {
    for (const bool is_class : {true, false}) {
      read_rows({.path = file().path(), .header = header, .target = "0", .target_is_class = is_class});
    }
  }
}

// A table of numbers and strings, whose columns are what the first row says.
void read_table_columns() {
  const auto table = open_csv_columns(file().path(), ',', true, {"", "NA"});
  std::vector<WantedColumn> wanted;
  for (size_t i = 0; i < table->columns().size(); ++i) wanted.push_back({i, table->columns()[i].type});
  for (size_t group = 0; group < table->group_rows().size(); ++group) {
    std::vector<ColumnValues> values;
    expect(table->read(group, wanted, values).empty(), "a table that was opened can be read");
    for (const ColumnValues& column : values) {
      expect(std::ssize(column.numbers) + std::ssize(column.codes) == table->group_rows()[group],
             "each row has a value");
      for (const int32_t code : column.codes) expect(code < std::ssize(column.values), "a code has a value");
    }
  }
}

void read_table(std::string_view bytes) {
  size_t sum = 0;
  for (const auto& row : parse_csv(file().path(), std::string(bytes))) {
    for (const CsvField& field : row) sum += field.text.size();
  }
  expect(sum <= bytes.size(), "the fields are no longer than the file");
  try {
    read_table_columns();
  } catch (const DataError&) {  // rows without the data that the rest needs, or a header alone
  }
  read_columns();
}

void read_tokens(std::string_view bytes) {
  static const test::TemporaryFolder folder;
  for (const std::string name : {"a.bin", "a.npy"}) {
    const std::string path = folder.write(name, std::string(bytes));
    try {
      for (const TokenType type : {TokenType::uint16, TokenType::uint32}) {
        const TokenFiles tokens(path, type);
        std::vector<int64_t> ids(static_cast<size_t>(std::min<int64_t>(tokens.size(), 1000)));
        expect(tokens.size() <= static_cast<int64_t>(bytes.size()), "there are no more ids than bytes");
        tokens.read(tokens.size() - static_cast<int64_t>(ids.size()), static_cast<int64_t>(ids.size()), 0, ids.data());
      }
    } catch (const DataError& error) {
      expect(std::string(error.what()).find("/a.") != std::string::npos, "an error names the file", error.what());
    }
  }
}

void read_ranks(std::string_view bytes) {
  for (const BpePattern pattern : {BpePattern::gpt2, BpePattern::cl100k}) {
    const BpeTokenizer tokenizer = BpeTokenizer::from_ranks(file().path(), pattern);
    for (const std::string& text :
         {std::string(bytes.substr(0, 300)), std::string("a\u00e9 \u2460 B-1\r\n\u4e2d\U0001f600 a's  \xff\xc3"),
          std::string(400, 'a'), std::string(100, ' ') + "\n" + std::string(50, '\xf0')}) {
      const auto ids = tokenizer.encode(text);
      expect(tokenizer.decode(std::vector<int64_t>(ids.begin(), ids.end())) == text, "decoding restores any bytes",
             text);
    }
  }
}

void read_pieces() {
  const SentencePieceTokenizer tokenizer(file().path());
  for (const std::string& text :
       {std::string("a\u00e9 \u2460 B-1\r\n\u4e2d\U0001f600 a's  \xff\xc3"), std::string(400, 'a'), std::string()}) {
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    for (const int32_t token : tokens) {
      expect(token >= 0 && token < tokenizer.vocab_size(), "every token is one of the model's", text);
    }
    (void)tokenizer.decode(std::vector<int64_t>(tokens.begin(), tokens.end()));
  }
}

void read_documents() {
  for (const char* label : {"label", "1", "none"}) {
    TextCsv data({.path = file().path(),
                  .test_path = file().path(),
                  .text = "text",
                  .label = label,
                  .max_length = 8,
                  .batch_size = 2,
                  .num_workers = 0});
    data.setup(Stage::test);
    for (const auto& loader : data.test_dataloader()) {
      loader->start(0);
      for (Batch batch; loader->next(batch);) {
        expect(batch[0].size(1) == 8, "a document has the length that was asked for");
      }
    }
  }
}

void read_kind(char kind, std::string_view bytes) {
  switch (kind) {
    case 'n': return read_array(bytes);
    case 'i': return (void)read_idx(file().path(), kMaxUnpackedBytes).sum();
    case 'c': return read_table(bytes);
    case 't': return expect(read_text(file().path(), kMaxUnpackedBytes).size() <= kMaxUnpackedBytes, "a limit holds");
    case 'k': return read_tokens(bytes);
    case 'r': return read_ranks(bytes);
    case 's': return read_pieces();
    case 'x': return read_documents();
    default: return;
  }
}

}  // namespace

void run_one(std::string_view input) {
  ++Counts::instance().inputs;
  if (input.empty()) return;
  file().write(input.substr(1));
  GuardedMemory::install().set_budget(kMaxBytes);
  at::set_num_threads(1);
  try {
    read_kind(input[0], input.substr(1));
    ++Counts::instance().whole;
  } catch (const DataError& error) {
    const std::string message = error.what();
    expect(message.find(file().path()) != std::string::npos, "an error names the file", message);
    expect(message.size() < 3000, "a message is not endless", message);
    check_planted(message, "expected");
  }
}

void begin() {
  Counts::print_at_exit();
}

}  // namespace levin::fuzz
