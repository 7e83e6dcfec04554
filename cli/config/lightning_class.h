// A class of a LightningCLI file, {class_path: lightning.pytorch.callbacks.EarlyStopping, init_args: {…}}, as Levin's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "levin/core/registry.h"

namespace levin {

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
