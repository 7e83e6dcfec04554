// Keeps options that modules take from the data: a vocabulary's size, a number of classes.
#pragma once

#include <string>
#include <utility>

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/module_access.h"

namespace levin {

/// Writes an option's value to the options that the module was created from, so that checkpoints contain it and
/// load_for_inference makes the module without the data. Call it in configure_model once the value is known. Does
/// nothing for a module that a program has created directly.
template <class T>
void keep_found_option(LightningModule& module, const std::string& name, const T& value) {
  ClassSpec spec = ModuleAccess::made_from(module);
  if (spec.empty()) return;
  spec.init_args.set(name, ValueType<T>::write(value));
  set_made_from(module, std::move(spec));
}

}  // namespace levin
