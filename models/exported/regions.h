// Which calls of a graph belong to which module of the Python program. Internal.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "levin/models/exported/bound_graph.h"

namespace torch::nn {
class Module;
}

namespace levin::exported {

// Note [Regions of an exported program]
// Each operator of an exported graph says in which calls of modules it was recorded, outermost first. The consecutive
// operators of one call of a module are a region; those of calls within it are regions inside. An operator that does
// not say it (the export has inserted it) belongs to the region around it. A module that is called twice has two
// regions, and so has one whose operators something has moved apart. A list of modules, which Python does not call, has
// one from the first operator of its first block to the last of its last, with what the model does in between, unless
// it begins within another list's. Whatever the file says, regions nest and no operator is in two that do not: any of
// them can be run by itself, from the values that come in to those that are used outside.

struct Region;

/// Regions of modules of one parent ("h.0", "h.1", …) among those of a list: the blocks of a chain, in the order of
/// their calls.
struct RegionChain {
  std::vector<const torch::nn::Module*> blocks = {};
  std::vector<size_t> places = {};  // of the regions in the list
};

struct RegionList {
  std::vector<Region> regions;  // in their order
  std::vector<RegionChain> chains;
};

struct Region {
  std::string module;  // qualified name
  size_t begin = 0;    // calls [begin, end) of the graph
  size_t end = 0;
  RegionList inside = {};
  const torch::nn::Module* object = nullptr;  // of that name; null: there is none
  size_t chain = 0;                           // in its list
  size_t place = 0;                           // in the chain's blocks
};

/// The regions of a graph, without their modules and chains.
[[nodiscard]] std::vector<Region> regions_of(const BoundGraph& graph);

/// Names of the modules that have one, each once, in the order of the calls.
[[nodiscard]] std::vector<std::string> region_modules(const std::vector<Region>& regions);

/// The same regions with the modules that `find` gives for their names, and chains.
[[nodiscard]] RegionList with_modules(std::vector<Region> regions,
                                      const std::function<const torch::nn::Module*(const std::string&)>& find);

/// Whether a C++ module can have this name; "layers.slice(0, 2).0" and "" are none.
[[nodiscard]] bool is_module_name(const std::string& name);

/// "a.b" of "a.b.c"; "" of "a".
[[nodiscard]] std::string parent_name(const std::string& name);

}  // namespace levin::exported
