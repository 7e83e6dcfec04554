// Saving and loading every optimizer in the middle of a run.
#include "levin/core/tensors.h"
#include "optim/support.h"

namespace levin::optimizer_state_test {
namespace {

using testing::expect_error;
using testing::make_params;
using testing::train_step;

struct Setting {
  std::string name;
  nlohmann::json init_args;
};

std::vector<Setting> settings() {
  return {
      {"SGD", {{"lr", 0.05}}},
      {"SGD", {{"lr", 0.05}, {"momentum", 0.9}, {"nesterov", true}}},
      {"Adam", {{"lr", 0.05}, {"weight_decay", 0.1}}},
      {"Adam", {{"lr", 0.05}, {"amsgrad", true}, {"decoupled_weight_decay", true}, {"weight_decay", 0.1}}},
      {"AdamW", {{"lr", 0.05}, {"amsgrad", true}}},
      {"RMSprop", {{"lr", 0.02}, {"momentum", 0.5}, {"centered", true}}},
      {"Adagrad", {{"lr", 0.2}, {"lr_decay", 0.05}, {"initial_accumulator_value", 0.1}}},
      {"Adadelta", {{"rho", 0.8}}},
      {"Adafactor", {{"lr", 0.05}, {"weight_decay", 0.1}}},
      {"Adamax", {{"lr", 0.05}}},
      {"NAdam", {{"lr", 0.05}, {"weight_decay", 0.1}}},
      {"RAdam", {{"lr", 0.05}}},
      {"LARS", {{"lr", 5}, {"weight_decay", 0.1}}},
      {"LAMB", {{"lr", 0.05}}},
      {"Muon", {{"lr", 0.05}}},
      {"ScheduleFreeAdamW", {{"lr", 0.05}, {"weight_decay", 0.1}, {"warmup_steps", 6}}},
      {"SAM", {{"rho", 0.1}, {"optimizer", {{"class_path", "SGD"}, {"init_args", {{"lr", 0.05}, {"momentum", 0.9}}}}}}},
      {"Lookahead", {{"k", 3}, {"optimizer", {{"class_path", "AdamW"}, {"init_args", {{"lr", 0.05}}}}}}},
      {"LBFGS", {{"lr", 0.5}, {"max_iter", 3}}},
      {"LBFGS", {{"max_iter", 4}, {"history_size", 2}, {"line_search_fn", "strong_wolfe"}}}};
}

std::shared_ptr<Optimizer> make_optimizer(const Setting& setting, const std::vector<at::Tensor>& params) {
  auto optimizer = testing::make<Optimizer>(setting.name, setting.init_args);
  optimizer->add_param_group({.params = params});
  return optimizer;
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& params) {
  std::vector<at::Tensor> made;
  for (const auto& param : params) made.push_back(param.detach().clone().requires_grad_(true));
  return made;
}

State deep_copy(State state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

TEST(OptimizerState, ResumesBitwiseIdentical) {
  for (const auto& setting : settings()) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      auto params = make_params(type);
      auto optimizer = make_optimizer(setting, params);
      for (int i = 0; i < 4; ++i) train_step(*optimizer, params);

      auto resumed_params = copies(params);
      auto resumed = make_optimizer(setting, resumed_params);
      resumed->load_state_dict(deep_copy(optimizer->state_dict()));
      for (int i = 0; i < 5; ++i) {
        train_step(*optimizer, params);
        train_step(*resumed, resumed_params);
        ASSERT_TRUE(testing::bitwise_equal(params, resumed_params))
            << setting.name << setting.init_args << " step " << i;
      }
    }
  }
}

TEST(OptimizerState, LoadsIntoAnOptimizerThatHasAlreadyRun) {
  for (const auto& setting : settings()) {
    auto params = make_params();
    auto optimizer = make_optimizer(setting, params);
    for (int i = 0; i < 3; ++i) train_step(*optimizer, params);
    const State saved = deep_copy(optimizer->state_dict());
    const auto at_save = copies(params);
    for (int i = 0; i < 3; ++i) train_step(*optimizer, params);
    const auto at_end = copies(params);

    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i) params[i].copy_(at_save[i]);
    optimizer->load_state_dict(saved);
    for (int i = 0; i < 3; ++i) train_step(*optimizer, params);
    EXPECT_TRUE(testing::bitwise_equal(params, at_end)) << setting.name << setting.init_args;
  }
}

TEST(OptimizerState, HasTheLayoutThatEveryOptimizerDeclares) {
  for (const auto& setting : settings()) {
    auto params = make_params();
    auto optimizer = make_optimizer(setting, params);
    for (int i = 0; i < 2; ++i) train_step(*optimizer, params);
    EXPECT_NO_THROW(optimizer->check_layouts(optimizer->state_dict())) << setting.name << setting.init_args;
  }
  EXPECT_EQ(Lookahead(Adafactor(make_params()), {}).layout("row_var"), StateLayout::own_shape);
  EXPECT_EQ(Lookahead(Adafactor(make_params()), {}).layout("slow"), StateLayout::elementwise);
  EXPECT_EQ(NAdam(make_params()).layout("mu_product"), StateLayout::scalar);
}

