// Which parts of a module are on which devices, by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "levin/strategies/device_slot.h"

namespace torch::nn {
class Module;
}

namespace levin {

/// One slot, or several: the part is data parallel over them.
using PlacedOn = std::variant<int64_t, std::vector<int64_t>>;
/// Patterns of submodules' names, as a shell has them ("encoder", "net.[0-2]", "blocks.*"), with their places.
using Placement = std::map<std::string, PlacedOn>;

/// A submodule that is computed where its name says.
struct PlacedPart {
  std::string name;
  torch::nn::Module* module = nullptr;
  std::vector<DeviceSlot> slots = {};
  bool inside_another = false;  // of a part that is elsewhere
};

/// The parts of `module`, outer ones first, in the order they were registered: the submodules whose names match,
/// without those that lie within a part of the same place. Of several patterns that match a name, the name itself
/// counts. Throws ConfigError, below `path`, for a pattern that matches no submodule (with the nearest names), a slot
/// that is not there, and a name that is sent to two places.
[[nodiscard]] std::vector<PlacedPart> placed_parts(const torch::nn::Module& module, const Placement& placement,
                                                   const std::vector<DeviceSlot>& slots, const std::string& path);

}  // namespace levin
