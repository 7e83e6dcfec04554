// Decompresses shards file to file: gzip by zlib, Zstandard by libzstd.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "levin/core/files/files.h"
#include "levin/data/streams/readers.h"
#include "levin/data/streams/shard_file.h"
#include "levin/data/streams/stream_index.h"

namespace levin {

namespace {

constexpr size_t kPiece = size_t{1} << 18;
constexpr int kMaxWindow = 27;  // the binary logarithm of the bytes that libzstd keeps in memory: 128 MiB

// A file that is read from front to back.
class Input {
 public:
  explicit Input(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), buffer_(kPiece) {
    if (!file_) fail_read();
  }
  // Returns the next bytes; none at the end of the file.
  std::string_view next() {
    ssize_t got = -1;
    do {
      got = ::read(file_.get(), buffer_.data(), buffer_.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) fail_read();
    offset_ += static_cast<uint64_t>(got);
    return {buffer_.data(), static_cast<size_t>(got)};
  }
  /// `unused`: bytes that next() has returned and that have not been read.
  [[noreturn]] void fail(size_t unused, const std::string& what) const {
    throw DataError(path_ + ": byte " + std::to_string(offset_ - unused) + ": " + what + ". Copy the shard again.");
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail_read() const {
    throw DataError("cannot read " + path_ + ": " + system_error_text(errno) + ".");
  }

  std::string path_;
  FileDescriptor file_;
  std::vector<char> buffer_;
  uint64_t offset_ = 0;
};

// A new file that gets its name when it is complete. It compares itself with the index while it is written.
class Output {
 public:
  Output(const ShardInfo& info, std::string from, std::string to, uint64_t max_bytes)
      : info_(info),
        from_(std::move(from)),
        to_(std::move(to)),
        max_bytes_(max_bytes),
        temporary_(temporary_name(to_)),
        file_(LockedFile::create(temporary_)) {
    if (!file_) fail_write();
    for (const ShardChecksum& checksum : info_.checksums) {
      if (checksum.of_decompressed)
        hashers_.emplace_back(&checksum.checksum, std::make_unique<Hasher>(checksum.checksum.kind));
    }
  }
  ~Output() {
    if (!is_complete_) ::unlink(temporary_.c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view bytes) {
    written_ += bytes.size();
    const uint64_t expected = info_.decompressed_bytes;
    if (written_ > (expected > 0 ? expected : max_bytes_)) {
      throw DataError(
          from_ + ": the decompressed shard is larger than the " +
          (expected > 0 ? std::to_string(expected) + " bytes that the index says. Copy the shard and the index again."
                        : std::to_string(max_bytes_) + " bytes allowed. Raise max_shard_bytes if you trust the file."));
    }
    for (const auto& [checksum, hasher] : hashers_) hasher->update(std::as_bytes(std::span(bytes)));
    if (!write_all(file_.fd(), bytes)) fail_write();
  }

  void finish() {
    if (info_.decompressed_bytes > 0 && written_ != info_.decompressed_bytes) {
      throw DataError(from_ + ": the decompressed shard has " + std::to_string(written_) +
                      " bytes, and the index says " + std::to_string(info_.decompressed_bytes) +
                      ". Copy the shard and the index again.");
    }
    for (const auto& [checksum, hasher] : hashers_) {
      const std::string found = hasher->hex();
      if (found == checksum->hex) continue;
      throw DataError(from_ + ": the " + checksum_name(checksum->kind) + " of the decompressed shard is " + found +
                      ", and the index says " + cut_text(checksum->hex) + ". Copy the shard and the index again.");
    }
    if (::rename(temporary_.c_str(), to_.c_str()) != 0) fail_write();
    is_complete_ = true;
  }

 private:
  [[noreturn]] void fail_write() const {
    throw DataError("cannot write " + to_ + ": " + system_error_text(errno) + ".");
  }

  const ShardInfo& info_;
  std::string from_, to_;
  uint64_t max_bytes_;
  std::string temporary_;
  LockedFile file_;
  std::vector<std::pair<const Checksum*, std::unique_ptr<Hasher>>> hashers_ = {};
  uint64_t written_ = 0;
  bool is_complete_ = false;
};

// Members of gzip follow each other, and zeros may follow them.
void inflate_file(Input& input, Output& output) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw DataError(input.path() + ": zlib has no memory.");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &inflateEnd);
  std::vector<char> piece(kPiece);
  bool is_inside = true, has_member = false;
  while (true) {
    const std::string_view bytes = input.next();
    if (bytes.empty()) break;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // NOLINT: zlib is older than const
    stream.avail_in = static_cast<uInt>(bytes.size());
    while (stream.avail_in > 0 || (is_inside && stream.avail_out == 0)) {
      if (!is_inside) {
        if (*stream.next_in == 0) {
          ++stream.next_in;
          --stream.avail_in;
          continue;
        }
        inflateReset(&stream);
        is_inside = true;
      }
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      const int code = inflate(&stream, Z_NO_FLUSH);
      if (code == Z_BUF_ERROR) break;  // more input is needed
      if (code != Z_OK && code != Z_STREAM_END) {
        input.fail(stream.avail_in,
                   "damaged gzip data: " + std::string(stream.msg == nullptr ? "it cannot be read" : stream.msg));
      }
      output.write({piece.data(), piece.size() - stream.avail_out});
      if (code == Z_STREAM_END) {
        is_inside = false;
        has_member = true;
      }
    }
  }
  if (is_inside || !has_member) input.fail(0, "the file ends too early: expected more gzip data");
}

void expand_file(Input& input, Output& output) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), &ZSTD_freeDStream);
  if (stream == nullptr) throw DataError(input.path() + ": libzstd has no memory.");
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kMaxWindow);
  std::vector<char> piece(kPiece);
  size_t wanted = 1;  // 0: a frame has ended
  while (true) {
    const std::string_view bytes = input.next();
    if (bytes.empty()) break;
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    bool is_full = false;
    while (in.pos < in.size || is_full) {
      ZSTD_outBuffer out{piece.data(), piece.size(), 0};
      wanted = ZSTD_decompressStream(stream.get(), &out, &in);
      if (ZSTD_isError(wanted) != 0) {
        input.fail(in.size - in.pos, std::string("damaged Zstandard data: ") + ZSTD_getErrorName(wanted));
      }
      output.write({piece.data(), out.pos});
      is_full = wanted != 0 && out.pos == out.size;
    }
  }
  if (wanted != 0) input.fail(0, "the file ends too early: expected more Zstandard data");
}

}  // namespace

