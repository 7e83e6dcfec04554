// Shards of text with a sample on each line: JSON lines, and mosaicml-streaming's JSON, CSV and TSV shards. The .meta
// files of the latter hold the lines' offsets, which are found here without them.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "levin/data/streams/readers.h"
#include "levin/data/streams/values.h"

namespace levin::streams {

namespace {

// The lines of a file that are not blank. The offset of every 16th is kept, half a byte a line.
class Lines {
 public:
  Lines(std::string_view text, uint64_t start) : text_(text) {
    for (uint64_t at = start; next_line(at);) {
      if (count_ % kLinesPerOffset == 0) offsets_.push_back(at);
      ++count_;
      at = end_of(at);
    }
  }

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(count_); }
  [[nodiscard]] std::string_view operator[](int64_t index) const {
    const auto line = static_cast<uint64_t>(index);
    uint64_t at = offsets_[line / kLinesPerOffset];
    for (uint64_t k = 0; k < line % kLinesPerOffset; ++k) {
      at = end_of(at);
      (void)next_line(at);
    }
    std::string_view text = text_.substr(at, end_of(at) - at);
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }

 private:
  static constexpr uint64_t kLinesPerOffset = 16;

  [[nodiscard]] uint64_t end_of(uint64_t at) const { return std::min<uint64_t>(text_.find('\n', at), text_.size()); }
  // Moves `at` to the beginning of the first line that is not blank. Returns false if there is none.
  bool next_line(uint64_t& at) const {
    while (at < text_.size()) {
      const uint64_t end = end_of(at);
      if (text_.substr(at, end - at).find_first_not_of(" \t\r") != std::string_view::npos) return true;
      at = end + 1;
    }
    return false;
  }

  std::string_view text_;
  std::vector<uint64_t> offsets_ = {};
  uint64_t count_ = 0;
};

class TextShard : public Shard {
 public:
  TextShard(const ShardInfo& info, const std::string& path, std::vector<std::string> fields, bool has_header)
      : choice_(std::move(fields)), file_(path), key_(info.key), lines_(file_.all(), has_header ? header_end() : 0) {
    check_samples(info, path, lines_.count());
  }
  [[nodiscard]] int64_t size() const override { return lines_.count(); }
  [[nodiscard]] std::string sample_id(int64_t index) const override { return key_ + ":" + std::to_string(index); }

 protected:
  [[nodiscard]] const ShardFile& file() const { return file_; }
  [[nodiscard]] const FieldChoice& choice() const { return choice_; }
  [[nodiscard]] std::string_view line(int64_t index) const {
    check_sample_index(file_.path(), index, size());
    return lines_[index];
  }
  [[nodiscard]] uint64_t header_end() const {
    const size_t end = file_.all().find('\n');
    return end == std::string_view::npos ? file_.size() : end + 1;
  }

 private:
  FieldChoice choice_;
  ShardFile file_;
  std::string key_;
  Lines lines_;
};

class JsonLinesShard final : public TextShard {
 public:
  JsonLinesShard(const ShardInfo& info, const std::string& path, std::vector<std::string> fields)
      : TextShard(info, path, std::move(fields), false) {}
  [[nodiscard]] Batch get(int64_t index) const override {
    static const std::string none;
    SampleBuilder sample(file(), index, choice());
    FieldBytes bytes(file(), index, none, line(index));
    add_json(sample, none, bytes);
    return sample.finish();
  }
};

class DelimitedShard final : public TextShard {
 public:
  DelimitedShard(const ShardInfo& info, const std::string& path, std::vector<std::string> fields,
                 const std::vector<TextColumn>& columns, char delimiter)
      : TextShard(info, path, std::move(fields), true), columns_(columns), delimiter_(delimiter) {
    std::string expected;
    for (const TextColumn& column : columns_)
      expected += (expected.empty() ? "" : std::string(1, delimiter_)) + column.name;
    std::string_view header = file().all().substr(0, header_end());
    while (!header.empty() && (header.back() == '\n' || header.back() == '\r')) header.remove_suffix(1);
    if (header != expected) {
      file().fail(
          0, "expected the columns \"" + cut_text(expected) + "\", found \"" + cut_text(std::string(header)) + "\"");
    }
  }
  [[nodiscard]] Batch get(int64_t index) const override {
    std::string_view rest = line(index);
    SampleBuilder sample(file(), index, choice());
    for (size_t k = 0; k < columns_.size(); ++k) {
      const TextColumn& column = columns_[k];
      const bool is_last = k + 1 == columns_.size();
      const size_t end = std::min(rest.find(delimiter_), rest.size());
      FieldBytes bytes(file(), index, column.name, rest.substr(0, end));
      if (is_last != (end == rest.size())) {
        bytes.fail("expected " + count_of(static_cast<int64_t>(columns_.size()), "value") + " in a line, found " +
                   (is_last ? "more" : std::to_string(k + 1)));
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (!choice().wants(column.name)) continue;
      if (column.type == TextType::text) sample.add_text(column.name, text_of(bytes));
      if (column.type == TextType::integer) sample.add(column.name, scalar_of(int_text_of(bytes)));
      if (column.type == TextType::number) sample.add(column.name, scalar_of(float_text_of(bytes)));
    }
    return sample.finish();
  }

 private:
  std::vector<TextColumn> columns_;
  char delimiter_;
};

class JsonLinesReader final : public ShardReader {
 public:
  explicit JsonLinesReader(std::vector<std::string> fields) : fields_(std::move(fields)) {}
  [[nodiscard]] std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                            const std::string& path) const override {
    return std::make_unique<JsonLinesShard>(index.shards.at(shard), path, fields_);
  }

 private:
  std::vector<std::string> fields_;
};

class DelimitedReader final : public ShardReader {
 public:
  DelimitedReader(std::vector<std::string> fields, std::vector<TextColumn> columns, char delimiter)
      : fields_(std::move(fields)), columns_(std::move(columns)), delimiter_(delimiter) {}
  [[nodiscard]] std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                            const std::string& path) const override {
    return std::make_unique<DelimitedShard>(index.shards.at(shard), path, fields_, columns_, delimiter_);
  }

 private:
  std::vector<std::string> fields_;
  std::vector<TextColumn> columns_;
  char delimiter_;
};

}  // namespace

std::shared_ptr<const ShardReader> json_lines_reader(const StreamOptions& options) {
  return std::make_shared<JsonLinesReader>(options.fields);
}

std::shared_ptr<const ShardReader> delimited_reader(std::vector<TextColumn> columns, char delimiter,
                                                    const StreamOptions& options) {
  return std::make_shared<DelimitedReader>(options.fields, std::move(columns), delimiter);
}

}  // namespace levin::streams
