#include "levin/models/exported/read_archive.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "levin/checkpoint/strict_json.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/models/exported/json_view.h"
#include "levin/models/exported/read_program.h"

namespace levin::exported {

namespace {

constexpr uint64_t kEndBytes = 22, kMaxComment = 65535, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46;
constexpr uint64_t kLocalBytes = 30, kMaxDirectory = 256 << 20;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50;
constexpr uint32_t kEntryMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kNo32 = 0xffffffff;  // the value is in the 64-bit fields

// Reads a little-endian number from a string that is known to be long enough.
template <class T>
T number_at(const std::string& text, uint64_t offset) {
  T value = 0;
  std::memcpy(&value, text.data() + offset, sizeof(T));
  return value;
}

// The 64-bit fields of an entry stand in the order size, compressed size, offset; each only where its 32 bits are full.
class WideFields {
 public:
  WideFields(const std::string& extra) {
    for (uint64_t at = 0; at + 4 <= extra.size();) {
      const uint64_t bytes = number_at<uint16_t>(extra, at + 2);
      if (number_at<uint16_t>(extra, at) == 1 && at + 4 + bytes <= extra.size()) fields_ = extra.substr(at + 4, bytes);
      at += 4 + bytes;
    }
  }
  // False: the field that `value` refers to is missing.
  bool widen(uint64_t& value) {
    if (value != kNo32) return true;
    if (used_ + 8 > fields_.size()) return false;
    value = number_at<uint64_t>(fields_, used_);
    used_ += 8;
    return true;
  }

 private:
  std::string fields_ = {};
  uint64_t used_ = 0;
};

struct Place {
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> sizes = {}, strides = {};
  int64_t offset = 0;

  auto operator<=>(const Place&) const = default;
};

int64_t read_count(const JsonView& json) {
  const int64_t count = json["as_int"].integer();
  if (count < 0) json.refuse("is negative");
  return count;
}

Place read_place(const JsonView& meta) {
  Place place{.dtype = read_dtype(meta["dtype"])};
  (void)read_layout(meta["layout"]);
  for (const JsonView& size : meta["sizes"].items()) place.sizes.push_back(read_count(size));
  for (const JsonView& stride : meta["strides"].items()) place.strides.push_back(read_count(stride));
  place.offset = read_count(meta["storage_offset"]);
  if (place.sizes.size() != place.strides.size()) meta.refuse("has different numbers of sizes and strides");
  return place;
}

// Whether the elements lie within `elements`, and are no more than those.
bool fits(const Place& place, uint64_t elements) {
  uint64_t last = static_cast<uint64_t>(place.offset), count = 1;
  bool is_empty = false;
  for (const int64_t size : place.sizes) is_empty = is_empty || size == 0;
  if (is_empty) return last <= elements;
  for (size_t k = 0; k < place.sizes.size(); ++k) {
    const auto size = static_cast<uint64_t>(place.sizes[k]), stride = static_cast<uint64_t>(place.strides[k]);
    uint64_t reach = 0;
    if (__builtin_mul_overflow(size - 1, stride, &reach) || __builtin_add_overflow(last, reach, &last)) return false;
    if (__builtin_mul_overflow(count, size, &count)) return false;
  }
  return last < elements && count <= elements;
}

// A bool other than 0 and 1 would be undefined behaviour in code that reads it.
bool holds_bools(const at::Tensor& bytes) {
  const auto* const begin = bytes.const_data_ptr<uint8_t>();
  return std::all_of(begin, begin + bytes.numel(), [](uint8_t byte) { return byte <= 1; });
}

class Storages {
 public:
  Storages(const ZipArchive& archive, const std::string& folder) : archive_(archive), folder_(folder) {}

  at::Tensor tensor(const JsonView& entry, const std::string& name) {
    const JsonView path = entry["path_name"];
    const std::string file = folder_ + path.text();
    if (!archive_.has(file)) path.refuse("names \"" + cut_text(file) + "\", which the archive does not have");
    const Place place = read_place(entry["tensor_meta"]);
    const uint64_t bytes = archive_.size_of(file);
    const uint64_t element = c10::elementSize(place.dtype);
    if (bytes % element != 0 || !fits(place, bytes / element)) {
      entry.refuse("is a tensor that the " + std::to_string(bytes) + " bytes of \"" + cut_text(file) +
                   "\" do not hold, \"" + cut_text(name) + "\"");
    }
    at::Tensor& known = tensors_[{file, place}];
    if (known.defined()) return known;
    at::Tensor& memory = bytes_[file];
    if (!memory.defined()) {
      memory = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
      archive_.read_into(file, memory.mutable_data_ptr());
    }
    const bool is_bool = is_bool_.emplace(file, place.dtype == at::kBool).first->second;
    if (is_bool != (place.dtype == at::kBool)) {
      entry.refuse("shares \"" + cut_text(file) + "\" with a tensor of a different type, and one of the two is bool");
    }
    if (place.dtype == at::kBool && !holds_bools(memory)) {
      entry.refuse("is of bool, and \"" + cut_text(file) + "\" holds a byte other than 0 and 1, \"" + cut_text(name) +
                   "\"");
    }
    known = at::empty({0}, at::TensorOptions(place.dtype));
    known.set_(memory.storage(), place.offset, place.sizes, place.strides);
    // Autograd detects a change of a tensor that it saved by this counter, also if another tensor's name is written to.
    share_version(known, memory);
    return known;
  }

