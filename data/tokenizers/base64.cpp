#include "levin/data/tokenizers/base64.h"

#include <openssl/evp.h>

namespace levin::tokenizers {

std::optional<std::string> from_base64(std::string_view code) {
  if (code.empty() || code.size() % 4 != 0 || code.size() > size_t{1} << 28) return std::nullopt;
  std::string bytes(code.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(code.data()), static_cast<int>(code.size()));
  if (size < 0) return std::nullopt;
  const size_t padding = code.ends_with("==") ? 2 : code.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

}  // namespace levin::tokenizers
