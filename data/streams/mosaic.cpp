// MosaicML's MDS shards: https://docs.mosaicml.com/projects/streaming/en/stable/fundamentals/dataset_format.html and
// mosaicml-streaming's base/format. A shard holds the number of samples, n + 1 offsets, all uint32, the columns once
// more as JSON, and the samples: the sizes of the columns that have no fixed one, uint32, and then the columns.
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/data/streams/readers.h"
#include "levin/data/streams/values.h"

namespace levin::streams {

namespace {

enum class Encoding {
  bytes,
  text,
  array,
  scalar,
  int_text,
  float_text,
  image,
  raw_image,
  image_array,
  image_list,
  raw_image_list,
  json
};

struct Column {
  std::string name;
  Encoding encoding;
  at::ScalarType type = at::kByte;
  bool has_type = false;            // array
  std::vector<int64_t> shape = {};  // array; none: each sample has its own
  uint64_t size = 0;                // bytes; 0: each sample has its own
};

using ScalarName = std::pair<std::string_view, at::ScalarType>;
constexpr std::array<ScalarName, 11> kScalars = {{{"uint8", at::kByte},
                                                  {"int8", at::kChar},
                                                  {"uint16", at::kUInt16},
                                                  {"int16", at::kShort},
                                                  {"float16", at::kHalf},
                                                  {"uint32", at::kUInt32},
                                                  {"int32", at::kInt},
                                                  {"float32", at::kFloat},
                                                  {"uint64", at::kUInt64},
                                                  {"int64", at::kLong},
                                                  {"float64", at::kDouble}}};
// The numbers by which an array names its type, in the order of kScalars.
constexpr std::array<uint8_t, 11> kArrayTypes = {8, 9, 16, 17, 18, 32, 33, 34, 64, 65, 66};

constexpr std::array<std::pair<std::string_view, Encoding>, 16> kEncodings = {{{"bytes", Encoding::bytes},
                                                                               {"str", Encoding::text},
                                                                               {"str_decimal", Encoding::text},
                                                                               {"ndarray", Encoding::array},
                                                                               {"str_int", Encoding::int_text},
                                                                               {"str_float", Encoding::float_text},
                                                                               {"jpeg", Encoding::image},
                                                                               {"png", Encoding::image},
                                                                               {"pil", Encoding::raw_image},
                                                                               {"jpegarray", Encoding::image_array},
                                                                               {"jpeg_array", Encoding::image_array},
                                                                               {"list[jpeg]", Encoding::image_list},
                                                                               {"list[png]", Encoding::image_list},
                                                                               {"list[pil]", Encoding::raw_image_list},
                                                                               {"json", Encoding::json},
                                                                               {"int", Encoding::scalar}}};

const at::ScalarType* scalar_named(std::string_view name) {
  const auto* found =
      std::find_if(kScalars.begin(), kScalars.end(), [&](const auto& known) { return known.first == name; });
  return found == kScalars.end() ? nullptr : &found->second;
}

// "ndarray", "ndarray:float32" or "ndarray:float32:2,3".
void read_array_encoding(const IndexNode& node, std::string_view details, Column& column) {
  const size_t colon = details.find(':');
  const at::ScalarType* type = scalar_named(details.substr(0, colon));
  if (type == nullptr) node.fail_expected("an array's type, such as ndarray:float32");
  column.type = *type;
  column.has_type = true;
  if (colon == std::string_view::npos) return;
  const std::string sizes(details.substr(colon + 1));
  uint64_t bytes = c10::elementSize(column.type);
  for (const std::string& text : split(sizes, ',')) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    const bool is_size = error == std::errc() && end == text.data() + text.size() && size > 0;
    if (!is_size || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) || bytes > UINT32_MAX) {
      node.fail_expected("an array's sizes, such as ndarray:float32:2,3, of less than 2^32 bytes");
    }
    column.shape.push_back(size);
  }
  if (column.shape.empty()) node.fail_expected("an array's sizes, such as ndarray:float32:2,3");
  column.size = bytes;
}

