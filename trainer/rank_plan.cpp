#include "levin/trainer/rank_plan.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "levin/strategies/cluster_environment.h"

namespace levin {

namespace {

// Devices that were asked for on each node; unset: auto.
std::optional<int64_t> wanted_devices(const TrainerOptions& o, Problems& problems) {
  if (const auto* count = std::get_if<int64_t>(&o.devices)) {
    if (*count == -1) return std::nullopt;
    if (*count >= 1) return *count;
    problems.add({}, "TrainerOptions.devices", std::to_string(*count) + " is not a number of devices. Use auto or 1.");
    return 1;
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&o.devices)) return static_cast<int64_t>(list->size());
  const auto& text = std::get<std::string>(o.devices);
  if (text == "auto" || text == "-1") return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1) return value;
  problems.add({}, "TrainerOptions.devices", "\"" + text + "\" is not a number of devices. Use auto or 1.");
  return 1;
}

// What the options and the launcher say must be one.
void check_world(const World& world, std::optional<int64_t> devices, int64_t num_nodes, Problems& problems) {
  const bool nodes_given = num_nodes != 1;
  const int64_t per_node = devices.value_or(world.local_size);
  const int64_t nodes = nodes_given ? num_nodes : devices ? std::max<int64_t>(1, world.num_nodes) : world.num_nodes;
  if (per_node * nodes == world.size && per_node == world.local_size) return;
  problems.add({}, "TrainerOptions.devices",
               std::to_string(per_node) + " devices x " + std::to_string(nodes) + " nodes are " +
                   std::to_string(per_node * nodes) + " ranks, but " + world.source + " has started " +
                   std::to_string(world.size) + " (" + std::to_string(world.local_size) +
                   " on this node). Make both the same, or leave devices and num_nodes unset.");
}

}  // namespace

void resolve_ranks(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  std::optional<int64_t> devices = wanted_devices(o, problems);
  std::optional<World> world;
  try {
    world = find_world(process_variables());
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add({}, "", problem);
    return;
  }
  const bool several = world ? world->size > 1 : devices.value_or(1) * o.num_nodes > 1;
  const bool by_itself = o.strategy.empty() || o.strategy.is_name("auto");
  bool distributed = by_itself && several;
  plan.strategy = distributed ? "ddp" : "single_device";
  if (!by_itself) {
    try {
      Component<Strategy> choice = o.strategy;
      const auto strategy = choice.object("TrainerOptions.strategy");
      distributed = strategy->is_distributed();
      plan.strategy = strategy->name();
    } catch (const ConfigError& error) {
      for (const auto& problem : error.problems()) problems.add({}, "", problem);
      return;
    }
  }
  if (!distributed) {
    const std::string one = plan.strategy + " runs on one";
    if (devices.value_or(1) > 1) {
      problems.add({}, "TrainerOptions.devices",
                   std::to_string(*devices) + " devices were asked for; " + one + ". Use 1, or strategy: ddp.");
    }
    if (o.num_nodes > 1) {
      problems.add(
          {}, "TrainerOptions.num_nodes",
          std::to_string(o.num_nodes) + " nodes need a distributed strategy; " + one + " node. Use ddp, or 1.");
    }
    return;
  }
  if (world) check_world(*world, devices, o.num_nodes, problems);
  plan.devices = world ? world->local_size : devices.value_or(1);
  plan.num_nodes = world ? world->num_nodes : o.num_nodes;
}

}  // namespace levin
