// LitData's chunks: the number of items and n + 1 offsets, all uint32, and the items: the sizes of an item's leaves,
// uint32, and then the leaves, each written by the serializer that the index names (litdata/streaming/serializers.py).
// Chunks of the TokensLoader hold tokens alone, which form one row that is cut into samples.
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

enum class Serializer {
  boolean,
  integer,
  number,
  text,
  bytes,
  raw_image,
  image,
  image_array,
  numpy,
  numpy_row,
  tensor,
  tensor_row
};

struct Leaf {
  std::string name;
  Serializer serializer;
  at::ScalarType type = at::kByte;  // of rows
};

constexpr std::pair<std::string_view, Serializer> kSerializers[] = {{"str", Serializer::text},
                                                                    {"text", Serializer::text},
                                                                    {"bool", Serializer::boolean},
                                                                    {"int", Serializer::integer},
                                                                    {"float", Serializer::number},
                                                                    {"bytes", Serializer::bytes},
                                                                    {"file", Serializer::bytes},
                                                                    {"pil", Serializer::raw_image},
                                                                    {"jpeg", Serializer::image},
                                                                    {"image", Serializer::image},
                                                                    {"jpeg_array", Serializer::image_array},
                                                                    {"numpy", Serializer::numpy},
                                                                    {"no_header_numpy", Serializer::numpy_row},
                                                                    {"tensor", Serializer::tensor},
                                                                    {"no_header_tensor", Serializer::tensor_row}};

// The numbers that stand for types in litdata/constants.py.
constexpr std::array<at::ScalarType, 21> kTensorTypes = {
    at::kFloat,         at::kFloat,         at::kDouble, at::kDouble, at::kComplexFloat, at::kComplexFloat,
    at::kComplexDouble, at::kComplexDouble, at::kHalf,   at::kHalf,   at::kBFloat16,     at::kByte,
    at::kChar,          at::kShort,         at::kShort,  at::kInt,    at::kInt,          at::kLong,
    at::kLong,          at::kBool,          at::kUInt16};
constexpr std::array<at::ScalarType, 14> kNumpyTypes = {
    at::kChar,   at::kShort, at::kInt,   at::kLong,   at::kByte,         at::kUInt16,        at::kUInt32,
    at::kUInt64, at::kHalf,  at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble, at::kBool};

template <size_t N>
const at::ScalarType* type_numbered(const std::array<at::ScalarType, N>& types, uint64_t number) {
  return number < N ? &types[number] : nullptr;
}

at::ScalarType row_type(const IndexNode& node, bool is_numpy, std::string_view digits) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const at::ScalarType* type = is_numpy ? type_numbered(kNumpyTypes, number) : type_numbered(kTensorTypes, number);
  if (error != std::errc() || end != digits.data() + digits.size() || type == nullptr) {
    node.fail_expected("the number of a type of LitData after the colon");
  }
  return *type;
}

void read_serializer(const IndexNode& node, Leaf& leaf) {
  const std::string format = node.text();
  const size_t colon = std::min(format.find(':'), format.size());
  const std::string name = format.substr(0, colon);
  const auto* found = std::find_if(std::begin(kSerializers), std::end(kSerializers),
                                   [&](const auto& known) { return known.first == name; });
  if (found == std::end(kSerializers)) {
    node.fail("the field \"" + cut_text(leaf.name) + "\" is written by the serializer " + cut_text(name) +
              ", which Levin does not read" +
              (name == "pickle" || name == "graph" ? ": pickled Python objects run code when they are read" : "") +
              ". Write tensors, numbers, strings, bytes or JPEG images, or leave the field out with the option "
              "`fields`.");
  }
  leaf.serializer = found->second;
  if (leaf.serializer == Serializer::numpy_row || leaf.serializer == Serializer::tensor_row) {
    leaf.type = row_type(node, leaf.serializer == Serializer::numpy_row,
                         std::string_view(format).substr(std::min(colon + 1, format.size())));
  }
}