 private:
  const ZipArchive& archive_;
  const std::string& folder_;
  std::map<std::string, at::Tensor> bytes_ = {};
  std::map<std::string, bool> is_bool_ = {};
  std::map<std::pair<std::string, Place>, at::Tensor> tensors_ = {};
};

constexpr uint64_t kMaxJsonBytes = 512 << 20;

nlohmann::json parse_json(const ZipArchive& archive, const std::string& name, const std::string& text) {
  try {
    return detail::parse_strictly<nlohmann::json>(text);
  } catch (const CheckpointError& error) {
    throw Error(archive.path() + ": " + name + " is " + error.what() + ".");
  }
}

nlohmann::json read_json(const ZipArchive& archive, const std::string& name) {
  return parse_json(archive, name, archive.read(name, kMaxJsonBytes));
}

// "model" of torch.export.save, or the only one of a package.
std::string model_name(const ZipArchive& archive) {
  const std::string folder = "models/", ending = ".json";
  std::vector<std::string> models;
  for (const std::string& name : archive.names()) {
    if (!name.starts_with(folder) || !name.ends_with(ending) || name.size() <= folder.size() + ending.size()) continue;
    models.push_back(name.substr(folder.size(), name.size() - folder.size() - ending.size()));
  }
  if (models.size() == 1) return models[0];
  if (std::find(models.begin(), models.end(), "model") != models.end()) return "model";
  if (!models.empty())
    throw Error(archive.path() + " has several models (" + cut_text(join(models)) + ") and none called \"model\".");
  if (archive.has("serialized_exported_program.json") || archive.has("version")) {
    throw Error(archive.path() +
                " was saved by a PyTorch before 2.9, whose weights are pickled: save it again with 2.9 to 2.11.");
  }
  if (archive.has("data.pkl") || archive.has("constants.pkl")) {
    throw Error(archive.path() +
                " is a file of torch.save or TorchScript, whose contents are pickled. Save the program of "
                "torch.export.export with torch.export.save; a state_dict goes through `levin convert`.");
  }
  throw Error(archive.path() +
              " has no models/model.json, so no program of torch.export: a compiled package cannot be trained. Save "
              "it with torch.export.save.");
}

std::vector<StoredTensor> read_list(const ZipArchive& archive, const std::string& folder, const std::string& name) {
  if (!archive.has(folder + name)) return {};
  const nlohmann::json json = read_json(archive, folder + name);
  const std::string file = archive.path() + ": " + folder + name;
  return read_tensors(archive, folder, JsonView(json, file));
}

bool same_tensors(const std::vector<StoredTensor>& one, const std::vector<StoredTensor>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
    return a.name == b.name && a.tensor.scalar_type() == b.tensor.scalar_type() && a.tensor.equal(b.tensor);
  });
}

// The program of the model in evaluation mode, unless it is the same.
void read_evaluation(const ZipArchive& archive, const std::string& model, const std::string& text, Contents& contents) {
  const std::string own = "evaluation", name = "models/" + own + ".json";
  contents.has_evaluation = model != own && archive.has(name);
  if (!contents.has_evaluation) return;
  const std::string other = archive.read(name, kMaxJsonBytes);
  auto constants = read_list(archive, "data/constants/", own + "_constants_config.json");
  if (other == text && same_tensors(constants, contents.constants)) return;
  const nlohmann::json json = parse_json(archive, name, other);
  const std::string file = archive.path() + ": " + name;
  contents.evaluation = EvaluationContents{read_program(JsonView(json, file)), std::move(constants)};
}

}  // namespace

ZipArchive::ZipArchive(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status = {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) {
    throw Error("cannot open " + path_ + ": " + system_error_text(errno) + ".");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(path_ + " is " + (S_ISDIR(status.st_mode) ? "a folder" : "a FIFO or a device") +
                ", not a .pt2 file of torch.export.save.");
  }
  length_ = static_cast<uint64_t>(status.st_size);
  find_directory();
  read_directory();
  leave_out_common_folder();
}

