// Registers a class of a user's program, so that YAML may name it. One line at namespace scope, in a .cpp file:
//
//   LEVIN_REGISTER_MODEL(Classifier, "a multilayer perceptron");
//   LEVIN_REGISTER_CALLBACK(PrintLoss, "prints the loss of every epoch");
//
// Levin's own classes do not use it: a static library drops a file that nothing refers to (builtins.cpp names them).
#pragma once

#include "levin/core/registry.h"

#define LEVIN_REGISTER(Interface, Class, doc)                                                               \
  [[maybe_unused]] static const bool levin_registered_##Class = [] {                                        \
    ::levin::Registry<::levin::Interface>::instance().template add<Class>(#Class, doc, __FILE__, __LINE__); \
    return true;                                                                                            \
  }()

#define LEVIN_REGISTER_MODEL(Class, doc) LEVIN_REGISTER(LightningModule, Class, doc)
#define LEVIN_REGISTER_DATA(Class, doc) LEVIN_REGISTER(DataModule, Class, doc)
#define LEVIN_REGISTER_CALLBACK(Class, doc) LEVIN_REGISTER(Callback, Class, doc)
#define LEVIN_REGISTER_LOGGER(Class, doc) LEVIN_REGISTER(Logger, Class, doc)
#define LEVIN_REGISTER_PRECISION(Class, doc) LEVIN_REGISTER(Precision, Class, doc)
#define LEVIN_REGISTER_OPTIMIZER(Class, doc) LEVIN_REGISTER(Optimizer, Class, doc)
#define LEVIN_REGISTER_LR_SCHEDULER(Class, doc) LEVIN_REGISTER(LRScheduler, Class, doc)
