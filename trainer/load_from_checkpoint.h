// Creates a module from a checkpoint: from the hyper-parameters in the file, with the file's weights.
//
//   auto model = levin::load_from_checkpoint<Classifier>("checkpoints/last.ckpt");
//   levin::Trainer().test(*model, data);
#pragma once

#include <memory>
#include <string>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/weights.h"
#include "levin/core/options/fields.h"

namespace levin {

/// Returns a module with the checkpoint's hyper-parameters and weights, on the CPU. `Module` has `using Options = …` (a
/// struct with fields(), see core/options/fields.h) and a constructor that takes it and calls
/// save_hyperparameters(options); or it has a default constructor. `strict`: false loads the weights that match and
/// reports the rest. Throws CheckpointError for a file that is missing, damaged, or whose weights do not fit, and
/// ConfigError for hyper-parameters that the options do not have.
template <class Module>
[[nodiscard]] std::shared_ptr<Module> load_from_checkpoint(const std::string& path, bool strict = true) {
  std::shared_ptr<Module> module;
  if constexpr (requires { typename Module::Options; }) {
    typename Module::Options options{};
    const ConfigNode values = read_checkpoint_values(path);
    const ConfigNode* saved = values.find("hyper_parameters");
    if (saved == nullptr || saved->is_null()) {
      throw CheckpointError(
          path +
          ": it holds no hyper-parameters to make the module from. Call save_hyperparameters(options) "
          "in the module's constructor before training.");
    }
    Problems problems;
    read_options(*saved, options, path + ": hyper_parameters", problems);
    problems.throw_if_any();
    module = std::make_shared<Module>(options);
  } else {
    module = std::make_shared<Module>();
  }
  (void)load_weights(*module, {.path = path, .strict = strict});
  return module;
}

}  // namespace levin
