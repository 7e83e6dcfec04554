#include "levin/trainer/found_option.h"

#include <utility>

#include "levin/trainer/module_access.h"

namespace levin::detail {

void keep_found_option(LightningModule& module, const std::string& name, ConfigNode value) {
  ClassSpec spec = ModuleAccess::made_from(module);
  if (spec.empty()) return;
  spec.init_args.set(name, std::move(value));
  set_made_from(module, std::move(spec));
}

}  // namespace levin::detail
