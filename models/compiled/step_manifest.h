// The description in a file of tools/compile_step.py: what its graphs take and give (docs/compiled_steps.md has the
// format). Reading it runs no code.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace levin {

/// A tensor that the graphs were compiled for.
struct CompiledTensor {
  std::string name = "";
  std::vector<int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;
};

/// An input or output of a graph: `kind` is batch, tensor, loss, prediction, gradient, buffer or unused.
struct CompiledSlot {
  std::string kind = "";
  std::string name = "";  // of a tensor, gradient or buffer
  size_t index = 0;       // of a batch's tensor
};

struct CompiledGraph {
  bool dynamic_batch = false;  // any size of the batch's first dimension
  std::vector<CompiledSlot> inputs = {};
  std::vector<CompiledSlot> outputs = {};
};

struct StepManifest {
  std::string source = "";  // the Python class
  std::string torch = "";   // version
  std::string device = "";
  std::string machine = "";
  std::string loss = "";
  std::vector<std::string> cpu_flags = {};
  std::vector<std::string> random = {};  // operators that draw random numbers
  std::vector<CompiledTensor> parameters = {};
  std::vector<CompiledTensor> buffers = {};
  std::vector<CompiledTensor> constants = {};  // neither trained nor saved in checkpoints
  std::vector<CompiledTensor> batch = {};
  CompiledGraph training = {};
  CompiledGraph evaluation = {};
};

/// Throws Error naming `path` if the text is not such a description, or names tensors that it does not describe.
[[nodiscard]] StepManifest read_step_manifest(const std::string& text, const std::string& path);

/// Throws Error naming `path`, both sides and a remedy if the code was compiled for another LibTorch, device or CPU.
/// `cpuinfo`: the contents of /proc/cpuinfo.
void check_compiled_for(const StepManifest& manifest, const std::string& path, const std::string& cpuinfo);

}  // namespace levin