// The names of the leaves of a sample, from PyTorch's description of its structure: keys of dicts and indices of lists
// and tuples, joined by dots. A sample that is a single value is called 0.
void name_leaves(const IndexNode& spec, const std::string& name, size_t depth, std::vector<std::string>& names) {
  if (depth > 100 || names.size() > 1000)
    spec.fail("the structure of the samples has more than 100 levels or 1000 fields");
  const std::vector<IndexNode> children = spec["children_spec"].elements();
  if (spec["type"].is_null()) {
    names.push_back(name.empty() ? "0" : name);
    return;
  }
  const std::string type = spec["type"].text();
  std::vector<std::string> keys;
  if (type == "builtins.dict" || type == "collections.OrderedDict") {
    const std::string text = spec["context"].text();
    const nlohmann::json context = parse_index(spec.file(), text);
    for (const IndexNode& key : IndexNode(context, spec.file()).elements()) {
      keys.push_back(key.value().is_number_integer() ? std::to_string(key.value().get<int64_t>()) : key.text());
    }
  } else if (type == "builtins.list" || type == "builtins.tuple") {
    for (size_t k = 0; k < children.size(); ++k) keys.push_back(std::to_string(k));
  } else {
    spec["type"].fail_expected("a dict, a list or a tuple as the samples' structure");
  }
  if (keys.size() != children.size()) spec["context"].fail_expected("a key for each of children_spec");
  for (size_t k = 0; k < keys.size(); ++k) {
    if (keys[k].empty()) spec["context"].fail_expected("keys that are not empty");
    name_leaves(children[k], name.empty() ? keys[k] : name + "." + keys[k], depth + 1, names);
  }
}

std::vector<Leaf> read_leaves(const IndexNode& config, const FieldChoice& choice, std::vector<bool>& wanted) {
  const std::vector<IndexNode> formats = config["data_format"].elements();
  std::vector<std::string> names;
  if (config["data_spec"].is_null()) {
    for (size_t k = 0; k < formats.size(); ++k) names.push_back(std::to_string(k));
  } else {
    const std::string text = config["data_spec"].text();
    const nlohmann::json spec = parse_index(config.file() + ": config.data_spec", text);
    const std::string file = config.file() + ": config.data_spec";
    const std::vector<IndexNode> parts = IndexNode(spec, file).elements();
    if (parts.size() != 2) config["data_spec"].fail_expected("a version and a structure");
    name_leaves(parts[1], "", 0, names);
  }
  if (names.size() != formats.size() || names.empty()) {
    config["data_format"].fail_expected("a serializer for each of the " + std::to_string(names.size()) +
                                        " fields of data_spec");
  }
  std::vector<Leaf> leaves;
  for (size_t k = 0; k < names.size(); ++k) {
    if (std::count(names.begin(), names.end(), names[k]) > 1)
      config["data_spec"].fail("two fields are called \"" + cut_text(names[k]) + "\"");
    Leaf leaf{names[k], Serializer::bytes};
    wanted.push_back(choice.wants(names[k]));
    if (wanted.back()) read_serializer(formats[k], leaf);
    leaves.push_back(std::move(leaf));
  }
  choice.check(config.file(), names);
  return leaves;
}

uint32_t big_endian(FieldBytes& bytes, const char* what) {
  return __builtin_bswap32(bytes.number<uint32_t>(what));
}

template <size_t N, class Read>
at::Tensor array_with_header(FieldBytes& bytes, const std::array<at::ScalarType, N>& types, const Read& read) {
  const uint32_t number = read("the array's type"), dimensions = read("the number of dimensions");
  const at::ScalarType* type = type_numbered(types, number);
  if (type == nullptr) bytes.fail("expected the number of a type, found " + std::to_string(number));
  if (dimensions > 64) bytes.fail("expected at most 64 dimensions, found " + std::to_string(dimensions));
  std::vector<int64_t> sizes;
  for (uint32_t k = 0; k < dimensions; ++k) sizes.push_back(read("a size"));
  return array_of(bytes, *type, sizes);
}

void add_leaf(SampleBuilder& sample, const Leaf& leaf, FieldBytes& bytes, const ImageView& view) {
  const auto image = [&](FieldBytes& one) { return image_of(one, view); };
  const auto array = [&](const auto& read, const auto& types) {
    return part_of(array_with_header(bytes, types, read), bytes, view);
  };
  switch (leaf.serializer) {
    case Serializer::boolean: return sample.add(leaf.name, array_of(bytes, at::kBool, {}));
    case Serializer::integer: return sample.add(leaf.name, array_of(bytes, at::kLong, {}));
    case Serializer::number: return sample.add(leaf.name, array_of(bytes, at::kDouble, {}));
    case Serializer::text: return sample.add_text(leaf.name, text_of(bytes));
    case Serializer::bytes: return sample.add(leaf.name, row_of(bytes, at::kByte));
    case Serializer::raw_image: return sample.add(leaf.name, raw_image_of(bytes, view));
    case Serializer::image: return sample.add(leaf.name, image(bytes));
    case Serializer::image_array: return sample.add(leaf.name, image_list_of(bytes, image));
    case Serializer::numpy:
      return sample.add(leaf.name, array([&](const char* what) { return bytes.number<uint32_t>(what); }, kNumpyTypes));
    case Serializer::tensor:
      return sample.add(leaf.name, array([&](const char* what) { return big_endian(bytes, what); }, kTensorTypes));
    case Serializer::numpy_row:
    case Serializer::tensor_row: return sample.add(leaf.name, row_of(bytes, leaf.type));
  }
}

