#include "levin/models/exported/check_inputs.h"

#include <map>

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin::exported {

namespace {

std::string shape_text(const InputShape& shape) {
  std::string text = "(";
  for (size_t k = 0; k < shape.sizes.size(); ++k) {
    text += k == 0 ? "" : ", ";
    const std::string symbol = shape.symbols[k].empty() ? "?" : shape.symbols[k];
    text += shape.sizes[k] >= 0 ? std::to_string(shape.sizes[k]) : cut_text(symbol);
  }
  return text + ")";
}

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t k = 0; k < tensor.dim(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(tensor.size(k));
  return text + ")";
}

// float32 and bfloat16 are of one kind: a run's precision may change the one into the other.
int kind_of(c10::ScalarType dtype) {
  if (dtype == c10::kBool) return 0;
  return c10::isIntegralType(dtype, /*includeBool=*/false) ? 1 : (c10::isComplexType(dtype) ? 3 : 2);
}

bool sizes_fit(const InputShape& shape, const at::Tensor& tensor, std::map<std::string, int64_t>& sizes) {
  if (tensor.dim() != static_cast<int64_t>(shape.sizes.size())) return false;
  for (size_t k = 0; k < shape.sizes.size(); ++k) {
    const int64_t size = tensor.size(static_cast<int64_t>(k));
    if (shape.sizes[k] >= 0 && shape.sizes[k] != size) return false;
    if (shape.sizes[k] >= 0 || shape.symbols[k].empty()) continue;
    if (sizes.emplace(shape.symbols[k], size).first->second != size) return false;
  }
  return true;
}

}  // namespace

void check_inputs(const std::vector<InputSpec>& inputs, const std::vector<SizeRange>& ranges,
                  const std::vector<at::Tensor>& given, const std::string& path) {
  size_t next = 0;
  std::map<std::string, int64_t> sizes;
  for (const InputSpec& input : inputs) {
    if (input.kind != InputSpec::Kind::user) continue;
    const at::Tensor& tensor = given.at(next++);
    if (!tensor.defined()) throw Error(path + ": input \"" + input.name + "\" is an undefined tensor.");
    if (kind_of(tensor.scalar_type()) != kind_of(input.shape.dtype)) {
      throw Error(path + ": input \"" + input.name + "\" is " + c10::toString(tensor.scalar_type()) +
                  ", and the program was exported for " + c10::toString(input.shape.dtype) + ".");
    }
    if (sizes_fit(input.shape, tensor, sizes)) continue;
    throw Error(path + ": input \"" + input.name + "\" has the shape " + shape_text(tensor) +
                ", and the program was exported for " + shape_text(input.shape) +
                ". Export it with dynamic_shapes where a size should vary.");
  }
  for (const SizeRange& range : ranges) {
    const auto found = sizes.find(range.symbol);
    // As PyTorch: a least size of 2 comes from the export, which never looks at 0 and 1, and not from the model.
    if (found == sizes.end() || ((range.least <= 2 || found->second >= range.least) && found->second <= range.most))
      continue;
    throw Error(path + ": a size is " + std::to_string(found->second) + ", and the program was exported for sizes " +
                cut_text(range.symbol) + " from " + std::to_string(range.least) + " to " + std::to_string(range.most) +
                ".");
  }
}

}  // namespace levin::exported
