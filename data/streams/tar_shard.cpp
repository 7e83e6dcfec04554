// WebDataset's shards: tar archives in which the files of a sample follow each other and share their names up to the
// first dot. Formats of headers: ustar, GNU's long names and numbers, and pax (POSIX.1-2001).
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "levin/data/streams/readers.h"
#include "levin/data/streams/values.h"

namespace levin::streams {

namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMaxName = 4096;         // bytes of a path
constexpr uint64_t kMaxPaxBytes = 1 << 20;  // of the records of one file
constexpr size_t kMaxFieldNames = 1000;     // different ones in a shard

enum class Decoding { bytes, text, integer, json, image, npy, pickle };

constexpr std::pair<std::string_view, Decoding> kDecodings[] = {
    {"txt", Decoding::text},    {"text", Decoding::text},     {"transcript", Decoding::text},
    {"cls", Decoding::integer}, {"cls2", Decoding::integer},  {"index", Decoding::integer},
    {"inx", Decoding::integer}, {"id", Decoding::integer},    {"json", Decoding::json},
    {"jsn", Decoding::json},    {"jpg", Decoding::image},     {"jpeg", Decoding::image},
    {"png", Decoding::image},   {"webp", Decoding::image},    {"npy", Decoding::npy},
    {"pkl", Decoding::pickle},  {"pickle", Decoding::pickle}, {"pyd", Decoding::pickle},
    {"pth", Decoding::pickle},  {"pt", Decoding::pickle}};

// How a field is decoded: by the last part of its name, "png" for "seg.png".
Decoding decoding_of(std::string_view field) {
  const std::string_view ending = field.substr(field.rfind('.') + 1);
  const auto* found = std::find_if(std::begin(kDecodings), std::end(kDecodings),
                                   [&](const auto& known) { return known.first == ending; });
  return found == std::end(kDecodings) ? Decoding::bytes : found->second;
}

struct Member {
  std::string name = "";
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Reads the headers of an archive.
class TarReader {
 public:
  explicit TarReader(const ShardFile& file) : file_(file) {}

  // Returns the next regular file; nothing at the end of the archive.
  std::optional<Member> next() {
    std::string long_name;
    bool has_size = false;  // from an extended header
    uint64_t extended_size = 0;
    while (true) {
      const uint64_t at = at_;
      const std::string_view header = file_.bytes(at, kBlock, "a header, or of zeros, which end an archive");
      if (header.find_first_not_of('\0') == std::string_view::npos) {
        if (!long_name.empty() || has_size) file_.fail(at, "expected a header after the extended header, found zeros");
        return {};
      }
      check_sum(header);
      const char type = header[156];
      const uint64_t size = has_size && type != 'x' && type != 'L' ? extended_size : number(at + 124, 12, "size");
      at_ += kBlock;
      if (type == 'g') {
        skip(size);
      } else if (type == 'x' || type == 'X') {
        if (size > kMaxPaxBytes)
          file_.fail(at + 124, "an extended header of " + std::to_string(size) + " bytes, more than allowed");
        read_pax(at_, file_.bytes(at_, size, "an extended header"), long_name, has_size, extended_size);
        skip(size);
      } else if (type == 'L') {
        if (size > kMaxName) fail_name(at + 124, size);
        const std::string_view name = file_.bytes(at_, size, "a long name");
        long_name = std::string(name.substr(0, name.find('\0')));
        skip(size);
      } else if (type == 'K') {
        skip(size);
      } else if (type == 'S') {
        file_.fail(at + 156, "a sparse file cannot be read. Write the archive without --sparse");
      } else if (type == '0' || type == '\0' || type == '7') {
        Member member{long_name.empty() ? short_name(header) : long_name, at_, size};
        (void)file_.bytes(at_, size, "a file in the archive");
        skip(size);
        const bool is_folder = type == '\0' && member.name.ends_with('/');
        if (!is_folder) return member;
        long_name.clear();
        has_size = false;
      } else {  // a link, a folder or a device
        const bool has_content = type < '1' || type > '6';
        if (has_content) skip(size);
        long_name.clear();
        has_size = false;
      }
    }
  }

 private:
  // Moves past a content of `size` bytes, which fills whole blocks.
  void skip(uint64_t size) {
    (void)file_.bytes(at_, size, "a file in the archive");
    const uint64_t padded = (size + kBlock - 1) / kBlock * kBlock;
    at_ += padded;
  }

