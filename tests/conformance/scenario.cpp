#include "conformance/scenario.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <regex>

#include "levin/data/loading/dataloader.h"
#include "levin/data/loading/dataset.h"

namespace conformance {

using levin::Batch;

levin::ConfigNode to_config(const Json& json) {
  using levin::ConfigNode;
  if (json.is_null()) return {};
  if (json.is_string()) return ConfigNode::scalar(json.get<std::string>(), true);
  if (json.is_boolean()) return ConfigNode::scalar(json.get<bool>() ? "true" : "false");
  if (json.is_number_integer()) return ConfigNode::scalar(std::to_string(json.get<int64_t>()));
  if (json.is_number()) return ConfigNode::scalar(levin::number_text(json.get<double>()));
  if (json.is_array()) {
    ConfigNode list = ConfigNode::list();
    for (const auto& item : json) list.items.push_back(to_config(item));
    return list;
  }
  ConfigNode map = ConfigNode::map();
  for (const auto& [key, value] : json.items()) map.set(key, to_config(value));
  return map;
}

Json parse_python_json(const std::string& text) {
  const std::regex bare("(:|,|\\[)(\\s*)(-?Infinity|NaN)");
  return Json::parse(std::regex_replace(text, bare, "$1$2\"$3\""));
}

std::string python_json_text(const Json& json) {
  return std::regex_replace(json.dump(1), std::regex("\"(-?Infinity|NaN)\""), "$1");
}

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return rounded(value);
}

double to_double(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return (value == "Infinity" ? 1 : -1) * std::numeric_limits<double>::infinity();
}

double rounded(double value) {
  return std::isfinite(value) ? std::round(value * 1e6) / 1e6 : value;
}

ScenarioModule::ScenarioModule(const Json& scenario, Trace& trace)
    : options_(scenario.value("module", Json::object())), trace_(trace) {
  const int64_t in_features = scenario.value("data", Json::object()).value("in_features", 4);
  linear = register_module("layer", torch::nn::Linear(in_features, 1));
  const torch::NoGradGuard no_grad;
  for (int64_t j = 0; j < in_features; ++j) linear->weight[0][j] = 0.01 * static_cast<double>(j + 1);
  linear->bias.zero_();
  set_automatic_optimization(!options_.value("manual", false));
}

at::Tensor ScenarioModule::loss_of(const Batch& batch) {
  auto [x, y] = batch.unpack<2>();
  return (linear->forward(x) - y).pow(2).mean();
}

void ScenarioModule::log_all(const std::string& stage, const at::Tensor& loss, int64_t batch_idx) {
  for (const auto& entry : options_.value("log", Json::array())) {
    if (entry.at("stage") != stage) continue;
    levin::LogOptions flags;
    flags.prog_bar = entry.value("prog_bar", false);
    flags.logger = entry.value("logger", true);
    if (entry.contains("on_step")) flags.on_step = entry["on_step"].get<bool>();
    if (entry.contains("on_epoch")) flags.on_epoch = entry["on_epoch"].get<bool>();
    if (entry.contains("batch_size")) flags.batch_size = entry["batch_size"].get<int64_t>();
    flags.sync_dist = entry.value("sync_dist", false);
    flags.add_dataloader_idx = entry.value("add_dataloader_idx", true);
    for (const auto& [name, reduce] : levin::EnumNames<levin::ReduceFx>::names) {
      if (entry.value("reduce_fx", "mean") == name) flags.reduce_fx = reduce;
    }
    const std::string name = entry.at("name");
    const std::string value = entry.value("value", "loss");
    const auto epoch = static_cast<double>(current_epoch());
    if (value == "loss") log(name, loss, flags);
    if (value == "index") log(name, static_cast<double>(batch_idx), flags);
    if (value == "epoch") log(name, epoch, flags);
    if (value == "neg_epoch") log(name, -epoch, flags);
    if (value == "table") {
      const auto& table = entry.at("values");
      log(name, to_double(table[std::min<size_t>(static_cast<size_t>(current_epoch()), table.size() - 1)]), flags);
    }
  }
}

void ScenarioModule::note(const std::string& hook) {
  trace_.hooks.push_back("module." + hook);
}

// The runs of two ranks were recorded without the mean over a window that the epoch cuts short (`tail_window_mean`, see
// README.md): what Lightning makes of such a window has to be asked for.
static double lightnings_share(const levin::Trainer& trainer, int64_t batch_idx) {
  const int64_t window = trainer.accumulate_grad_batches();
  const int64_t tail = trainer.num_training_batches() % window;
  const bool cut_short = trainer.world_size() > 1 && batch_idx >= trainer.num_training_batches() - tail;
  return cut_short ? static_cast<double>(tail) / static_cast<double>(window) : 1.0;
}

