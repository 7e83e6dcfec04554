// Which submodules of a model are the blocks of its chain: what the planner may compute again. Internal.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "levin/core/module_call.h"

namespace levin {

class ChainRecorder;

// Note [Which submodules are blocks]
// The blocks of every outermost torch::nn::Sequential, and submodules that levin::call or levin::call_chain calls, as
// long as they are not called from within a block. A Sequential of fewer than four blocks that are Sequentials
// themselves is only a container, and so is a torch::nn::ModuleList (nothing calls it but an exported program, of whose
// operators a list has a region): their blocks count instead. So do the blocks within one that holds most of what a
// step keeps, such as a wrapper around the whole model: computing it again would save nothing, since its backward needs
// all of it at once. Neighbours can be computed again together if they are
// blocks of one Sequential, or of one list that levin::call_chain calls.

/// During its lifetime, calls of possible blocks go through the recorder set last.
class ChainBlocks {
 public:
  explicit ChainBlocks(torch::nn::Module& root);
  ~ChainBlocks();
  ChainBlocks(const ChainBlocks&) = delete;
  ChainBlocks& operator=(const ChainBlocks&) = delete;

  /// With null, calls are not recorded.
  void set_recorder(ChainRecorder* recorder) { *recorder_ = recorder; }
  /// Whether the blocks within `block` are recorded instead of the block itself.
  void open(const torch::nn::Module* block);
  void close(const torch::nn::Module* block);
  /// After a first pass: only these are recorded from here on.
  void keep_only(const std::set<const torch::nn::Module*>& blocks);

  struct Place {
    std::string name = "";
    const torch::nn::Module* parent = nullptr;  // the Sequential or list; null: stands alone
    size_t index = 0;                           // in it
  };
  /// Of a block. After a first pass.
  [[nodiscard]] Place place_of(const torch::nn::Module* block) const;

 private:
  class Watch;
  class ListWatch;
  void collect(torch::nn::Module& module, const std::string& prefix);

  std::shared_ptr<ChainRecorder*> recorder_ = std::make_shared<ChainRecorder*>(nullptr);
  std::map<const torch::nn::Module*, Place> places_ = {};
  std::map<const torch::nn::Module*, std::shared_ptr<CallAction>> watches_ = {};
  std::map<const torch::nn::Module*, std::shared_ptr<ListWatch>> lists_ = {};  // that levin::call_chain may call
};

}  // namespace levin
