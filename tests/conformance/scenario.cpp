#include "conformance/scenario.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <regex>

#include "levin/data/loading/combined_loader.h"
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
  at::Tensor loss;
  for (size_t k = 0; k + 1 < batch.count(); k += 2) {  // of each training loader that has not ended
    if (batch[k].size(0) == 0) continue;
    const at::Tensor part = (linear->forward(batch[k]) - batch[k + 1]).pow(2).mean();
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

void ScenarioModule::log_all(const std::string& stage, const at::Tensor& loss, int64_t batch_idx) {
  if (!options_.contains("log")) return;
  for (const auto& entry : options_["log"]) {
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
    if (value == "step") log(name, static_cast<double>(global_step()), flags);
    if (value == "table") {
      const auto& table = entry.at("values");
      log(name, to_double(table[std::min<size_t>(static_cast<size_t>(current_epoch()), table.size() - 1)]), flags);
    }
  }
}

void ScenarioModule::note(const std::string& hook) {
  trace_.hooks.push_back("module." + hook);
}

// The hooks in which a scenario may log and stop.
void ScenarioModule::note_and_act(const std::string& hook) {
  note(hook);
  if (hook == "on_train_batch_end") {
    trace_.lrs.push_back(rounded(optimizer().optimizer().param_groups()[0].lr));
    trace_.global_step_after_batch.push_back(global_step());
  }
  if (!trainer().sanity_checking()) stop_in(hook);
  log_all(hook, {}, 0);
}

void ScenarioModule::stop_in(const std::string& hook) {
  if (!options_.contains("stop") || options_["stop"].at("hook") != hook) return;
  const int64_t batches = trainer().seen_batches() + static_cast<int64_t>(hook == "training_step");
  if (batches >= options_["stop"].at("batch").get<int64_t>()) trainer().request_stop();
}

void ScenarioModule::step_by_hand() {
  for (auto& optimizer : optimizers()) {
    optimizer.step();
    optimizer.zero_grad();
  }
  for (auto& config : lr_schedulers()) config.scheduler->step();
}

at::Tensor ScenarioModule::training_step(const Batch& batch, int64_t batch_idx) {
  note("training_step");
  at::Tensor loss = loss_of(batch);
  if (options_.contains("nan_at_step") && global_step() == options_["nan_at_step"].get<int64_t>()) loss = loss * NAN;
  trace_.losses.push_back(rounded(loss.item<double>()));
  log_all("train", loss, batch_idx);
  stop_in("training_step");
  const int64_t skip_every = options_.value("skip_every", 0);
  if (skip_every > 0 && (batch_idx + 1) % skip_every == 0) return {};
  if (!automatic_optimization()) {
    manual_backward(loss);
    if ((batch_idx + 1) % options_.value("manual_every", 1) == 0) step_by_hand();
  }
  return loss;
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

static levin::ClassSpec class_spec(const Json& given) {
  return {given.at("class_path"), to_config(given.value("init_args", Json::object())), {}};
}

levin::OptimizerConfig ScenarioModule::configure_optimizers() {
  note("configure_optimizers");
  levin::OptimizerConfig config;
  const auto add = [&config](const Json& given, std::vector<levin::ParamGroup> groups) {
    auto optimizer = levin::Registry<levin::Optimizer>::instance().make(class_spec(given), "optimizer");
    for (auto& group : groups) optimizer->add_param_group(std::move(group));
    config.add_shared(optimizer);
  };
  if (options_.contains("optimizers")) {  // one for the weight, one for the bias
    add(options_["optimizers"][0], {{.params = {linear->weight}}});
    add(options_["optimizers"][1], {{.params = {linear->bias}}});
    return config;
  }
  std::vector<levin::ParamGroup> groups;
  for (const auto& given : options_.value("param_groups", Json::array())) {
    levin::ParamGroup group{.params = {given.at("params") == "weight" ? linear->weight : linear->bias}};
    if (given.contains("lr")) group.lr = given["lr"].get<double>();
    if (given.contains("weight_decay")) group.weight_decay = given["weight_decay"].get<double>();
    groups.push_back(std::move(group));
  }
  if (groups.empty()) groups.push_back({.params = parameters()});
  add(options_.value("optimizer", Json{{"class_path", "SGD"}, {"init_args", {{"lr", 0.1}}}}), std::move(groups));
  if (!options_.contains("lr_scheduler")) return config;
  const auto& given = options_["lr_scheduler"];
  levin::LRSchedulerOptions schedule;
  if (given.value("interval", "epoch") == "step") schedule.interval = levin::Interval::step;
  schedule.frequency = given.value("frequency", 1);
  schedule.monitor = given.value("monitor", "");
  schedule.strict = given.value("strict", true);
  config.schedule_shared(levin::Registry<levin::LRScheduler>::instance().make(class_spec(given), "lr_scheduler"),
                         schedule);
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
  note_and_act("on_train_epoch_start");
}
void ScenarioModule::on_train_epoch_end() {
  note_and_act("on_train_epoch_end");
}
void ScenarioModule::on_train_batch_start(const Batch&, int64_t) {
  note_and_act("on_train_batch_start");
}
void ScenarioModule::on_train_batch_end(const at::Tensor&, const Batch&, int64_t) {
  note_and_act("on_train_batch_end");
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
  note_and_act("on_validation_end");
}
void ScenarioModule::on_validation_epoch_start() {
  note_and_act("on_validation_epoch_start");
}
void ScenarioModule::on_validation_epoch_end() {
  note_and_act("on_validation_epoch_end");
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
    const Json given = data_.value("train", Json(24));
    if (given.is_array()) {
      levin::Loaders all;
      for (const auto& samples : given) all.push_back(loader(samples.get<int64_t>(), data_.value("drop_last", false)));
      levin::CombinedLoaderOptions options;
      for (const auto& [name, mode] : levin::EnumNames<levin::CombinedMode>::names) {
        if (data_.value("train_mode", "max_size_cycle") == name) options.mode = mode;
      }
      return std::make_shared<levin::CombinedLoader>(std::move(all), options);
    }
    const auto samples = given.get<int64_t>();
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
