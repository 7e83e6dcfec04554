#include "levin/profilers/nvtx_profiler.h"

#include <ATen/record_function.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <vector>

#include "levin/core/options/error.h"
#include "levin/libtorch/profiler.h"

namespace levin {

namespace {

using RangePush = int (*)(const char*);
using RangePop = int (*)();
RangePush range_push = nullptr;  // of the library that was opened last
RangePop range_pop = nullptr;

// "" if the library serves; else why not.
std::string open_library(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: ranges may be pushed at any time
  if (library == nullptr) return ::dlerror();
  auto* push = reinterpret_cast<RangePush>(::dlsym(library, "nvtxRangePushA"));
  auto* pop = reinterpret_cast<RangePop>(::dlsym(library, "nvtxRangePop"));
  if (push == nullptr || pop == nullptr) return name + " has no nvtxRangePushA and nvtxRangePop";
  range_push = push;
  range_pop = pop;
  return "";
}

Nvtx of_library(const std::string& name) {
  return {[](const char* text) { (void)range_push(text); }, [] { (void)range_pop(); }, name};
}

// LibTorch takes plain functions as observers; operators run on several threads, NVTX keeps a stack for each.
Nvtx operator_ranges;

std::unique_ptr<at::ObserverContext> push_operator(const at::RecordFunction& call) {
  operator_ranges.push(call.name());
  return nullptr;
}

void pop_operator(const at::RecordFunction&, at::ObserverContext*) {
  operator_ranges.pop();
}

}  // namespace

Nvtx find_nvtx(const std::string& library) {
  if (!library.empty()) {
    const std::string problem = open_library(library);
    if (problem.empty()) return of_library(library);
    throw ConfigError("NvtxProfilerOptions.library: " + problem +
                      ". Give the path of libnvToolsExt.so.1, or leave it unset.");
  }
  // NVTX itself is a header that LibTorch's CUDA part was compiled with.
  if (CudaRanges::exist()) return {&CudaRanges::push, &CudaRanges::pop, "LibTorch"};
  const std::vector<std::string> names{"libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"};
  for (const auto& name : names) {
    if (open_library(name).empty()) return of_library(name);
  }
  throw ConfigError("trainer.profiler: nvtx: NVTX is not available: LibTorch's CUDA part is not loaded, and none of " +
                    join(names) +
                    " is found. Train with accelerator: gpu, name a library in NvtxProfilerOptions.library, "
                    "or use the profiler trace, which needs none.");
}

NvtxProfiler::NvtxProfiler(NvtxProfilerOptions options) : options_(checked(std::move(options), "NvtxProfilerOptions")) {
  if (!options_.library.empty()) nvtx_ = find_nvtx(options_.library);  // a wrong path is reported before anything runs
}

NvtxProfiler::~NvtxProfiler() {
  end();
}

void NvtxProfiler::begin(const ProfiledRun&) {
  nvtx_ = find_nvtx(options_.library);
  if (!options_.operators) return;
  operator_ranges = nvtx_;
  operators_handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(push_operator, pop_operator)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

void NvtxProfiler::end() {
  if (operators_handle_ != 0) at::removeCallback(operators_handle_);
  operators_handle_ = 0;
  while (!open_.empty()) {
    nvtx_.pop();
    open_.pop_back();
  }
}

void NvtxProfiler::start(const char* action) {
  if (nvtx_.push == nullptr) return;
  nvtx_.push(action);
  open_.push_back(action);
}

void NvtxProfiler::stop(const char* action) {
  for (size_t depth = open_.size(); depth > 0; --depth) {
    if (std::strcmp(open_[depth - 1], action) != 0) continue;
    for (; open_.size() >= depth; open_.pop_back()) nvtx_.pop();
    return;
  }
}

std::string NvtxProfiler::summary() const {
  return "NVTX ranges were given through " + nvtx_.source + "; a tool such as nsys records them.";
}

}  // namespace levin
