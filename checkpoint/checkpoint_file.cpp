#include "levin/checkpoint/checkpoint_file.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "levin/checkpoint/safetensors_writer.h"
#include "levin/checkpoint/values_json.h"

namespace levin {

namespace {

// Note [Header checksum]
// The header begins with exactly this text and then 16 hexadecimal digits: XXH3 of the header's length and text, with
// zeros in the digits' place. So it covers every byte before the data, including padding, and also identifies a Levin
// checkpoint.
constexpr std::string_view kPrefix = R"({"__metadata__":{"levin.checksum":")";
constexpr std::string_view kNoChecksum = "0000000000000000";

std::string checksum_text(uint64_t hash) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(kNoChecksum);
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4) *digit = digits[hash & 15];
  return text;
}

// XXH3 of data in pieces.
class Hash {
 public:
  Hash() : state_(XXH3_createState(), &XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  [[nodiscard]] uint64_t result() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Of a header that is long enough for the digits; without copying it, because it may be large.
std::string header_checksum(std::string_view length_and_text) {
  constexpr size_t digits_at = 8 + kPrefix.size();
  Hash hash;
  hash.add(std::as_bytes(std::span(length_and_text.substr(0, digits_at))));
  hash.add(std::as_bytes(std::span(kNoChecksum)));
  hash.add(std::as_bytes(std::span(length_and_text.substr(digits_at + kNoChecksum.size()))));
  return checksum_text(hash.result());
}

std::string checkpoint_header(const State& state, const std::vector<SafetensorsItem>& items) {
  SafetensorsMetadata metadata{{"levin.checksum", std::string(kNoChecksum)},
                               {"levin.format", "1"},
                               {"levin.values", values_to_json(state.values)}};
  for (const auto& [name, tensor] : items) {
    metadata.emplace_back("xxh3:" + name, checksum_text(XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes())));
  }
  std::string header = safetensors_header(items, metadata);
  return header.replace(8 + kPrefix.size(), kNoChecksum.size(), header_checksum(header));
}

}  // namespace

LockedFile write_checkpoint(const std::string& path, const State& state) {
  try {
    const std::vector<SafetensorsItem> items = safetensors_items(state.tensors);
    return write_safetensors_file(path, checkpoint_header(state, items), items);
  } catch (const Error& error) {
    throw CheckpointError("saving checkpoint " + path + ": " + error.what());
  }
}

void make_checkpoint_folder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  try {
    if (!folder.empty()) make_folder(folder);
  } catch (const Error& error) {
    throw CheckpointError("saving checkpoint " + path + ": " + error.what());
  }
}

CheckpointFile::CheckpointFile(const std::string& path, Accept accept)
    : file_(path, [&](const std::string& length_and_text) { check_header(length_and_text, accept); }) {
  detail::naming_file(path, [&] { check_metadata(); });
}

void CheckpointFile::check_header(const std::string& length_and_text, Accept accept) {
  const std::string_view text = std::string_view(length_and_text).substr(8);
  is_checkpoint_ = text.starts_with(kPrefix) && text.size() >= kPrefix.size() + kNoChecksum.size();
  if (!is_checkpoint_ && accept == Accept::checkpoint) {
    throw CheckpointError("its header does not begin as Levin's do: it is damaged, or another program's file");
  }
  if (is_checkpoint_ && text.substr(kPrefix.size(), kNoChecksum.size()) != header_checksum(length_and_text)) {
    throw CheckpointError("its header (bytes 0 to " + std::to_string(length_and_text.size()) +
                          ") is damaged: the checksum differs");
  }
}

void CheckpointFile::check_metadata() {
  const auto& metadata = file_.metadata();
  if (!is_checkpoint_) {
    for (const auto& [key, value] : metadata) {
      if (!key.starts_with("levin.") && !key.starts_with("xxh3:")) continue;
      throw CheckpointError("its header has \"" + cut_text(key) + "\" but does not begin as Levin's do: it is damaged");
    }
    return;
  }
  const auto values = metadata.find("levin.values");
  if (values == metadata.end()) throw CheckpointError("its header has no levin.values");
  const auto format = metadata.find("levin.format");
  if (format == metadata.end()) throw CheckpointError("its header has no levin.format");
  if (format->second != "1") {
    throw CheckpointFormatError("its format is \"" + cut_text(format->second) +
                                "\"; this Levin reads \"1\". Use the Levin that wrote it, or a newer one");
  }
  for (const SafetensorsEntry& entry : file_.entries()) {
    if (metadata.contains("xxh3:" + entry.name)) continue;
    throw CheckpointError("the header's entry of tensor \"" + cut_text(entry.name) + "\" is wrong: it has no checksum");
  }
  values_ = values_from_json(values->second);
}

void CheckpointFile::compare(const SafetensorsEntry& entry, uint64_t hash) const {
  if (!is_checkpoint_ || checksum_text(hash) == file_.metadata().at("xxh3:" + entry.name)) return;
  throw CheckpointError(file_.path() + ": tensor \"" + cut_text(entry.name) + "\" (bytes " +
                        std::to_string(entry.begin) + " to " + std::to_string(entry.end) +
                        ") is damaged: the checksum differs.");
}

at::Tensor CheckpointFile::read(const SafetensorsEntry& entry) const {
  Hash hash;
  at::Tensor tensor = file_.read(entry, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
  compare(entry, hash.result());
  return tensor;
}

void CheckpointFile::verify(const SafetensorsEntry& entry) const {
  Hash hash;
  file_.scan(entry, [&](std::span<const std::byte> bytes) { hash.add(bytes); });
  compare(entry, hash.result());
}

State read_checkpoint(const std::string& path) {
  const CheckpointFile checkpoint(path);
  const auto& entries = checkpoint.file().entries();
  std::vector<at::Tensor> tensors(entries.size());
  read_in_parallel(entries.size(), checkpoint.file().size(),
                   [&](size_t i) { tensors[i] = checkpoint.read(entries[i]); });
  State state{checkpoint.values(), {}};
  for (size_t i = 0; i < entries.size(); ++i) state.tensors[entries[i].name] = std::move(tensors[i]);
  return state;
}

ConfigNode read_checkpoint_values(const std::string& path) {
  return CheckpointFile(path).values();
}

}  // namespace levin
