// LitData's chunks that are compressed inside (litdata/streaming/framed_zstd.py), written as chunks without
// compression.
//
// zst-batch: the magic "LDFZ01\0\0", version and flags (uint16), the numbers of items, of items in a frame and of
// frames (uint32), n + 1 offsets of the decompressed items from the first, and for each frame its first item and number
// of items (uint32), its position (uint64), its size and the size of its content (uint32). zst-sample: an ordinary
// chunk in which each item is a frame.
#include <zstd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "levin/data/streams/readers.h"
#include "levin/data/streams/shard_file.h"

namespace levin::streams {

namespace {

constexpr std::string_view kMagic("LDFZ01\0\0", 8);
constexpr uint64_t kPrefixBytes = 24, kFrameBytes = 24;
constexpr uint64_t kMaxChunkBytes = UINT32_MAX;  // offsets have 32 bits

class FrameReader {
 public:
  FrameReader() : context_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

  // Returns the content of one frame, which must have `expected` bytes. Reads no more than a frame can hold.
  const std::vector<char>& read(const ShardFile& file, uint64_t offset, std::string_view frame, uint64_t expected) {
    // A frame shrinks data to a 32,000th at most, so a small frame cannot make the buffer large.
    if (expected / 40'000 > frame.size() + 1) {
      file.fail(offset,
                "a frame of " + std::to_string(frame.size()) + " bytes cannot hold " + std::to_string(expected));
    }
    content_.resize(expected);
    const size_t size =
        ZSTD_decompressDCtx(context_.get(), content_.data(), content_.size(), frame.data(), frame.size());
    if (ZSTD_isError(size) != 0) file.fail(offset, std::string("damaged Zstandard data: ") + ZSTD_getErrorName(size));
    if (size != expected) {
      file.fail(offset, "expected " + std::to_string(expected) + " bytes in a frame, found " + std::to_string(size));
    }
    return content_;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
  std::vector<char> content_ = {};
};

void write_u32(const WriteBytes& write, uint32_t value) {
  std::array<char, sizeof value> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  write({bytes.data(), bytes.size()});
}

uint64_t u64_at(const ShardFile& file, uint64_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, file.bytes(offset, sizeof value, "a frame's position").data(), sizeof value);
  return value;
}

void write_batches(const ShardFile& file, uint64_t max_bytes, const WriteBytes& write) {
  if (!file.all().starts_with(kMagic)) {
    file.fail(0, "expected LDFZ01, found \"" + cut_text(std::string(file.all().substr(0, kMagic.size()))) + "\"");
  }
  const uint32_t version = file.u32(8, "the version");
  if (version != 1) file.fail(8, "expected version 1 without flags, found " + std::to_string(version));
  const uint64_t items = file.u32(12, "the number of items"), frames = file.u32(20, "the number of frames");
  const uint64_t table = kPrefixBytes + sizeof(uint32_t) * (items + 1), header = sizeof(uint32_t) * (2 + items);
  (void)file.bytes(0, table + kFrameBytes * frames, "the table of frames");
  const auto offset_of = [&](uint64_t item) { return file.u32(kPrefixBytes + sizeof(uint32_t) * item, "an offset"); };
  if (header + offset_of(items) > std::min(kMaxChunkBytes, max_bytes)) {
    file.fail(kPrefixBytes,
              "the decompressed items have " + std::to_string(offset_of(items)) + " bytes, more than allowed");
  }
  write_u32(write, static_cast<uint32_t>(items));
  for (uint64_t k = 0; k <= items; ++k) write_u32(write, static_cast<uint32_t>(header + offset_of(k)));
  FrameReader reader;
  uint64_t next = 0, written = 0;
  for (uint64_t k = 0; k < frames; ++k) {
    const uint64_t at = table + kFrameBytes * k;
    const uint64_t first = file.u32(at, "a frame's first item"), count = file.u32(at + 4, "a frame's items");
    const uint64_t position = u64_at(file, at + 8);
    const uint32_t packed = file.u32(at + 16, "a frame's size"), size = file.u32(at + 20, "a frame's size");
    if (first != next || count == 0 || count > items - next || offset_of(first) != written ||
        offset_of(first + count) != written + size) {
      file.fail(at, "expected a frame of the items from " + std::to_string(next) +
                        " on, with the bytes that their offsets tell");
    }
    const auto& content = reader.read(file, position, file.bytes(position, packed, "a frame"), size);
    write({content.data(), content.size()});
    next += count;
    written += size;
  }
  if (next != items) {
    file.fail(table, "expected frames of all " + std::to_string(items) + " items, found " + std::to_string(next));
  }
}

// The sizes of the items are in the frames, and must be known before the first item is written.
void write_samples(const ShardFile& file, uint64_t max_bytes, const WriteBytes& write) {
  const uint64_t items = file.u32(0, "the number of items"), header = sizeof(uint32_t) * (2 + items);
  (void)file.bytes(0, header, "the items' offsets");
  std::vector<uint64_t> sizes(items);  // 8 bytes for each item, of which the file has 4 or more
  uint64_t total = header;
  const auto frame_of = [&](uint64_t k, uint64_t& begin) {
    begin = file.u32(sizeof(uint32_t) * (1 + k), "an offset");
    const uint64_t end = file.u32(sizeof(uint32_t) * (2 + k), "an offset");
    if (begin < header || end < begin) {
      file.fail(sizeof(uint32_t) * (1 + k), "expected the offsets of item " + std::to_string(k) + ", found " +
                                                std::to_string(begin) + " and " + std::to_string(end));
    }
    return file.bytes(begin, end - begin, "an item");
  };
  write_u32(write, static_cast<uint32_t>(items));
  write_u32(write, static_cast<uint32_t>(header));
  for (uint64_t k = 0; k < items; ++k) {
    uint64_t begin = 0;
    const std::string_view frame = frame_of(k, begin);
    const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) {
      file.fail(begin, "expected a frame of Zstandard that tells the size of its content");
    }
    sizes[k] = size;
    if (size > kMaxChunkBytes || (total += size) > std::min(kMaxChunkBytes, max_bytes)) {
      file.fail(begin, "the decompressed items have more bytes than allowed");
    }
    write_u32(write, static_cast<uint32_t>(total));
  }
  FrameReader reader;
  for (uint64_t k = 0; k < items; ++k) {
    uint64_t begin = 0;
    const std::string_view frame = frame_of(k, begin);
    const auto& content = reader.read(file, begin, frame, sizes[k]);
    write({content.data(), content.size()});
  }
}

}  // namespace

void decompress_litdata(const ShardInfo& info, const std::string& from, uint64_t max_bytes, const WriteBytes& write) {
  const ShardFile file(from);
  if (info.compression == "zst-batch") return write_batches(file, max_bytes, write);
  write_samples(file, max_bytes, write);
}

}  // namespace levin::streams