void read_encoding(const IndexNode& node, const std::string& encoding, Column& column) {
  if (encoding == "pkl") {
    node.fail("the column \"" + cut_text(column.name) +
              "\" holds pickled Python objects, which run code when they are read. Write it with an encoding such as "
              "json or ndarray, or leave it out with the option `fields`.");
  }
  if (const at::ScalarType* type = encoding == "int" ? scalar_named("int64") : scalar_named(encoding)) {
    column.encoding = Encoding::scalar;
    column.type = *type;
    column.size = c10::elementSize(*type);
    return;
  }
  const size_t colon = std::min(encoding.find(':'), encoding.size());
  const std::string_view name = std::string_view(encoding).substr(0, colon);
  const auto* found =
      std::find_if(kEncodings.begin(), kEncodings.end(), [&](const auto& known) { return known.first == name; });
  const bool has_details = colon < encoding.size();
  if (found == kEncodings.end() || (has_details && found->second != Encoding::array)) {
    node.fail_expected("an encoding of MDS, such as int, str, ndarray:float32 or jpeg");
  }
  column.encoding = found->second;
  if (has_details) read_array_encoding(node, std::string_view(encoding).substr(colon + 1), column);
}

constexpr std::string_view kFileColumn = "file";  // names the sample

std::vector<Column> read_columns(const IndexNode& shard, const FieldChoice& choice) {
  const auto names = shard["column_names"].elements(), encodings = shard["column_encodings"].elements(),
             sizes = shard["column_sizes"].elements();
  if (encodings.size() != names.size() || sizes.size() != names.size() || names.empty() || names.size() > 1000) {
    shard.fail("expected 1 to 1000 column_names and as many column_encodings and column_sizes, found " +
               std::to_string(names.size()) + ", " + std::to_string(encodings.size()) + " and " +
               std::to_string(sizes.size()) + ". Write the data set's index again.");
  }
  std::vector<Column> columns;
  std::vector<std::string> known;
  for (size_t k = 0; k < names.size(); ++k) {
    Column column{names[k].text(), Encoding::bytes};
    if (column.name.empty() || std::find(known.begin(), known.end(), column.name) != known.end()) {
      names[k].fail_expected("a name that no other column has");
    }
    known.push_back(column.name);
    const auto size = static_cast<uint64_t>(sizes[k].is_null() ? 0 : sizes[k].count(UINT32_MAX));
    if (choice.wants(column.name) || (column.name == kFileColumn && encodings[k].text() == "str")) {
      read_encoding(encodings[k], encodings[k].text(), column);
      if (size != column.size) {
        sizes[k].fail_expected(column.size == 0
                                   ? "null, for values of different sizes"
                                   : std::to_string(column.size) + ", the bytes of " + encodings[k].text());
      }
    }
    column.size = size;
    columns.push_back(std::move(column));
  }
  choice.check(shard.file(), known, true);
  return columns;
}

at::Tensor read_array(FieldBytes& bytes, const Column& column) {
  at::ScalarType type = column.type;
  if (!column.has_type) {
    const auto code = bytes.number<uint8_t>("the array's type");
    const auto* found = std::find(kArrayTypes.begin(), kArrayTypes.end(), code);
    if (found == kArrayTypes.end()) bytes.fail("expected the type of an array, found " + std::to_string(code));
    type = kScalars[static_cast<size_t>(found - kArrayTypes.begin())].second;
  }
  if (!column.shape.empty()) return array_of(bytes, type, column.shape);
  const auto code = bytes.number<uint8_t>("the number of dimensions");
  std::vector<int64_t> sizes;
  for (int k = 0; k < code >> 2; ++k) {
    switch (code & 3) {
      case 0: sizes.push_back(bytes.number<uint8_t>("a size")); break;
      case 1: sizes.push_back(bytes.number<uint16_t>("a size")); break;
      case 2: sizes.push_back(bytes.number<uint32_t>("a size")); break;
      default: sizes.push_back(bytes.number<int64_t>("a size"));
    }
  }
  return array_of(bytes, type, sizes);
}

