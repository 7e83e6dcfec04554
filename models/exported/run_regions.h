// Runs a graph whose submodules have actions (core/module_call.h): recomputation, placement on devices. Internal.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/models/exported/bound_graph.h"
#include "levin/models/exported/regions.h"
#include "levin/models/exported/run_graph.h"

namespace levin::exported {

/// A tensor that belongs to the program: a parameter, a buffer or a constant.
struct HeldTensor {
  const at::Tensor* tensor = nullptr;
  std::string name = {};       // the first of its names
  bool is_registered = false;  // with a module: what moves the module moves it
};

// Note [How a region is called]
// A region of a module with actions is a ModuleForward: the tensors that come in from outside of it, to those that are
// used outside. It runs on values of its own, so that it can run again, later or on copies of its inputs. The weights
// registered in its module are not among its inputs; all others are, tied ones and constants too, and so an action that
// moves inputs moves them. Numbers (sizes) that come in are kept with the call, and those that go out bypass the
// actions. Without actions a region is not noticed.
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
  void act(const Acting& acting, ChainPlace place, Values& outer, const RunOptions& options) const;
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
