#include "levin/models/exported/layer_checks.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "levin/core/error.h"

namespace levin::exported {

namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

int64_t product_from(c10::IntArrayRef sizes, size_t first) {
  int64_t product = 1;
  for (size_t k = first; k < sizes.size(); ++k) product *= sizes[k];
  return product;
}

[[noreturn]] void refuse(const char* values, c10::IntArrayRef sizes, const char* remedy) {
  throw Error(std::string("Expected more than 1 ") + values + " when training, got input size " + c10::str(sizes) +
              ". " + remedy);
}

constexpr const char* kLargerBatch =
    "Leave out an epoch's last batch where it is too small (drop_last: true), or choose another batch size.";

// Python: torch.nn.functional._verify_batch_size
void check_batch_norm(const Arguments& arguments) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (input.dim() >= 2 && input.size(0) * product_from(input.sizes(), 2) == 1) {
    refuse("value per channel", input.sizes(), kLargerBatch);
  }
}

// Python: torch.nn.functional._verify_spatial_size
void check_instance_norm(const Arguments& arguments) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (product_from(input.sizes(), 2) == 1) {
    refuse("spatial element", input.sizes(), "Give it larger inputs, or a model without this instance norm.");
  }
}

void check_group_norm(const Arguments& arguments, int64_t groups) {
  const at::Tensor& input = arguments.at(0).toTensor();
  if (input.dim() < 2 || groups < 1) return;  // the operator's own errors
  if (input.size(0) * input.size(1) / groups * product_from(input.sizes(), 2) == 1) {
    refuse("value per channel", input.sizes(), kLargerBatch);
  }
}

}  // namespace

std::function<void(const Arguments&)> layer_check(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  if (name == "aten::group_norm" || name == "aten::native_group_norm") {
    const auto groups = schema.argumentIndexWithName(name == "aten::group_norm" ? "num_groups" : "group");
    if (!groups) return {};
    return [at = static_cast<size_t>(*groups)](const Arguments& arguments) {
      check_group_norm(arguments, arguments.at(at).toInt());
    };
  }
  const bool is_instance = name == "aten::instance_norm";
  if (!is_instance && name.find("batch_norm") == std::string::npos) return {};
  const auto trains = schema.argumentIndexWithName(is_instance ? "use_input_stats" : "training");
  if (!trains) return {};
  return [at = static_cast<size_t>(*trains), is_instance](const Arguments& arguments) {
    if (!arguments.at(at).toBool()) return;
    is_instance ? check_instance_norm(arguments) : check_batch_norm(arguments);
  };
}

}  // namespace levin::exported