at::Tensor ScenarioModule::training_step(const Batch& batch, int64_t batch_idx) {
  note("training_step");
  at::Tensor loss = loss_of(batch);
  if (options_.contains("nan_at_step") && global_step() == options_["nan_at_step"].get<int64_t>()) loss = loss * NAN;
  trace_.losses.push_back(rounded(loss.item<double>()));
  log_all("train", loss, batch_idx);
  const int64_t skip_every = options_.value("skip_every", 0);
  if (skip_every > 0 && (batch_idx + 1) % skip_every == 0) return {};
  if (!automatic_optimization()) {
    manual_backward(loss);
    if ((batch_idx + 1) % options_.value("manual_every", 1) == 0) {
      optimizer().step();
      optimizer().zero_grad();
    }
  }
  return loss * lightnings_share(trainer(), batch_idx);
}

void ScenarioModule::validation_step(const Batch& batch, int64_t batch_idx) {
  note("validation_step");
  log_all("val", loss_of(batch), batch_idx);
}

void ScenarioModule::test_step(const Batch& batch, int64_t batch_idx) {
  note("test_step");
  log_all("test", loss_of(batch), batch_idx);
}

at::Tensor ScenarioModule::predict_step(const Batch& batch, int64_t) {
  note("predict_step");
  return linear->forward(batch[0]);
}

levin::OptimizerConfig ScenarioModule::configure_optimizers() {
  note("configure_optimizers");
  levin::ClassSpec spec{"SGD", to_config(Json{{"lr", 0.1}}), {}};
  if (options_.contains("optimizer")) {
    const auto& given = options_["optimizer"];
    spec = {given.at("class_path"), to_config(given.value("init_args", Json::object())), {}};
  }
  levin::OptimizerConfig config;
  auto optimizer = levin::Registry<levin::Optimizer>::instance().make(spec, "optimizer");
  optimizer->add_param_group({.params = parameters()});
  config.add_shared(optimizer);
  if (!options_.contains("lr_scheduler")) return config;
  const auto& given = options_["lr_scheduler"];
  levin::LRSchedulerOptions schedule;
  if (given.value("interval", "epoch") == "step") schedule.interval = levin::Interval::step;
  schedule.frequency = given.value("frequency", 1);
  schedule.monitor = given.value("monitor", "");
  schedule.strict = given.value("strict", true);
  const levin::ClassSpec scheduler{given.at("class_path"), to_config(given.value("init_args", Json::object())), {}};
  config.schedule_shared(levin::Registry<levin::LRScheduler>::instance().make(scheduler, "lr_scheduler"), schedule);
  return config;
}

levin::Callbacks ScenarioModule::configure_callbacks() {
  note("configure_callbacks");
  return {};
}
void ScenarioModule::configure_model() {
  note("configure_model");
}
void ScenarioModule::prepare_data() {
  note("prepare_data");
}
void ScenarioModule::setup(levin::Stage) {
  note("setup");
}
void ScenarioModule::teardown(levin::Stage) {
  note("teardown");
}
void ScenarioModule::on_fit_start() {
  note("on_fit_start");
}
void ScenarioModule::on_fit_end() {
  note("on_fit_end");
}
void ScenarioModule::on_train_start() {
  note("on_train_start");
}
void ScenarioModule::on_train_end() {
  note("on_train_end");
}
void ScenarioModule::on_train_epoch_start() {
  note("on_train_epoch_start");
}
void ScenarioModule::on_train_epoch_end() {
  note("on_train_epoch_end");
}
void ScenarioModule::on_train_batch_start(const Batch&, int64_t) {
  note("on_train_batch_start");
}
void ScenarioModule::on_train_batch_end(const at::Tensor&, const Batch&, int64_t) {
  note("on_train_batch_end");
  trace_.lrs.push_back(rounded(optimizer().optimizer().param_groups()[0].lr));
  trace_.global_step_after_batch.push_back(global_step());
}
void ScenarioModule::on_before_zero_grad(levin::Optimizer&) {
  note("on_before_zero_grad");
}
void ScenarioModule::on_before_backward(const at::Tensor&) {
  note("on_before_backward");
}
void ScenarioModule::on_after_backward() {
  note("on_after_backward");
}
void ScenarioModule::on_before_optimizer_step(levin::Optimizer&) {
  note("on_before_optimizer_step");
}
void ScenarioModule::on_validation_start() {
  note("on_validation_start");
  if (!trainer().sanity_checking()) trace_.validations_at.push_back({current_epoch(), global_step()});
}
void ScenarioModule::on_validation_end() {
  note("on_validation_end");
}
void ScenarioModule::on_validation_epoch_start() {
  note("on_validation_epoch_start");
}
void ScenarioModule::on_validation_epoch_end() {
  note("on_validation_epoch_end");
}
void ScenarioModule::on_validation_batch_start(const Batch&, int64_t, int64_t) {
  note("on_validation_batch_start");
}
void ScenarioModule::on_validation_batch_end(const Batch&, int64_t, int64_t) {
  note("on_validation_batch_end");
}
void ScenarioModule::on_test_start() {
  note("on_test_start");
}
void ScenarioModule::on_test_end() {
  note("on_test_end");
}
void ScenarioModule::on_test_epoch_start() {
  note("on_test_epoch_start");
}
void ScenarioModule::on_test_epoch_end() {
  note("on_test_epoch_end");
}
void ScenarioModule::on_test_batch_start(const Batch&, int64_t, int64_t) {
  note("on_test_batch_start");
}
void ScenarioModule::on_test_batch_end(const Batch&, int64_t, int64_t) {
  note("on_test_batch_end");
}
void ScenarioModule::on_predict_start() {
  note("on_predict_start");
}
void ScenarioModule::on_predict_end() {
  note("on_predict_end");
}
void ScenarioModule::on_predict_epoch_start() {
  note("on_predict_epoch_start");
}
void ScenarioModule::on_predict_epoch_end() {
  note("on_predict_epoch_end");
}
void ScenarioModule::on_predict_batch_start(const Batch&, int64_t, int64_t) {
  note("on_predict_batch_start");
}
void ScenarioModule::on_predict_batch_end(const at::Tensor&, const Batch&, int64_t, int64_t) {
  note("on_predict_batch_end");
}
void ScenarioModule::on_save_checkpoint(levin::State&) {
  note("on_save_checkpoint");
}
void ScenarioModule::on_load_checkpoint(const levin::State&) {
  note("on_load_checkpoint");
}

