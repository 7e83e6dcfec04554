// The body of a function of the C interface: an exception becomes a status and the text of levin_last_error().
#pragma once

#include <memory>
#include <string>

#include "levin/c/handles.h"
#include "levin/c/levin.h"

namespace levin::c {

/// Sets the calling thread's last error to the text.
void set_last_error(const char* text) noexcept;
[[nodiscard]] const char* last_error() noexcept;

/// Returns the status of the exception that is being handled, and sets the last error to its text after `function`.
[[nodiscard]] levin_status report_exception(const char* function) noexcept;

/// Throws unless levin_init has succeeded.
void check_initialized();

/// Runs `action`, and returns LEVIN_OK, or the status of its exception.
template <class Action>
[[nodiscard]] levin_status call(const char* function, const Action& action) noexcept {
  try {
    check_initialized();
    action();
    set_last_error("");
    return LEVIN_OK;
  } catch (...) {
    return report_exception(function);
  }
}

/// Returns the pointer. Throws InvalidArgument with the argument's name if it is null.
template <class T>
T& given(T* pointer, const char* argument) {
  if (pointer != nullptr) return *pointer;
  throw InvalidArgument(std::string(argument) + " is null. Pass its address.");
}

/// Returns the text of an argument. Throws InvalidArgument if it is null.
[[nodiscard]] inline std::string text_of(const char* text, const char* argument) {
  return &given(text, argument);
}

}  // namespace levin::c
