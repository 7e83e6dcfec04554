// Keeps options that modules take from the data: a vocabulary's size, a number of classes.
#pragma once

#include <string>

#include "levin/trainer/lightning_module.h"

namespace levin {

namespace detail {
void keep_found_option(LightningModule& module, const std::string& name, ConfigNode value);
}  // namespace detail

/// Writes an option's value to the options that the module was created from, so that checkpoints contain it and
/// load_for_inference makes the module without the data. Call it in configure_model once the value is known. Does
/// nothing for a module that a program has created directly.
template <class T>
void keep_found_option(LightningModule& module, const std::string& name, const T& value) {
  detail::keep_found_option(module, name, ValueType<T>::write(value));
}

}  // namespace levin
