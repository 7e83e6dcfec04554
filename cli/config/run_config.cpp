#include "levin/cli/config/run_config.h"

namespace levin {

template <class Spec>
bool ClassWithMore<Spec>::read(const ConfigNode& node, Spec& value, const std::string& path, Problems& problems) {
  value = Spec{};
  if (!node.is_map()) {
    ClassSpec spec;
    const bool good = ValueType<ClassSpec>::read(node, spec, path, problems);
    value.class_path = spec.class_path;
    value.mark = spec.mark;
    return good;
  }
  bool good = read_options(node, value, path, problems);
  const ConfigNode* name = node.find("class_path");
  value.mark = name != nullptr ? name->mark : node.mark;
  if (good && value.class_path.empty()) {
    std::string more;
    for (const auto& field : field_names<Spec>()) {
      if (field != "class_path" && field != "init_args") more += ", " + field + ": …";
    }
    problems.add(value.mark, path, "class_path is missing: write {class_path: NAME, init_args: {…}" + more + "}.");
    good = false;
  }
  return good;
}

template <class Spec>
ConfigNode ClassWithMore<Spec>::write(const Spec& value) {
  ConfigNode node = write_options(value);
  if (value.init_args.is_null()) node.erase("init_args");
  return node;
}

template struct ClassWithMore<LrSchedulerSpec>;
template struct ClassWithMore<OptimizerSpec>;

std::optional<int64_t> RunConfig::seed() const {
  if (!seed_everything) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&*seed_everything)) return *number;
  return std::get<bool>(*seed_everything) ? std::optional<int64_t>(0) : std::nullopt;
}

// The range of Lightning's seeds, which NumPy sets.
bool RunConfig::is_seed(const std::optional<std::variant<int64_t, bool>>& seed) {
  const auto* number = seed ? std::get_if<int64_t>(&*seed) : nullptr;
  return number == nullptr || (*number >= 0 && *number <= 4294967295);
}

RunConfig read_run_config(const ConfigNode& config, Problems& problems) {
  RunConfig run;
  ConfigNode listed = config;
  if (ConfigNode* plugins = listed.find("plugins"); plugins != nullptr && plugins->is_scalar()) {  // a single one
    const Mark mark = plugins->mark;
    *plugins = ConfigNode::list({*plugins});
    plugins->mark = mark;
  }
  read_options(listed, run, "", problems);
  if (!run.trainer.is_null() && !run.trainer.is_map()) detail::expected("a map", run.trainer, "trainer", problems);
  return run;
}

}  // namespace levin