struct LitLayout {
  std::vector<Leaf> leaves = {};
  std::vector<bool> wanted = {};
  FieldChoice choice = {};
  ImageView image = {};
  uint64_t block_size = 0;            // tokens of a sample; 0: the chunks hold items
  std::vector<int64_t> items = {};    // of each chunk, according to the index
  std::vector<uint64_t> tokens = {};  // of each chunk, if they hold tokens
};

class LitShard : public Shard {
 public:
  LitShard(std::shared_ptr<const LitLayout> layout, const ShardInfo& info, size_t shard, const std::string& path)
      : layout_(std::move(layout)), key_(info.key), file_(path), items_(file_.u32(0, "the number of items")) {
    const int64_t expected = layout_->items.at(shard);
    if (expected != items_) {
      file_.fail(0, "expected the number of items in the index, " + std::to_string(expected) + ", found " +
                        std::to_string(items_));
    }
    (void)file_.bytes(sizeof(uint32_t), header_bytes() - sizeof(uint32_t), "the items' offsets");
  }
  [[nodiscard]] std::string sample_id(int64_t index) const override { return key_ + ":" + std::to_string(index); }

 protected:
  [[nodiscard]] const LitLayout& layout() const { return *layout_; }
  [[nodiscard]] const ShardFile& file() const { return file_; }
  [[nodiscard]] int64_t items() const { return items_; }
  [[nodiscard]] uint64_t header_bytes() const { return sizeof(uint32_t) * (2 + static_cast<uint64_t>(items_)); }

 private:
  std::shared_ptr<const LitLayout> layout_;
  std::string key_;
  ShardFile file_;
  int64_t items_;
};

class ItemShard final : public LitShard {
 public:
  using LitShard::LitShard;
  [[nodiscard]] int64_t size() const override { return items(); }
  [[nodiscard]] Batch get(int64_t index) const override {
    check_sample_index(file().path(), index, items());
    const uint64_t where = sizeof(uint32_t) * (1 + static_cast<uint64_t>(index));
    const uint64_t begin = file().u32(where, "an offset"), end = file().u32(where + sizeof(uint32_t), "an offset");
    if (begin < header_bytes() || end < begin || end > file().size()) {
      file().fail(where, "expected the offsets of item " + std::to_string(index) + ", from " +
                             std::to_string(header_bytes()) + " to " + std::to_string(file().size()) + ", found " +
                             std::to_string(begin) + " and " + std::to_string(end));
    }
    if (begin == end && file().all().ends_with(std::string_view("LDARW01\0", 8))) {
      throw DataError(file().path() +
                      ": the chunk holds its items as a table of Arrow, which Levin does not read. Write "
                      "the data set without Hugging Face's rows, or as Parquet files.");
    }
    static const std::string none;
    FieldBytes bytes(file(), index, none, file().bytes(begin, end - begin, "an item"));
    FieldBytes sizes = bytes.part(sizeof(uint32_t) * layout().leaves.size(), "the sizes of the fields");
    SampleBuilder sample(file(), index, layout().choice);
    for (size_t k = 0; k < layout().leaves.size(); ++k) {
      const Leaf& leaf = layout().leaves[k];
      const auto size = sizes.number<uint32_t>("a size");
      FieldBytes field(file(), index, leaf.name, bytes.take(size, leaf.name.c_str()));
      if (layout().wanted[k]) add_leaf(sample, leaf, field, layout().image);
    }
    bytes.expect_end();
    return sample.finish();
  }
};

class TokenShard final : public LitShard {
 public:
  TokenShard(std::shared_ptr<const LitLayout> layout, const ShardInfo& info, size_t shard, const std::string& path)
      : LitShard(std::move(layout), info, shard, path), samples_(info.samples.value_or(0)) {
    const uint64_t expected = this->layout().tokens.at(shard) * c10::elementSize(leaf().type);
    if (file().size() - header_bytes() != expected) {
      file().fail(header_bytes(), "expected " + std::to_string(expected) +
                                      " bytes of tokens, as the index says, found " +
                                      std::to_string(file().size() - header_bytes()));
    }
  }
  [[nodiscard]] int64_t size() const override { return samples_; }
  [[nodiscard]] Batch get(int64_t index) const override {
    check_sample_index(file().path(), index, samples_);
    const uint64_t bytes = layout().block_size * c10::elementSize(leaf().type);
    FieldBytes tokens(file(), index, leaf().name,
                      file().bytes(header_bytes() + static_cast<uint64_t>(index) * bytes, bytes, "tokens"));
    SampleBuilder sample(file(), index, layout().choice);
    sample.add(leaf().name, row_of(tokens, leaf().type));
    return sample.finish();
  }

