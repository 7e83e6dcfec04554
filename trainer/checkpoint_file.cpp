#include "levin/trainer/checkpoint_file.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "levin/core/files.h"
#include "levin/trainer/strict_json.h"
#include "levin/trainer/values_json.h"

namespace levin {

namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

using Json = nlohmann::ordered_json;

// Note [Header checksum]
// The header begins with exactly this text and then 16 hexadecimal digits: XXH3 of the header's length and text, with
// zeros in the digits' place. Thus it covers every byte in front of the data, padding included, and doubles as the
// mark of a Levin checkpoint.
constexpr std::string_view kPrefix = R"({"__metadata__":{"levin.checksum":")";
constexpr std::string_view kNoChecksum = "0000000000000000";
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as every safetensors reader
constexpr size_t kMaxDims = 64;                    // as LibTorch

struct DType {
  const char* name;
  at::ScalarType type;
};

constexpr std::array<DType, 10> kDTypes{{{"F64", at::kDouble},
                                         {"F32", at::kFloat},
                                         {"F16", at::kHalf},
                                         {"BF16", at::kBFloat16},
                                         {"I64", at::kLong},
                                         {"I32", at::kInt},
                                         {"I16", at::kShort},
                                         {"I8", at::kChar},
                                         {"U8", at::kByte},
                                         {"BOOL", at::kBool}}};

std::string checksum(const void* bytes, size_t count) {
  constexpr std::string_view digits = "0123456789abcdef";
  uint64_t hash = XXH3_64bits(bytes, count);
  std::string text(kNoChecksum);
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4) *digit = digits[hash & 15];
  return text;
}

std::string header_checksum(std::string length_and_header) {
  std::copy(kNoChecksum.begin(), kNoChecksum.end(), length_and_header.begin() + 8 + kPrefix.size());
  return checksum(length_and_header.data(), length_and_header.size());
}

// ---- writing
// ----------------------------------------------------------------------------------------------------------

const char* dtype_name(const at::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) throw CheckpointError("tensor \"" + name + "\" is undefined. Leave it out of the state.");
  for (const DType& dtype : kDTypes) {
    if (tensor.layout() == at::kStrided && dtype.type == tensor.scalar_type()) return dtype.name;
  }
  throw CheckpointError("tensor \"" + name + "\" is of type " + std::string(tensor.toString()) +
                        ", which a checkpoint cannot hold. Convert it in state() and back in load_state().");
}

struct Item {
  std::string name;
  const char* dtype;
  at::Tensor tensor;  // dense, on the CPU
};

std::vector<Item> ordered_items(const State& state) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : state.tensors) {
    if (name == "__metadata__")
      throw CheckpointError("a tensor cannot be called \"__metadata__\". Choose another name.");
    const char* dtype = dtype_name(tensor, name);
    items.push_back({name, dtype, tensor.detach().cpu().resolve_neg().contiguous()});
  }
  // Wide elements first: as the format allows no gaps, this is what aligns every tensor to its element.
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.tensor.element_size() > b.tensor.element_size(); });
  return items;
}

