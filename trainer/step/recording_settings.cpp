#include "levin/trainer/step/recording_settings.h"

#include "levin/trainer/lightning_module.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/tensors_of_step.h"

namespace levin {

SettingsReader::SettingsReader(const Run& run)
    : run_(run),
      parameters_(run.fit.optimizers[0].shared()->parameters()),
      tensors_(tensors_of_step(*run.entry.module, parameters_)) {
  for (const auto& module : run.entry.module->modules(/*include_self=*/false)) modules_.push_back(module.get());
}

RecordingSettings SettingsReader::read(bool with_update) const {
  RecordingSettings now;
  now.window_size = run_.progress.accumulate;
  if (with_update) {
    const Optimizer& optimizer = *run_.fit.optimizers[0].shared();
    now.optimizer_version = optimizer.version();
    for (const auto& group : optimizer.groups()) {
      now.numbers.push_back(group.momentum);
      now.numbers.push_back(group.weight_decay);
    }
  }
  for (const auto& parameter : parameters_) now.flags.push_back(parameter.requires_grad());
  for (const auto& tensor : tensors_) {
    now.tensors.push_back(tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr);
  }
  now.flags.push_back(run_.entry.module->is_training());
  for (const auto* module : modules_) now.flags.push_back(module->is_training());
  return now;
}

}  // namespace levin