void ZipArchive::refuse(const std::string& what) const {
  throw Error(path_ + " " + what + ". It is damaged or not a .pt2 file; save it again with torch.export.save.");
}

void ZipArchive::read_at(uint64_t offset, void* memory, uint64_t bytes) const {
  if (offset > length_ || bytes > length_ - offset) {
    refuse("ends at byte " + std::to_string(length_) + ", before byte " + std::to_string(offset) + " + " +
           std::to_string(bytes));
  }
  auto* to = static_cast<char*>(memory);
  while (bytes > 0) {
    const ssize_t done = ::pread(descriptor_.get(), to, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      throw Error("cannot read " + path_ + ": " + (done == 0 ? "it was cut" : system_error_text(errno)) + ".");
    to += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
}

std::string ZipArchive::text_at(uint64_t offset, uint64_t bytes) const {
  if (offset > length_ || bytes > length_ - offset) read_at(offset, nullptr, bytes);  // throws
  std::string text(bytes, '\0');
  read_at(offset, text.data(), bytes);
  return text;
}

void ZipArchive::find_directory() {
  if (length_ < kEndBytes) refuse("has " + std::to_string(length_) + " bytes, too few for a zip archive");
  const uint64_t begin = length_ - std::min(length_, kEndBytes + kMaxComment);
  const std::string tail = text_at(begin, length_ - begin);
  uint64_t at = tail.size() - kEndBytes;
  while (number_at<uint32_t>(tail, at) != kEndMark ||
         at + kEndBytes + number_at<uint16_t>(tail, at + 20) != tail.size()) {
    if (at == 0) refuse("has no list of files at its end, so it was truncated or is not a zip archive");
    --at;
  }
  uint64_t directory_end = begin + at;
  directory_bytes_ = number_at<uint32_t>(tail, at + 12);
  directory_ = number_at<uint32_t>(tail, at + 16);
  if (directory_end >= kLocatorBytes) {
    const std::string locator = text_at(directory_end - kLocatorBytes, kLocatorBytes);
    if (number_at<uint32_t>(locator, 0) == kLocatorMark) {
      const uint64_t end64 = number_at<uint64_t>(locator, 8);
      const std::string wide = text_at(end64, kEnd64Bytes);
      if (number_at<uint32_t>(wide, 0) != kEnd64Mark) refuse("has a 64-bit list of files that does not begin as one");
      directory_bytes_ = number_at<uint64_t>(wide, 40);
      directory_ = number_at<uint64_t>(wide, 48);
      directory_end = end64;
    }
  }
  if (directory_ > directory_end || directory_bytes_ > directory_end - directory_) {
    refuse("has a list of files that reaches over its own end");
  }
  if (directory_bytes_ > kMaxDirectory) refuse("has a list of files of " + std::to_string(directory_bytes_) + " bytes");
}

void ZipArchive::read_directory() {
  const std::string list = text_at(directory_, directory_bytes_);
  uint64_t stored = 0;
  for (uint64_t at = 0; at < list.size();) {
    if (list.size() - at < kEntryBytes || number_at<uint32_t>(list, at) != kEntryMark) {
      refuse("has a list of files that is not one from its byte " + std::to_string(at) + " on");
    }
    const uint64_t name_bytes = number_at<uint16_t>(list, at + 28), extra_bytes = number_at<uint16_t>(list, at + 30);
    const uint64_t entry_bytes = kEntryBytes + name_bytes + extra_bytes + number_at<uint16_t>(list, at + 32);
    if (entry_bytes > list.size() - at) refuse("has a list of files whose last entry is cut");
    const std::string name = list.substr(at + kEntryBytes, name_bytes);
    WideFields wide(list.substr(at + kEntryBytes + name_bytes, extra_bytes));
    File file{number_at<uint32_t>(list, at + 42), number_at<uint32_t>(list, at + 24),
              number_at<uint32_t>(list, at + 16)};
    uint64_t packed = number_at<uint32_t>(list, at + 20);
    if (!wide.widen(file.bytes) || !wide.widen(packed) || !wide.widen(file.header)) {
      refuse("has a list of files without the 64-bit size of \"" + cut_text(name) + "\"");
    }
    add_file(name, file, number_at<uint16_t>(list, at + 8), number_at<uint16_t>(list, at + 10));
    if (packed != file.bytes) refuse("has two sizes for \"" + cut_text(name) + "\", which is not compressed");
    // Together they are no larger than the archive, so that none is read over and over.
    stored += file.bytes;
    if (file.bytes > length_ || stored > length_) refuse("lists files of more bytes than it has");
    at += entry_bytes;
  }
}

void ZipArchive::add_file(const std::string& name, const File& file, uint32_t flags, uint32_t method) {
  if ((flags & 1) != 0) throw Error(path_ + ": \"" + cut_text(name) + "\" is encrypted.");
  if (method != 0) {
    throw Error(path_ + ": \"" + cut_text(name) +
                "\" is compressed, and PyTorch stores files uncompressed. Save the program "
                "again with torch.export.save.");
  }
  if (!files_.emplace(name, file).second) refuse("lists \"" + cut_text(name) + "\" twice");
}

// PyTorch's folder has the name under which the file was saved: net/models/model.json.
void ZipArchive::leave_out_common_folder() {
  if (files_.empty()) refuse("lists no files");
  const std::string folder = files_.begin()->first.substr(0, files_.begin()->first.find('/') + 1);
  std::map<std::string, File> inner;
  for (const auto& [name, file] : files_) {
    if (folder.empty() || !name.starts_with(folder)) refuse("is a zip archive whose files are not in one folder");
    inner.emplace(name.substr(folder.size()), file);
  }
  files_ = std::move(inner);
}

std::vector<std::string> ZipArchive::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

const ZipArchive::File& ZipArchive::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) refuse("has no file \"" + cut_text(name) + "\"");
  return found->second;
}

