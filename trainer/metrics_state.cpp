// The accumulated values of a MetricStore, for a checkpoint inside an epoch: reads device values.

#include "levin/trainer/metrics.h"

namespace levin {

namespace {

Hook hook_called(const std::string& name) {
  for (int k = 0; k < kHooks; ++k) {
    if (name == hook_name(static_cast<Hook>(k))) return static_cast<Hook>(k);
  }
  throw CheckpointError("saved metrics: there is no hook \"" + name +
                        "\". The checkpoint was written by a different version of Levin.");
}

}  // namespace

State MetricStore::state_dict() const {
  State all;
  ConfigNode slots = ConfigNode::list();
  for (const Slot& slot : slots_) {
    // In a run that fails, a metric that was a variable of a step may be gone; the end of the epoch reports it.
    const bool is_lost = slot.is_object && slot.states.empty() && slot.object.expired();
    State one;
    one.set("hook", std::string(hook_name(slot.hook)));
    one.set("name", slot.name);
    one.set("dataloader_idx", slot.dataloader_idx);
    one.set("on_step", slot.on_step);
    one.set("on_epoch", slot.on_epoch);
    one.set("prog_bar", slot.prog_bar);
    one.set("logger", slot.logger);
    one.set("add_suffix", slot.add_suffix);
    one.set("reduce", slot.reduce);
    one.set("sync_dist", slot.sync_dist);
    one.set("used", slot.used && !is_lost);
    one.set("last", slot.on_step && slot.used && !is_lost ? step_value(slot) : slot.last);
    one.set("last_weight", slot.last_weight);
    one.set("total", slot.is_object                ? object_value_so_far(slot)
                     : slot.device_total.defined() ? slot.device_total.item().toDouble()
                                                   : slot.total);
    one.set("weight", slot.weight);
    one.set("is_object", slot.is_object);
    if (slot.is_object && slot.used && !is_lost)
      all.put("object" + std::to_string(slots.items.size()), object_state(slot));
    slots.items.push_back(one.values);
  }
  all.values.set("slots", slots);
  return all;
}

void MetricStore::load_state_dict(const State& saved) {
  slots_.clear();
  by_name_.clear();
  cursor_ = 0;
  for (const ConfigNode& node : saved.get<ConfigNode>("slots").items) {
    State one;
    one.values = node;
    Slot slot{hook_called(one.get<std::string>("hook")),
              one.get<std::string>("name"),
              one.get<int64_t>("dataloader_idx"),
              one.get<bool>("on_step"),
              one.get<bool>("on_epoch"),
              one.get<bool>("prog_bar"),
              one.get<bool>("logger"),
              one.get<bool>("add_suffix"),
              one.get<ReduceFx>("reduce"),
              one.get<bool>("sync_dist")};
    any_step_sync_ = any_step_sync_ || (slot.on_step && slot.sync_dist);
    slot.used = one.get<bool>("used");
    slot.last = one.get<double>("last");
    slot.last_weight = one.has("last_weight") ? one.get<double>("last_weight") : 1;
    slot.total = one.get<double>("total");
    slot.weight = one.get<double>("weight");
    slot.is_object = one.has("is_object") && one.get<bool>("is_object");
    if (slot.is_object && slot.used) slot.states = saved.part("object" + std::to_string(slots_.size()));
    slot.synced = slot.is_object;  // until it is logged again, its value is the saved one
    add_slot(std::move(slot));
  }
}

}  // namespace levin
