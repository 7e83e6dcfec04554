#include "levin/models/exported/read_tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "levin/core/error.h"
#include "levin/models/exported/schema_types.h"

namespace levin::exported {

namespace {

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
  if (place.sizes.size() != place.strides.size()) meta.refuse("has another number of sizes than of strides");
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
      entry.refuse("shares \"" + cut_text(file) + "\" with a tensor of another type, and one of the two is bool");
    }
    if (place.dtype == at::kBool && !holds_bools(memory)) {
      entry.refuse("is of bool, and \"" + cut_text(file) + "\" holds a byte other than 0 and 1, \"" + cut_text(name) +
                   "\"");
    }
    known = at::empty({0}, at::TensorOptions(place.dtype));
    known.set_(memory.storage(), place.offset, place.sizes, place.strides);
    // Autograd detects a change of a tensor that it saved by this counter, also if another tensor's name is written to.
    known.unsafeGetTensorImpl()->set_version_counter(memory.unsafeGetTensorImpl()->version_counter());
    return known;
  }

 private:
  const ZipArchive& archive_;
  const std::string& folder_;
  std::map<std::string, at::Tensor> bytes_ = {};
  std::map<std::string, bool> is_bool_ = {};
  std::map<std::pair<std::string, Place>, at::Tensor> tensors_ = {};
};

}  // namespace

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

}  // namespace levin::exported
