// The assignment of a module's parts to devices, by name.
#pragma once

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "levin/strategies/device_placement.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// One slot, or several: the part is data parallel over them.
using PlacedOn = std::variant<int64_t, std::vector<int64_t>>;
/// Shell patterns of submodule names ("encoder", "net.[0-2]", "blocks.*"), with their devices.
using Placement = std::map<std::string, PlacedOn>;

/// A submodule that a placement assigns to slots.
struct PlacedPart {
  std::string name;
  torch::nn::Module* module = nullptr;
  std::vector<DeviceSlot> slots = {};
  bool inside_another = false;  // it is within a part on other slots
};

/// Returns the parts of `module`, outer ones first, in registration order: the submodules whose names match, except
/// those within a part on the same slots. If several patterns match a name, the name itself takes precedence. Throws
/// ConfigError, below `path`, for a pattern that matches no submodule (with the most similar names), a slot that does
/// not exist, and a name that two patterns place on different slots.
[[nodiscard]] std::vector<PlacedPart> placed_parts(const torch::nn::Module& module, const Placement& placement,
                                                   const std::vector<DeviceSlot>& slots, const std::string& path);

/// The computations on each slot in the order in which they began, and the transfers between slots. For tests, and for
/// measuring transfers.
struct PlacementTrace {
  /// One computation of a part on a slot.
  struct Event {
    std::string what;  // "forward" of a part, or "F" and "B" of a pipeline's stage
    std::string part;  // or the stage's parts
    std::string slot;  // "cpu:1"
    int64_t micro_batch = 0;
  };
  std::vector<Event> events = {};  // while recording
  int64_t transfers = 0;           // tensors that went from one slot to another in forward passes
  int64_t transferred_bytes = 0;
};

/// A trace that several threads may add to.
class PlacementRecorder {
 public:
  void set_recording(bool on);
  void add(PlacementTrace::Event event);
  void add_transfer(const at::Tensor& tensor, const DeviceSlot& from, const DeviceSlot& to);
  [[nodiscard]] PlacementTrace trace() const;
  void clear();

 private:
  mutable std::mutex mutex_;
  bool recording_ = false;
  PlacementTrace trace_;
};

}  // namespace levin
