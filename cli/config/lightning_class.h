// A class of a LightningCLI file, {class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {…}}, as Levin's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/options/config_node.h"
#include "levin/core/options/registry.h"

namespace levin {

// --- Values in a LightningCLI file that have no meaning here, or a different form.

/// Whether an option that Levin does not have requests what Levin does anyway: null, or Lightning's default.
[[nodiscard]] bool asks_for_nothing(const std::string& option, const ConfigNode& value);

/// Whether it contains "${…}" of OmegaConf, which Levin does not expand.
[[nodiscard]] bool has_interpolation(const ConfigNode& value);

/// A time span as Python prints it ("1 day, 2:30:00", "0:30:00", {hours: 2, minutes: 30}) as DD:HH:MM:SS; unset if it
/// has none of these forms.
[[nodiscard]] std::optional<ConfigNode> from_timedelta(const ConfigNode& value);

/// The known classes of one interface, and the remedy for unknown ones.
struct KnownClasses {
  std::function<ClassSpec(const ClassSpec&, const std::string& path, Problems&)> resolve;
  std::function<const ClassEntry*(const std::string& name)> find;
  std::string instead = "";
};

template <class Interface>
KnownClasses known_classes(const std::string& instead) {
  const auto& registry = Registry<Interface>::instance();
  return {[&registry](const ClassSpec& spec, const std::string& path, Problems& problems) {
            return registry.resolve(spec, path, problems);
          },
          [&registry](const std::string& name) -> const ClassEntry* { return registry.find(name); }, instead};
}

/// Collects the options that translations leave out.
struct TranslationNotes {
  Problems& left_out;
  std::vector<std::string>& notes;

  /// Notes it, and leaves a comment with the reason and the value in `container`.
  void leave_out(ConfigNode& container, const ConfigEntry& entry, const std::string& path, const std::string& why);
};

/// {class_path, init_args} or a name, as it stands at `path`. Options that Levin's class does not have are left out;
/// unset, with the reason in `problem`, if the class is unknown or requires what was left out.
[[nodiscard]] std::optional<ConfigNode> translate_class(const ConfigNode& written, const std::string& path,
                                                        const KnownClasses& known, TranslationNotes& notes,
                                                        std::string& problem);

}  // namespace levin
