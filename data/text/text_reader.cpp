#include "levin/data/text/text_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/files.h"

namespace levin {

namespace {

// A compressed file in memory, with positions for messages.
struct Packed {
  const std::string& path;
  std::string_view bytes;
  uint64_t max_bytes;  // of the text

  [[nodiscard]] uint8_t at(uint64_t place) const { return static_cast<uint8_t>(bytes[place]); }
  [[nodiscard]] uint32_t number_at(uint64_t place) const {  // big-endian
    uint32_t number = 0;
    for (uint64_t i = 0; i < 4; ++i) number = number << 8 | at(place + i);
    return number;
  }
  [[noreturn]] void fail(uint64_t place, const std::string& what) const {
    throw DataError(path + ": byte " + std::to_string(place) + ": " + what + ". Download the file again.");
  }
  void check_size(uint64_t text_bytes) const {
    if (text_bytes <= max_bytes) return;
    throw DataError(path + ": unpacks to more than the " + std::to_string(max_bytes) + " bytes allowed.");
  }
};

std::string inflate_all(const Packed& packed) {
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw DataError(packed.path + ": zlib could not be started.");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  std::string text;
  std::vector<char> buffer(1 << 18);
  uint64_t done = 0;  // bytes of the file
  int status = Z_OK;
  while (done < packed.bytes.size() || status != Z_STREAM_END) {
    if (status == Z_STREAM_END) inflateReset(&stream);  // another member follows
    const uint64_t given = std::min<uint64_t>(packed.bytes.size() - done, 1 << 28);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): zlib's interface is older than const
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.bytes.data() + done));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    done += given - stream.avail_in;
    if (status == Z_BUF_ERROR) packed.fail(done, "the file ends too early: expected more gzip data");
    if (status != Z_OK && status != Z_STREAM_END) {
      packed.fail(done, std::string("damaged gzip data: ") + (stream.msg == nullptr ? "unknown" : stream.msg));
    }
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    packed.check_size(text.size());
  }
  return text;
}

// Reads the codes of compress(1): 9 bits each at first and wider as the table grows. Codes come in groups of eight;
// where the width changes, the rest of a group is padding.
class CodeReader {
 public:
  CodeReader(const Packed& packed, uint64_t first_byte, int max_width)
      : packed_(packed), bit_(first_byte * 8), group_start_(bit_), max_width_(max_width) {}

  /// The next code, or -1 at the end. `table_size`: codes that the table holds so far.
  int32_t next(uint32_t table_size) {
    if (table_size >= uint32_t{1} << width_ && width_ < max_width_) change_width(width_ + 1);
    const uint64_t end = bit_ + static_cast<uint64_t>(width_);
    if (end > packed_.bytes.size() * 8) return -1;
    uint32_t bits = 0;
    const uint64_t first = bit_ / 8;
    for (uint64_t i = 0; i < 3 && first + i < packed_.bytes.size(); ++i) {
      bits |= static_cast<uint32_t>(packed_.at(first + i)) << 8 * i;
    }
    const uint32_t code = bits >> bit_ % 8 & ((uint32_t{1} << width_) - 1);
    bit_ = end;
    return static_cast<int32_t>(code);
  }
  void change_width(int width) {
    const uint64_t group = static_cast<uint64_t>(width_) * 8;
    bit_ = group_start_ + (bit_ - group_start_ + group - 1) / group * group;
    group_start_ = bit_;
    width_ = width;
  }
  [[nodiscard]] uint64_t byte() const { return bit_ / 8; }

 private:
  const Packed& packed_;
  uint64_t bit_;          // of the file
  uint64_t group_start_;  // the bit where codes of this width begin
  int width_ = 9;
  int max_width_;
};

