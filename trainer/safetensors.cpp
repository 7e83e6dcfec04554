#include "levin/trainer/safetensors.h"

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

#include "levin/core/files.h"
#include "levin/trainer/strict_json.h"

namespace levin {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Json = nlohmann::json;  // its lookup is quick where a hostile header has a million keys

constexpr size_t kMaxDims = 64;            // as LibTorch
constexpr uint64_t kPieceBytes = 1 << 18;  // read at once: stays in a core's cache while it is watched

constexpr std::array kDTypes{std::pair{"F64", at::kDouble},
                             std::pair{"F32", at::kFloat},
                             std::pair{"F16", at::kHalf},
                             std::pair{"BF16", at::kBFloat16},
                             std::pair{"F8_E4M3", at::kFloat8_e4m3fn},
                             std::pair{"F8_E5M2", at::kFloat8_e5m2},
                             std::pair{"F8_E8M0", at::kFloat8_e8m0fnu},
                             std::pair{"C64", at::kComplexFloat},
                             std::pair{"I64", at::kLong},
                             std::pair{"I32", at::kInt},
                             std::pair{"I16", at::kShort},
                             std::pair{"I8", at::kChar},
                             std::pair{"U64", at::kUInt64},
                             std::pair{"U32", at::kUInt32},
                             std::pair{"U16", at::kUInt16},
                             std::pair{"U8", at::kByte},
                             std::pair{"BOOL", at::kBool}};

[[noreturn]] void bad_entry(const std::string& name, const std::string& what) {
  throw CheckpointError("the header's entry of tensor \"" + cut_text(name) + "\" is wrong: " + what);
}

at::ScalarType dtype_of(const std::string& name, const Json& entry) {
  if (!entry.contains("dtype") || !entry["dtype"].is_string()) bad_entry(name, "it has no dtype");
  const auto text = entry["dtype"].get<std::string>();
  for (const auto& [word, type] : kDTypes) {
    if (text == word) return type;
  }
  bad_entry(name, "dtype \"" + cut_text(text) + "\" is unknown");
}

uint64_t whole_number(const std::string& name, const Json& value, const char* what) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) {
    bad_entry(name, std::string(what) + " " + cut_text(value.dump()) + " is not a whole number >= 0");
  }
  return value.get<uint64_t>();
}

// Bytes of the tensor. A dimension of 0 counts as 1 in the overflow check, because strides are products too.
uint64_t checked_bytes(const SafetensorsEntry& entry) {
  uint64_t bytes = c10::elementSize(entry.dtype);
  uint64_t strides = bytes;
  for (const int64_t size : entry.shape) {
    const auto wide = static_cast<uint64_t>(size);
    if (__builtin_mul_overflow(strides, std::max<uint64_t>(wide, 1), &strides) || strides > INT64_MAX) {
      bad_entry(entry.name, "its shape overflows");
    }
    bytes *= wide;
  }
  return bytes;
}

// Offsets still count from the start of the data.
SafetensorsEntry read_entry(const std::string& name, const Json& item) {
  if (!item.is_object() || item.size() != 3) bad_entry(name, "it must have dtype, shape and data_offsets");
  SafetensorsEntry entry{name, dtype_of(name, item), {}, 0, 0};
  const Json& shape = item.value("shape", Json());
  const Json& offsets = item.value("data_offsets", Json());
  if (!shape.is_array() || shape.size() > kMaxDims) bad_entry(name, "its shape is not a list of at most 64 sizes");
  if (!offsets.is_array() || offsets.size() != 2) bad_entry(name, "data_offsets are not two numbers");
  for (const Json& size : shape) {
    const uint64_t wide = whole_number(name, size, "size");
    if (wide > INT64_MAX) bad_entry(name, "its shape overflows");
    entry.shape.push_back(static_cast<int64_t>(wide));
  }
  entry.begin = whole_number(name, offsets[0], "offset");
  entry.end = whole_number(name, offsets[1], "offset");
  if (entry.end < entry.begin || checked_bytes(entry) != entry.bytes()) {
    bad_entry(name,
              "bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) + " do not fit its shape");
  }
  return entry;
}

// The entries in the order of their data, which they fill without gap or overlap.
std::vector<SafetensorsEntry> read_entries(const Json& header, uint64_t data_bytes) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, item] : header.items()) {
    if (name != "__metadata__") entries.push_back(read_entry(name, item));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected) {
      bad_entry(entry.name, "its data begin at byte " + std::to_string(entry.begin) + " where " +
                                std::to_string(expected) + " was expected");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    throw CheckpointError("it holds " + std::to_string(data_bytes) + " bytes of data where its header says " +
                          std::to_string(expected) + ": it was cut short or added to");
  }
  return entries;
}

std::map<std::string, std::string> read_metadata(const Json& header) {
  std::map<std::string, std::string> metadata;
  if (!header.contains("__metadata__")) return metadata;
  if (!header["__metadata__"].is_object()) throw CheckpointError("its __metadata__ is not a map");
  for (const auto& [key, value] : header["__metadata__"].items()) {
    if (!value.is_string()) throw CheckpointError("its __metadata__ \"" + cut_text(key) + "\" is not text");
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// A bool other than 0 and 1 would be undefined behaviour in whoever reads it.
void check_bools(const SafetensorsEntry& entry, std::span<const std::byte> bytes) {
  if (std::any_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte > std::byte{1}; })) {
    throw CheckpointError("tensor \"" + entry.name + "\" (bytes " + std::to_string(entry.begin) + " to " +
                          std::to_string(entry.end) + ") is of BOOL and holds a byte other than 0 and 1");
  }
}

}  // namespace

const char* safetensors_dtype(at::ScalarType type) {
  for (const auto& [word, known] : kDTypes) {
    if (known == type) return word;
  }
  return nullptr;
}

SafetensorsFile::SafetensorsFile(const std::string& path, const std::function<void(const std::string&)>& check_header)
    : path_(path) {
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
  if (size_ < 8) throw CheckpointError("it holds " + std::to_string(size_) + " bytes, which is no checkpoint");
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
  const Json header = detail::parse_strictly<Json>(length_and_text.substr(8));
  if (!header.is_object()) throw CheckpointError("its header is not a map");
  data_begin_ = length_and_text.size();
  metadata_ = read_metadata(header);
  entries_ = read_entries(header, size_ - data_begin_);
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
        next = count;  // those before it are done or under way
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
      // No more threads to be had: this one does the rest.
    }
    work();
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace levin
