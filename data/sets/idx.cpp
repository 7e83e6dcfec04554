#include "levin/data/sets/idx.h"

#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

static_assert(std::endian::native == std::endian::little, "IDX values are swapped for a little-endian machine");

namespace levin {

namespace {

// deflate cannot shrink data further than 1032 : 1 (https://zlib.net/zlib_tech.html).
constexpr uint64_t kMaxInflation = 1032;

constexpr std::array<std::pair<uint8_t, at::ScalarType>, 6> kTypes = {{{0x08, at::kByte},
                                                                       {0x09, at::kChar},
                                                                       {0x0B, at::kShort},
                                                                       {0x0C, at::kInt},
                                                                       {0x0D, at::kFloat},
                                                                       {0x0E, at::kDouble}}};

std::string hex(uint8_t byte) {
  return formatted("%02x", byte);
}

// Reads a plain or gzipped file; offsets refer to the unpacked content.
class Content {
 public:
  explicit Content(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rbe"), &gzclose) {
    struct stat info {};
    if (file_ == nullptr || ::stat(path.c_str(), &info) != 0) {
      throw DataError("cannot read " + path + ": " + system_error_text(errno) + ".");
    }
    file_bytes_ = static_cast<uint64_t>(info.st_size);
    gzbuffer(file_.get(), 1 << 18);
  }

  [[noreturn]] void fail(uint64_t byte, const std::string& what) const {
    throw DataError(path_ + ": byte " + std::to_string(byte) + ": " + what + ". Download the file again.");
  }

  /// Up to `size` bytes; fewer only at the end of the content.
  uint64_t read(void* to, uint64_t size) {
    uint64_t done = 0;
    while (done < size) {
      const auto chunk = static_cast<unsigned>(std::min<uint64_t>(size - done, 1 << 28));
      const int got = gzread(file_.get(), static_cast<char*>(to) + done, chunk);
      int code = Z_OK;
      const char* text = gzerror(file_.get(), &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        fail(offset_ + done + static_cast<uint64_t>(std::max(got, 0)),
             std::string("damaged gzip data: ") + (code == Z_ERRNO ? system_error_text(errno) : text));
      }
      if (got == 0) break;
      done += static_cast<uint64_t>(got);
    }
    offset_ += done;
    return done;
  }

  /// Exactly `size` bytes of `what`.
  void read_all(void* to, uint64_t size, const std::string& what) {
    const uint64_t start = offset_;
    const uint64_t got = read(to, size);
    if (got == size) return;
    fail(offset_, "the file ends too early: expected " + std::to_string(size) + " bytes of " + what + " from byte " +
                      std::to_string(start) + ", saw " + std::to_string(got));
  }

  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] bool is_plain() { return gzdirect(file_.get()) != 0; }
  [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  uint64_t file_bytes_ = 0;
  uint64_t offset_ = 0;
};

struct Header {
  at::ScalarType type = at::kByte;
  std::vector<int64_t> sizes = {};
  uint64_t bytes = 0;  // of the values
};

Header read_header(Content& content) {
  std::array<uint8_t, 4> magic{};
  content.read_all(magic.data(), magic.size(), "magic number");
  if (magic[0] != 0 || magic[1] != 0) {
    content.fail(0, "bad magic number: expected 00 00, saw " + hex(magic[0]) + " " + hex(magic[1]));
  }
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == magic[2]; });
  if (type == kTypes.end()) {
    content.fail(2, "unknown type: expected 08, 09, 0b, 0c, 0d or 0e, saw " + hex(magic[2]));
  }
  if (magic[3] == 0) content.fail(3, "no dimensions: expected 1 or more, saw 0");
  Header header;
  header.type = type->second;
  header.bytes = c10::elementSize(header.type);
  uint64_t room = header.bytes;  // a size of 0 counts as 1: strides are products too
  for (int k = 0; k < magic[3]; ++k) {
    const uint64_t where = content.offset();
    uint32_t size = 0;
    content.read_all(&size, sizeof size, "dimension " + std::to_string(k));
    size = __builtin_bswap32(size);
    header.sizes.push_back(size);
    if (__builtin_mul_overflow(room, std::max<uint64_t>(size, 1), &room) || room > static_cast<uint64_t>(INT64_MAX)) {
      content.fail(where, "the dimensions multiply to more than 2^63 bytes: saw size " + std::to_string(size) +
                              " for dimension " + std::to_string(k));
    }
    header.bytes *= size;
  }
  return header;
}

void check_room(Content& content, const Header& header, uint64_t max_bytes) {
  const uint64_t start = content.offset();
  const std::string wanted = std::to_string(header.bytes) + " bytes of values";
  if (header.bytes > max_bytes) {
    content.fail(start, "the header asks for " + wanted + ", more than the " + std::to_string(max_bytes) + " allowed");
  }
  if (content.is_plain()) {
    const uint64_t there = content.file_bytes() - start;
    if (there < header.bytes) {
      content.fail(start, "the file ends too early: expected " + wanted + ", saw " + std::to_string(there));
    }
  } else if (header.bytes / kMaxInflation > content.file_bytes()) {
    content.fail(start, "the header asks for " + wanted + ", which " + std::to_string(content.file_bytes()) +
                            " bytes of gzip cannot hold");
  }
}

void swap_bytes(at::Tensor& values) {
  const auto swap_all = [&](auto* data, auto swap) {
    for (int64_t i = 0; i < values.numel(); ++i) data[i] = swap(data[i]);
  };
  void* data = values.data_ptr();
  switch (values.element_size()) {
    case 2: return swap_all(static_cast<uint16_t*>(data), [](uint16_t v) { return __builtin_bswap16(v); });
    case 4: return swap_all(static_cast<uint32_t*>(data), [](uint32_t v) { return __builtin_bswap32(v); });
    case 8: return swap_all(static_cast<uint64_t*>(data), [](uint64_t v) { return __builtin_bswap64(v); });
    default: return;
  }
}

}  // namespace

at::Tensor read_idx(const std::string& path, uint64_t max_bytes) {
  Content content(path);
  const Header header = read_header(content);
  check_room(content, header, max_bytes);
  at::Tensor values = at::empty(header.sizes, at::TensorOptions().dtype(header.type));
  content.read_all(values.data_ptr(), header.bytes, "values");
  const uint64_t end = content.offset();
  uint8_t more = 0;
  if (content.read(&more, 1) != 0) {  // reading past the values also checks gzip's CRC
    content.fail(end, "trailing bytes: expected the end of the file, saw " + hex(more));
  }
  swap_bytes(values);
  return values;
}

}  // namespace levin