void add_field(SampleBuilder& sample, const Column& column, FieldBytes& bytes, const ImageView& view) {
  const auto image = [&](FieldBytes& one) { return image_of(one, view); };
  const auto raw_image = [&](FieldBytes& one) { return raw_image_of(one, view); };
  switch (column.encoding) {
    case Encoding::bytes: return sample.add(column.name, row_of(bytes, at::kByte));
    case Encoding::text: return sample.add_text(column.name, text_of(bytes));
    case Encoding::array: return sample.add(column.name, part_of(read_array(bytes, column), bytes, view));
    case Encoding::scalar: return sample.add(column.name, array_of(bytes, column.type, {}));
    case Encoding::int_text: return sample.add(column.name, scalar_of(int_text_of(bytes)));
    case Encoding::float_text: return sample.add(column.name, scalar_of(float_text_of(bytes)));
    case Encoding::image: return sample.add(column.name, image(bytes));
    case Encoding::raw_image: return sample.add(column.name, raw_image(bytes));
    case Encoding::image_list: (void)bytes.number<uint32_t>("a list's beginning"); [[fallthrough]];
    case Encoding::image_array: return sample.add(column.name, image_list_of(bytes, image));
    case Encoding::raw_image_list:
      (void)bytes.number<uint32_t>("a list's beginning");
      return sample.add(column.name, image_list_of(bytes, raw_image));
    case Encoding::json: return add_json(sample, column.name, bytes);
  }
}

struct MdsLayout {
  std::vector<Column> columns;
  FieldChoice choice;
  ImageView image;

  [[nodiscard]] bool has_file_column() const {
    return std::any_of(columns.begin(), columns.end(),
                       [](const Column& each) { return each.name == kFileColumn && each.encoding == Encoding::text; });
  }
};

class MdsShard final : public Shard {
 public:
  MdsShard(std::shared_ptr<const MdsLayout> layout, const ShardInfo& info, const std::string& path)
      : layout_(std::move(layout)), key_(info.key), file_(path), samples_(file_.u32(0, "the number of samples")) {
    check_samples(info, path, samples_);
    (void)file_.bytes(sizeof(uint32_t), header_bytes() - sizeof(uint32_t), "the samples' offsets");
  }

  [[nodiscard]] int64_t size() const override { return samples_; }
  // The name in the column `file`, as `levin pack` writes it, even if it is not among the columns that are read.
  [[nodiscard]] std::string sample_id(int64_t index) const override {
    std::string id = key_ + ":" + std::to_string(index);
    if (!layout_->has_file_column()) return id;
    each_column(index, [&](const Column& column, FieldBytes& field) {
      if (column.name == kFileColumn) id = std::string(field.rest());
    });
    return id;
  }

  [[nodiscard]] Batch get(int64_t index) const override {
    SampleBuilder sample(file_, index, layout_->choice);
    each_column(index, [&](const Column& column, FieldBytes& field) {
      if (layout_->choice.wants(column.name)) add_field(sample, column, field, layout_->image);
    });
    return sample.finish();
  }

 private:
  // Calls `use` with each column and its bytes.
  template <class Use>
  void each_column(int64_t index, const Use& use) const {
    check_sample_index(file_.path(), index, samples_);
    const uint64_t where = sizeof(uint32_t) * (1 + static_cast<uint64_t>(index));
    const uint64_t begin = file_.u32(where, "an offset"), end = file_.u32(where + sizeof(uint32_t), "an offset");
    if (begin < header_bytes() || end < begin || end > file_.size()) {
      file_.fail(where, "expected the offsets of sample " + std::to_string(index) + ", from " +
                            std::to_string(header_bytes()) + " to " + std::to_string(file_.size()) + ", found " +
                            std::to_string(begin) + " and " + std::to_string(end));
    }
    static const std::string none;
    FieldBytes bytes(file_, index, none, file_.bytes(begin, end - begin, "a sample"));
    std::vector<uint64_t> sizes;
    for (const Column& column : layout_->columns) {
      sizes.push_back(column.size > 0 ? column.size : bytes.number<uint32_t>("a column's size"));
    }
    for (size_t k = 0; k < sizes.size(); ++k) {
      const Column& column = layout_->columns[k];
      FieldBytes field(file_, index, column.name, bytes.take(sizes[k], column.name.c_str()));
      use(column, field);
    }
    bytes.expect_end();
  }

  [[nodiscard]] uint64_t header_bytes() const { return sizeof(uint32_t) * (2 + static_cast<uint64_t>(samples_)); }

  std::shared_ptr<const MdsLayout> layout_;
  std::string key_;
  ShardFile file_;
  int64_t samples_;
};

class MdsReader final : public ShardReader {
 public:
  explicit MdsReader(MdsLayout layout) : layout_(std::make_shared<const MdsLayout>(std::move(layout))) {}
  [[nodiscard]] std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                            const std::string& path) const override {
    return std::make_unique<MdsShard>(layout_, index.shards.at(shard), path);
  }

 private:
  std::shared_ptr<const MdsLayout> layout_;
};

