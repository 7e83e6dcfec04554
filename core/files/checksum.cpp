#include "levin/core/files/checksum.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

struct Known {
  Checksum::Kind kind;
  std::string_view name;         // Python's
  const char* title;             // for messages
  const EVP_MD* (*algorithm)();  // null: not of OpenSSL
};

constexpr std::array<Known, 12> kKnown = {{{Checksum::Kind::md5, "md5", "MD5", EVP_md5},
                                           {Checksum::Kind::sha256, "sha256", "SHA-256", EVP_sha256},
                                           {Checksum::Kind::sha1, "sha1", "SHA-1", EVP_sha1},
                                           {Checksum::Kind::sha512, "sha512", "SHA-512", EVP_sha512},
                                           {Checksum::Kind::xxh32, "xxh32", "XXH32", nullptr},
                                           {Checksum::Kind::xxh64, "xxh64", "XXH64", nullptr},
                                           {Checksum::Kind::xxh3_64, "xxh3_64", "XXH3", nullptr},
                                           {Checksum::Kind::xxh3_128, "xxh3_128", "XXH128", nullptr},
                                           {Checksum::Kind::xxh3_128, "xxh128", "XXH128", nullptr},
                                           {Checksum::Kind::crc32, "crc32", "CRC-32", nullptr},
                                           {Checksum::Kind::crc32c, "crc32c", "CRC-32C", nullptr},
                                           {Checksum::Kind::crc64nvme, "crc64nvme", "CRC-64/NVME", nullptr}}};

const Known& known(Checksum::Kind kind) {
  return *std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& one) { return one.kind == kind; });
}

// A CRC whose bits are reflected, with all bits set at the start and inverted at the end; eight bytes at a time
// ("slicing by 8").
template <class Word, Word polynomial>
struct Crc {
  using Tables = std::array<std::array<Word, 256>, 8>;

  static Tables make_tables() {
    Tables tables{};
    for (size_t i = 0; i < 256; ++i) {
      Word value = static_cast<Word>(i);
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ polynomial : value >> 1;
      tables[0][i] = value;
    }
    for (size_t k = 1; k < 8; ++k) {
      for (size_t i = 0; i < 256; ++i) {
        const Word before = tables[k - 1][i];
        tables[k][i] = (before >> 8) ^ tables[0][before & 255];
      }
    }
    return tables;
  }

  // `value` is 0 at the start, and the result of the bytes so far afterwards.
  static Word update(Word value, std::span<const std::byte> bytes) {
    static const Tables tables = make_tables();
    value = static_cast<Word>(~value);
    while (bytes.size() >= 8) {
      uint64_t next = 0;
      for (size_t i = 0; i < 8; ++i) next |= static_cast<uint64_t>(bytes[i]) << (8 * i);
      next ^= value;
      value = 0;
      for (size_t i = 0; i < 8; ++i) value ^= tables[7 - i][(next >> (8 * i)) & 255];
      bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes) {
      value = (value >> 8) ^ tables[0][(value ^ static_cast<Word>(byte)) & 255];
    }
    return static_cast<Word>(~value);
  }
};
using Crc32c = Crc<uint32_t, 0x82F63B78U>;
using Crc64Nvme = Crc<uint64_t, 0x9A6C9329AC4BC9B5ULL>;

void check(int result) {
  if (result != 1) throw Error("checksum: OpenSSL cannot compute it here. A FIPS set-up may forbid MD5.");
}

template <class Digest>
std::string hex_of(const Digest& digest, size_t size) {
  return hex_text({reinterpret_cast<const char*>(&digest), size});
}

}  // namespace

struct Hasher::Context {
  Checksum::Kind kind;
  EVP_MD_CTX* evp = nullptr;
  XXH32_state_t* xxh32 = nullptr;
  XXH64_state_t* xxh64 = nullptr;
  XXH3_state_t* xxh3 = nullptr;
  uint64_t crc = 0;

  explicit Context(Checksum::Kind wanted) : kind(wanted) {
    if (const auto algorithm = known(kind).algorithm; algorithm != nullptr) {
      evp = EVP_MD_CTX_new();
      check(EVP_DigestInit_ex(evp, algorithm(), nullptr));
    } else if (kind == Checksum::Kind::xxh32) {
      XXH32_reset(xxh32 = XXH32_createState(), 0);
    } else if (kind == Checksum::Kind::xxh64) {
      XXH64_reset(xxh64 = XXH64_createState(), 0);
    } else if (kind == Checksum::Kind::xxh3_64 || kind == Checksum::Kind::xxh3_128) {
      xxh3 = XXH3_createState();
      kind == Checksum::Kind::xxh3_64 ? XXH3_64bits_reset(xxh3) : XXH3_128bits_reset(xxh3);
    }
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    EVP_MD_CTX_free(evp);
    XXH32_freeState(xxh32);
    XXH64_freeState(xxh64);
    XXH3_freeState(xxh3);
  }
};

