#include "levin/data/text/text_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

// A compressed file in memory, with positions for messages.
struct Packed {
  const std::string& path;
  std::string_view bytes;
  uint64_t max_bytes;  // of the text

  [[nodiscard]] uint8_t at(uint64_t place) const { return static_cast<uint8_t>(bytes[place]); }
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
  CodeReader(const Packed& packed, int max_width) : packed_(packed), max_width_(max_width) {}

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
  uint64_t bit_ = 24;          // position in the file, after its header
  uint64_t group_start_ = 24;  // the bit where codes of this width begin
  int width_ = 9;
  int max_width_;
};

// LZW as compress(1) writes it. T. Welch, "A technique for high-performance data compression", 1984.
std::string expand(const Packed& packed) {
  if (packed.bytes.size() < 3) packed.fail(packed.bytes.size(), "the file ends too early: expected a byte of flags");
  const int max_width = packed.at(2) & 0x1f;
  const bool may_clear = (packed.at(2) & 0x80) != 0;
  if (max_width < 9 || max_width > 16) {
    packed.fail(2, "expected codes of 9 to 16 bits, saw " + std::to_string(max_width));
  }
  constexpr int32_t kClear = 256;
  const uint32_t first_free = may_clear ? 257 : 256;
  const uint32_t most = uint32_t{1} << max_width;
  std::vector<uint16_t> prefix(most);  // the text of a code above 255 is the text of its prefix and one more byte
  std::vector<char> last(most);
  CodeReader codes(packed, max_width);
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

}  // namespace

std::string unpack_text(const std::string& path, std::string bytes, uint64_t max_bytes) {
  const Packed packed{path, bytes, max_bytes};
  if (bytes.starts_with("\x1f\x8b")) return inflate_all(packed);
  if (bytes.starts_with("\x1f\x9d")) return expand(packed);
  return bytes;
}

std::string read_text(const std::string& path, uint64_t max_bytes) {
  std::string bytes;
  try {
    bytes = read_input(path, max_bytes);
  } catch (const Error& error) {
    throw DataError(error.what());
  }
  return unpack_text(path, std::move(bytes), max_bytes);
}

}  // namespace levin
