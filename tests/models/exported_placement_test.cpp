// strategy: ModelParallel of submodules of an exported program, on logical CPU devices.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "levin/core/module_call.h"
#include "levin/models/exported/exported_program.h"
#include "levin/models/exported_model.h"
#include "levin/optim/sgd.h"
#include "levin/strategies/device/model_parallel.h"
#include "levin/trainer/random_state.h"
#include "levin/trainer/trainer.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/tensor_loader.h"
#include "support/trained.h"

namespace levin::exported_placement_test {
namespace {

using test::error_of;
using test::holds;

const std::string kData = test::source_dir() + "/tests/models/data/";

struct Result {
  test::Trained trained;
  PlacementTrace trace;
};

// Without dropout, whose random numbers a pipeline draws in a different order. SGD, because the gradient of a key's
// bias is rounding alone, which AdamW would make a whole step.
class Steady : public ExportedModule {
 public:
  using ExportedModule::ExportedModule;
  void on_train_start() override { eval(); }
  OptimizerConfig configure_optimizers() override { return SGD(parameters(), {.lr = 0.1}); }
};

Result train(ExportedModule& model, const std::vector<at::Tensor>& data, ModelParallelOptions parallel,
             RecomputeChoice recompute) {
  TrainerOptions options;
  options.accelerator = "cpu";
  options.devices = 4;
  options.max_epochs = 2;
  options.recompute = std::move(recompute);
  options.logger = false;
  options.enable_checkpointing = options.enable_progress_bar = options.enable_model_summary = false;
  options.num_sanity_val_steps = 0;
  const auto strategy = std::make_shared<ModelParallel>(std::move(parallel));
  strategy->set_recording(true);
  options.strategy = strategy;
  seed_everything(7);
  Trainer trainer(std::move(options));
  trainer.fit(model, std::make_shared<test::TensorLoader>(data, 4));
  EXPECT_FALSE(CallActions::any());
  return {test::trained_by(trainer, model), strategy->trace()};
}

template <class Model = ExportedModule>
Result train(ModelParallelOptions parallel, RecomputeChoice recompute = {}) {
  Model model({.path = kData + "transformer.pt2"});
  const at::Tensor batch = torch::arange(12 * 7).view({12, 7}).remainder(20);
  return train(model, {batch, batch.roll(-1, 1)}, std::move(parallel), std::move(recompute));
}

// The program that calls one of its modules three times.
std::string calls_error(ModelParallelOptions parallel) {
  return error_of([&] {
    ExportedModule model({.path = kData + "calls.pt2", .loss = ExportedLoss::none});
    (void)train(model, {torch::arange(32, torch::kFloat).view({8, 4}).cos()}, std::move(parallel), {});
  });
}

constexpr int64_t kSteps = 6;

TEST(ExportedPlacement, IsBitwiseIdenticalToOneDevice) {
  const Result alone = train({.placement = Placement{}});
  EXPECT_EQ(alone.trace.transfers, 0);
  for (const Placement& placement :
       {Placement{{"h.0", 1}, {"h.1", 2}}, Placement{{"h", 1}}, Placement{{"tokens", 3}, {"h.*.mlp", 1}, {"norm", 2}},
        Placement{{"h", 1}, {"h.1.attn", 2}}, Placement{{"tokens", 1}, {"head", 2}}}) {
    test::expect_same_bits(train({.placement = placement}).trained, alone.trained);
  }
}

TEST(ExportedPlacement, WorksWithRecomputation) {
  const Result alone = train({.placement = Placement{}});
  test::expect_same_bits(
      train({.placement = Placement{{"h.0", 1}, {"h.1", 2}}}, RecomputeOptions{.modules = {"h.*"}}).trained,
      alone.trained);
}

TEST(ExportedPlacement, MovesWhatComesInAndWhatIsUsedOutside) {
  const Result result = train({.placement = Placement{{"h.0", 1}, {"h.1", 2}}});
  std::set<std::string> seen;
  for (const auto& event : result.trace.events) seen.insert(event.part + " " + event.slot);
  EXPECT_EQ(seen, (std::set<std::string>{"h.0 cpu:1", "h.1 cpu:2"}));
  // In: the hidden state and the mask; from 1 to 2 directly, with the mask; out: the hidden state.
  EXPECT_EQ(result.trace.transfers, 5 * kSteps);
  const int64_t hidden = 4 * 7 * 8 * 4, mask = 4 * 7 * 7;  // bytes
  EXPECT_EQ(result.trace.transferred_bytes, (3 * hidden + 2 * mask) * kSteps);
  // Blocks on one device: the hidden state stays there.
  EXPECT_EQ(train({.placement = Placement{{"h.*", 1}}}).trace.transfers, 3 * kSteps);
  // The output layer is the embedding: its weight is moved from where the embedding is, and trained there.
  EXPECT_EQ(train({.placement = Placement{{"head", 2}}}).trace.transfers, 3 * kSteps);
}

TEST(ExportedPlacement, APipelineOfItsSubmodulesSplitsTheBatch) {
  const Placement stages = {{"tokens", 0}, {"places", 0}, {"h.0", 1}, {"h.1", 2}, {"norm", 3}, {"head", 3}};
  const Result piped = train<Steady>({.placement = stages, .pipeline = PipelineOptions{.micro_batches = 2}});
  const Result alone = train<Steady>({.placement = Placement{}});
  ASSERT_EQ(piped.trained.tensors.size(), alone.trained.tensors.size());
  for (size_t k = 0; k < alone.trained.tensors.size(); ++k) {
    EXPECT_TRUE(torch::allclose(piped.trained.tensors[k], alone.trained.tensors[k], 1e-4, 1e-5)) << k;
  }
  std::set<std::string> forward;
  for (const auto& event : piped.trace.events) {
    if (event.what == "F") forward.insert(event.part + " " + event.slot + " " + std::to_string(event.micro_batch));
  }
  EXPECT_EQ(forward,
            (std::set<std::string>{"tokens, places cpu:0 0", "tokens, places cpu:0 1", "h.0 cpu:1 0", "h.0 cpu:1 1",
                                   "h.1 cpu:2 0", "h.1 cpu:2 1", "norm, head cpu:3 0", "norm, head cpu:3 1"}));
}

TEST(ExportedPlacement, RefusesWhatItCannotPlace) {
  const auto error = [](Placement placement, std::optional<PipelineOptions> pipeline = std::nullopt) {
    return error_of([&] { (void)train({.placement = std::move(placement), .pipeline = pipeline}); });
  };
  EXPECT_TRUE(holds(error({{"h.0", std::vector<int64_t>{0, 1}}}),
                    {"cannot be copied to cpu:1", "a submodule of an exported program computes on one device"}));
  EXPECT_TRUE(holds(error({{"h.0.mlp", std::vector<int64_t>{0, 1}}}), {"computes on one device"}));
  EXPECT_TRUE(holds(error({{"h.0", 1}}, PipelineOptions{}), {"belongs to no part", "with a pipeline"}));
  EXPECT_EQ(calls_error({.placement = Placement{{"one", 1}, {"down", 2}}}), "");
  const Placement stages = {{"one", 0}, {"net", 1}, {"down.*", 2}, {"up.*", 2}, {"still", 3}};
  EXPECT_TRUE(holds(calls_error({.placement = stages, .pipeline = PipelineOptions{.micro_batches = 2}}),
                    {"the step called one where", "was expected", "must call each part once"}));
  // A list that begins inside another list.
  EXPECT_TRUE(holds(calls_error({.placement = Placement{{"up", 1}}}),
                    {"up on cpu:1 was not called on its device", "name a module that Python calls"}));
}

// Stands for a device of its own: gives a region copies of what comes in.
class Copies final : public CallAction {
 public:
  TensorList around(const ModuleForward& forward, const TensorList& inputs, ChainPosition) override {
    TensorList copies;
    for (const at::Tensor& input : inputs) copies.push_back(input.clone());
    return forward(copies, nullptr);
  }
};

class Copied {
 public:
  explicit Copied(const torch::nn::Module& module) : module_(module) { CallActions::add(&module, action_); }
  ~Copied() { CallActions::remove(&module_, action_.get()); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;

 private:
  const torch::nn::Module& module_;
  std::shared_ptr<Copies> action_ = std::make_shared<Copies>();
};

at::Tensor calls_with_copies_of(const std::string& module) {
  ExportedProgram net(kData + "calls.pt2");
  std::optional<Copied> copied;
  if (!module.empty()) copied.emplace(*net.named_modules("", false)[module]);
  torch::manual_seed(1);
  return net.forward({torch::arange(24, torch::kFloat).view({6, 4}).cos()}).at(0).detach();
}

TEST(ExportedPlacement, AChangeInPlaceOfAMovedInputIsAnErrorAndNotLost) {
  const at::Tensor plain = calls_with_copies_of("");
  for (const std::string module : {"one", "net", "down", "middle"}) {
    EXPECT_TRUE(calls_with_copies_of(module).equal(plain)) << module;
  }
  EXPECT_TRUE(holds(error_of([] { (void)calls_with_copies_of("add"); }),
                    {"add of the exported program has changed its input, of shape (6, 4), in place", "result of mul",
                     "a copy of it on another device", "Place the module around both"}));
  EXPECT_TRUE(holds(error_of([] { (void)calls_with_copies_of("count"); }), {"changes count.seen in place"}));
}

}  // namespace
}  // namespace levin::exported_placement_test
