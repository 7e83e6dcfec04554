#include "levin/trainer/fabric.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/fabric_run.h"
#include "levin/trainer/run/loader_set.h"
#include "levin/trainer/trainer.h"

namespace levin {

// ---- handles --------------------------------------------------------------------------------------------------------

size_t FabricOptimizer::index() const {
  if (!index_) throw Error("FabricOptimizer: setup got no optimizer with the module \"" + name_ + "\".");
  return *index_;
}

void FabricOptimizer::step(const Optimizer::Closure& closure) {
  named_call(*run_, "FabricOptimizer.step", [&] { run_->step_optimizer(index(), closure); });
}

void FabricOptimizer::zero_grad() {
  named_call(*run_, "FabricOptimizer.zero_grad", [&] { run_->zero_grad(index()); });
}

void FabricOptimizer::select_rows(const std::vector<at::Tensor>& params, const at::Tensor& rows, int64_t kept) {
  named_call(*run_, "FabricOptimizer.select_rows", [&] { run_->select_rows(index(), params, rows, kept); });
}

Optimizer& FabricOptimizer::optimizer() const {
  return *run_->optimizers().optimizers().at(index());
}

const Batch& FabricPass::Iterator::operator*() const {
  return pass_->batch();
}

FabricPass::Iterator& FabricPass::Iterator::operator++() {
  const bool has_batch = named_call(*run_, "FabricLoader.epoch", [&] { return pass_->next(); });
  if (!has_batch) pass_ = nullptr;
  return *this;
}

FabricPass FabricLoader::epoch(int64_t epoch) {
  return named_call(*run_, "FabricLoader.epoch", [&] { return FabricPass(*run_, run_->begin_pass(source_, epoch)); });
}

std::optional<int64_t> FabricLoader::num_batches() const {
  return source_->num_batches == kUnlimited ? std::nullopt : std::optional(source_->num_batches);
}

// ---- the run --------------------------------------------------------------------------------------------------------

Fabric::Fabric(FabricOptions options)
    : run_(std::make_shared<FabricRun>(std::move(options))), exceptions_(std::uncaught_exceptions()) {}

Fabric::~Fabric() {
  run_->end(std::uncaught_exceptions() > exceptions_);
}

void Fabric::launch() {
  named_call(*run_, "Fabric.launch", [&] { run_->launch(); });
}

void Fabric::finish() {
  named_call(*run_, "Fabric.finish", [&] { run_->finish(); });
}

FabricOptimizer Fabric::setup(torch::nn::Module& module, const OptimizerConfig& optimizers, const std::string& name) {
  return setup(std::shared_ptr<torch::nn::Module>(std::shared_ptr<torch::nn::Module>(), &module), optimizers, name);
}

FabricOptimizer Fabric::setup(std::shared_ptr<torch::nn::Module> module, const OptimizerConfig& optimizers,
                              const std::string& name) {
  return named_call(*run_, "Fabric.setup",
                    [&] { return FabricOptimizer(*run_, run_->setup(module, optimizers, name), name); });
}

FabricLoader Fabric::setup_dataloaders(Loaders loader, const FabricLoaderOptions& options) {
  return named_call(*run_, "Fabric.setup_dataloaders",
                    [&] { return FabricLoader(*run_, run_->setup_loader(loader, options)); });
}

std::vector<FabricOptimizer> Fabric::optimizers() {
  std::vector<FabricOptimizer> all;
  for (size_t k = 0; k < run_->optimizers().optimizers().size(); ++k) all.emplace_back(*run_, k, "");
  return all;
}

std::vector<LRSchedulerConfig>& Fabric::lr_schedulers() {
  return named_call(*run_, "Fabric.lr_schedulers",
                    [&]() -> std::vector<LRSchedulerConfig>& { return run_->begin().fit.schedulers; });
}

std::shared_ptr<void> Fabric::init_module() {
  return named_call(*run_, "Fabric.init_module", [&] {
    (void)run_->open();
    return run_->trainer().init_module();
  });
}

at::Tensor Fabric::step(const Batch& batch, const StepClosure& closure) {
  return named_call(*run_, "Fabric.step", [&] {
    run_->check_no_replicas();
    return run_->step(batch, [&](torch::nn::Module&, const Batch& each) { return closure(each); });
  });
}

at::Tensor Fabric::step_on_replicas(const Batch& batch, const ReplicaClosure& closure) {
  return named_call(*run_, "Fabric.step", [&] {
    run_->check_one_module();
    return run_->step(batch, closure);
  });
}

at::Tensor Fabric::step(const Batch& batch) {
  return named_call(*run_, "Fabric.step", [&] { return run_->step(batch); });
}

void Fabric::end_epoch() {
  named_call(*run_, "Fabric.end_epoch", [&] { run_->end_epoch(); });
}

Metrics Fabric::evaluate(const Batch& batch) {
  return named_call(*run_, "Fabric.evaluate", [&] { return run_->evaluate(batch); });
}

at::Tensor Fabric::predict(const Batch& batch) {
  return named_call(*run_, "Fabric.predict", [&] { return run_->predict(batch); });
}

std::shared_ptr<void> Fabric::autocast() {
  return named_call(*run_, "Fabric.autocast", [&] { return run_->enter_forward(); });
}

void Fabric::backward(const at::Tensor& loss) {
  named_call(*run_, "Fabric.backward", [&] { run_->backward(loss); });
}

std::shared_ptr<void> Fabric::no_backward_sync(bool enabled) {
  return enabled ? run_->no_backward_sync() : nullptr;
}

void Fabric::clip_gradients(const FabricOptimizer& optimizer, const ClipGradients& clip) {
  named_call(*run_, "Fabric.clip_gradients", [&] { run_->clip_gradients(optimizer.index(), clip); });
}

void Fabric::clip_gradients(const torch::nn::Module& module, const ClipGradients& clip) {
  named_call(*run_, "Fabric.clip_gradients", [&] { run_->clip_gradients(run_->optimizer_of(module), clip); });
}

// ---- ranks and devices ----------------------------------------------------------------------------------------------

at::Tensor Fabric::all_reduce(const at::Tensor& value, ReduceOp op) {
  return named_call(*run_, "Fabric.all_reduce",
                    [&] { return run_->open().strategy->ranks().reduce(value.detach(), op); });
}

at::Tensor Fabric::all_gather(const at::Tensor& value) {
  return named_call(*run_, "Fabric.all_gather",
                    [&] { return run_->open().strategy->ranks().gather(value.detach().cpu()).to(value.device()); });
}

at::Tensor Fabric::broadcast(const at::Tensor& value) {
  return named_call(*run_, "Fabric.broadcast", [&] {
    Strategy& strategy = *run_->open().strategy;
    const at::Tensor received = value.detach().to(strategy.placement().device(), value.scalar_type(),
                                                  /*non_blocking=*/false, /*copy=*/true);
    strategy.ranks().copy_from_rank_zero({{"the value", received}});
    return received.to(value.device());
  });
}

std::string Fabric::broadcast(const std::string& text) {
  return named_call(*run_, "Fabric.broadcast", [&] { return run_->open().strategy->ranks().broadcast(text); });
}

void Fabric::barrier() {
  named_call(*run_, "Fabric.barrier", [&] { run_->open().strategy->ranks().barrier(); });
}

int64_t Fabric::global_rank() {
  return named_call(*run_, "Fabric.global_rank", [&] { return run_->open().strategy->ranks().rank(); });
}

int64_t Fabric::local_rank() {
  return named_call(*run_, "Fabric.local_rank", [&] { return run_->open().strategy->ranks().world().local_rank; });
}

int64_t Fabric::world_size() {
  return named_call(*run_, "Fabric.world_size", [&] { return run_->open().strategy->ranks().world_size(); });
}

at::Device Fabric::device() {
  return named_call(*run_, "Fabric.device", [&] { return run_->open().strategy->placement().device(); });
}

Batch Fabric::to_device(Batch batch) {
  return named_call(*run_, "Fabric.to_device", [&] { return transfer_batch(run_->open(), std::move(batch), 0); });
}

void Fabric::print(const std::string& text) {
  Console::instance().print(text);
}

// ---- checkpoints and progress ---------------------------------------------------------------------------------------

void Fabric::save(const std::string& path, const State& user) {
  named_call(*run_, "Fabric.save", [&] { run_->save(path, user); });
}

State Fabric::load(const std::string& path) {
  return named_call(*run_, "Fabric.load", [&] { return run_->load(path); });
}

int64_t Fabric::current_epoch() {
  return named_call(*run_, "Fabric.current_epoch", [&] { return run_->read().progress.epoch; });
}

int64_t Fabric::global_step() {
  return named_call(*run_, "Fabric.global_step", [&] { return run_->read().progress.global_step; });
}

void Fabric::log(const std::string& name, double value, std::optional<int64_t> step) {
  log_dict({{name, value}}, step);
}

namespace {

double number_of(const std::string& name, const at::Tensor& value) {
  if (!value.defined()) {
    throw Error("the tensor of \"" + cut_text(name) +
                "\" is undefined. A pass that continues after its last batch has no batch that computes a value: log "
                "only what was computed.");
  }
  if (value.numel() == 1) return value.item().toDouble();
  throw Error("the tensor of \"" + cut_text(name) + "\" has " + count_of(value.numel(), "element") +
              ". Reduce it to one number, e.g. by mean().");
}

}  // namespace

void Fabric::log(const std::string& name, const at::Tensor& value, std::optional<int64_t> step) {
  named_call(*run_, "Fabric.log", [&] { run_->log({{name, number_of(name, value)}}, step); });
}

void Fabric::log_dict(const Metrics& metrics, std::optional<int64_t> step) {
  named_call(*run_, "Fabric.log", [&] { run_->log(metrics, step); });
}

Metrics Fabric::callback_metrics() {
  return named_call(*run_, "Fabric.callback_metrics", [&] {
    const Run& run = run_->read();
    Metrics metrics = run_->trainer().callback_metrics();
    metrics.merge(run.entry.train_metrics.monitored(/*on_step=*/false, /*training=*/true));
    return metrics;
  });
}

bool Fabric::should_stop() {
  return named_call(*run_, "Fabric.should_stop", [&] {
    const Run& run = run_->open();
    return run.strategy->ranks().any(run.entry.stop);
  });
}

// ---- hooks ----------------------------------------------------------------------------------------------------------

namespace {

using FabricPlainHook = void (Callback::*)(Trainer&, LightningModule&);
using FabricBatchHook = void (Callback::*)(Trainer&, LightningModule&, const Batch&, int64_t, int64_t);

template <class Member>
struct NamedHook {
  Hook hook;
  Member member;
};

constexpr std::array<NamedHook<FabricPlainHook>, 20> kPlainHooks{{
    {Hook::on_fit_start, &Callback::on_fit_start},
    {Hook::on_fit_end, &Callback::on_fit_end},
    {Hook::on_sanity_check_start, &Callback::on_sanity_check_start},
    {Hook::on_sanity_check_end, &Callback::on_sanity_check_end},
    {Hook::on_train_start, &Callback::on_train_start},
    {Hook::on_train_end, &Callback::on_train_end},
    {Hook::on_train_epoch_start, &Callback::on_train_epoch_start},
    {Hook::on_train_epoch_end, &Callback::on_train_epoch_end},
    {Hook::on_validation_start, &Callback::on_validation_start},
    {Hook::on_validation_end, &Callback::on_validation_end},
    {Hook::on_validation_epoch_start, &Callback::on_validation_epoch_start},
    {Hook::on_validation_epoch_end, &Callback::on_validation_epoch_end},
    {Hook::on_test_start, &Callback::on_test_start},
    {Hook::on_test_end, &Callback::on_test_end},
    {Hook::on_test_epoch_start, &Callback::on_test_epoch_start},
    {Hook::on_test_epoch_end, &Callback::on_test_epoch_end},
    {Hook::on_predict_start, &Callback::on_predict_start},
    {Hook::on_predict_end, &Callback::on_predict_end},
    {Hook::on_predict_epoch_start, &Callback::on_predict_epoch_start},
    {Hook::on_predict_epoch_end, &Callback::on_predict_epoch_end},
}};

constexpr std::array<NamedHook<FabricBatchHook>, 5> kBatchHooks{{
    {Hook::on_validation_batch_start, &Callback::on_validation_batch_start},
    {Hook::on_validation_batch_end, &Callback::on_validation_batch_end},
    {Hook::on_test_batch_start, &Callback::on_test_batch_start},
    {Hook::on_test_batch_end, &Callback::on_test_batch_end},
    {Hook::on_predict_batch_start, &Callback::on_predict_batch_start},
}};

template <class Hooks>
auto find_hook(const Hooks& hooks, const std::string& name) {
  return std::find_if(hooks.begin(), hooks.end(), [&](const auto& one) { return name == hook_name(one.hook); });
}

[[noreturn]] void refuse_hook(const std::string& name) {
  std::string plain = "setup, teardown";
  for (const auto& one : kPlainHooks) plain += std::string(", ") + hook_name(one.hook);
  std::string batch = "on_train_batch_start";
  for (const auto& one : kBatchHooks) batch += std::string(", ") + hook_name(one.hook);
  throw Error("\"" + cut_text(name) + "\" is not a hook with these arguments. Without arguments: " + plain +
              "; with batch and index: " + batch +
              "; with loss or prediction, batch and index: on_train_batch_end, on_predict_batch_end.");
}

std::string call_text(const std::string& hook) {
  return "Fabric.call(\"" + cut_text(hook) + "\")";
}

}  // namespace

void Fabric::call(const std::string& hook) {
  named_call(*run_, call_text(hook), [&] {
    if (hook == "setup") {
      return run_->call(Hook::setup,
                        [](Callback& c, Trainer& trainer, LightningModule& m) { c.setup(trainer, m, Stage::fit); });
    }
    if (hook == "teardown") {
      return run_->call(Hook::teardown,
                        [](Callback& c, Trainer& trainer, LightningModule& m) { c.teardown(trainer, m, Stage::fit); });
    }
    const auto found = find_hook(kPlainHooks, hook);
    if (found == kPlainHooks.end()) refuse_hook(hook);
    run_->call(found->hook, [&](Callback& c, Trainer& trainer, LightningModule& m) { (c.*found->member)(trainer, m); });
  });
}

void Fabric::call(const std::string& hook, const Batch& batch, int64_t batch_idx, int64_t dataloader_idx) {
  named_call(*run_, call_text(hook), [&] {
    if (hook == hook_name(Hook::on_train_batch_start)) {
      return run_->call(Hook::on_train_batch_start, [&](Callback& c, Trainer& trainer, LightningModule& m) {
        c.on_train_batch_start(trainer, m, batch, batch_idx);
      });
    }
    const auto found = find_hook(kBatchHooks, hook);
    if (found == kBatchHooks.end()) refuse_hook(hook);
    run_->call(found->hook, [&](Callback& c, Trainer& trainer, LightningModule& m) {
      (c.*found->member)(trainer, m, batch, batch_idx, dataloader_idx);
    });
  });
}

void Fabric::call(const std::string& hook, const at::Tensor& output, const Batch& batch, int64_t batch_idx,
                  int64_t dataloader_idx) {
  named_call(*run_, call_text(hook), [&] {
    if (hook == hook_name(Hook::on_train_batch_end)) {
      return run_->call(Hook::on_train_batch_end, [&](Callback& c, Trainer& trainer, LightningModule& m) {
        c.on_train_batch_end(trainer, m, output, batch, batch_idx);
      });
    }
    if (hook != hook_name(Hook::on_predict_batch_end)) refuse_hook(hook);
    run_->call(Hook::on_predict_batch_end, [&](Callback& c, Trainer& trainer, LightningModule& m) {
      c.on_predict_batch_end(trainer, m, output, batch, batch_idx, dataloader_idx);
    });
  });
}

}  // namespace levin
