// What an optimizer guarantees for capturing its updates on a GPU (TrainerOptions::cuda_graph), tested on a CPU: the
// updates equal an ordinary step's.
#include "levin/libtorch/version.h"
#include "optim/support.h"

namespace levin::recordable_test {
namespace {

using testing::bitwise_equal;
using testing::expect_error;
using testing::make_params;
using testing::train_step;

struct Setting {
  std::string name;
  nlohmann::json init_args;
};

// Learning rates that float32 holds exactly, in which recordable updates read them.
std::vector<Setting> settings() {
  std::vector<Setting> all = {{"SGD", {{"lr", 0.0625}}},
                              {"SGD", {{"lr", 0.0625}, {"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}},
                              {"Adam", {{"lr", 0.0625}, {"amsgrad", true}}},
                              {"AdamW", {{"lr", 0.0625}, {"weight_decay", 0.1}}}};
  if (LEVIN_TORCH_AT_LEAST(2, 8)) all.push_back({"Adagrad", {{"lr", 0.25}, {"lr_decay", 0.05}}});
  return all;
}

struct Trained {
  explicit Trained(const Setting& setting, at::ScalarType type = at::kFloat)
      : params(make_params(type)), optimizer(testing::make<Optimizer>(setting.name, setting.init_args)) {
    optimizer->add_param_group({.params = params});
  }
  void backward() {
    optimizer->zero_grad();
    testing::loss_of(params).backward();
  }
  std::vector<at::Tensor> params;
  std::shared_ptr<Optimizer> optimizer;
};

at::Tensor flag(double value) {
  return at::full({}, value, at::kFloat);
}

TEST(RecordableOptimizer, TakesTheSameStepsWithItsLearningRateInATensor) {
  for (const auto& setting : settings()) {
    Trained plain(setting), recordable(setting);
    recordable.optimizer->make_recordable();
    for (int i = 0; i < 6; ++i) {
      if (i == 3) plain.optimizer->param_groups()[0].lr = recordable.optimizer->param_groups()[0].lr = 0.03125;
      train_step(*plain.optimizer, plain.params);
      train_step(*recordable.optimizer, recordable.params);
      ASSERT_TRUE(bitwise_equal(plain.params, recordable.params)) << setting.name << ", step " << i;
    }
    EXPECT_FALSE(dynamic_cast<BatchedOptimizer&>(*recordable.optimizer).records_learning_rates()) << setting.name;
  }
}

TEST(RecordableOptimizer, CanBeMadeSoInTheMiddleOfARun) {
  for (const auto& setting : settings()) {
    Trained plain(setting), recordable(setting);
    for (int i = 0; i < 5; ++i) {
      if (i == 2) recordable.optimizer->make_recordable();
      train_step(*plain.optimizer, plain.params);
      train_step(*recordable.optimizer, recordable.params);
    }
    EXPECT_TRUE(bitwise_equal(plain.params, recordable.params)) << setting.name;
  }
}

TEST(RecordableOptimizer, AStepThatIsLeftOutLeavesNoTrace) {
  for (const auto& setting : settings()) {
    for (const bool recordable : {true, false}) {
      const std::string what = setting.name + (recordable ? ", recordable" : "");
      Trained whole(setting), left_out(setting);
      if (recordable) left_out.optimizer->make_recordable();
      train_step(*whole.optimizer, whole.params);
      train_step(*left_out.optimizer, left_out.params);
      left_out.backward();
      left_out.optimizer->step_unless(flag(1));
      EXPECT_TRUE(bitwise_equal(whole.params, left_out.params)) << what;
      for (int i = 0; i < 3; ++i) {
        train_step(*whole.optimizer, whole.params);
        left_out.backward();
        left_out.optimizer->step_unless(flag(0));
      }
      EXPECT_TRUE(bitwise_equal(whole.params, left_out.params)) << what;
      const State one = whole.optimizer->state_dict(), other = left_out.optimizer->state_dict();
      for (const auto& [name, tensor] : one.tensors) {
        EXPECT_TRUE(at::equal(tensor, other.tensor(name))) << what << ": " << name;
      }
    }
  }
}

TEST(RecordableOptimizer, ItsVersionTellsWhenTensorsCameOrWent) {
  Trained trained({"AdamW", {{"lr", 0.0625}}});
  train_step(*trained.optimizer, trained.params);
  const int64_t version = trained.optimizer->version();
  train_step(*trained.optimizer, trained.params);
  trained.optimizer->param_groups()[0].lr = 0.5;
  train_step(*trained.optimizer, trained.params);
  EXPECT_EQ(trained.optimizer->version(), version);
  trained.backward();
  trained.params[0].mutable_grad() = at::Tensor();
  trained.optimizer->step();
  EXPECT_NE(trained.optimizer->version(), version);
  const int64_t later = trained.optimizer->version();
  trained.optimizer->load_state_dict(trained.optimizer->state_dict());
  EXPECT_NE(trained.optimizer->version(), later);
}

TEST(RecordableOptimizer, AdagradIsOneFromTheLibTorchOnWhoseKernelTakesATensor) {
  Trained plain({"Adagrad", {{"lr", 0.25}}}), recordable({"Adagrad", {{"lr", 0.25}}});
  EXPECT_EQ(recordable.optimizer->is_recordable(), LEVIN_TORCH_AT_LEAST(2, 8));
  EXPECT_EQ(recordable.optimizer->why_not_recordable().empty(), LEVIN_TORCH_AT_LEAST(2, 8));
  recordable.optimizer->make_recordable();
  train_step(*plain.optimizer, plain.params);
  if (LEVIN_TORCH_AT_LEAST(2, 8)) {
    train_step(*recordable.optimizer, recordable.params);
    EXPECT_TRUE(bitwise_equal(plain.params, recordable.params));
  } else {
    expect_error<Error>([&] { train_step(*recordable.optimizer, recordable.params); },
                        {"Adagrad's recorded update needs LibTorch 2.8 or newer; this is Levin with LibTorch " +
                         torch_version() + "."});
    expect_error<Error>([&] { recordable.optimizer->step_unless(flag(0)); }, {"its update cannot be recorded"});
  }
}

TEST(RecordableOptimizer, ThoseThatComputeOnTheHostRefuse) {
  for (const char* name : {"RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "LBFGS"}) {
    const auto optimizer = testing::make<Optimizer>(name, nlohmann::json::object());
    EXPECT_FALSE(optimizer->is_recordable()) << name;
    EXPECT_EQ(optimizer->why_not_recordable(), "") << name;  // no LibTorch records it
    expect_error<Error>([&] { optimizer->step_unless(flag(0)); },
                        {std::string(name) + ": its update cannot be recorded", "AdamW"});
  }
}

}  // namespace
}  // namespace levin::recordable_test
