#include "levin/trainer/run/rank_options.h"

#include "levin/core/component.h"
#include "levin/core/error.h"
#include "levin/core/seed.h"
#include "levin/strategies/process/rank_difference.h"
#include "levin/trainer/lightning_module.h"

namespace levin {

namespace {

// One line per option: "trainer.max_epochs: 3".
void flatten(const ConfigNode& node, const std::string& path, std::string& lines) {
  if (node.may_differ) return;
  for (const auto& entry : node.entries) flatten(entry.value, join_path(path, cut_text(entry.key)), lines);
  for (size_t k = 0; k < node.items.size(); ++k) flatten(node.items[k], path + "[" + std::to_string(k) + "]", lines);
  if (node.entries.empty() && node.items.empty()) lines += path + ": " + to_yaml(node);
}

std::string shown(const std::string& line) {
  return line == "nothing" ? "no such option" : "\"" + line + "\"";
}

void compare_options(RankCollectives& ranks, const ConfigNode& own) {
  std::string lines;
  flatten(own, "", lines);
  const auto different = first_difference(ranks.gather(lines));
  if (!different) return;
  throw ConfigError("ranks differ in their options: rank 0 has " + shown(different->on_rank_zero) + ", rank " +
                    std::to_string(different->rank) + " has " + shown(different->on_rank) +
                    ". Start all ranks with the same configuration.");
}

ConfigNode quoted_text(const std::string& value) {
  return ConfigNode::scalar(value, true);
}

template <class Object>
std::string class_of(const Object& object) {
  return detail::readable_type_name(typeid(object));
}

// The common part of module and data module.
template <class Object>
ConfigNode describe(const Object& object) {
  ConfigNode node = ConfigNode::map();
  node.set("class_path", quoted_text(class_of(object)));
  if constexpr (requires { object.made_from(); }) {
    if (!object.made_from().init_args.is_null()) node.set("init_args", object.made_from().init_args);
  }
  if (!object.hparams().is_null()) node.set("hparams", object.hparams());
  return node;
}

ConfigNode describe(const Optimizer& optimizer) {
  ConfigNode groups = ConfigNode::list();
  for (const auto& group : optimizer.groups()) {
    ConfigNode& node = groups.items.emplace_back(ConfigNode::map());
    node.set("params", ConfigNode::scalar(std::to_string(group.params.size())));
    node.set("lr", ConfigNode::scalar(number_text(group.lr)));
    if (group.has_momentum) node.set("momentum", ConfigNode::scalar(number_text(group.momentum)));
    if (group.has_weight_decay) node.set("weight_decay", ConfigNode::scalar(number_text(group.weight_decay)));
  }
  ConfigNode node = ValueType<ClassSpec>::write({optimizer.name(), optimizer.written_options(), {}});
  node.set("groups", std::move(groups));
  return node;
}

ConfigNode describe(const LRSchedulerConfig& config) {
  ConfigNode node = ValueType<ClassSpec>::write({config.scheduler->name(), config.scheduler->written_options(), {}});
  for (const auto& entry : write_options(config.options).entries) node.set(entry.key, entry.value);
  node.set("optimizer", ConfigNode::scalar(std::to_string(config.optimizer_index)));
  return node;
}

}  // namespace

void check_same_options(Run& run) {
  if (!run.has_peers()) return;
  ConfigNode own = ConfigNode::map();
  own.set("stage", quoted_text(enum_word(*run.entry.stage)));
  own.set("trainer", write_options(run.options));
  own.set("seed", ConfigNode::scalar(std::to_string(default_seed())));
  own.set("ckpt_path", quoted_text(run.entry.ckpt_path));
  if (run.kept_config) {
    for (const auto& entry : run.kept_config->config.entries) {
      if (entry.key != "trainer") own.set(entry.key, entry.value);  // the options of this Trainer are more specific
    }
  }
  if (own.find("model") == nullptr) own.set("model", describe(*run.entry.module));
  if (own.find("data") == nullptr && run.entry.data != nullptr) own.set("data", describe(*run.entry.data));
  compare_options(*run.strategy, own);
}

void check_same_optimizers(RankCollectives& ranks, const Fit& fit) {
  if (ranks.world_size() == 1) return;
  ConfigNode own = ConfigNode::map();
  ConfigNode& optimizers = own.set("optimizer", ConfigNode::list());
  for (const auto& wrapped : fit.optimizers) optimizers.items.push_back(describe(*wrapped.shared()));
  ConfigNode& schedulers = own.set("lr_scheduler", ConfigNode::list());
  for (const auto& config : fit.schedulers) schedulers.items.push_back(describe(config));
  compare_options(ranks, own);
}

void check_same_loaders(RankCollectives& ranks, const std::string& name, const Loaders& loaders) {
  if (ranks.world_size() == 1) return;
  ConfigNode list = ConfigNode::list();
  for (const auto& loader : loaders) {
    ConfigNode& node = list.items.emplace_back(ConfigNode::map());
    const Loader& one = *loader;
    node.set("class_path", quoted_text(class_of(one)));
    const ConfigNode options = one.written_options();
    for (const auto& entry : options.entries) node.set(entry.key, entry.value);
  }
  ConfigNode own = ConfigNode::map();
  own.set(name, std::move(list));
  compare_options(ranks, own);
}

}  // namespace levin
