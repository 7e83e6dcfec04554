// Blocks of a torch::nn::Sequential that have an action (core/module_call.h) are called through it. Internal.
#pragma once

#include <memory>
#include <vector>

namespace torch::nn {
class Module;
class AnyModule;
class SequentialImpl;
}  // namespace torch::nn

namespace levin {

/// During its lifetime, every Sequential within a module calls its blocks through their actions, as one chain from the
/// first such block to the last, and blocks of a range together. Names, parameters and checkpoints do not change; the
/// destructor restores the plain blocks.
class SequentialCalls {
 public:
  explicit SequentialCalls(torch::nn::Module& root);
  /// Does the same for a replica of the module.
  void add(torch::nn::Module& root);
  ~SequentialCalls();
  SequentialCalls(const SequentialCalls&) = delete;
  SequentialCalls& operator=(const SequentialCalls&) = delete;

 private:
  struct Changed;
  void change(const std::shared_ptr<torch::nn::SequentialImpl>& sequential);

  std::vector<Changed> changed_;
};

}  // namespace levin