TEST(OptimizerState, ThatContradictsItsLayoutIsNamed) {
  auto params = make_params();
  SGD optimizer(params);
  State state = optimizer.state_dict();
  state.tensors["1.k"] = at::scalar_tensor(3.0);
  expect_error<Error>([&] { optimizer.check_layouts(state); }, {"SGD", "\"1.k\"", "shape ()", "layout(\"k\")", "(5)"});
  state = optimizer.state_dict();
  state.tensors["0.step"] = at::ones({3, 4});
  expect_error<Error>([&] { optimizer.check_layouts(state); }, {"SGD", "\"0.step\"", "(3, 4)", "scalar"});
}

TEST(OptimizerState, OfAdafactorHasOneFactorPerRowAndColumn) {
  const std::vector<at::Tensor> params = {at::ones({2, 3, 4}).requires_grad_(true), at::ones({5}).requires_grad_(true)};
  Adafactor optimizer(params, {.lr = 0.1});
  train_step(optimizer, params);
  State state = optimizer.state_dict();
  EXPECT_EQ(state.tensor("0.row_var").sizes(), at::IntArrayRef({2, 3, 1}));
  EXPECT_EQ(state.tensor("0.col_var").sizes(), at::IntArrayRef({2, 1, 4}));
  EXPECT_EQ(state.tensor("1.variance").sizes(), at::IntArrayRef({5}));
  state.tensors["0.col_var"] = at::ones({2, 1, 5});
  expect_error<CheckpointError>([&] { optimizer.load_state_dict(state); },
                                {"Adafactor", "\"0.col_var\"", "(2, 1, 5)", "(2, 1, 4)"});
}

TEST(OptimizerState, IsNamedAsInPyTorch) {
  const std::map<std::string, std::vector<std::string>> names = {
      {"SGD", {"0.momentum_buffer"}},
      {"Adam", {"0.exp_avg", "0.exp_avg_sq", "0.step"}},
      {"AdamW", {"0.exp_avg", "0.exp_avg_sq", "0.step"}},
      {"RMSprop", {"0.square_avg", "0.step"}},
      {"Adagrad", {"0.step", "0.sum"}},
      {"Adadelta", {"0.acc_delta", "0.square_avg", "0.step"}},
      {"Adafactor", {"0.col_var", "0.row_var", "0.step"}},
      {"Adamax", {"0.exp_avg", "0.exp_inf", "0.step"}},
      {"LARS", {"0.momentum_buffer"}},
      {"LAMB", {"0.exp_avg", "0.exp_avg_sq", "0.step"}},
      {"NAdam", {"0.exp_avg", "0.exp_avg_sq", "0.mu_product", "0.step"}},
      {"RAdam", {"0.exp_avg", "0.exp_avg_sq", "0.step"}}};
  for (const auto& [name, expected] : names) {
    auto args = nlohmann::json::object();
    if (name == "SGD") args["momentum"] = 0.9;
    const std::vector<at::Tensor> params = {make_params()[0]};
    auto optimizer = make_optimizer({name, args}, params);
    EXPECT_TRUE(optimizer->state_dict().tensors.empty()) << name;
    for (int i = 0; i < 2; ++i) train_step(*optimizer, params);
    std::vector<std::string> found;
    const State state = optimizer->state_dict();
    for (const auto& [key, tensor] : state.tensors) found.push_back(key);
    EXPECT_EQ(found, expected) << name;
    if (name == "SGD" || name == "LARS") continue;
    EXPECT_EQ(state.tensor("0.step").scalar_type(), at::kFloat);
    EXPECT_EQ(state.tensor("0.step").item<double>(), 2) << name;
  }
}

