#include "levin/trainer/run/loader_set.h"

#include <string>
#include <typeinfo>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/process/console.h"
#include "levin/core/process/log.h"
#include "levin/data/batch_rows.h"
#include "levin/data/loader.h"
#include "levin/trainer/accumulation_schedule.h"
#include "levin/trainer/changes_batches.h"
#include "levin/trainer/no_loader_error.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/run/hook_caller.h"
#include "levin/trainer/run/memory_format.h"
#include "levin/trainer/run/ranks.h"
#include "levin/trainer/run/run_log.h"
#include "levin/trainer/step/override.h"

namespace levin {

namespace {

// A data module's loaders take precedence over the module's.
Loaders ask_eval_loaders(EntryPoint& entry, Stage stage) {
  const HookScope scope(entry, stage == Stage::test      ? Hook::test_dataloader
                               : stage == Stage::predict ? Hook::predict_dataloader
                                                         : Hook::val_dataloader);
  if (entry.data != nullptr) {
    if (stage == Stage::test) return entry.data->test_dataloader();
    if (stage == Stage::predict) return entry.data->predict_dataloader();
    return entry.data->val_dataloader();
  }
  if (stage == Stage::test) return entry.module->test_dataloader();
  if (stage == Stage::predict) return entry.module->predict_dataloader();
  return entry.module->val_dataloader();
}

std::string dataloader_hook(Stage stage) {
  if (stage == Stage::test) return "test_dataloader";
  if (stage == Stage::predict) return "predict_dataloader";
  return "val_dataloader";
}

// A run that resumes with a different number of ranks keeps its global batches, and so its position: each rank's
// batches become larger or smaller, unless batch_size was changed too.
void keep_global_batches(Fit& fit, int64_t now, Loader& loader) {
  const int64_t before = fit.resumed_world_size;
  const int64_t global = before * fit.resumed_batch_size;
  if (global == 0 || before == now || loader.batch_size() != fit.resumed_batch_size) return;
  const std::string seen = "the run was trained by " + count_of(before, "rank") + " with batches of " +
                           std::to_string(fit.resumed_batch_size) + ", and continues with " + std::to_string(now);
  if (global % now != 0) {
    throw ConfigError("fit: " + seen + ", among which its global batches of " + std::to_string(global) +
                      " cannot be divided. Use a number of ranks that divides " + std::to_string(global) + ".");
  }
  if (!loader.set_batch_size(global / now)) {
    Console::instance().warn(seen +
                             "; its loader cannot change the batch size (Loader::set_batch_size), so its "
                             "global batches are others from here on.");
    return;
  }
  if (std::exchange(fit.printed_batches, true)) return;
  Console::instance().print("Because " + seen + ", each of them takes batches of " + std::to_string(global / now) +
                            ": the global batches stay " + std::to_string(global) + ".");
}

bool is_zero(const BatchLimit& limit) {
  return limit == BatchLimit(0.0) || limit == BatchLimit(int64_t{0});
}

}  // namespace

// Each rank gets its share of the samples. In training all ranks must take the same number of steps; an evaluation
// counts every sample once. Lightning pads evaluations too, so that some samples count twice.
void share_out(Run& run, Loader& loader, bool padded) {
  if (!run.has_peers() || !run.plan.use_distributed_sampler) return;
  if (loader.shard(run.strategy->ranks().mesh().data().index(), run.strategy->ranks().mesh().data().size(), padded))
    return;
  Console::instance().warn(
      "a loader of your own class gives every rank the same batches: override Loader::shard(), or set "
      "use_distributed_sampler: false if it shares the samples out itself.");
}

bool has_validation_hooks(const RunPlan& plan, const EntryPoint& entry) {
  if (is_zero(plan.limit_val_batches)) return false;
  if (entry.data != nullptr) return detail::overrides<DataModule>(*entry.data, &DataModule::val_dataloader);
  return detail::overrides<LightningModule>(*entry.module, &LightningModule::val_dataloader);
}

void load_train_loader(Run& run) {
  if (is_zero(run.plan.limit_train_batches)) {
    run.fit.train = {{}, {0}, true};
    return;
  }
  const HookScope scope(run.entry, Hook::train_dataloader);
  const ProfilerScope profile(run.profiler.get(), "train_dataloader");
  std::shared_ptr<Loader> loader =
      run.entry.data != nullptr ? run.entry.data->train_dataloader() : run.entry.module->train_dataloader();
  if (loader == nullptr) {
    throw ConfigError(
        "fit: there is no training loader. Override train_dataloader() in the data module or the module, or "
        "pass a loader to fit.");
  }
  if (run.plan.overfit) loader->use_sequential_order();
  share_out(run, *loader, /*padded=*/true);
  loader->identify_samples(false);
  apply_batch_size(run.fit.tuning, *loader);
  keep_global_batches(run.fit, run.strategy->ranks().mesh().data().size(), *loader);
  if (run.fit.effective_batch_size > 0) {
    run.fit.planned_accumulation =
        batches_of(run.fit.effective_batch_size, run.strategy->ranks().mesh().data().size(), *loader);
    run.set_accumulation(run.fit.planned_accumulation);
  }
  const int64_t batches = limited_batches(run.plan.limit_train_batches, loader->num_batches(), "limit_train_batches");
  if (batches == 0) {
    throw ConfigError("fit: the training loader has no batches. Check the data set's size, batch_size and drop_last.");
  }
  const bool has_state = check_same_batches(run.strategy->ranks(), batches, !loader->state_dict().empty());
  check_same_loaders(run.strategy->ranks(), "train_dataloader", loader);
  log::data.info("{}", loader_text("train", *loader, batches));
  run.fit.train = {};
  run.fit.train.loaders.push_back(std::move(loader));
  run.fit.train.num_batches = {batches};
  run.fit.train.loaded = true;
  run.fit.train.has_state = has_state;
  run.fit.train_loaded_in_epoch = run.progress.epoch;
}

void load_eval_loaders(Run& run, Stage stage) {
  const BatchLimit limit = stage == Stage::test      ? run.plan.limit_test_batches
                           : stage == Stage::predict ? run.plan.limit_predict_batches
                                                     : run.plan.limit_val_batches;
  const char* option = stage == Stage::test      ? "limit_test_batches"
                       : stage == Stage::predict ? "limit_predict_batches"
                                                 : "limit_val_batches";
  LoaderSet set;
  set.loaders = is_zero(limit) ? Loaders{} : ask_eval_loaders(run.entry, stage);
  if (set.loaders.empty() && run.entry.stage != Stage::fit && !is_zero(limit)) {
    const DataModule* data = run.entry.data;
    const std::string name = data == nullptr ? "" : detail::readable_type_name(typeid(*data));
    throw NoLoaderError("there is no loader to run on" +
                        (data == nullptr
                             ? ". Override "
                             : ": " + name + " has none. Set the option that names this data, or override ") +
                        dataloader_hook(stage) + "() in the data module or the module, or pass loaders.");
  }
  for (const auto& loader : set.loaders) {
    if (run.plan.overfit) loader->use_sequential_order();
    share_out(run, *loader, /*padded=*/false);
    loader->identify_samples(stage == Stage::predict);
    set.num_batches.push_back(limited_batches(limit, loader->num_batches(), option));
    log::data.info("{}", loader_text(enum_name(stage).c_str(), *loader, set.num_batches.back()));
  }
  check_same_loaders(run.strategy->ranks(), dataloader_hook(stage), set.loaders);
  set.loaded = true;
  run.entry.eval = std::move(set);
  // What a resumed run makes before its first batch does not change when its loaders are made anew.
  if (!run.fit.resumed) run.fit.eval_loaded_in_epoch = run.progress.epoch;
}

void copy_ahead(Run& run, BatchStream& stream) {
  if (run.copier == nullptr) return;
  using M = LightningModule;
  const M& module = *run.entry.module;
  if (detail::overrides<M>(module, &M::on_before_batch_transfer)) return;
  if (detail::overrides<M>(module, &M::transfer_batch_to_device)) return;
  using D = DataModule;
  const D* data = run.entry.data;
  if (data != nullptr && detail::overrides<D>(*data, &D::on_before_batch_transfer)) return;
  if (run.entry.data_moves_batches) return;
  stream.copy_ahead(*run.copier);
}

Batch transfer_batch(Run& run, Batch batch, int64_t dataloader_idx) {
  EntryPoint& entry = run.entry;
  entry.outputs.clear();  // of the batch before, where no hooks have seen them
  {
    const HookScope scope(entry, Hook::on_before_batch_transfer);
    if (entry.data != nullptr)
      batch = note_caller(entry, *entry.data).on_before_batch_transfer(std::move(batch), dataloader_idx);
    batch = note_caller(entry, *entry.module).on_before_batch_transfer(std::move(batch), dataloader_idx);
  }
  {
    const HookScope scope(entry, Hook::transfer_batch_to_device);
    const at::Device device = run.strategy->placement().device();
    batch = entry.data_moves_batches
                ? note_caller(entry, *entry.data).transfer_batch_to_device(std::move(batch), device, dataloader_idx)
                : note_caller(entry, *entry.module).transfer_batch_to_device(std::move(batch), device, dataloader_idx);
  }
  if (const auto dtype = run.precision->dtype()) {
    const auto convert = [&dtype](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(*dtype);
    };
    for (at::Tensor& tensor : batch.tensors) convert(tensor);
    visit_values(batch, convert);
  }
  if (run.plan.channels_last) use_channels_last(batch);
  const HookScope scope(entry, Hook::on_after_batch_transfer);
  if (entry.data != nullptr)
    batch = note_caller(entry, *entry.data).on_after_batch_transfer(std::move(batch), dataloader_idx);
  return note_caller(entry, *entry.module).on_after_batch_transfer(std::move(batch), dataloader_idx);
}

// By the callbacks that change training batches, in order. Not ahead of time: they draw the random numbers that a
// checkpoint of the batch before holds.
Batch change_batch(Run& run, Batch batch) {
  const HookScope scope(run.entry, Hook::change_batch);
  for (const auto& callback : run.entry.callbacks) {
    auto* changer = dynamic_cast<ChangesBatches*>(callback.get());
    if (changer == nullptr) continue;
    note_caller(run.entry, *callback);
    batch = changer->change_batch(std::move(batch));
  }
  return batch;
}

int64_t num_training_batches(const Fit& fit) {
  return fit.train.num_batches.empty() ? 0 : fit.train.num_batches[0];
}

const AccumulationSchedule* accumulation_schedule(const Run& run) {
  for (const auto& callback : run.entry.callbacks) {
    if (const auto* schedule = dynamic_cast<const AccumulationSchedule*>(callback.get())) return schedule;
  }
  return nullptr;
}

void apply_batch_size(Tuning& tuning, Loader& loader) {
  if (tuning.configured_batch_size == 0) tuning.configured_batch_size = loader.batch_size().value_or(0);
  if (tuning.batch_size == 0 || loader.batch_size() == tuning.batch_size) return;
  if (loader.set_batch_size(tuning.batch_size)) return;
  throw ConfigError(
      "BatchSizeFinder: the training loader cannot change its batch size. Override "
      "Loader::set_batch_size and Loader::batch_size, or drop the callback.");
}

int64_t batches_of(int64_t samples, int64_t ranks, const Loader& loader) {
  const std::string option = "TrainerOptions.accumulate_grad_batches.effective_batch_size: ";
  const int64_t batch = loader.batch_size().value_or(0);
  if (batch == 0) {
    throw ConfigError(option + count_of(samples, "sample") +
                      " cannot be counted, because the training loader does not report its batch size "
                      "(Loader::batch_size). Give accumulate_grad_batches a number of batches.");
  }
  if (samples % (batch * ranks) != 0) {
    throw ConfigError(option + count_of(samples, "sample") + (samples == 1 ? " is" : " are") +
                      " not a whole number of batches of " + count_of(batch, "sample") + " on " +
                      count_of(ranks, "rank") + ". Use a multiple of " + std::to_string(batch * ranks) +
                      ", or another batch size.");
  }
  return samples / (batch * ranks);
}

}  // namespace levin
