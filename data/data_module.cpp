#include "levin/data/data_module.h"

#include "levin/core/process/console.h"

namespace levin {

std::vector<std::string> class_texts(const at::Tensor& numbers, const std::vector<std::string>& names) {
  const at::Tensor here = numbers.cpu().contiguous();
  const int64_t* number = here.const_data_ptr<int64_t>();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < here.numel(); ++i) {
    const bool known = number[i] >= 0 && number[i] < std::ssize(names);
    texts.push_back(known ? names[static_cast<size_t>(number[i])] : std::to_string(number[i]));
  }
  return texts;
}

std::vector<std::string> DataModule::prediction_text(const at::Tensor& prediction) const {
  const std::vector<std::string> names = label_names();
  if (names.empty() || prediction.dim() != 1 || prediction.scalar_type() != at::kLong) return {};
  return class_texts(prediction, names);
}

namespace detail {

void warn_of_unknown_classes(const std::string& who, const std::string& source) {
  Console::instance().warn(who + ": the names of the classes are unknown, because neither a checkpoint nor " + source +
                           " has them. Predicted classes are written as numbers alone.");
}

}  // namespace detail

}  // namespace levin
