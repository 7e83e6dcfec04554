// The submodules of an exported program: one for each module in Python that holds weights or is called. Internal.
#pragma once

#include <torch/nn/module.h>

#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "levin/core/weight_use.h"
#include "levin/models/exported/graph.h"

namespace levin::exported {

class PartTree {
 public:
  /// Makes submodules of `root` with these names and those around them: `holding`, which hold weights, in the order of
  /// Python's, and `called`, which have a region, in the order of their first calls, each after the one before it.
  /// Blocks "0", "1", … that are all called are a ModuleList's.
  PartTree(torch::nn::Module& root, const std::vector<std::string>& holding, const std::vector<std::string>& called);

  /// The submodule of that name, made if there is none; "": the root.
  torch::nn::Module& at(const std::string& name);
  /// Null if there is none.
  [[nodiscard]] torch::nn::Module* find(const std::string& name) const;
  /// Sets what the program computes with that module's weight. An embedding that is used differently under a second
  /// name counts as an embedding.
  void set_weight_use(const std::string& name, KnowsWeightUse::Known known);

 private:
  struct Branch {
    std::list<std::string> children = {};    // last parts of the names
    std::vector<std::string> holding = {};   // the children with weights
    std::list<std::string>::iterator place;  // in the outer module's children
    std::list<std::string>::iterator next;   // where the next child that is called goes
  };
  Branch& plan(const std::string& name, bool holds);
  [[nodiscard]] bool sort_blocks(const std::string& name, const std::set<std::string>& called);
  void make(const std::string& name, const std::set<std::string>& called);

  std::map<std::string, Branch> branches_ = {};
  std::map<std::string, torch::nn::Module*> modules_ = {};
};

// What a program computes with its modules' weights.

/// Of each parameter called "weight" that an embedding or a convolution of the outermost graph uses: which, by the
/// parameter's full name. An embedding that is also a matrix (tied weights) is an embedding.
[[nodiscard]] std::map<std::string, KnowsWeightUse::Known> weight_uses(const Program& program);

}  // namespace levin::exported
