#include "levin/data/files/token_file.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <limits>
#include <memory>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/data/files/mapped_file.h"
#include "levin/data/files/npy.h"

static_assert(std::endian::native == std::endian::little, "ids are used in the byte order of the file");

namespace levin {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> token_files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".bin" || ending == ".npy") files.push_back(entry.path().string());
  }
  if (error) throw DataError(path + ": cannot list the files: " + error.message() + ".");
  if (files.empty()) throw DataError(path + ": the folder holds no .bin or .npy files of tokens.");
  std::sort(files.begin(), files.end());
  return files;
}

at::Tensor map_ids(const std::string& path, TokenType type) {
  if (path.ends_with(".npy")) {
    at::Tensor ids = map_npy(path);
    const bool good = ids.dim() == 1 && c10::isIntegralType(ids.scalar_type(), /*includeBool=*/false);
    if (good) return ids;
    throw DataError(path + ": expected one row of integers, saw " + std::to_string(ids.dim()) + " dimensions of " +
                    c10::toString(ids.scalar_type()) + ". Save array.ravel() of the token ids.");
  }
  const at::ScalarType scalar = type == TokenType::uint16 ? at::kUInt16 : at::kUInt32;
  const uint64_t item = c10::elementSize(scalar);
  auto file = std::make_shared<const MappedFile>(path);
  if (file->size() % item != 0) {
    throw DataError(path + ": " + std::to_string(file->size()) + " bytes are no whole number of ids of " +
                    std::to_string(item) + " bytes. Was the file cut off, or is its dtype another?");
  }
  const auto count = static_cast<int64_t>(file->size() / item);
  return mapped_tensor(std::move(file), path, 0, {count}, scalar);
}

// Copies ids; returns the index of the first one outside 0 … limit, or `count`.
template <class Id>
int64_t copy_ids(const at::Tensor& ids, int64_t first, int64_t count, uint64_t limit, int64_t* to) {
  const auto* from = static_cast<const Id*>(ids.const_data_ptr()) + first;
  uint64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<int64_t>(from[i]);
    largest = std::max(largest, static_cast<uint64_t>(to[i]));  // a negative id becomes larger than any limit
  }
  if (largest <= limit) return count;
  return std::find_if(to, to + count, [limit](int64_t id) { return static_cast<uint64_t>(id) > limit; }) - to;
}

int64_t copy_any_ids(const at::Tensor& ids, int64_t first, int64_t count, uint64_t limit, int64_t* to) {
  switch (ids.scalar_type()) {
    case at::kByte: return copy_ids<uint8_t>(ids, first, count, limit, to);
    case at::kChar: return copy_ids<int8_t>(ids, first, count, limit, to);
    case at::kUInt16: return copy_ids<uint16_t>(ids, first, count, limit, to);
    case at::kShort: return copy_ids<int16_t>(ids, first, count, limit, to);
    case at::kUInt32: return copy_ids<uint32_t>(ids, first, count, limit, to);
    case at::kInt: return copy_ids<int32_t>(ids, first, count, limit, to);
    case at::kUInt64: return copy_ids<uint64_t>(ids, first, count, limit, to);
    default: return copy_ids<int64_t>(ids, first, count, limit, to);
  }
}

template <class Id>
void write_ids(const std::string& path, std::span<const int32_t> tokens) {
  std::vector<Id> ids(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) > std::numeric_limits<Id>::max()) {
      throw DataError(path + ": token " + std::to_string(i) + " has the id " + std::to_string(tokens[i]) +
                      ", which is not within 0 to " + std::to_string(std::numeric_limits<Id>::max()) +
                      ". Write the file as uint32.");
    }
    ids[i] = static_cast<Id>(tokens[i]);
  }
  const std::array parts = {std::as_bytes(std::span<const Id>(ids))};
  (void)write_file_durably(path, parts);
}

}  // namespace

void write_token_file(const std::string& path, std::span<const int32_t> tokens, TokenType type) {
  type == TokenType::uint16 ? write_ids<uint16_t>(path, tokens) : write_ids<uint32_t>(path, tokens);
}

TokenFiles::TokenFiles(const std::string& path, TokenType type) : paths_(token_files(path)) {
  int64_t end = 0;
  for (const std::string& file : paths_) {
    ids_.push_back(map_ids(file, type));
    ends_.push_back(end += ids_.back().numel());
  }
}

void TokenFiles::read(int64_t first, int64_t count, int64_t vocab_size, int64_t* to) const {
  const auto limit = static_cast<uint64_t>(vocab_size == 0 ? INT64_MAX : vocab_size - 1);
  auto file = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; count > 0; ++file) {
    const int64_t start = first - (ends_[file] - ids_[file].numel());
    const int64_t part = std::min(count, ids_[file].numel() - start);
    const int64_t good = copy_any_ids(ids_[file], start, part, limit, to);
    if (good < part) {
      throw DataError(paths_[file] + ": token " + std::to_string(start + good) + " has the id " +
                      std::to_string(to[good]) + ", which is not within 0 to " + std::to_string(limit) +
                      " (vocab_size - 1). Set the vocab_size of the tokenizer that wrote the file, or its dtype.");
    }
    first += part;
    count -= part;
    to += part;
  }
}

}  // namespace levin
