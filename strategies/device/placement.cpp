#include "levin/strategies/device/placement.h"

#include <fnmatch.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/value.h"

namespace levin {

namespace {

std::vector<int64_t> indices_of(const PlacedOn& place) {
  if (const auto* one = std::get_if<int64_t>(&place)) return {*one};
  return std::get<std::vector<int64_t>>(place);
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void check_places(const Placement& placement, const std::vector<std::string>& names, size_t num_slots,
                  const std::string& path, Problems& problems) {
  for (const auto& [pattern, place] : placement) {
    const std::string here = join_path(path, pattern);
    const auto indices = indices_of(place);
    if (indices.empty()) problems.add({}, here, "the list of devices is empty. Give at least one index.");
    for (const int64_t index : indices) {
      if (index >= 0 && index < static_cast<int64_t>(num_slots)) continue;
      problems.add({}, here,
                   std::to_string(index) + " is not the index of a device: the run has " + std::to_string(num_slots) +
                       " (0 to " + std::to_string(num_slots - 1) + "). Correct it, or set TrainerOptions.devices.");
    }
    if (std::any_of(names.begin(), names.end(),
                    [&wanted = pattern](const auto& name) { return matches(wanted, name); }))
      continue;
    problems.add({}, here,
                 "no submodule's name matches \"" + pattern + "\"." + did_you_mean(pattern, names) +
                     " Submodules: " + join(names) + ".");
  }
}

// The devices of the pattern that matches `name`, if there is one.
std::optional<PlacedOn> place_of(const Placement& placement, const std::string& name, const std::string& path,
                                 Problems& problems) {
  if (const auto own = placement.find(name); own != placement.end()) return own->second;
  const std::pair<const std::string, PlacedOn>* found = nullptr;
  for (const auto& entry : placement) {
    if (!matches(entry.first, name)) continue;
    if (found != nullptr && found->second != entry.second) {
      problems.add({}, path,
                   "\"" + found->first + "\" and \"" + entry.first + "\" place " + name +
                       " on different devices. Add an entry with its full name.");
    }
    if (found == nullptr) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional<PlacedOn>(found->second);
}

}  // namespace

std::vector<PlacedPart> placed_parts(const torch::nn::Module& module, const Placement& placement,
                                     const std::vector<DeviceSlot>& slots, const std::string& path) {
  const auto modules = module.named_modules("", /*include_self=*/false);  // outer ones first
  Problems problems;
  check_places(placement, modules.keys(), slots.size(), path, problems);
  std::map<std::string, PlacedOn> places;  // by name, for every submodule that a pattern matches or that is inside one
  std::vector<PlacedPart> parts;
  for (const auto& item : modules) {
    const std::string& name = item.key();
    const size_t dot = name.rfind('.');
    const auto parent = dot == std::string::npos ? places.end() : places.find(name.substr(0, dot));
    const auto own = place_of(placement, name, path, problems);
    if (!own) {
      if (parent != places.end()) places.emplace(name, parent->second);
      continue;
    }
    places.emplace(name, *own);
    if (parent != places.end() && parent->second == *own) continue;
    PlacedPart part{name, item.value().get(), {}, parent != places.end()};
    for (const int64_t index : indices_of(*own)) {
      if (index >= 0 && index < static_cast<int64_t>(slots.size()))
        part.slots.push_back(slots[static_cast<size_t>(index)]);
    }
    parts.push_back(std::move(part));
  }
  problems.throw_if_any();
  return parts;
}

void PlacementRecorder::set_recording(bool on) {
  const std::lock_guard lock(mutex_);
  recording_ = on;
}

void PlacementRecorder::add(PlacementTrace::Event event) {
  const std::lock_guard lock(mutex_);
  if (recording_) trace_.events.push_back(std::move(event));
}

void PlacementRecorder::add_transfer(const at::Tensor& tensor, const DeviceSlot& from, const DeviceSlot& to) {
  if (!tensor.defined() || from == to) return;
  const std::lock_guard lock(mutex_);
  ++trace_.transfers;
  trace_.transferred_bytes += static_cast<int64_t>(tensor.nbytes());
}

PlacementTrace PlacementRecorder::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

void PlacementRecorder::clear() {
  const std::lock_guard lock(mutex_);
  trace_ = {};
}

}  // namespace levin
