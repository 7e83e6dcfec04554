// Checksums of files and messages: MD5 and the SHA family by OpenSSL, xxHash, and the CRCs that object stores keep.
// MD5, xxHash and CRCs are for archives and stores that publish nothing better: they detect damage, not forgery.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace levin {

/// The expected hash of a file's content; no check if `hex` is empty.
struct Checksum {
  enum class Kind { md5, sha256, sha1, sha512, xxh32, xxh64, xxh3_64, xxh3_128, crc32, crc32c, crc64nvme };
  Kind kind = Kind::sha256;
  std::string hex = "";
};

/// Hashes bytes incrementally.
class Hasher {
 public:
  explicit Hasher(Checksum::Kind kind);
  ~Hasher();
  Hasher(Hasher&& other) noexcept;
  Hasher& operator=(Hasher&& other) noexcept;
  void update(std::span<const std::byte> bytes);
  /// The digest in lower-case hex; call once, at the end.
  [[nodiscard]] std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// Returns the digest of `bytes` in lower-case hex.
[[nodiscard]] std::string checksum_of(std::string_view bytes, Checksum::Kind kind);

/// The digest of a file's content in lower-case hex; throws Error naming path and cause.
[[nodiscard]] std::string file_checksum(const std::string& path, Checksum::Kind kind);

/// "MD5", "SHA-256", "CRC-64/NVME", …
[[nodiscard]] std::string checksum_name(Checksum::Kind kind);
/// Returns the kind that Python's hashlib or xxhash calls `name`, such as "sha256"; nothing if it is not known here.
[[nodiscard]] std::optional<Checksum::Kind> checksum_kind(std::string_view name);

/// Returns the 32 bytes of HMAC-SHA-256.
[[nodiscard]] std::string hmac_sha256(std::string_view key, std::string_view text);

/// Returns bytes as lower-case hex.
[[nodiscard]] std::string hex_text(std::string_view bytes);

/// Returns the bytes that base64 stands for; "" if it is malformed.
[[nodiscard]] std::string base64_decoded(const std::string& text);

}  // namespace levin
