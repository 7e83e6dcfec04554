#include "levin/profilers/nvtx_profiler.h"

#include <ATen/record_function.h>

#include <cstring>
#include <memory>

namespace levin {

namespace {

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
