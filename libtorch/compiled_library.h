// AOTInductor's loader of compiled graphs. Its runner takes other arguments in LibTorch 2.6. Internal.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace caffe2::serialize {
class PyTorchStreamReader;
}
namespace torch::inductor {
class AOTIModelContainerRunnerCpu;
}

namespace levin {

using ArchiveReader = caffe2::serialize::PyTorchStreamReader;

/// A compiled graph, as native code in this process.
class CompiledLibrary {
 public:
  /// Throws the system loader's error if the shared library cannot be loaded.
  explicit CompiledLibrary(const std::string& path);
  ~CompiledLibrary();

  /// Runs the graph on tensors of the shapes that it was compiled for, which it does not check. One thread at a time.
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner_;
};

}  // namespace levin
