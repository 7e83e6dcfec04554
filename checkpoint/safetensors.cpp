#include "levin/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <exception>
#include <system_error>
#include <thread>

#include "levin/core/files/files.h"

namespace levin {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr uint64_t kPieceBytes = 1 << 18;  // read at once: stays in a core's cache during checks

// A bool other than 0 and 1 would be undefined behaviour in code that reads it.
void check_bools(const SafetensorsEntry& entry, std::span<const std::byte> bytes) {
  if (std::any_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte > std::byte{1}; })) {
    throw CheckpointError("tensor \"" + entry.name + "\" (bytes " + std::to_string(entry.begin) + " to " +
                          std::to_string(entry.end) + ") is of BOOL and holds a byte other than 0 and 1");
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, const std::function<void(const std::string&)>& check_header)
    : path_(path) {
  if (!has_no_nul(path)) {
    throw CheckpointError(cut_text(path, 300) + ": cannot be read: a path cannot hold a NUL byte.");
  }
  try {
    detail::naming_file(path_, [&] {
      open();
      const std::string text = header_text();
      if (check_header) check_header(text);
      parse_header(text);
    });
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void SafetensorsFile::open() {
  struct stat info {};
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: a pipe is refused, not waited for
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) throw CheckpointError("cannot be read: " + system_error_text(errno));
  if (!S_ISREG(info.st_mode)) {
    throw CheckpointError("cannot be read: " + system_error_text(S_ISDIR(info.st_mode) ? EISDIR : EINVAL));
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

std::string SafetensorsFile::header_text() const {
  if (size_ < 8) throw CheckpointError("it holds " + std::to_string(size_) + " bytes; expected a header of at least 8");
  uint64_t length = 0;
  read_at(reinterpret_cast<std::byte*>(&length), 8, 0);
  if (length > kMaxSafetensorsHeaderBytes || length > size_ - 8) {
    constexpr uint64_t zip = 0x04034b50;  // "PK\3\4"
    if ((length & UINT32_MAX) == zip) {
      throw CheckpointError(
          "it is a zip archive as torch.save writes, no checkpoint of Levin's. Convert it with "
          "tools/convert_checkpoint.py");
    }
    throw CheckpointError("its header would take " + std::to_string(length) + " of its " + std::to_string(size_) +
                          " bytes: it is damaged, cut short or no checkpoint");
  }
  std::string text(8 + length, '\0');
  read_at(reinterpret_cast<std::byte*>(text.data()), text.size(), 0);
  return text;
}

void SafetensorsFile::parse_header(const std::string& length_and_text) {
  data_begin_ = length_and_text.size();
  SafetensorsHeader header = parse_safetensors_header(std::string_view(length_and_text).substr(8), size_ - data_begin_);
  metadata_ = std::move(header.metadata);
  entries_ = std::move(header.entries);
  for (SafetensorsEntry& entry : entries_) {
    entry.begin += data_begin_;
    entry.end += data_begin_;
  }
}

void SafetensorsFile::read_at(std::byte* to, uint64_t count, uint64_t offset) const {
  while (count > 0) {
    const ssize_t got = ::pread(fd_, to, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw CheckpointError("cannot be read at byte " + std::to_string(offset) + ": " + system_error_text(errno));
    if (got == 0) throw CheckpointError("ends at byte " + std::to_string(offset) + " while being read");
    to += got;
    offset += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
}

void SafetensorsFile::stream(const SafetensorsEntry& entry, std::byte* to, const Watch& watch) const {
  std::vector<std::byte> own(to == nullptr ? std::min(kPieceBytes, entry.bytes()) : 0);
  for (uint64_t at = entry.begin; at < entry.end;) {
    const uint64_t count = std::min(kPieceBytes, entry.end - at);
    std::byte* piece = to == nullptr ? own.data() : to + (at - entry.begin);
    read_at(piece, count, at);
    if (watch) watch({piece, count});
    if (entry.dtype == at::kBool) check_bools(entry, {piece, count});
    at += count;
  }
}

at::Tensor SafetensorsFile::read(const SafetensorsEntry& entry, const Watch& watch) const {
  return detail::naming_file(path_, [&] {
    // Small pages on purpose: where a virtual machine gives free memory back to its host, large ones took 3 to 5 times
    // as long as these (docs/performance.md).
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    stream(entry, static_cast<std::byte*>(tensor.mutable_data_ptr()), watch);
    return tensor;
  });
}

void SafetensorsFile::scan(const SafetensorsEntry& entry, const Watch& watch) const {
  detail::naming_file(path_, [&] { stream(entry, nullptr, watch); });
}

void read_in_parallel(size_t count, uint64_t bytes, const std::function<void(size_t)>& read) {
  constexpr uint64_t bytes_worth_a_thread = 8 << 20;
  const uint64_t most = std::min<uint64_t>({std::max(1U, std::thread::hardware_concurrency()), 8, count});
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        read(i);
      } catch (...) {
        errors[i] = std::current_exception();
        next = count;  // those before it are done or in progress
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    helpers.reserve(most);
    try {
      while (helpers.size() + 1 < most && (helpers.size() + 1) * bytes_worth_a_thread < bytes)
        helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads available: this one does the rest.
    }
    work();
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace levin