std::string ZipArchive::read(const std::string& name, uint64_t max_bytes) const {
  const File& found = file(name);
  if (found.bytes > max_bytes) {
    refuse("has \"" + cut_text(name) + "\" of " + std::to_string(found.bytes) + " bytes, more than the " +
           std::to_string(max_bytes) + " that it may have");
  }
  std::string text(found.bytes, '\0');
  read_into(name, text.data());
  return text;
}

void ZipArchive::read_into(const std::string& name, void* memory) const {
  const File& found = file(name);
  const std::string local = text_at(found.header, kLocalBytes);
  if (number_at<uint32_t>(local, 0) != kLocalMark) refuse("does not have \"" + cut_text(name) + "\" where it says");
  const uint64_t begin = found.header + kLocalBytes + number_at<uint16_t>(local, 26) + number_at<uint16_t>(local, 28);
  if (begin > directory_ || found.bytes > directory_ - begin) {
    refuse("has \"" + cut_text(name) + "\" reach over its list of files");
  }
  read_at(begin, memory, found.bytes);
  const auto checksum = ::crc32_z(0, static_cast<const Bytef*>(memory), found.bytes);
  if (checksum != found.checksum && found.bytes > 0) refuse("has a wrong checksum of \"" + cut_text(name) + "\"");
}

std::vector<StoredTensor> read_tensors(const ZipArchive& archive, const std::string& folder, const JsonView& list) {
  Storages storages(archive, folder);
  std::vector<StoredTensor> all;
  for (const auto& [name, entry] : list["config"].members()) {
    if (entry["use_pickle"].boolean() || !entry.find("tensor_meta")) {
      entry.refuse(
          "is a Python object, which Levin never unpickles: export a model whose state is plain tensors, no custom "
          "objects and no subclasses of torch.Tensor");
    }
    const bool is_weight = entry["is_param"].boolean() && entry["tensor_meta"]["requires_grad"].boolean();
    all.push_back({name, storages.tensor(entry, name), is_weight});
  }
  return all;
}

Contents read_archive(const std::string& path) {
  const ZipArchive archive(path);
  const std::string model = model_name(archive);
  if (!archive.has("byteorder") || archive.read("byteorder", 16) != "little") {
    throw Error(path + " was not saved by a machine with little-endian numbers.");
  }
  const std::string name = "models/" + model + ".json";
  const std::string text = archive.read(name, kMaxJsonBytes);
  const nlohmann::json json = parse_json(archive, name, text);
  const std::string file = path + ": " + name;
  Contents contents{.program = read_program(JsonView(json, file)), .weights = {}, .constants = {}};
  contents.weights = read_list(archive, "data/weights/", model + "_weights_config.json");
  contents.constants = read_list(archive, "data/constants/", model + "_constants_config.json");
  // All tensors of a program are usually on one device, the device of its first input.
  const JsonView graph = JsonView(json, file)["graph_module"]["graph"];
  for (const Argument& input : contents.program.graph.inputs) {
    if (input.kind != Argument::Kind::value) continue;
    const auto meta = graph["tensor_values"].find(contents.program.graph.values[input.value].c_str());
    if (!meta) continue;
    contents.exported_on = read_device((*meta)["device"]);
    break;
  }
  read_evaluation(archive, model, text, contents);
  return contents;
}

}  // namespace levin::exported