TEST(OptimizerState, HoldsTheNumbersOfTheGroups) {
  auto params = make_params();
  SGD optimizer(std::vector<ParamGroup>{{.params = {params[0]}, .lr = 0.3}, {.params = {params[1], params[2]}}},
                {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  train_step(optimizer, params);
  optimizer.param_groups()[0].lr = 0.25;
  optimizer.param_groups()[1].momentum = 0.8;
  const State saved = optimizer.state_dict();

  auto other_params = make_params();
  SGD other(std::vector<ParamGroup>{{.params = {other_params[0]}}, {.params = {other_params[1], other_params[2]}}},
            {.lr = 7, .momentum = 0.5});
  other.load_state_dict(saved);
  EXPECT_EQ(other.param_groups()[0].lr, 0.25);
  EXPECT_EQ(other.param_groups()[0].weight_decay, 0.01);
  EXPECT_EQ(other.param_groups()[1].lr, 0.1);
  EXPECT_EQ(other.param_groups()[1].momentum, 0.8);
}

TEST(OptimizerState, NamesWhatDoesNotMatch) {
  auto params = make_params();
  AdamW adamw(params, {.amsgrad = true});
  train_step(adamw, params);
  const State saved = adamw.state_dict();

  SGD sgd(make_params());
  expect_error<CheckpointError>([&] { sgd.load_state_dict(saved); }, {"SGD", "belongs to AdamW", "Use the optimizer"});

  AdamW two_groups(std::vector<ParamGroup>{{.params = {make_params()[0]}}, {.params = {make_params()[1]}}});
  expect_error<CheckpointError>([&] { two_groups.load_state_dict(saved); },
                                {"AdamW", "1 parameter group,", "this one has 2", "Add the same groups"});

  AdamW fewer(std::vector<at::Tensor>{make_params()[0]});
  expect_error<CheckpointError>([&] { fewer.load_state_dict(saved); }, {"group 0", "3 tensors", "1 here"});

  auto other_shapes = make_params();
  other_shapes[1] = at::ones({6}, at::kDouble).requires_grad_(true);
  AdamW reshaped(other_shapes, {.amsgrad = true});
  expect_error<CheckpointError>([&] { reshaped.load_state_dict(saved); },
                                {"\"1.exp_avg\"", "(5)", "(6)", "same model"});

  AdamW plain(make_params());
  expect_error<CheckpointError>([&] { plain.load_state_dict(saved); },
                                {"\"0.max_exp_avg_sq\"", "known: exp_avg, exp_avg_sq, step", "options of the run"});

  State without = saved;
  without.tensors.erase("2.exp_avg_sq");
  AdamW same(make_params(), {.amsgrad = true});
  expect_error<CheckpointError>([&] { same.load_state_dict(without); }, {"no \"2.exp_avg_sq\""});

  State beyond = saved;
  beyond.tensors["3.exp_avg"] = at::ones({1});
  expect_error<CheckpointError>([&] { same.load_state_dict(beyond); }, {"\"3.exp_avg\"", "0 to 2"});
  for (const std::string key : {"exp_avg", ".exp_avg", "0exp_avg", "0"}) {
    beyond = saved;
    beyond.tensors[key] = at::ones({1});
    expect_error<CheckpointError>([&] { same.load_state_dict(beyond); }, {"\"" + key + "\"", "0 to 2"});
  }
  expect_error<CheckpointError>([&] { same.load_state_dict(State{}); }, {"\"name\""});

  LBFGS lbfgs(make_params());
  State lbfgs_saved = lbfgs.state_dict();
  lbfgs_saved.tensors["0.d"] = at::ones({3});
  expect_error<CheckpointError>([&] { lbfgs.load_state_dict(lbfgs_saved); }, {"LBFGS", "\"0.d\"", "shape"});
}

TEST(OptimizerState, IsUntouchedByALoadThatFails) {
  auto params = make_params();
  auto twin_params = make_params();
  Adam optimizer(params, {.lr = 0.1});
  Adam twin(twin_params, {.lr = 0.1});
  train_step(optimizer, params);
  train_step(twin, twin_params);
  State broken = deep_copy(optimizer.state_dict());
  broken.tensors.at("0.exp_avg").fill_(7);
  broken.tensors.erase("2.exp_avg");
  EXPECT_THROW(optimizer.load_state_dict(broken), CheckpointError);
  train_step(optimizer, params);
  train_step(twin, twin_params);
  EXPECT_TRUE(testing::bitwise_equal(params, twin_params));
}

TEST(OptimizerState, LeavesOutParametersThatNeverHadAGradient) {
  auto params = make_params();
  Adam optimizer(params);
  testing::loss_of({params[0]}).backward();
  optimizer.step();
  const State saved = optimizer.state_dict();
  EXPECT_TRUE(saved.tensors.contains("0.step"));
  EXPECT_FALSE(saved.tensors.contains("1.step"));
  Adam other(make_params());
  other.load_state_dict(saved);
  EXPECT_EQ(other.state_dict().tensors.size(), saved.tensors.size());
}

TEST(OptimizerState, AParameterThatHasAnotherShapeThanItsStateIsAnError) {
  for (const auto& setting : settings()) {
    if (setting.name == "LBFGS" || setting.name == "Adafactor") continue;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 4}, {4000, 40}}) {
      auto params = make_params();
      auto optimizer = make_optimizer(setting, params);
      for (int i = 0; i < 2; ++i) train_step(*optimizer, params);
      if (optimizer->state_dict().tensors.empty()) continue;
      params[0].mutable_grad().reset();
      params[0].set_data(at::full(shape, 0.5, at::kDouble));
      SCOPED_TRACE(setting.name);
      expect_error<Error>([&] { train_step(*optimizer, params); },
                          {": tensor 0 has shape " + shape_text(shape) + ", and its state (3, 4)", "select_rows"});
    }
  }
}

TEST(OptimizerState, AGradientOfAnotherShapeIsAnError) {
  for (const auto& setting : settings()) {
    if (setting.name == "LBFGS" || setting.name == "Adafactor" || setting.name == "SAM") continue;
    auto params = make_params();
    auto optimizer = make_optimizer(setting, params);
    if (optimizer->needs_closure()) continue;
    testing::loss_of(params).backward();
    optimizer->step();
    params[0].set_data(at::full({4000, 40}, 0.5, at::kDouble));
    SCOPED_TRACE(setting.name);
    expect_error<Error>([&] { optimizer->step(); }, {": tensor 0 has shape (4000, 40), and its ", " (3, 4)"});
  }
}

}  // namespace
}  // namespace levin::optimizer_state_test
