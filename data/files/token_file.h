// Files of token ids for language models: the ids alone, little-endian, as nanoGPT's .bin files, or a .npy file with
// one row of integers. They are mapped, so a corpus may be larger than memory.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"

namespace levin {

/// The integer type of the ids in a .bin file.
enum class TokenType { uint16, uint32 };
template <>
struct EnumNames<TokenType> {
  static constexpr EnumName<TokenType> names[] = {{"uint16", TokenType::uint16}, {"uint32", TokenType::uint32}};
};

/// Writes the ids to `path`, whole or not at all. Throws DataError naming the first id that `type` cannot hold.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, TokenType type);

/// The ids of one file, or of all .bin and .npy files of a folder, concatenated in the order of the files' names.
/// Immutable: any thread may read.
class TokenFiles {
 public:
  /// Throws DataError naming the file if there is none, one is damaged, has half an id or holds other than integers.
  TokenFiles(const std::string& path, TokenType type);

  /// Ids in all files.
  [[nodiscard]] int64_t size() const { return ends_.back(); }

  /// The ids first … first + count - 1. Throws DataError naming file, position and id for one that is negative or,
  /// unless `vocab_size` is 0, not below it.
  void read(int64_t first, int64_t count, int64_t vocab_size, int64_t* to) const;

 private:
  std::vector<std::string> paths_;
  std::vector<at::Tensor> ids_;  // of each file: (n), any integers
  std::vector<int64_t> ends_;    // ids in this file and those before it
};

}  // namespace levin
