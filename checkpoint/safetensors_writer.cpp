#include "levin/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/safetensors.h"
#include "levin/core/files/files.h"

namespace levin {

namespace {

using Json = nlohmann::json;

void check_item(const std::string& name, const at::Tensor& tensor) {
  if (name == "__metadata__")
    throw CheckpointError("a tensor cannot be called \"__metadata__\". Choose a different name.");
  if (!tensor.defined()) throw CheckpointError("tensor \"" + name + "\" is undefined. Leave it out of the state.");
  if (tensor.layout() == at::kStrided && safetensors_dtype(tensor.scalar_type()) != nullptr) return;
  throw CheckpointError("tensor \"" + name + "\" is of type " + std::string(tensor.toString()) +
                        ", which a checkpoint cannot hold. Convert it in state_dict() and back in load_state_dict().");
}

}  // namespace

std::vector<SafetensorsItem> safetensors_items(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : tensors) {
    check_item(name, tensor);
    items.push_back({name, tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()});
  }
  // Wide elements first: the format allows no gaps, so this aligns every tensor to its element size.
  std::stable_sort(items.begin(), items.end(), [](const SafetensorsItem& a, const SafetensorsItem& b) {
    return a.tensor.element_size() > b.tensor.element_size();
  });
  return items;
}

std::string safetensors_header(const std::vector<SafetensorsItem>& items, const SafetensorsMetadata& metadata) {
  std::string text(8, '\0');
  uint64_t offset = 0;
  try {
    for (const auto& [key, value] : metadata) {
      text += text.size() == 8 ? R"({"__metadata__":{)" : ",";
      text += Json(key).dump() + ":" + Json(value).dump();
    }
    if (!metadata.empty()) text += "}";
    for (const auto& [name, tensor] : items) {
      const uint64_t end = offset + tensor.nbytes();
      const Json entry = {{"dtype", safetensors_dtype(tensor.scalar_type())},
                          {"shape", tensor.sizes().vec()},
                          {"data_offsets", {offset, end}}};
      text += (text.size() == 8 ? "{" : ",") + Json(name).dump() + ":" + entry.dump();
      offset = end;
    }
  } catch (const Json::exception& error) {
    throw CheckpointError(std::string("a tensor's name is not UTF-8: ") + error.what() + ".");
  }
  text += text.size() == 8 ? "{}" : "}";
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begin at a multiple of 8
  const uint64_t length = text.size() - 8;
  if (length > kMaxSafetensorsHeaderBytes) {
    throw CheckpointError("its values and tensor names take " + std::to_string(length) + " bytes; a header holds " +
                          std::to_string(kMaxSafetensorsHeaderBytes) + ". Keep large values in tensors.");
  }
  std::memcpy(text.data(), &length, 8);
  return text;
}

LockedFile write_safetensors_file(const std::string& path, const std::string& header,
                                  const std::vector<SafetensorsItem>& items) {
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(header))};
  for (const SafetensorsItem& item : items) {
    parts.emplace_back(static_cast<const std::byte*>(item.tensor.const_data_ptr()), item.tensor.nbytes());
  }
  return write_file_durably(path, parts);
}

void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const SafetensorsMetadata& metadata) {
  const std::vector<SafetensorsItem> items = safetensors_items(tensors);
  write_safetensors_file(path, safetensors_header(items, metadata), items);
}

}  // namespace levin
