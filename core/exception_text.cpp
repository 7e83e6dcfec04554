#include "levin/core/exception_text.h"

#include <ATen/core/Tensor.h>
#include <cxxabi.h>

#include "levin/core/component.h"

namespace levin {

std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return exception_text(known);
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    const std::string name = type == nullptr ? "that is unknown" : detail::readable_type_name(*type);
    return "an exception of type " + name + ", which is not a std::exception";
  }
}

std::string exception_text(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  if (text.ends_with("map::at"))
    text += ": a map was asked for a key that it does not hold, e.g. for a metric that was not logged.";
  return text;
}

}  // namespace levin