// LZW as compress(1) writes it, from its magic number at `start` on. T. Welch, "A technique for high-performance data
// compression", 1984.
std::string expand(const Packed& packed, uint64_t start) {
  if (packed.bytes.size() < start + 3 || packed.at(start) != 0x1f || packed.at(start + 1) != 0x9d) {
    packed.fail(start, "expected compress data (1f 9d and a byte of flags)");
  }
  const int max_width = packed.at(start + 2) & 0x1f;
  const bool may_clear = (packed.at(start + 2) & 0x80) != 0;
  if (max_width < 9 || max_width > 16) {
    packed.fail(start + 2, "expected codes of 9 to 16 bits, saw " + std::to_string(max_width));
  }
  constexpr int32_t kClear = 256;
  const uint32_t first_free = may_clear ? 257 : 256;
  const uint32_t most = uint32_t{1} << max_width;
  std::vector<uint16_t> prefix(most);  // of a code above 255: its text is that of `prefix` and one byte more
  std::vector<char> last(most);
  CodeReader codes(packed, start + 3, max_width);
  std::string text;
  std::string reversed;
  uint32_t free = first_free;
  int32_t before = -1;  // the code before; -1: the table is empty
  for (int32_t code = codes.next(free); code >= 0; code = codes.next(free)) {
    if (may_clear && code == kClear) {
      codes.change_width(9);
      free = first_free;
      before = -1;
      continue;
    }
    const bool is_unknown = static_cast<uint32_t>(code) >= free;
    if (before < 0 ? code > 255 : (is_unknown && (static_cast<uint32_t>(code) > free || free == most))) {
      packed.fail(codes.byte(), "damaged compress data: expected a code below " +
                                    std::to_string(before < 0 ? 256 : free + 1) + ", saw " + std::to_string(code));
    }
    reversed.clear();
    int32_t at = is_unknown && before >= 0 ? before : code;  // a code that is just being defined: before + its first
    for (; at > 255; at = prefix[static_cast<size_t>(at)]) reversed.push_back(last[static_cast<size_t>(at)]);
    const char first = static_cast<char>(at);
    text.push_back(first);
    text.append(reversed.rbegin(), reversed.rend());
    if (is_unknown && before >= 0) text.push_back(first);
    packed.check_size(text.size());
    if (before >= 0 && free < most) {
      prefix[free] = static_cast<uint16_t>(before);
      last[free++] = first;
    }
    before = code;
  }
  return text;
}

// The Bible Retrieval System's file: "EC02", a title, at byte 84 the size of a window and their number, at byte 92 the
// offset of each window and of the end, all big-endian, and then one run of compress data.
std::string expand_windows(const Packed& packed) {
  constexpr uint64_t kCount = 88;
  if (packed.bytes.size() < kCount + 4) packed.fail(packed.bytes.size(), "the file ends too early: expected a header");
  const uint64_t windows = packed.number_at(kCount);
  const uint64_t data = kCount + 4 + (windows + 1) * 4;
  if (packed.bytes.size() < data) {
    packed.fail(kCount, "the file ends too early: expected a table of " + count_of(windows, "window"));
  }
  const uint64_t end = packed.number_at(data - 4);
  if (end != packed.bytes.size()) {
    packed.fail(data - 4, "expected the size of the file, " + std::to_string(packed.bytes.size()) + ", saw " +
                              std::to_string(end));
  }
  return expand(packed, data);
}

}  // namespace

std::string read_text(const std::string& path, uint64_t max_bytes) {
  std::string bytes;
  try {
    bytes = read_input(path, max_bytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
  const Packed packed{path, bytes, max_bytes};
  if (bytes.starts_with("\x1f\x8b")) return inflate_all(packed);
  if (bytes.starts_with("\x1f\x9d")) return expand(packed, 0);
  if (bytes.starts_with("EC02Compressed")) return expand_windows(packed);
  return bytes;
}

const std::string& kjv_path() {
  static const std::string path = [] {
    const char* home = std::getenv("LEVIN_HOME");
    const std::string kept = home == nullptr ? "" : std::string(home) + "/datasets/bible.data";
    std::error_code ignored;
    return std::filesystem::is_regular_file(kept, ignored) ? kept : std::string("/usr/lib/bible.data");
  }();
  return path;
}

}  // namespace levin
