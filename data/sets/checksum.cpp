#include "levin/data/sets/checksum.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

struct Hasher::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

namespace {

void check(int result) {
  if (result != 1) throw Error("checksum: OpenSSL cannot compute it here. A FIPS set-up may forbid MD5.");
}

}  // namespace

Hasher::Hasher(Checksum::Kind kind) : context_(std::make_unique<Context>()) {
  const EVP_MD* algorithm = kind == Checksum::Kind::md5 ? EVP_md5() : EVP_sha256();
  check(EVP_DigestInit_ex(context_->evp, algorithm, nullptr));
}

Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()));
}

std::string Hasher::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(context_->evp, digest.data(), &size));
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
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
  return kind == Checksum::Kind::md5 ? "MD5" : "SHA-256";
}

}  // namespace levin