std::string length_and_header(const State& state, const std::vector<Item>& items) {
  Json metadata = {
      {"levin.checksum", kNoChecksum}, {"levin.format", "1"}, {"levin.values", values_to_json(state.values)}};
  Json header = {{"__metadata__", nullptr}};
  uint64_t offset = 0;
  for (const Item& item : items) {
    const uint64_t end = offset + item.tensor.nbytes();
    metadata["xxh3:" + item.name] = checksum(item.tensor.const_data_ptr(), item.tensor.nbytes());
    header[item.name] = {{"dtype", item.dtype}, {"shape", item.tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  header["__metadata__"] = std::move(metadata);
  std::string text = std::string(8, '\0') + header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begin at a multiple of 8
  const uint64_t length = text.size() - 8;
  if (length > kMaxHeaderBytes) {
    throw CheckpointError("its values and tensor names take " + std::to_string(length) + " bytes; a header holds " +
                          std::to_string(kMaxHeaderBytes) + ". Keep large values in tensors.");
  }
  std::memcpy(text.data(), &length, 8);
  text.replace(8 + kPrefix.size(), kNoChecksum.size(), header_checksum(text));
  return text;
}

std::string header_of(const State& state, const std::vector<Item>& items) {
  try {
    return length_and_header(state, items);
  } catch (const Json::exception& error) {
    throw CheckpointError(std::string("a tensor's name is not UTF-8: ") + error.what() + ".");
  }
}

// ---- reading
// ----------------------------------------------------------------------------------------------------------

// A file of known size, read front to back.
class Reader {
 public:
  // O_NONBLOCK: a pipe that somebody put there is refused, not waited for.
  explicit Reader(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    struct stat info {};
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) fail_to_open(errno);
    if (!S_ISREG(info.st_mode)) fail_to_open(S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
    size_ = static_cast<uint64_t>(info.st_size);
  }
  ~Reader() { close(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }

  void read(void* to, uint64_t count) {
    auto* at = static_cast<char*>(to);
    while (count > 0) {
      const ssize_t got = ::read(fd_, at, count);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw CheckpointError("cannot be read at byte " + std::to_string(offset_) + ": " + system_error_text(errno));
      if (got == 0) throw CheckpointError("ends at byte " + std::to_string(offset_) + " while being read");
      at += got;
      offset_ += static_cast<uint64_t>(got);
      count -= static_cast<uint64_t>(got);
    }
  }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  [[noreturn]] void fail_to_open(int error_number) {
    close();
    throw CheckpointError("cannot be read: " + system_error_text(error_number));
  }

  int fd_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

struct Entry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
  std::string checksum;
};

[[noreturn]] void bad_entry(const std::string& name, const std::string& what) {
  throw CheckpointError("the header's entry of tensor \"" + name + "\" is wrong: " + what);
}

at::ScalarType dtype_of(const std::string& name, const Json& entry) {
  if (!entry.contains("dtype") || !entry["dtype"].is_string()) bad_entry(name, "it has no dtype");
  const auto text = entry["dtype"].get<std::string>();
  for (const DType& dtype : kDTypes) {
    if (text == dtype.name) return dtype.type;
  }
  bad_entry(name, "dtype \"" + text + "\" is unknown");
}

uint64_t whole_number(const std::string& name, const Json& value, const char* what) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) {
    bad_entry(name, std::string(what) + " " + value.dump() + " is not a whole number >= 0");
  }
  return value.get<uint64_t>();
}

// Bytes of the tensor. A dimension of 0 counts as 1 in the overflow check, because strides are products too.
uint64_t checked_bytes(const Entry& entry) {
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

Entry read_entry(const std::string& name, const Json& item, const Json& metadata) {
  if (!item.is_object() || item.size() != 3) bad_entry(name, "it must have dtype, shape and data_offsets");
  Entry entry{name, dtype_of(name, item), {}, 0, 0, {}};
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
  if (entry.end < entry.begin || checked_bytes(entry) != entry.end - entry.begin) {
    bad_entry(name,
              "bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end) + " do not fit its shape");
  }
  const auto sum = metadata.find("xxh3:" + name);
  if (sum == metadata.end() || !sum->is_string()) bad_entry(name, "it has no checksum");
  entry.checksum = sum->get<std::string>();
  return entry;
}

// The entries in the order of their data, which they fill without gap or overlap.
std::vector<Entry> read_entries(const Json& header, uint64_t data_bytes) {
  const Json& metadata = header["__metadata__"];
  std::vector<Entry> entries;
  for (const auto& [name, item] : header.items()) {
    if (name != "__metadata__") entries.push_back(read_entry(name, item, metadata));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
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

Json read_header(Reader& file) {
  uint64_t length = 0;
  if (file.size() < 8)
    throw CheckpointError("it holds " + std::to_string(file.size()) + " bytes, which is no checkpoint");
  file.read(&length, 8);
  if (length > kMaxHeaderBytes || length > file.size() - 8) {
    throw CheckpointError("its header would take " + std::to_string(length) + " of its " + std::to_string(file.size()) +
                          " bytes: it is damaged, cut short or no checkpoint");
  }
  std::string text(8 + length, '\0');
  std::memcpy(text.data(), &length, 8);
  file.read(text.data() + 8, length);
  const std::string_view header = std::string_view(text).substr(8);
  if (!header.starts_with(kPrefix) || header.size() < kPrefix.size() + kNoChecksum.size()) {
    throw CheckpointError("its header does not begin as Levin's do: it is damaged, or another program's file");
  }
  if (header.substr(kPrefix.size(), kNoChecksum.size()) != header_checksum(text)) {
    throw CheckpointError("its header (bytes 0 to " + std::to_string(text.size()) +
                          ") is damaged: the checksum differs");
  }
  Json parsed = detail::parse_strictly<Json>(text.substr(8));
  const Json& metadata = parsed["__metadata__"];
  if (!metadata.is_object() || !metadata.contains("levin.values") || !metadata["levin.values"].is_string()) {
    throw CheckpointError("its header has no levin.values");
  }
  if (metadata.value("levin.format", Json()) != "1") {
    throw CheckpointError("its format is " + metadata.value("levin.format", Json()).dump() +
                          "; this Levin reads \"1\". Use the Levin that wrote it, or a newer one");
  }
  return parsed;
}

// A bool other than 0 and 1 would be undefined behaviour in whoever reads it.
void check_bools(const Entry& entry, const at::Tensor& tensor) {
  if (entry.dtype != at::kBool) return;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  if (std::any_of(bytes, bytes + tensor.nbytes(), [](unsigned char byte) { return byte > 1; })) {
    throw CheckpointError("tensor \"" + entry.name + "\" is of BOOL and holds a byte other than 0 and 1");
  }
}

ConfigNode values_of(const Json& header) {
  return values_from_json(header["__metadata__"]["levin.values"].get<std::string>());
}

State read_state(const std::string& path) {
  Reader file(path);
  const Json header = read_header(file);
  State state;
  state.values = values_of(header);
  // Checked in full before anything is allocated, so the tensors together are as large as the file at most.
  const uint64_t header_bytes = file.offset();
  for (const Entry& entry : read_entries(header, file.size() - header_bytes)) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    file.read(tensor.mutable_data_ptr(), entry.end - entry.begin);
    if (checksum(tensor.const_data_ptr(), entry.end - entry.begin) != entry.checksum) {
      throw CheckpointError("tensor \"" + entry.name + "\" (bytes " + std::to_string(header_bytes + entry.begin) +
                            " to " + std::to_string(header_bytes + entry.end) + ") is damaged: the checksum differs");
    }
    check_bools(entry, tensor);
    state.tensors[entry.name] = std::move(tensor);
  }
  return state;
}

}  // namespace

void write_checkpoint(const std::string& path, const State& state) {
  try {
    const std::vector<Item> items = ordered_items(state);
    const std::string header = header_of(state, items);
    std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(header))};
    for (const Item& item : items) {
      parts.emplace_back(static_cast<const std::byte*>(item.tensor.const_data_ptr()), item.tensor.nbytes());
    }
    write_file_durably(path, parts);
  } catch (const Error& error) {
    throw CheckpointError("saving checkpoint " + path + ": " + error.what());
  }
}

State read_checkpoint(const std::string& path) {
  try {
    return read_state(path);
  } catch (const CheckpointError& error) {
    // Cut, because it may quote the file.
    throw CheckpointError("checkpoint " + path + ": " + cut_text(error.what(), 1000) + ".");
  }
}

ConfigNode read_checkpoint_values(const std::string& path) {
  try {
    Reader file(path);
    const Json header = read_header(file);
    (void)read_entries(header, file.size() - file.offset());
    return values_of(header);
  } catch (const CheckpointError& error) {
    // Cut, because it may quote the file.
    throw CheckpointError("checkpoint " + path + ": " + cut_text(error.what(), 1000) + ".");
  }
}

}  // namespace levin
