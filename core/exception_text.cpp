#include "levin/core/exception_text.h"

#include <cxxabi.h>

#include "levin/core/component.h"

namespace levin {

std::string exception_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    const std::string name = type == nullptr ? "that is unknown" : detail::readable_type_name(*type);
    return "an exception of type " + name + ", which is not a std::exception";
  }
}

}  // namespace levin
