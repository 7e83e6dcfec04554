#include "levin/trainer/step_output.h"

#include "levin/core/options/error.h"

namespace levin {

const at::Tensor* StepOutput::find(std::string_view name) const {
  for (const auto& [own, value] : named_) {
    if (own == name) return &value;
  }
  return nullptr;
}

const at::Tensor& StepOutput::operator[](std::string_view name) const {
  if (const at::Tensor* found = find(name)) return *found;
  const std::string wanted = cut_text(std::string(name));
  throw Error("step_output: the step has published no \"" + wanted + "\"." + did_you_mean(wanted, names()) +
              " It has published: " + join(names()) + ". Call step_output(\"" + wanted +
              "\", tensor) in the step, and read it in the hooks after its batch.");
}

std::vector<std::string> StepOutput::names() const {
  std::vector<std::string> all;
  for (const auto& [name, value] : named_) all.push_back(name);
  return all;
}

}  // namespace levin
