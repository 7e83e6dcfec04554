// Records the memory and time of a model's blocks in one step, forward and backward. Internal.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <c10/core/StorageImpl.h>

#include <chrono>
#include <memory>
#include <set>
#include <vector>

#include "levin/core/module_call.h"
#include "levin/recompute/memory_meter.h"

namespace levin {

// Note [How the chain of blocks is seen]
// Blocks are submodules that are called through actions (blocks of Sequentials, levin::call, levin::call_chain) outside
// of each other. What runs before, between and after them is a station of the chain too, without a module. The forward
// pass is observed through the calls, the backward pass through hooks on the borders, the tensors passed from one
// station to the next: when the gradient of a station's output arrives, its backward begins. The allocator reports the
// memory at every border and the peak in between. Whether backward needs a border is known when the backward of the
// station that produced it begins: by then nothing else holds it.

/// A part of the pass, forward or backward.
struct Stretch {
  int64_t before = 0;  // bytes in use at its beginning
  int64_t peak = 0;    // the most within
  int64_t after = 0;
  int64_t freed = 0;  // bytes of borders that went
  int64_t late = 0;   // the part of it that was no longer needed when it began
  double seconds = 0;
};

/// A block, or what ran between two.
struct Station {
  const torch::nn::Module* module = nullptr;  // null: between blocks
  Stretch forward = {};
  Stretch backward = {};
  bool has_backward = false;    // a gradient came to its output
  int64_t output = 0;           // bytes of its output that are new memory
  int64_t passed_on = 0;        // and as far as they lie in what it was given (a view, or written in place)
  int64_t output_gradient = 0;  // bytes of the gradient that came
  bool takes_previous = false;  // it is a block and was given what the one before, also a block, returned
  bool returns_input = false;   // a block whose output is its input: it did nothing
  bool changes_input = false;   // a block that writes into what it was given
  bool holds_input = false;     // a block whose graph holds what it was given
  bool output_there = false;    // when its backward begins, its output is still held
  bool input_there = false;     // … the output of the one before
  size_t blocks_within = 0;     // submodules called within it that could be blocks themselves
};

/// One pass; constructed for each.
class ChainRecorder {
 public:
  /// `known`: tensors that exist anyway (weights, the batch).
  ChainRecorder(MemoryMeter& meter, const std::vector<at::Tensor>& known);
  ~ChainRecorder();
  ChainRecorder(const ChainRecorder&) = delete;
  ChainRecorder& operator=(const ChainRecorder&) = delete;

  void begin_forward();
  /// The forward pass of a submodule; blocks within a block are not looked at.
  TensorList around(const torch::nn::Module* module, const ModuleForward& forward, const TensorList& inputs);
  /// After training_step has returned, and its autocast is over.
  void end_forward(const at::Tensor& loss);
  void begin_backward();
  void end_backward();

  /// All stations, once the pass is over; the last one ends with the loss.
  [[nodiscard]] const std::vector<Station>& stations() const { return stations_; }
  /// Whether backward reached the borders in a different order than a chain's.
  [[nodiscard]] bool out_of_order() const { return out_of_order_; }

 private:
  // The tensors passed from one station to the next.
  struct Border {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages = {};
    const c10::TensorImpl* tensor = nullptr;  // the first, to know it again; may be gone
    int64_t bytes = 0;                        // new ones
    bool gone = false;
    [[nodiscard]] bool is_there() const;
    /// Whether `one` is the first tensor, and not a later tensor at the same address.
    [[nodiscard]] bool is(const at::Tensor& one) const;
  };

  void open();
  Stretch close();
  void add_station(const torch::nn::Module* module, const Stretch& forward, const TensorList& outputs);
  void watch_gradient(const TensorList& outputs, size_t station);
  void reach(size_t station, const at::Tensor& gradient);

  MemoryMeter& meter_;
  std::set<const c10::StorageImpl*> known_ = {};
  std::vector<Station> stations_ = {};
  std::vector<Border> borders_ = {};  // of the stations
  size_t in_backward_ = 0;            // the station whose backward runs
  bool out_of_order_ = false;
  bool within_ = false;                            // a block
  std::set<const torch::nn::Module*> inner_ = {};  // called within it
  int64_t before_ = 0;
  std::chrono::steady_clock::time_point begun_ = {};
};

}  // namespace levin
