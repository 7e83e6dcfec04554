#include "levin/trainer/step/out_of_memory.h"

#include <c10/util/Exception.h>

#include <array>
#include <new>
#include <string_view>

#include "levin/libtorch/device_memory.h"

namespace levin {

namespace {

// LibTorch 2.11 throws a plain c10::Error on a CPU (c10/core/impl/alloc_cpu.cpp), and so do its checks of libraries'
// status; workers of several devices wrap it in an Error with the same text.
constexpr std::array<std::string_view, 6> kTexts{"DefaultCPUAllocator: can't allocate memory",
                                                 "DefaultCPUAllocator: not enough memory",
                                                 "out of memory",
                                                 "std::bad_alloc",
                                                 "CUBLAS_STATUS_ALLOC_FAILED",
                                                 "CUDNN_STATUS_ALLOC_FAILED"};

// oneDNN's error where it has no memory for the code that it generates. What it does not support fails before that,
// when it creates a "primitive descriptor".
bool is_of_primitive(std::string_view text) {
  constexpr std::string_view start = "could not create a primitive";
  const size_t at = text.find(start);
  return at != std::string_view::npos && !text.substr(at + start.size()).starts_with(" descriptor");
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string_view text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  for (const auto& known : kTexts) {
    if (text.find(known) != std::string_view::npos) return true;
  }
  return is_of_primitive(text);
}

void free_cached_memory(at::Device device) {
  if (!device.is_cpu()) empty_device_cache(device);
}

}  // namespace levin
