// The description in a file of tools/compile_step.py: what its graphs take and give (docs/compiled_steps.md has the
// format). Reading it runs no code.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/libtorch/compiled_library.h"

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

/// Throws Error naming `path`, both sides and a remedy if the code was compiled for a different LibTorch, device or
/// CPU. `cpuinfo`: the contents of /proc/cpuinfo.
void check_compiled_for(const StepManifest& manifest, const std::string& path, const std::string& cpuinfo);

// A file of tools/compile_step.py: a zip archive in PyTorch's layout (.pt2) with a description, weights, and a shared
// library for each graph. Opening it and reading weights runs no code; load() does.

class StepFile {
 public:
  /// Throws Error naming the path if it is missing, damaged or no such file.
  explicit StepFile(std::string path);
  ~StepFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const StepManifest& manifest() const { return manifest_; }

  /// Returns all parameters, buffers and constants by name. Throws Error if one is missing or its shape is not as
  /// described.
  [[nodiscard]] std::map<std::string, at::Tensor> read_weights() const;

  /// Loads the code of "training" or "evaluation" from memory: nothing is unpacked to a disk, so nothing is left there
  /// however the process ends. Throws Error with the loader's own words.
  [[nodiscard]] std::unique_ptr<CompiledLibrary> load(const std::string& graph) const;

 private:
  [[nodiscard]] std::string record(const std::string& name) const;

  std::string path_;
  std::unique_ptr<ArchiveReader> reader_;
  StepManifest manifest_;
};

// The backward of a compiled step: the gradients are there when its loss is, and wait for autograd to ask for them.

/// Gives `loss`, a scalar without a graph, one whose backward adds `gradients[k]`, times the gradient of the loss, to
/// `parameters[k]`: what autograd does for a step that is not compiled, hooks and reducers included. An undefined
/// gradient adds nothing. Works once: a second backward through it throws Error.
void attach_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                      std::vector<at::Tensor> gradients);

}  // namespace levin
