// Keeps options that modules take from the data: a vocabulary's size, a number of classes.
#pragma once

#include <string>
#include <utility>

#include "levin/trainer/lightning_module.h"

namespace levin {

/// Writes an option's value to the module's made_from(), so that checkpoints contain it and load_for_inference makes
/// the module without the data. Call it in configure_model once the value is known. Does nothing for a module that a
/// program has created directly.
template <class T>
void keep_found_option(LightningModule& module, const std::string& name, const T& value) {
  ClassSpec spec = module.made_from();
  if (spec.empty()) return;
  spec.init_args.set(name, ValueType<T>::write(value));
  module.set_made_from(std::move(spec));
}

}  // namespace levin
