#include "levin/data/streams/mosaic_writer.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/files/checksum.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 31;  // offsets have 32 bits

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

nlohmann::json form_of(const std::vector<MosaicColumn>& columns, uint64_t shard_bytes) {
  nlohmann::json form{{"version", 2},
                      {"format", "mds"},
                      {"compression", nullptr},
                      {"hashes", {"xxh64"}},
                      {"size_limit", shard_bytes},
                      {"column_names", nlohmann::json::array()},
                      {"column_encodings", nlohmann::json::array()},
                      {"column_sizes", nlohmann::json::array()}};
  for (const MosaicColumn& column : columns) {
    form["column_names"].push_back(column.name);
    form["column_encodings"].push_back(column.encoding);
    form["column_sizes"].push_back(column.size ? nlohmann::json(*column.size) : nlohmann::json());
  }
  return form;
}

}  // namespace

MosaicWriter::MosaicWriter(ObjectStore& store, std::vector<MosaicColumn> columns, uint64_t shard_bytes,
                           std::string name)
    : store_(store),
      columns_(std::move(columns)),
      shard_bytes_(std::min(shard_bytes, kMaxBytes)),
      name_(std::move(name)),
      form_(form_of(columns_, shard_bytes_).dump()) {}

MosaicWriter::~MosaicWriter() = default;

uint64_t MosaicWriter::header_bytes(size_t samples) const {
  return sizeof(uint32_t) * (2 + samples) + form_.size();
}

void MosaicWriter::add(const std::vector<std::string>& values) {
  if (values.size() != columns_.size()) {
    throw DataError("MosaicWriter: expected the values of " + std::to_string(columns_.size()) + " columns, got " +
                    std::to_string(values.size()) + ".");
  }
  std::string sizes;
  uint64_t bytes = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const MosaicColumn& column = columns_[k];
    if (column.size && values[k].size() != *column.size) {
      throw DataError("MosaicWriter: the column \"" + column.name + "\" has values of " + std::to_string(*column.size) +
                      " bytes, got one of " + std::to_string(values[k].size()) + ".");
    }
    bytes += values[k].size();
    if (bytes > kMaxBytes / 2) {
      throw DataError("MosaicWriter: a sample has more than " + std::to_string(kMaxBytes / 2) +
                      " bytes. Store its values in parts.");
    }
    if (!column.size) sizes += bytes_of(static_cast<uint32_t>(values[k].size()));
  }
  if (!ends_.empty() && header_bytes(ends_.size() + 1) + body_.size() + sizes.size() + bytes > shard_bytes_) {
    write_shard();
  }
  body_ += sizes;
  for (const std::string& value : values) body_ += value;
  ends_.push_back(static_cast<uint32_t>(body_.size()));
}

std::string MosaicWriter::shard_name(size_t shard) const {
  return name_ + "." + formatted("%05zu", shard) + ".mds";
}

void MosaicWriter::write_shard() {
  const auto start = static_cast<uint32_t>(header_bytes(ends_.size()));
  std::string whole = bytes_of(static_cast<uint32_t>(ends_.size())) + bytes_of(start);
  whole.reserve(start + body_.size());
  for (const uint32_t end : ends_) whole += bytes_of(start + end);
  whole += form_;
  whole += body_;
  body_.clear();
  const std::string name = shard_name(entries_.size());
  nlohmann::json entry = nlohmann::json::parse(form_);
  entry["samples"] = ends_.size();
  entry["raw_data"] = {
      {"basename", name}, {"bytes", whole.size()}, {"hashes", {{"xxh64", checksum_of(whole, Checksum::Kind::xxh64)}}}};
  entry["zip_data"] = nullptr;
  store_.put(name, whole);
  bytes_ += whole.size();
  entries_.push_back(entry.dump());
  ends_.clear();
}

void MosaicWriter::finish() {
  if (!ends_.empty()) write_shard();
  std::string index = "{\"version\": 2, \"shards\": [";
  for (size_t k = 0; k < entries_.size(); ++k) index += (k == 0 ? "\n" : ",\n") + entries_[k];
  store_.put("index.json", index + "\n]}\n");
}

std::string mosaic_int(int64_t value) {
  return bytes_of(value);
}

bool is_mosaic_shard(const std::string& key, const std::string& name) {
  if (!key.starts_with(name + ".") || !key.ends_with(".mds")) return false;
  const size_t start = name.size() + 1;
  const std::string number = key.substr(start, key.size() - std::min(key.size(), start + 4));
  return number.size() >= 5 &&
         std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace levin
