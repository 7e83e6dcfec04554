#include "levin/data/streams/stream_index.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/data/streams/readers.h"

namespace levin {

namespace {

using streams::IndexNode;

constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;
constexpr size_t kMaxNames = 1'000'000;
constexpr size_t kMaxPattern = 4096;

// The name without the ending of a compression.
std::string_view plain_name(std::string_view key) {
  for (const std::string_view ending : {".gz", ".zst", ".zstd"}) {
    if (key.ends_with(ending)) return key.substr(0, key.size() - ending.size());
  }
  return key;
}

// automatic: it is not a shard. Many folders have a .json file that describes the data, so that .json files are shards
// only where there are no others.
StreamFormat format_of(std::string_view key, bool with_json) {
  const std::string_view name = key.substr(key.rfind('/') + 1), plain = plain_name(key);
  if (name.starts_with('.')) return StreamFormat::automatic;
  if (plain.ends_with(".tar") || key.ends_with(".tgz")) return StreamFormat::webdataset;
  if (plain.ends_with(".jsonl") || plain.ends_with(".ndjson")) return StreamFormat::jsonl;
  const bool is_index = name == "index.json" || name == "sizes.json";
  return with_json && plain.ends_with(".json") && !is_index ? StreamFormat::jsonl : StreamFormat::automatic;
}

[[noreturn]] void fail_pattern(const std::string& pattern, const std::string& what) {
  throw DataError("pattern \"" + cut_text(pattern) + "\": " + what + ".");
}

// The names that "{…}" at `open` stands for; `close`: the position of its closing brace.
std::vector<std::string> alternatives(const std::string& pattern, size_t open, size_t& close) {
  std::vector<size_t> commas;
  size_t depth = 0;
  for (close = open; close < pattern.size(); ++close) {
    if (pattern[close] == '{') ++depth;
    if (pattern[close] == '}' && --depth == 0) break;
    if (pattern[close] == ',' && depth == 1) commas.push_back(close);
  }
  if (close == pattern.size()) fail_pattern(pattern, "a { is not closed");
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  if (commas.empty()) {
    const size_t dots = inside.find("..");
    const std::string first = inside.substr(0, dots), last = dots == std::string::npos ? "" : inside.substr(dots + 2);
    const auto number_of = [&](const std::string& text) {
      int64_t value = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool is_number = !text.empty() && error == std::errc() && end == text.data() + text.size() && value >= 0;
      if (!is_number) fail_pattern(pattern, "expected {FIRST..LAST} or {a,b}, found {" + cut_text(inside) + "}");
      return value;
    };
    const int64_t from = number_of(first), to = number_of(last);
    if (to < from || static_cast<uint64_t>(to - from) >= kMaxNames) {
      fail_pattern(pattern, "{" + cut_text(inside) + "} is empty or stands for more than a million names");
    }
    std::vector<std::string> all;
    const bool is_padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
    const size_t width = is_padded ? std::max(first.size(), last.size()) : 0;
    for (int64_t k = from; k <= to; ++k) {
      std::string text = std::to_string(k);
      all.push_back(std::string(width > text.size() ? width - text.size() : 0, '0') + text);
    }
    return all;
  }
  std::vector<std::string> all;
  commas.push_back(close);
  for (size_t k = 0, from = open + 1; k < commas.size(); from = commas[k++] + 1) {
    for (std::string& name : expand_braces(pattern.substr(from, commas[k] - from))) all.push_back(std::move(name));
    if (all.size() > kMaxNames) fail_pattern(pattern, "it stands for more than a million names");
  }
  return all;
}

std::string read_index_text(const ObjectStore& store, const std::string& key, uint64_t size) {
  if (size > kMaxIndexBytes) {
    throw DataError(store.url(key) + ": the index has " + std::to_string(size) + " bytes, more than the " +
                    std::to_string(kMaxIndexBytes) + " allowed. Is it the index of a data set in shards?");
  }
  return store.read(key);
}

// sizes.json of WebDataset's tools: {"data-000000.tar": 1000, …}.
void read_sizes(const ObjectStore& store, StreamIndex& index) {
  const auto found = store.find("sizes.json");
  if (!found) return;
  const std::string name = store.url("sizes.json");
  const nlohmann::json sizes = streams::parse_index(name, read_index_text(store, "sizes.json", found->size));
  const IndexNode root(sizes, name);
  if (!root.is_object()) root.fail_expected("an object of the files' numbers of samples");
  for (ShardInfo& shard : index.shards) {
    if (root.has(shard.key)) shard.samples = root[shard.key].count();
  }
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  if (pattern.size() > kMaxPattern) fail_pattern(pattern, "it is longer than 4096 characters");
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return {pattern};
  size_t close = 0;
  const std::vector<std::string> first = alternatives(pattern, open, close);
  const std::vector<std::string> rest = expand_braces(pattern.substr(close + 1));
  if (first.size() > kMaxNames / rest.size()) fail_pattern(pattern, "it stands for more than a million names");
  std::vector<std::string> all;
  for (const std::string& middle : first) {
    for (const std::string& end : rest) all.push_back(pattern.substr(0, open) + middle + end);
  }
  return all;
}

StreamIndex parse_stream_index(const std::string& name, std::string_view text, const StreamOptions& options) {
  const nlohmann::json parsed = streams::parse_index(name, text);
  const IndexNode root(parsed, name);
  StreamIndex index;
  if (root.has("shards")) {
    index = streams::mosaic_index(root, options);
  } else if (root.has("chunks")) {
    index = streams::litdata_index(root, options);
  } else if (root.has("shardlist")) {
    index = streams::wids_index(root, options);
  } else {
    throw DataError(name +
                    ": expected the index of MosaicML's streaming (shards), of LitData (chunks) or of WebDataset "
                    "(shardlist), found none of these keys. Choose a format and a pattern for files without an index.");
  }
  if (index.shards.empty()) throw DataError(name + ": the index has no shards. Write the data set again.");
  const std::string version = checksum_of(text, Checksum::Kind::sha256);
  for (ShardInfo& shard : index.shards) shard.version = version;
  if (options.format != StreamFormat::automatic && options.format != index.format) {
    throw DataError(name + ": the index is of the format " + enum_name(index.format) + ", and the option format is " +
                    enum_name(options.format) + ". Set format to automatic.");
  }
  return index;
}

StreamIndex index_of_files(const std::string& root, const std::vector<StoredObject>& files,
                           const StreamOptions& options) {
  StreamIndex index{options.format, {}, options, nullptr};
  std::string first_key;
  const bool with_json = std::none_of(files.begin(), files.end(), [](const StoredObject& file) {
    return format_of(file.key, false) != StreamFormat::automatic;
  });
  for (const StoredObject& file : files) {
    const StreamFormat format = format_of(file.key, with_json);
    if (format == StreamFormat::automatic) continue;
    if (options.format != StreamFormat::automatic && format != options.format) continue;
    if (index.format == StreamFormat::automatic) index.format = format;
    if (format != index.format) {
      throw DataError(root + ": there are tar archives and files of JSON lines, such as " + cut_text(first_key) +
                      " and " + cut_text(file.key) + ". Set format to webdataset or jsonl, or a pattern.");
    }
    if (first_key.empty()) first_key = file.key;
    ShardInfo info;
    info.key = file.key;
    info.bytes = file.size;
    info.version = file.etag;
    info.compression = streams::compression_of(file.key);
    if (info.compression.empty()) info.decompressed_bytes = file.size;
    index.shards.push_back(std::move(info));
  }
  if (index.shards.empty()) {
    throw DataError(root + ": no shards: expected index.json, or files that end in " +
                    (options.format == StreamFormat::jsonl        ? ".jsonl, .ndjson or .json"
                     : options.format == StreamFormat::webdataset ? ".tar or .tgz"
                                                                  : ".tar, .tgz, .jsonl, .ndjson or .json") +
                    ", optionally followed by .gz or .zst. Correct the path, or set a pattern.");
  }
  index.reader =
      index.format == StreamFormat::webdataset ? streams::tar_reader(options) : streams::json_lines_reader(options);
  return index;
}

StreamIndex read_stream_index(const ObjectStore& store, const StreamOptions& options) {
  StreamIndex index;
  const bool is_indexed = options.format != StreamFormat::jsonl && options.pattern.empty();
  const auto found = is_indexed ? store.find("index.json") : std::nullopt;
  if (found)
    return parse_stream_index(store.url("index.json"), read_index_text(store, "index.json", found->size), options);
  if (options.format == StreamFormat::mds || options.format == StreamFormat::litdata) {
    throw DataError(store.url("index.json") + ": expected the data set's index, which the format " +
                    enum_name(options.format) + " needs, and there is no such file. Correct the path.");
  }
  if (options.pattern.empty()) {
    index = index_of_files(store.url(), store.list(), options);
  } else {
    std::vector<StoredObject> files;
    for (std::string& key : expand_braces(options.pattern)) {
      StoredObject file;
      file.key = std::move(key);
      files.push_back(std::move(file));
    }
    index = index_of_files(store.url(options.pattern), files, options);
  }
  if (index.format == StreamFormat::webdataset) read_sizes(store, index);
  return index;
}

std::unique_ptr<Shard> open_shard(const StreamIndex& index, size_t shard, const std::string& path) {
  return index.reader->open(index, shard, path);
}

namespace streams {

std::string compression_of(const std::string& key) {
  if (key.ends_with(".gz") || key.ends_with(".tgz")) return "gz";
  return key.ends_with(".zst") || key.ends_with(".zstd") ? "zst" : "";
}

void check_samples(const ShardInfo& info, const std::string& path, int64_t samples) {
  if (!info.samples || *info.samples == samples) return;
  throw DataError(path + ": the shard has " + count_of(samples, "sample") + ", and the index says " +
                  std::to_string(*info.samples) + ". Copy the shard and the index again.");
}

}  // namespace streams

}  // namespace levin