void check_shard_file(const ShardInfo& info, const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) throw DataError("cannot read " + path + ": " + system_error_text(errno) + ".");
  const auto size = static_cast<uint64_t>(file.st_size);
  if (info.bytes > 0 && size != info.bytes) {
    throw DataError(path + ": the file has " + std::to_string(size) + " bytes, and the index says " +
                    std::to_string(info.bytes) + ". Copy the shard and the index again.");
  }
  for (const ShardChecksum& expected : info.checksums) {
    if (expected.of_decompressed) continue;
    const std::string found = file_checksum(path, expected.checksum.kind);
    if (found == expected.checksum.hex) continue;
    throw DataError(path + ": the " + checksum_name(expected.checksum.kind) + " of the file is " + found +
                    ", and the index says " + cut_text(expected.checksum.hex) +
                    ". Copy the shard and the index again.");
  }
}

void decompress_shard(const ShardInfo& info, const std::string& from, const std::string& to, uint64_t max_bytes) {
  Output output(info, from, to, max_bytes);
  if (info.compression.starts_with("zst-")) {
    streams::decompress_litdata(info, from, max_bytes, [&](std::string_view bytes) { output.write(bytes); });
  } else {
    Input input(from);
    if (info.compression == "gz") {
      inflate_file(input, output);
    } else if (info.compression == "zst") {
      expand_file(input, output);
    } else {
      for (std::string_view bytes = input.next(); !bytes.empty(); bytes = input.next()) output.write(bytes);
    }
  }
  output.finish();
}

}  // namespace levin
