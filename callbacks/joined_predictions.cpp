#include "levin/callbacks/joined_predictions.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "levin/checkpoint/safetensors.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/options/error.h"

namespace levin {

namespace {

constexpr uint64_t kMaxMetadataBytes = 16 << 20;  // of a list of strings in the header of a safetensors file

// A tensor of the file: all blocks of a column, or one of them if their shapes differ.
struct JoinedTensor {
  SafetensorsItem item = {};  // without memory
  const JoinedColumn* column = nullptr;
};

at::Tensor without_memory(const RowShape& shape, int64_t rows) {
  return at::empty(shape.of_rows(rows), at::TensorOptions().dtype(shape.type).device(at::kMeta));
}

std::vector<JoinedTensor> tensors_of(const std::string& name, const JoinedColumn& column) {
  SpoolReader reader(column.spools);
  std::vector<std::pair<RowShape, int64_t>> blocks;  // runs of blocks of one shape
  bool is_one = true;
  for (SpoolBlock block; reader.next(block);) {
    const RowShape& shape = column.shapes[reader.spool()].at(static_cast<size_t>(block.shape));
    if (is_one && !blocks.empty() && blocks[0].first == shape) {
      blocks[0].second += block.rows;
      continue;
    }
    is_one = is_one && blocks.empty();
    blocks.emplace_back(shape, block.rows);
    if (blocks[0].first.type != shape.type) {
      throw Error("PredictionWriter: " + name + " is of " + c10::toString(blocks[0].first.type) +
                  " in some batches and of " + c10::toString(shape.type) +
                  " in others. Return or publish the same type for all.");
    }
  }
  if (is_one && blocks.size() == 1) {
    return {{{name, without_memory(blocks[0].first, blocks[0].second)}, &column}};
  }
  std::vector<JoinedTensor> tensors;
  SpoolReader again(column.spools);
  for (SpoolBlock block; again.next(block);) {
    const RowShape& shape = column.shapes[again.spool()].at(static_cast<size_t>(block.shape));
    tensors.push_back({{name + ".batch" + std::to_string(tensors.size()), without_memory(shape, block.rows)}, &column});
  }
  return tensors;
}

// Concatenates the blocks of strings to one list in JSON.
template <class Take>
void copy_list(const std::vector<std::string>& spools, const Take& take) {
  take("[");
  bool is_first = true;
  copy_blocks(spools, [&](const SpoolBlock& block, SpoolReader& reader) {
    if (!std::exchange(is_first, false) && block.bytes > 0) take(",");
    reader.copy(take);
  });
  take("]");
}

// The header of a .npy file, version 1.0 of NumPy's format.
std::string npy_header(const RowShape& shape, int64_t rows, const std::string& name) {
  static const std::map<at::ScalarType, const char*> types = {
      {at::kBool, "|b1"},         {at::kByte, "|u1"},          {at::kChar, "|i1"},   {at::kShort, "<i2"},
      {at::kInt, "<i4"},          {at::kLong, "<i8"},          {at::kUInt16, "<u2"}, {at::kUInt32, "<u4"},
      {at::kUInt64, "<u8"},       {at::kHalf, "<f2"},          {at::kFloat, "<f4"},  {at::kDouble, "<f8"},
      {at::kComplexFloat, "<c8"}, {at::kComplexDouble, "<c16"}};
  const auto type = types.find(shape.type);
  if (type == types.end()) {
    throw Error("PredictionWriter: " + name + " is of " + c10::toString(shape.type) +
                ", which .npy cannot hold. Convert it, or write .safetensors.");
  }
  std::string sizes;
  for (const int64_t size : shape.of_rows(rows)) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (shape.sizes.empty()) sizes += ",";
  std::string text =
      std::string("{'descr': '") + type->second + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  constexpr size_t kPreamble = 10, kAlignment = 64;
  text.append((kAlignment - (kPreamble + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

void write_joined_tensors(const std::string& path, const JoinedColumns& joined) {
  std::set<int64_t> loaders;
  for (const auto& [place, column] : joined) loaders.insert(place.second);
  std::vector<JoinedTensor> tensors;
  SafetensorsMetadata metadata;
  for (const auto& [place, column] : joined) {
    const std::string name =
        place.first + (loaders.size() > 1 ? ".loader" + std::to_string(place.second) : std::string());
    if (!column.shapes[0].empty()) {
      for (JoinedTensor& tensor : tensors_of(name, column)) tensors.push_back(std::move(tensor));
      continue;
    }
    uint64_t bytes = 0;
    copy_list(column.spools, [&](std::string_view piece) { bytes += piece.size(); });
    if (bytes <= kMaxMetadataBytes) {
      std::string list;
      copy_list(column.spools, [&](std::string_view piece) { list += piece; });
      metadata.emplace_back(name, list);
    } else {
      tensors.push_back({{name + ".json", without_memory({at::kByte, {}}, static_cast<int64_t>(bytes))}, &column});
    }
  }
  // Wide elements first, so that each tensor is aligned to its elements.
  std::stable_sort(tensors.begin(), tensors.end(), [](const JoinedTensor& a, const JoinedTensor& b) {
    return a.item.tensor.element_size() > b.item.tensor.element_size();
  });
  std::vector<SafetensorsItem> items;
  for (const JoinedTensor& tensor : tensors) items.push_back(tensor.item);
  UnfinishedFile file(path);
  const auto write = [&](std::string_view piece) { file.write(piece); };
  file.write(safetensors_header(items, metadata));
  const JoinedColumn* before = nullptr;  // blocks of different shapes are tensors of one column, in order
  for (const JoinedTensor& tensor : tensors) {
    const JoinedColumn* column = std::exchange(before, tensor.column);
    if (column == tensor.column) continue;
    if (tensor.column->shapes[0].empty()) {
      copy_list(tensor.column->spools, write);
    } else {
      copy_blocks(tensor.column->spools, [&](const SpoolBlock&, SpoolReader& reader) { reader.copy(write); });
    }
  }
  file.finish();
}

void write_joined_array(const std::string& path, const JoinedColumns& joined) {
  std::vector<JoinedTensor> tensors;
  for (const auto& [place, column] : joined) {
    for (JoinedTensor& tensor : tensors_of(place.first, column)) tensors.push_back(std::move(tensor));
  }
  if (tensors.size() != 1) {
    std::vector<std::string> names;
    for (const JoinedTensor& tensor : tensors) names.push_back(tensor.item.name);
    throw Error(
        "PredictionWriter: " + path + " holds one array, and there are " +
        (names.empty() ? "no predictions" : std::to_string(names.size()) + ": " + cut_text(levin::join(names))) +
        ". Write .safetensors, or return one tensor of the same shape for each sample.");
  }
  const at::Tensor& all = tensors[0].item.tensor;
  UnfinishedFile file(path);
  file.write(npy_header({all.scalar_type(), all.sizes().slice(1).vec()}, all.size(0), tensors[0].item.name));
  copy_blocks(tensors[0].column->spools, [&](const SpoolBlock&, SpoolReader& reader) {
    reader.copy([&](std::string_view piece) { file.write(piece); });
  });
  file.finish();
}

}  // namespace levin
