#include "levin/trainer/plan/rank_plan.h"

#include <algorithm>
#include <optional>

#include "levin/core/options/error.h"
#include "levin/core/process/threads.h"
#include "levin/strategies/accelerator.h"
#include "levin/strategies/launch/cluster_environment.h"
#include "levin/trainer/plan/devices.h"

namespace levin {

namespace {

constexpr int64_t kMaxCpuSlots = 1024;

void add_contradiction(int64_t per_node, int64_t nodes, const std::string& started, Problems& problems) {
  problems.add({}, "TrainerOptions.devices",
               count_of(per_node, "device") + " x " + count_of(nodes, "node") +
                   (per_node * nodes == 1 ? " is " : " are ") + count_of(per_node * nodes, "rank") + ", but " +
                   started + ". Make both the same, or leave devices and num_nodes unset.");
}

// The options and the launcher must agree.
void check_world(const World& world, std::optional<int64_t> devices, int64_t num_nodes, Problems& problems) {
  const bool nodes_given = num_nodes != 1;
  const int64_t per_node = devices.value_or(world.local_size);
  const int64_t nodes = nodes_given ? num_nodes : devices ? std::max<int64_t>(1, world.num_nodes) : world.num_nodes;
  const bool devices_agree = !devices || *devices == world.local_size;
  const bool nodes_agree = !nodes_given || num_nodes == world.num_nodes;
  if (devices_agree && nodes_agree) return;  // nodes may have different numbers of ranks
  add_contradiction(per_node, nodes,
                    world.source + " has started " + std::to_string(world.size) + " (" +
                        std::to_string(world.local_size) + " on this node)",
                    problems);
}

// Before manually started ranks are connected, their number on this node is unknown. One device then means one per
// process.
void check_unplaced(const World& world, std::optional<int64_t> devices, int64_t num_nodes, Problems& problems) {
  const int64_t per_node = devices.value_or(1);
  if (per_node < 1 || num_nodes < 1) return;  // reported elsewhere
  if (num_nodes != 1) {
    if (world.size % num_nodes == 0 && (per_node == 1 || per_node * num_nodes == world.size)) return;
  } else if (world.size % per_node == 0) {
    return;
  }
  add_contradiction(per_node, num_nodes, world.source + " has started " + std::to_string(world.size), problems);
}

// Slot k of a strategy that runs several devices in this process: the k-th GPU of the plan, or a logical CPU device.
std::vector<DeviceSlot> slots_of(const RunPlan& plan, std::optional<int64_t> devices) {
  if (plan.device == "cpu") return cpu_slots(devices.value_or(1));
  std::vector<DeviceSlot> slots;
  for (const int64_t index : plan.device_indices) {
    const at::Device device(*accelerator_type(plan.device), static_cast<c10::DeviceIndex>(index));
    slots.push_back({static_cast<int64_t>(slots.size()), device});
  }
  return slots;
}

// There is one process, regardless of what has started it.
void check_one_process(const TrainerOptions& o, const std::optional<World>& world, const RunPlan& plan,
                       Problems& problems) {
  const bool too_many_ranks = world && world->size > 1;
  if (too_many_ranks) {
    problems.add({}, "TrainerOptions.strategy",
                 plan.strategy + " is one process on several devices, but " + world->source + " has started " +
                     std::to_string(world->size) + ". Start one, or use ddp.");
  }
  if (o.num_nodes > 1) {
    problems.add({}, "TrainerOptions.num_nodes",
                 count_of(o.num_nodes, "node") + " need a distributed strategy; " + plan.strategy +
                     " is one process on one node. Use ddp, or 1.");
  }
}

// The number of processes that Levin would start. Two ranks on one core are slow; a thousand ranks bring the machine
// down.
void check_cores(const TrainerOptions& o, const RunPlan& plan, Problems& problems) {
  const UsableCores cores = usable_cores();
  if (o.oversubscribe || plan.devices <= cores.count) return;
  const std::string limit = cores.limit.empty() ? "" : ", by " + cores.limit;
  problems.add({}, "TrainerOptions.devices",
               count_of(plan.devices, "rank") + " on this machine, and it has " + count_of(cores.count, "core") +
                   " for them" + limit +
                   ". Start fewer, or set oversubscribe: true if that many are meant to share the cores.");
}

// c10d's groups of ranks are made for tensors of the CPU and of CUDA.
void check_ranks(const RunPlan& plan, Problems& problems) {
  if (plan.device == "cpu" || plan.device == "cuda") return;
  problems.add({}, "TrainerOptions.strategy",
               plan.strategy + " is not yet supported with accelerator: " + plan.device +
                   ": several ranks need the CPU or GPUs of CUDA. Use devices: 1, or dp for several devices of one "
                   "process.");
}

void check_gpus(const RunPlan& plan, int64_t ranks, Problems& problems) {
  const auto present = std::max<int64_t>(1, static_cast<int64_t>(plan.device_indices.size()));
  if (present >= ranks) return;
  problems.add({}, "TrainerOptions.devices",
               count_of(ranks, "rank") + " on this node need a GPU each, and there are " + std::to_string(present) +
                   ". Start fewer ranks, or use accelerator: cpu.");
}

// A manually started rank with devices: 1 takes the GPU with its index on this node.
void offer_all_gpus(const TrainerOptions& o, RunPlan& plan) {
  if (plan.device != "cuda" || !std::holds_alternative<int64_t>(o.devices)) return;
  TrainerOptions all = o;
  all.devices = "auto";
  Problems ignored;
  (void)resolve_devices(all, plan, ignored);
}

}  // namespace

std::string why_not_planned(const Strategy& strategy) {
  if (strategy.sharding().shards_modules())
    return "with strategy " + strategy.name() + " ranks hold shards of the model";
  if (strategy.placement().takes_several_devices())
    return "strategy " + strategy.name() + " computes on several devices";
  return "";
}

void check_found_place(const TrainerOptions& o, const RunPlan& plan, const World& world) {
  Problems problems;
  RunPlan ignored = plan;
  std::optional<int64_t> devices = resolve_devices(o, ignored, problems);
  if (devices == 1) devices.reset();
  check_world(world, devices, o.num_nodes, problems);
  if (plan.device == "cuda") check_gpus(plan, world.local_size, problems);
  problems.throw_if_any();
}

void resolve_ranks(const TrainerOptions& o, RunPlan& plan, Problems& problems) {
  const std::optional<int64_t> devices = resolve_devices(o, plan, problems);
  const int64_t present =
      plan.device_indices.empty() ? 1 : static_cast<int64_t>(plan.device_indices.size());  // the meaning of auto
  std::optional<World> world;
  try {
    world = find_world(process_variables());
  } catch (const ConfigError& error) {
    for (const auto& problem : error.problems()) problems.add({}, "", problem);
    return;
  }
  const bool several = world ? world->size > 1 : devices.value_or(present) * o.num_nodes > 1;
  const bool by_itself = o.strategy.empty() || o.strategy.is_name("auto");
  bool distributed = by_itself && several;
  plan.strategy = distributed ? "ddp" : "single_device";
  if (!by_itself) {
    try {
      Component<Strategy> choice = o.strategy;
      const auto strategy = choice.object("TrainerOptions.strategy");
      distributed = strategy->ranks().is_distributed();
      plan.strategy = strategy->name();
      if (const std::string why = why_not_planned(*strategy); o.recompute.is_planned() && !why.empty()) {
        problems.add({}, "TrainerOptions.recompute",
                     why +
                         ", and the planner knows steps on one device only. Write the segments yourself: recompute: "
                         "{modules: [NAMES]}.");
      }
      if (strategy->placement().takes_several_devices()) {
        check_one_process(o, world, plan, problems);
        if (plan.device == "cpu" && devices.value_or(1) > kMaxCpuSlots) {
          problems.add({}, "TrainerOptions.devices",
                       std::to_string(*devices) + " parts of one CPU need a thread and a replica each. Use at most " +
                           std::to_string(kMaxCpuSlots) + ".");
          return;
        }
        plan.slots = slots_of(plan, devices);
        return;
      }
    } catch (const ConfigError& error) {
      for (const auto& problem : error.problems()) problems.add({}, "", problem);
      return;
    }
  }
  if (!distributed) {
    if (!plan.device_indices.empty()) plan.device_indices.resize(1);
    const std::string one = plan.strategy + " runs on one";
    if (devices.value_or(1) > 1) {
      problems.add({}, "TrainerOptions.devices",
                   count_of(*devices, "device") + " were asked for; " + one + ". Use 1, or strategy: ddp.");
    }
    if (o.num_nodes > 1) {
      problems.add({}, "TrainerOptions.num_nodes",
                   count_of(o.num_nodes, "node") + " need a distributed strategy; " + one + " node. Use ddp, or 1.");
    }
    return;
  }
  check_ranks(plan, problems);
  if (world) (world->place_is_known ? check_world : check_unplaced)(*world, devices, o.num_nodes, problems);
  plan.devices = world ? world->local_size : devices.value_or(present);
  plan.num_nodes = world ? world->num_nodes : o.num_nodes;
  if (!world && plan.device == "cpu") check_cores(o, plan, problems);
  if (world && !world->place_is_known && devices == 1) offer_all_gpus(o, plan);
  if (plan.device == "cuda") check_gpus(plan, plan.devices, problems);
}

}  // namespace levin