Hasher::Hasher(Checksum::Kind kind) : context_(std::make_unique<Context>(kind)) {}

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&& other) noexcept = default;
Hasher& Hasher::operator=(Hasher&& other) noexcept = default;

void Hasher::update(std::span<const std::byte> bytes) {
  const void* data = bytes.data();
  if (context_->evp != nullptr) return check(EVP_DigestUpdate(context_->evp, data, bytes.size()));
  uint64_t& crc = context_->crc;
  switch (context_->kind) {
    case Checksum::Kind::crc32: crc = crc32_z(crc, static_cast<const unsigned char*>(data), bytes.size()); return;
    case Checksum::Kind::crc32c: crc = Crc32c::update(static_cast<uint32_t>(crc), bytes); return;
    case Checksum::Kind::crc64nvme: crc = Crc64Nvme::update(crc, bytes); return;
    case Checksum::Kind::xxh32: return (void)XXH32_update(context_->xxh32, data, bytes.size());
    case Checksum::Kind::xxh64: return (void)XXH64_update(context_->xxh64, data, bytes.size());
    case Checksum::Kind::xxh3_64: return (void)XXH3_64bits_update(context_->xxh3, data, bytes.size());
    default: return (void)XXH3_128bits_update(context_->xxh3, data, bytes.size());
  }
}

// xxHash's canonical form is big-endian, as Python's hexdigest() is, and as CRCs are written.
std::string Hasher::hex() {
  if (context_->evp != nullptr) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    check(EVP_DigestFinal_ex(context_->evp, digest.data(), &size));
    return hex_of(digest, size);
  }
  XXH32_canonical_t short_digest;
  XXH64_canonical_t digest;
  XXH128_canonical_t long_digest;
  switch (context_->kind) {
    case Checksum::Kind::crc32:
    case Checksum::Kind::crc32c:
      XXH32_canonicalFromHash(&short_digest, static_cast<XXH32_hash_t>(context_->crc));
      return hex_of(short_digest, sizeof short_digest);
    case Checksum::Kind::crc64nvme:
      XXH64_canonicalFromHash(&digest, context_->crc);
      return hex_of(digest, sizeof digest);
    case Checksum::Kind::xxh32:
      XXH32_canonicalFromHash(&short_digest, XXH32_digest(context_->xxh32));
      return hex_of(short_digest, sizeof short_digest);
    case Checksum::Kind::xxh64:
      XXH64_canonicalFromHash(&digest, XXH64_digest(context_->xxh64));
      return hex_of(digest, sizeof digest);
    case Checksum::Kind::xxh3_64:
      XXH64_canonicalFromHash(&digest, XXH3_64bits_digest(context_->xxh3));
      return hex_of(digest, sizeof digest);
    default:
      XXH128_canonicalFromHash(&long_digest, XXH3_128bits_digest(context_->xxh3));
      return hex_of(long_digest, sizeof long_digest);
  }
}

std::string checksum_of(std::string_view bytes, Checksum::Kind kind) {
  Hasher hasher(kind);
  hasher.update(std::as_bytes(std::span(bytes)));
  return hasher.hex();
}

std::string file_checksum(const std::string& path, Checksum::Kind kind) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (file == nullptr) throw Error("cannot read " + path + ": " + system_error_text(errno) + ".");
  Hasher hasher(kind);
  std::vector<std::byte> buffer(1 << 18);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hasher.update(std::span(buffer).first(got));
  }
  if (std::ferror(file.get()) != 0) throw Error("cannot read " + path + ": " + system_error_text(errno) + ".");
  return hasher.hex();
}

std::string checksum_name(Checksum::Kind kind) {
  return known(kind).title;
}

std::optional<Checksum::Kind> checksum_kind(std::string_view name) {
  const auto* found = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& one) { return one.name == name; });
  return found == kKnown.end() ? std::nullopt : std::optional(found->kind);
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &size) != nullptr);
  return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string hex_text(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string base64_decoded(const std::string& text) {
  std::string bytes(text.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  const size_t end = std::min(text.find('='), text.size());
  if (size < 0 || text.size() % 4 != 0 || end + 2 < text.size()) return "";
  const auto padding = static_cast<size_t>(text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0);
  bytes.resize(static_cast<size_t>(size) - std::min(padding, static_cast<size_t>(size)));
  return bytes;
}

}  // namespace levin