  void check_sum(std::string_view header) const {
    uint64_t bytes = 0;
    int64_t chars = 0;  // as some old programs sum
    for (size_t k = 0; k < kBlock; ++k) {
      const char c = k >= 148 && k < 156 ? ' ' : header[k];
      bytes += static_cast<unsigned char>(c);
      chars += static_cast<signed char>(c);
    }
    const uint64_t stored = number(at_ + 148, 8, "checksum");
    if (stored == bytes || static_cast<int64_t>(stored) == chars) return;
    file_.fail(at_ + 148,
               "expected the checksum of a tar header, " + std::to_string(bytes) + ", found " + std::to_string(stored));
  }

  // Octal digits, or, with the highest bit set, big-endian.
  [[nodiscard]] uint64_t number(uint64_t offset, uint64_t length, const std::string& what) const {
    std::string_view text = file_.bytes(offset, length, "a header");
    uint64_t value = 0;
    if ((static_cast<unsigned char>(text[0]) & 0x80) != 0) {
      for (size_t k = 0; k < length; ++k) {
        const uint64_t byte = static_cast<unsigned char>(text[k]) & (k == 0 ? 0x7f : 0xff);
        if (value >> 55 != 0) fail_number(offset, text, what);
        value = value << 8 | byte;
      }
      return value;
    }
    text = text.substr(0, text.find('\0'));
    const size_t first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return 0;
    text = text.substr(first, text.find_last_not_of(' ') - first + 1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
    if (error != std::errc() || end != text.data() + text.size()) fail_number(offset, text, what);
    return value;
  }
  [[noreturn]] void fail_number(uint64_t offset, std::string_view text, const std::string& what) const {
    file_.fail(offset, "expected the " + what + " in the header of a tar archive, found \"" +
                           cut_text(std::string(text)) + "\"");
  }
  [[noreturn]] void fail_name(uint64_t offset, uint64_t size) const {
    file_.fail(offset, "a name of " + std::to_string(size) + " bytes is longer than the " + std::to_string(kMaxName) +
                           " allowed");
  }

  [[nodiscard]] static std::string short_name(std::string_view header) {
    const auto text = [&](size_t offset, size_t length) {
      const std::string_view field = header.substr(offset, length);
      return std::string(field.substr(0, field.find('\0')));
    };
    std::string name = text(0, 100);
    const bool has_prefix = header.substr(257, 6) == std::string_view("ustar\0", 6);
    if (std::string prefix = has_prefix ? text(345, 155) : ""; !prefix.empty()) name = std::move(prefix) + "/" + name;
    return name;
  }

  // Records "LENGTH KEY=VALUE\n", whose length counts itself.
  void read_pax(uint64_t offset, std::string_view records, std::string& name, bool& has_size, uint64_t& size) const {
    while (!records.empty() && records[0] != '\0') {
      uint64_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<size_t>(end - records.data());
      const bool has_length = error == std::errc() && digits < records.size() && *end == ' ' && length > digits + 1 &&
                              length <= records.size() && records[length - 1] == '\n';
      if (!has_length) {
        file_.fail(offset, "expected a record \"LENGTH KEY=VALUE\" of an extended header, found \"" +
                               cut_text(std::string(records.substr(0, 40))) + "\"");
      }
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const size_t equals = std::min(record.find('='), record.size());
      const std::string_view key = record.substr(0, equals), value = record.substr(std::min(equals + 1, record.size()));
      if (key == "path") {
        if (value.size() > kMaxName) fail_name(offset, value.size());
        name = std::string(value);
      } else if (key == "size") {
        uint64_t number = 0;
        const auto [last, wrong] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (wrong != std::errc() || last != value.data() + value.size()) fail_number(offset, value, "size");
        has_size = true;
        size = number;
      } else if (key.starts_with("GNU.sparse.")) {
        file_.fail(offset, "a sparse file cannot be read. Write the archive without --sparse");
      }
      offset += length;
      records.remove_prefix(length);
    }
  }

  const ShardFile& file_;
  uint64_t at_ = 0;
};

// The key of a file's sample and the name of its field; nothing for files without an ending, and for names in two
// underscores, which WebDataset keeps for itself.
std::optional<std::pair<std::string, std::string>> split_name(const std::string& name) {
  const size_t slash = name.rfind('/');
  const size_t first = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', first);
  if (dot == std::string::npos || dot == first) return {};
  if (name.starts_with("__")) {
    const std::string_view folder = std::string_view(name).substr(0, name.find('/'));
    if (folder.size() >= 4 && folder.ends_with("__")) return {};
  }
  std::string field = name.substr(dot + 1);
  std::transform(field.begin(), field.end(), field.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return std::pair{name.substr(0, dot), std::move(field)};
}

class TarShard final : public Shard {
 public:
  TarShard(const ShardInfo& info, const std::string& path, std::vector<std::string> fields, const ImageView& image)
      : choice_(std::move(fields)), image_(image), file_(path) {
    TarReader reader(file_);
    while (const auto member = reader.next()) {
      const auto name = split_name(member->name);
      if (!name) continue;
      if (samples_.empty() || samples_.back().key != name->first) samples_.push_back({name->first, files_.size()});
      add_file(*member, name->second);
    }
    check_samples(info, path, size());
  }

  [[nodiscard]] int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    return samples_.at(static_cast<size_t>(index)).key;
  }

  [[nodiscard]] Batch get(int64_t index) const override {
    check_sample_index(file_.path(), index, size());
    const auto at = static_cast<size_t>(index);
    const size_t end = at + 1 < samples_.size() ? samples_[at + 1].first : files_.size();
    SampleBuilder sample(file_, index, choice_);
    for (size_t k = samples_[at].first; k < end; ++k) {
      const std::string& field = *files_[k].field;
      if (!choice_.wants(field)) continue;
      FieldBytes bytes(file_, index, field, file_.bytes(files_[k].offset, files_[k].size, "a file in the archive"));
      add_field(sample, field, bytes);
    }
    return sample.finish();
  }

 private:
  struct Sample {
    std::string key;
    size_t first;  // in files_
  };
  struct File {
    const std::string* field;  // in names_
    uint64_t offset;
    uint64_t size;
  };

  void add_file(const Member& member, const std::string& field) {
    for (size_t k = samples_.back().first; k < files_.size(); ++k) {
      if (*files_[k].field == field) {
        file_.fail(member.offset - kBlock,
                   "the sample \"" + cut_text(samples_.back().key) + "\" has two files \"" + cut_text(field) + "\"");
      }
    }
    if (files_.size() - samples_.back().first >= kMaxFieldNames ||
        (names_.size() >= kMaxFieldNames && !names_.contains(field))) {
      file_.fail(member.offset - kBlock, "more than " + std::to_string(kMaxFieldNames) +
                                             " different endings of files, or files of one sample: a "
                                             "sample's name ends at its first dot");
    }
    const std::string& name = *names_.insert(field).first;
    files_.push_back({&name, member.offset, member.size});
  }

  void add_field(SampleBuilder& sample, const std::string& field, FieldBytes& bytes) const {
    switch (decoding_of(field)) {
      case Decoding::bytes: return sample.add(field, row_of(bytes, at::kByte));
      case Decoding::text: return sample.add_text(field, text_of(bytes));
      case Decoding::integer: return sample.add(field, scalar_of(int_text_of(bytes)));
      case Decoding::json: return add_json(sample, field, bytes);
      case Decoding::image: return sample.add(field, image_of(bytes, image_));
      case Decoding::npy: return sample.add(field, part_of(npy_of(bytes), bytes, image_));
      case Decoding::pickle:
        bytes.refuse(
            "the file holds pickled Python objects, which run code when they are read. Write it as .npy or .json, or "
            "leave it "
            "out with the option `fields`.");
    }
  }

  FieldChoice choice_;
  ImageView image_;
  ShardFile file_;
  std::set<std::string> names_ = {};
  std::vector<Sample> samples_ = {};
  std::vector<File> files_ = {};
};

class TarShards final : public ShardReader {
 public:
  explicit TarShards(const StreamOptions& options) : fields_(options.fields), image_(options.image) {}
  [[nodiscard]] std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                            const std::string& path) const override {
    return std::make_unique<TarShard>(index.shards.at(shard), path, fields_, image_);
  }

 private:
  std::vector<std::string> fields_;
  ImageView image_;
};

}  // namespace

std::shared_ptr<const ShardReader> tar_reader(const StreamOptions& options) {
  return std::make_shared<TarShards>(options);
}

StreamIndex wids_index(const IndexNode& root, const StreamOptions& options) {
  StreamIndex index{StreamFormat::webdataset, {}, options, tar_reader(options)};
  for (const IndexNode& shard : root["shardlist"].elements()) {
    ShardInfo info;
    info.key = shard["url"].key();
    info.compression = compression_of(info.key);
    info.samples = shard["nsamples"].count();
    if (shard.has("filesize")) info.bytes = static_cast<uint64_t>(shard["filesize"].count());
    index.shards.push_back(std::move(info));
  }
  return index;
}

}  // namespace levin::streams
