// Levin's ranges (training_step, backward, …) as NVTX ranges, for NVIDIA's Nsight Systems:
//
//   nsys profile levin fit --config run.yaml --trainer.profiler=nvtx
//
// Nothing is measured here; without a tool a range costs some nanoseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/profilers/profiler.h"

namespace levin {

/// Functions that open and close a range on the calling thread; the ranges of a thread nest.
struct Nvtx {
  void (*push)(const char* name) = nullptr;
  void (*pop)() = nullptr;
  std::string source = "";  // their provider
};

/// Finds NVTX in `library` (a path, or a name that the loader finds); with "" from LibTorch's CUDA part if it is
/// loaded, else from NVIDIA's library. Throws ConfigError naming what was tried.
[[nodiscard]] Nvtx find_nvtx(const std::string& library = "");

/// Options of NvtxProfiler.
struct NvtxProfilerOptions {
  bool operators = false;
  std::string library = "";

  template <class = void>
  static auto fields() {
    using O = NvtxProfilerOptions;
    return levin::fields(
        field("operators", &O::operators, "a range for every operator of LibTorch too"),
        field("library", &O::library, "NVTX library to open; empty: LibTorch's own, else NVIDIA's where it is found"));
  }
};

/// A profiler that reports actions as NVTX ranges.
class NvtxProfiler final : public Profiler {
 public:
  using Options = NvtxProfilerOptions;
  explicit NvtxProfiler(Defaults = {}) : NvtxProfiler(NvtxProfilerOptions()) {}
  explicit NvtxProfiler(NvtxProfilerOptions options);
  ~NvtxProfiler() override;

  /// Throws ConfigError if NVTX is not available.
  void begin(const ProfiledRun&) override;
  void end() override;
  void start(const char* action) override;
  /// Ends the innermost running `action`, and ranges that were started in it and not stopped.
  void stop(const char* action) override;
  [[nodiscard]] std::string summary() const override;

 private:
  NvtxProfilerOptions options_;
  Nvtx nvtx_ = {};
  std::vector<const char*> open_ = {};
  uint64_t operators_handle_ = 0;  // 0: not observed
};

}  // namespace levin
