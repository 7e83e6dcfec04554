// A file of tools/compile_step.py: a zip archive in PyTorch's layout (.pt2) with a description, weights, and a shared
// library for each graph. Opening it and reading weights runs no code; load() does.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/models/compiled/step_manifest.h"

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace torch::inductor {
class AOTIModelContainerRunnerCpu;
}

namespace levin {

/// A graph of a file, as native code in this process.
class CompiledLibrary {
 public:
  explicit CompiledLibrary(std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner);
  ~CompiledLibrary();

  /// Runs the graph on tensors of the shapes that it was compiled for, which it does not check. One thread at a time.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner_;
};

class StepFile {
 public:
  /// Throws Error naming the path if it is missing, damaged or no such file.
  explicit StepFile(std::string path);
  ~StepFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const StepManifest& manifest() const { return manifest_; }

  /// All parameters, buffers and constants by name. Throws Error if one is missing or of another shape than described.
  [[nodiscard]] std::map<std::string, at::Tensor> read_weights() const;

  /// Loads the code of "training" or "evaluation" from memory: nothing is unpacked to a disk, so nothing is left there
  /// however the process ends. Throws Error with the loader's own words.
  [[nodiscard]] std::unique_ptr<CompiledLibrary> load(const std::string& graph) const;

 private:
  [[nodiscard]] std::string record(const std::string& name) const;

  std::string path_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  StepManifest manifest_;
};

}  // namespace levin
