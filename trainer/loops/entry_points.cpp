// The other forms of the Trainer's entry points: each makes a data module of what it is given.
#include <memory>
#include <string>
#include <utility>

#include "levin/core/error.h"
#include "levin/data/data_module.h"
#include "levin/trainer/trainer.h"

namespace levin {

namespace {

// A data module made of loaders that were passed in.
class LoadersDataModule final : public DataModule {
 public:
  LoadersDataModule(Loaders train, Loaders eval) : train_(std::move(train)), eval_(std::move(eval)) {
    if (train_.size() <= 1) return;
    throw ConfigError("fit: " + std::to_string(train_.size()) +
                      " training loaders were given, and one epoch is one pass over one of them. Give one; those for "
                      "validation come after it.");
  }
  std::shared_ptr<Loader> train_dataloader() override { return train_.empty() ? nullptr : train_[0]; }
  Loaders val_dataloader() override { return eval_; }
  Loaders test_dataloader() override { return eval_; }
  Loaders predict_dataloader() override { return eval_; }

 private:
  Loaders train_;
  Loaders eval_;
};

}  // namespace

void Trainer::fit(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  fit(module, data, ckpt_path);
}

void Trainer::fit(LightningModule& module, Loaders train, Loaders val, const std::string& ckpt_path) {
  LoadersDataModule data(std::move(train), std::move(val));
  fit(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  return validate(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::validate(LightningModule& module, Loaders loaders, const std::string& ckpt_path) {
  LoadersDataModule data({}, std::move(loaders));
  return validate(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, DataModule&& data, const std::string& ckpt_path) {
  return test(module, data, ckpt_path);
}

std::vector<Metrics> Trainer::test(LightningModule& module, Loaders loaders, const std::string& ckpt_path) {
  LoadersDataModule data({}, std::move(loaders));
  return test(module, data, ckpt_path);
}

Predictions Trainer::predict(LightningModule& module, DataModule&& data, const std::string& ckpt_path,
                             bool return_predictions) {
  return predict(module, data, ckpt_path, return_predictions);
}

Predictions Trainer::predict(LightningModule& module, Loaders loaders, const std::string& ckpt_path,
                             bool return_predictions) {
  LoadersDataModule data({}, std::move(loaders));
  return predict(module, data, ckpt_path, return_predictions);
}

}  // namespace levin
