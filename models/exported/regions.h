// Which calls of a graph belong to which module of the Python program. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/run_graph.h"

namespace torch::nn {
class Module;
}

namespace levin::exported {

// Note [Regions of an exported program]
// Each operator of an exported graph lists the calls of modules in which it was recorded, outermost first. The
// consecutive operators of one call of a module are a region, and calls within that call are regions inside it. An
// operator without this list (the export has inserted it) belongs to the region around it. A module that is called
// twice has two regions, and so has a module whose operators were moved apart. A list of modules, which Python does not
// call, has a region from the first operator of its first block to the last operator of its last block, unless it
// begins within the region of a different list. For any file, regions nest and never overlap in part: each region can
// be run by itself, from the values that come in to the values that are used outside.

struct Region;

/// Regions in one list whose modules have the same parent ("h.0", "h.1", …): the blocks of a chain, in the order of
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

// Runs a graph whose submodules have actions (core/module_call.h): recomputation, placement on devices.

/// A tensor that belongs to the program: a parameter, a buffer or a constant.
struct HeldTensor {
  const at::Tensor* tensor = nullptr;
  std::string name = {};       // the first of its names
  bool is_registered = false;  // with a module: what moves the module moves it
};

// Note [How a region is called]
// A region of a module with actions is a ModuleForward: a function from the tensors that come in from outside to the
// tensors that are used outside. It runs on values of its own, so that it can run again, later or on copies of its
// inputs. The weights registered in its module are not among its inputs. All other tensors are, tied weights and
// constants too, so that an action that moves inputs moves them. Numbers (sizes) that come in are kept with the call,
// and numbers that go out bypass the actions. A region without actions has no effect.
class RegionRuns {
 public:
  /// Of a graph, with the tensors that it gets as inputs, by value. All must live as long as this, and as backward
  /// passes through it.
  RegionRuns(const BoundGraph& graph, RegionList regions, std::map<size_t, HeldTensor> held);

  /// One value for each output, as run_graph. Throws Error that names a module whose region cannot be run by itself.
  [[nodiscard]] std::vector<c10::IValue> run(std::vector<c10::IValue> inputs, const RunOptions& options) const;

 private:
  // Calls [begin, end), and the regions among them: [from, to) of a list.
  struct Span {
    const RegionList* list = nullptr;
    size_t from = 0, to = 0;
    size_t begin = 0, end = 0;
    std::vector<std::string> modules = {};                 // whose region it is; several: of a range
    std::shared_ptr<const CallActions::Range> range = {};  // these blocks of one chain
    size_t chain = 0;                                      // of the range
    [[nodiscard]] std::string name() const;
  };
  struct Border;
  // A span with actions.
  struct Acting {
    Span span;
    const CallActions::List* actions = nullptr;
  };
  struct Call;

  [[nodiscard]] Acting region_at(const Span& span, size_t place) const;
  [[nodiscard]] bool is_chain(const Acting& first, const Acting& second) const;
  void walk(const Span& span, Values& values, const RunOptions& options) const;
  void act(const Acting& acting, ChainPosition place, Values& outer, const RunOptions& options) const;
  TensorList run_alone(const Span& span, const Border& border, Call& call, const TensorList& given) const;
  void check_unchanged(const Span& span, const Call& call, const TensorList& given,
                       const std::vector<int64_t>& versions) const;
  [[nodiscard]] std::shared_ptr<const Border> border_of(const Span& span) const;
  [[nodiscard]] std::shared_ptr<const Border> make_border(const Span& span) const;
  [[nodiscard]] bool is_own(size_t value, const Span& span) const;

  const BoundGraph& graph_;
  RegionList regions_;
  std::map<size_t, HeldTensor> held_;
  std::vector<size_t> defined_;  // by value: the call; SIZE_MAX: an input of the graph
  std::vector<size_t> last_;     // by value: the last call that uses it; SIZE_MAX: an output of the graph
  mutable std::mutex mutex_ = {};
  mutable std::map<std::tuple<size_t, size_t, std::string>, std::shared_ptr<const Border>> borders_ = {};
};

}  // namespace levin::exported