namespace {

// Lightning: with several ranks it shuffles training data that nobody has asked to shuffle, with
// torch.randperm of a generator seeded with seed + epoch, the seed being 0. Levin keeps the loader's order, so that
// Lightning's has to be asked for.
class LightningsShuffle final : public levin::Sampler {
 public:
  explicit LightningsShuffle(int64_t size) : size_(size) {}
  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] at::Tensor order(uint64_t, int64_t epoch) const override {
    return torch::randperm(size_, at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(epoch)), torch::kLong);
  }

 private:
  int64_t size_;
};

class ScenarioData : public levin::DataModule {
 public:
  ScenarioData(const Json& scenario, Trace& trace)
      : data_(scenario.value("data", Json::object())),
        several_ranks_(scenario.value("trainer", Json::object()).value("strategy", "") == "ddp"),
        trace_(trace) {}

  void prepare_data() override { note("prepare_data"); }
  void setup(levin::Stage) override { note("setup"); }
  void teardown(levin::Stage) override { note("teardown"); }
  std::shared_ptr<levin::Loader> train_dataloader() override {
    note("train_dataloader");
    const int64_t samples = data_.value("train", 24);
    const auto order = several_ranks_ ? std::make_shared<LightningsShuffle>(samples) : nullptr;
    return loader(samples, data_.value("drop_last", false), order);
  }
  levin::Loaders test_dataloader() override { return eval("test"); }
  levin::Loaders predict_dataloader() override { return eval("predict"); }

 protected:
  levin::Loaders eval(const std::string& stage) {
    note(stage + "_dataloader");
    const Json sizes = data_.value(stage, Json(16));
    levin::Loaders loaders;
    if (sizes.is_number()) loaders.push_back(loader(sizes.get<int64_t>(), false));
    if (sizes.is_array()) {
      for (const auto& size : sizes) loaders.push_back(loader(size.get<int64_t>(), false));
    }
    return loaders;
  }

 private:
  void note(const std::string& hook) { trace_.hooks.push_back("datamodule." + hook); }

  [[nodiscard]] std::shared_ptr<levin::Loader> loader(int64_t samples, bool drop_last,
                                                      std::shared_ptr<levin::Sampler> order = nullptr) const {
    const int64_t features = data_.value("in_features", 4);
    const auto i = torch::arange(samples, torch::kLong).unsqueeze(1);
    const auto j = torch::arange(features, torch::kLong).unsqueeze(0);
    const auto x = ((7 * i + 3 * j).remainder(17).to(torch::kDouble) / 17 - 0.5).to(torch::kFloat);
    const auto y = (i.remainder(5).to(torch::kDouble) / 5).to(torch::kFloat);
    return std::make_shared<levin::DataLoader>(
        std::make_shared<levin::TensorDataset>(std::vector<at::Tensor>{x, y}),
        levin::DataLoaderOptions{.batch_size = data_.value("batch_size", 4), .drop_last = drop_last}, std::move(order));
  }

  Json data_;
  bool several_ranks_;
  Trace& trace_;
};

class ScenarioDataWithValidation final : public ScenarioData {
 public:
  using ScenarioData::ScenarioData;
  levin::Loaders val_dataloader() override { return eval("val"); }
};

}  // namespace

std::unique_ptr<levin::DataModule> make_data_module(const Json& scenario, Trace& trace) {
  if (scenario.value("data", Json::object()).value("val", Json(16)) == Json(0)) {
    return std::make_unique<ScenarioData>(scenario, trace);
  }
  return std::make_unique<ScenarioDataWithValidation>(scenario, trace);
}

}  // namespace conformance