// "zstd:7", "gz" or null.
std::string shard_compression(const IndexNode& node) {
  if (node.is_null()) return "";
  const std::string text = node.text(), name = text.substr(0, text.find(':'));
  if (name == "gz") return "gz";
  if (name == "zstd") return "zst";
  node.fail("the shards are compressed with " + cut_text(name) +
            ", and Levin reads zstd and gz. Write them with one of these.");
}

void read_checksums(const IndexNode& file, bool of_decompressed, std::vector<ShardChecksum>& checksums) {
  const IndexNode hashes = file["hashes"];
  if (hashes.is_null()) return;
  for (const std::string& name : hashes.keys()) {
    const std::optional<Checksum::Kind> kind = checksum_kind(name);
    if (kind) checksums.push_back({{*kind, hashes[name].text()}, of_decompressed});
  }
}

ShardInfo read_shard(const IndexNode& node) {
  const IndexNode raw = node["raw_data"], packed = node["zip_data"];
  ShardInfo info;
  info.samples = node["samples"].count(UINT32_MAX);
  info.decompressed_bytes = static_cast<uint64_t>(raw["bytes"].count());
  if (packed.is_null()) {
    info.key = raw["basename"].key();
    info.bytes = info.decompressed_bytes;
    read_checksums(raw, false, info.checksums);
    return info;
  }
  info.compression = shard_compression(node["compression"]);
  if (info.compression.empty()) node["compression"].fail_expected("the compression of zip_data");
  info.key = packed["basename"].key();
  info.bytes = static_cast<uint64_t>(packed["bytes"].count());
  read_checksums(packed, false, info.checksums);
  read_checksums(raw, true, info.checksums);
  return info;
}

TextType text_type(const IndexNode& node) {
  const std::string name = node.text();
  if (name == "str") return TextType::text;
  if (name == "int") return TextType::integer;
  if (name == "float") return TextType::number;
  node.fail_expected("str, int or float");
}

std::shared_ptr<const ShardReader> delimited_shards(const IndexNode& shard, const std::string& format,
                                                    const StreamOptions& options) {
  std::vector<TextColumn> columns;
  const auto names = shard["column_names"].elements(), types = shard["column_encodings"].elements();
  if (names.size() != types.size() || names.empty()) shard["column_encodings"].fail_expected("a type for each column");
  for (size_t k = 0; k < names.size(); ++k) columns.push_back({names[k].text(), text_type(types[k])});
  const std::string delimiter = format == "csv" ? "," : format == "tsv" ? "\t" : shard["separator"].text();
  if (delimiter.size() != 1) shard["separator"].fail_expected("one character");
  return delimited_reader(std::move(columns), delimiter[0], options);
}

// What the shards of an index must have in common.
std::string form_of(const IndexNode& shard) {
  nlohmann::json form;
  for (const char* key :
       {"version", "format", "column_names", "column_encodings", "column_sizes", "separator", "newline"}) {
    form[key] = shard[key].value();
  }
  return form.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

StreamIndex mosaic_index(const IndexNode& root, const StreamOptions& options) {
  if (root["version"].count() != 2) root["version"].fail_expected("version 2");
  StreamIndex index{StreamFormat::mds, {}, options, nullptr};
  std::string form;
  for (const IndexNode& shard : root["shards"].elements()) {
    std::string own = form_of(shard);
    if (index.shards.empty()) {
      form = std::move(own);
      const std::string format = shard["format"].text();
      if (shard["version"].count() != 2) shard["version"].fail_expected("version 2");
      if (shard.has("newline") && shard["newline"].text() != "\n") shard["newline"].fail_expected("\"\\n\"");
      if (format == "mds") {
        const FieldChoice choice(options.fields);
        std::vector<Column> columns = read_columns(shard, choice);
        index.reader = std::make_shared<MdsReader>(MdsLayout{std::move(columns), choice, options.image});
      } else if (format == "json") {
        index.reader = json_lines_reader(options);
      } else if (format == "csv" || format == "tsv" || format == "xsv") {
        index.reader = delimited_shards(shard, format, options);
      } else {
        shard["format"].fail_expected("mds, json, csv, tsv or xsv");
      }
    } else if (own != form) {
      shard.fail(
          "expected the same format and columns as in the first shard. Keep data sets of different columns apart.");
    }
    index.shards.push_back(read_shard(shard));
  }
  return index;
}

}  // namespace levin::streams
