// Checksums of files, by OpenSSL. MD5 is for archives that publish nothing better: it detects damage, not forgery.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace levin {

/// The expected hash of a file's content; no check if `hex` is empty.
struct Checksum {
  enum class Kind { md5, sha256 };
  Kind kind = Kind::sha256;
  std::string hex = "";
};

/// Hashes bytes incrementally.
class Hasher {
 public:
  explicit Hasher(Checksum::Kind kind);
  ~Hasher();
  void update(std::span<const std::byte> bytes);
  /// The digest in lower-case hex; call once, at the end.
  [[nodiscard]] std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// The digest of a file's content in lower-case hex; throws Error naming path and cause.
[[nodiscard]] std::string file_checksum(const std::string& path, Checksum::Kind kind);

/// "MD5" or "SHA-256".
[[nodiscard]] std::string checksum_name(Checksum::Kind kind);

}  // namespace levin
