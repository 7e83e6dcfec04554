#include "levin/trainer/step/step_context.h"

#include <algorithm>

#include "levin/core/options/error.h"

namespace levin {

std::string about_output(std::string_view name) {
  return "step_output(\"" + cut_text(std::string(name)) + "\"): ";
}

void check_output_name(std::string_view name, bool is_taken) {
  if (name.empty()) throw Error("step_output: an output needs a name.");
  if (is_taken) throw Error(about_output(name) + "was called twice in one step. Give each output a name of its own.");
}

void add_output(StepContext::Outputs& outputs, std::string_view name, const at::Tensor& value) {
  const bool is_taken =
      std::any_of(outputs.begin(), outputs.end(), [&](const auto& other) { return other.first == name; });
  check_output_name(name, is_taken);
  outputs.emplace_back(name, value.defined() ? value.detach() : value);
}

}  // namespace levin