 private:
  [[nodiscard]] const Leaf& leaf() const { return layout().leaves[0]; }
  int64_t samples_;
};

class LitReader final : public ShardReader {
 public:
  explicit LitReader(LitLayout layout) : layout_(std::make_shared<const LitLayout>(std::move(layout))) {}
  [[nodiscard]] std::unique_ptr<Shard> open(const StreamIndex& index, size_t shard,
                                            const std::string& path) const override {
    const ShardInfo& info = index.shards.at(shard);
    if (layout_->block_size > 0) return std::make_unique<TokenShard>(layout_, info, shard, path);
    return std::make_unique<ItemShard>(layout_, info, shard, path);
  }

 private:
  std::shared_ptr<const LitLayout> layout_;
};

// How chunks are compressed: whole files, batches of items or single items.
std::string chunk_compression(const IndexNode& config) {
  if (config["compression"].is_null()) return "";
  const std::string name = config["compression"].text();
  if (name != "zstd" && !name.starts_with("zstd:")) config["compression"].fail_expected("zstd");
  if (config["compression_level"].is_null()) return "zst";
  const std::string level = config["compression_level"].text();
  if (level == "chunk") return "zst";
  if (level == "batch") return "zst-batch";
  if (level == "sample") return "zst-sample";
  config["compression_level"].fail_expected("chunk, batch or sample");
}

uint64_t read_block_size(const IndexNode& config, const StreamOptions& options, const std::vector<Leaf>& leaves) {
  const std::string loader = config["item_loader"].is_null() ? "PyTreeLoader" : config["item_loader"].text();
  if (loader == "PyTreeLoader") return 0;
  if (loader != "TokensLoader") config["item_loader"].fail_expected("PyTreeLoader or TokensLoader");
  const bool is_row = leaves.size() == 1 &&
                      (leaves[0].serializer == Serializer::tensor_row || leaves[0].serializer == Serializer::numpy_row);
  if (!is_row)
    config["data_format"].fail_expected("no_header_tensor or no_header_numpy, which the TokensLoader writes");
  if (options.block_size > 0) return static_cast<uint64_t>(std::min<int64_t>(options.block_size, INT32_MAX));
  config["item_loader"].fail(
      "the chunks hold tokens, and the index does not say how many form a sample. Set the option "
      "block_size.");
}

}  // namespace

StreamIndex litdata_index(const IndexNode& root, const StreamOptions& options) {
  const IndexNode config = root["config"];
  if (!config["encryption"].is_null())
    config["encryption"].fail("the chunks are encrypted, which Levin does not read. Write them without encryption.");
  StreamIndex index{StreamFormat::litdata, {}, options, nullptr};
  LitLayout layout;
  layout.choice = FieldChoice(options.fields);
  layout.image = options.image;
  layout.leaves = read_leaves(config, layout.choice, layout.wanted);
  layout.block_size = read_block_size(config, options, layout.leaves);
  const std::string compression = chunk_compression(config);
  for (const IndexNode& chunk : root["chunks"].elements()) {
    ShardInfo info;
    info.key = chunk["filename"].key();
    info.compression = compression;
    layout.items.push_back(chunk["chunk_size"].count(UINT32_MAX));
    info.samples = layout.items.back();
    if (layout.block_size > 0) {
      layout.tokens.push_back(static_cast<uint64_t>(chunk["dim"].count(INT32_MAX)));
      info.samples = static_cast<int64_t>(layout.tokens.back() / layout.block_size);
    }
    // The size before a whole file was compressed, and with compression inside a file the size of the file.
    const auto bytes = static_cast<uint64_t>(chunk["chunk_bytes"].count());
    (compression == "zst" ? info.decompressed_bytes : info.bytes) = bytes;
    if (compression.empty()) info.decompressed_bytes = bytes;
    index.shards.push_back(std::move(info));
  }
  index.reader = std::make_shared<LitReader>(std::move(layout));
  return index;
}

}  // namespace levin::streams
