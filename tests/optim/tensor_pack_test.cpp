// Small tensors that are updated as one: bitwise identical to tensor by tensor, regardless of what happens between
// steps.
#include "levin/optim/tensor_pack.h"

#include <ATen/ops/_neg_view.h>

#include "optim/support.h"

namespace levin::tensor_pack_test {
namespace {

using Tensors = std::vector<at::Tensor>;

const std::vector<nlohmann::json>& settings() {
  static const std::vector<nlohmann::json> all = {
      {"RMSprop", {{"lr", 0.01}}},
      {"RMSprop", {{"lr", 0.01}, {"alpha", 0.9}, {"eps", 1e-6}, {"weight_decay", 0.1}, {"maximize", true}}},
      {"RMSprop", {{"lr", 0.01}, {"momentum", 0.5}, {"centered", true}, {"weight_decay", 0.1}}},
      {"Adadelta", {{"lr", 0.5}, {"rho", 0.8}, {"weight_decay", 0.1}}},
      {"Adadelta", {{"maximize", true}}},
      {"Adamax", {{"lr", 0.01}, {"weight_decay", 0.1}}},
      {"Adamax", {{"betas", {0.8, 0.9}}, {"maximize", true}}},
      {"NAdam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"momentum_decay", 0.01}}},
      {"NAdam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"decoupled_weight_decay", true}, {"maximize", true}}},
      {"RAdam", {{"lr", 0.01}, {"weight_decay", 0.1}}},
      {"RAdam", {{"lr", 0.01}, {"weight_decay", 0.1}, {"decoupled_weight_decay", true}, {"maximize", true}}}};
  return all;
}

// A tensor that is column by column in memory is not packed, and operators go through its numbers in the same order.
at::Tensor by_column(const at::Tensor& matrix) {
  return matrix.detach().t().contiguous().t();
}

at::Tensor values(at::IntArrayRef sizes, at::ScalarType type, double seed) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::arange(count, at::kDouble).mul_(0.37).add_(seed + 0.3).sin_().reshape(sizes).to(type);
}

// The same parameters twice, with the same numbers in the same order in memory: row by row, which is packed, and as
// their transposes, which is not.
struct Twins {
  Tensors packed, apart;

  explicit Twins(at::ScalarType type) {
    // Of 16 bits ATen rounds what fills no vector otherwise: those sizes are left out.
    const bool is_short = at::elementSize(type) == 2;
    const std::vector<std::vector<int64_t>> shapes = {
        {64, 2}, {is_short ? 64 : 3, 5}, {128, 8}, {2, is_short ? 32 : 2}, {is_short ? 64 : 70, 33}};
    for (const auto& shape : shapes) {
      const at::Tensor value = values(shape, type, static_cast<double>(packed.size()));
      packed.push_back(value.clone().requires_grad_(true));
      apart.push_back(value.t().requires_grad_(true));
    }
  }

  void set_grad(size_t i, double seed) const {
    const at::Tensor grad = values(packed[i].sizes(), packed[i].scalar_type(), seed);
    packed[i].mutable_grad() = grad;
    apart[i].mutable_grad() = grad.clone().t();
  }

  [[nodiscard]] bool are_equal() const {
    for (size_t i = 0; i < packed.size(); ++i) {
      // eps is 0 as a half: a gradient that is nearly 0 then gives nan on both sides.
      if (!at::allclose(packed[i], apart[i].t(), 0, 0, /*equal_nan=*/true)) return false;
      if (at::isfinite(packed[i]).to(at::kFloat).mean().item<float>() < 0.9) return false;
    }
    return true;
  }
};

// Two groups with numbers of their own.
std::shared_ptr<Optimizer> make_optimizer(const nlohmann::json& setting, const Tensors& params) {
  auto optimizer = testing::make<Optimizer>(setting[0], setting[1]);
  optimizer->add_param_group({.params = {params[0], params[1], params[2]}});
  optimizer->add_param_group({.params = {params.begin() + 3, params.end()}, .lr = 0.03, .weight_decay = 0.2});
  return optimizer;
}

State deep_copy(State state) {
  for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
  return state;
}

// What update() was given.
class Probe final : public BatchedOptimizer {
 public:
  Probe(Tensors params, bool packs) : BatchedOptimizer({.lr = 0.1}), packs_(packs) {
    add_param_group({.params = std::move(params)});
  }
  [[nodiscard]] std::string name() const override { return "Probe"; }
  std::vector<std::vector<int64_t>> calls;  // the numbers of the tensors of each

 private:
  std::vector<std::string> state_names() const override { return {"sum"}; }
  double initial_state() const override { return 0.5; }
  bool packs_small_tensors() const override { return packs_; }
  void update(Batch& batch, const Group& group) override {
    auto& call = calls.emplace_back();
    for (const auto& param : batch.params) call.push_back(param.numel());
    at::_foreach_add_(batch.state[0], batch.grads);
    at::_foreach_add_(batch.params, batch.state[0], -group.lr);
  }
  bool packs_;
};

Tensors with_gradients(const std::vector<std::vector<int64_t>>& shapes) {
  Tensors params;
  for (const auto& shape : shapes) {
    params.push_back(at::ones(shape).requires_grad_(true));
    params.back().mutable_grad() = at::ones(shape);
  }
  return params;
}

TEST(TensorPack, UpdatesSmallTensorsOfAGroupAsOne) {
  using Calls = std::vector<std::vector<int64_t>>;
  const int64_t large = detail::TensorPack::kLargest;
  const Tensors params = with_gradients({{40}, {}, {0}, {3, 3}, {large + 1}, {large}, {large}, {2}});
  Probe packed(params, true);
  packed.step();
  // In steps of 128 bytes: 64 + 32 + 0 + 32 + large; the larger one alone; what found no room and the small one.
  EXPECT_EQ(packed.calls, (Calls{{128 + large}, {large + 1}, {large + 32}}));
  const State state = packed.state_dict();
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_TRUE(at::allclose(params[i], at::full_like(params[i], 0.85))) << i;
    const at::Tensor sum = state.tensor(std::to_string(i) + ".sum");
    EXPECT_TRUE(at::equal(sum, at::full_like(params[i], 1.5))) << i << " " << sum.sizes();
  }
  Probe apart(params, false);
  apart.step();
  EXPECT_EQ(apart.calls, (Calls{{40, 1, 0, 9, large + 1, large, large, 2}}));
}

TEST(TensorPack, KeepsTypesApartAndTakesWhatLiesInOrder) {
  Tensors params = with_gradients({{4, 4}, {4, 4}, {4, 4}, {4, 4}});
  params[1] = by_column(params[1]).requires_grad_(true);
  params[1].mutable_grad() = at::ones({4, 4});
  params[2] = at::ones({4, 4}, at::kDouble).requires_grad_(true);
  params[2].mutable_grad() = at::ones({4, 4}, at::kDouble);
  Probe optimizer(params, true);
  optimizer.step();
  EXPECT_EQ(optimizer.calls, (std::vector<std::vector<int64_t>>{{64}, {16}, {16}}));
  for (const auto& param : params) EXPECT_TRUE(at::allclose(param, at::full_like(param, 0.85)));
}

// Gradients come and go, the user writes into parameters, gives them other memory and changes a group's numbers.
TEST(TensorPack, IsBitwiseIdenticalToUpdatesOneByOne) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const auto& setting : settings()) {
      const Twins twins(type);
      const auto packed = make_optimizer(setting, twins.packed), apart = make_optimizer(setting, twins.apart);
      for (int step = 0; step < 9; ++step) {
        for (size_t i = 0; i < twins.packed.size(); ++i) {
          twins.packed[i].mutable_grad().reset();
          twins.apart[i].mutable_grad().reset();
          if ((i == 1 && step % 3 == 1) || (i == 4 && step < 2)) continue;
          twins.set_grad(i, step + 0.1 * static_cast<double>(i));
        }
        const at::NoGradGuard no_grad;
        if (step == 3) {
          twins.packed[0].mul_(0.5);
          twins.apart[0].mul_(0.5);
          packed->param_groups()[1].lr = apart->param_groups()[1].lr = 0.05;
        }
        if (step == 5) {
          twins.packed[2].set_data(twins.packed[2].detach() + 1);
          twins.apart[2].set_data(twins.apart[2].detach() + 1);
        }
        packed->step();
        apart->step();
        ASSERT_TRUE(twins.are_equal()) << setting << " " << type << " step " << step;
      }
    }
  }
}

TEST(TensorPack, ContinuesFromStateOfTensorsUpdatedOneByOneAndTheOtherWayRound) {
  for (const auto& setting : settings()) {
    const Twins twins(at::kFloat);
    auto packed = make_optimizer(setting, twins.packed), apart = make_optimizer(setting, twins.apart);
    for (int step = 0; step < 6; ++step) {
      for (size_t i = 0; i < twins.packed.size(); ++i) twins.set_grad(i, step + 0.1 * static_cast<double>(i));
      packed->step();
      apart->step();
      const State of_packed = deep_copy(packed->state_dict()), of_apart = deep_copy(apart->state_dict());
      ASSERT_EQ(of_packed.tensors.size(), of_apart.tensors.size());
      State to_packed = of_apart, to_apart = of_packed;  // each takes the other's, turned as it lies
      for (const auto& [name, tensor] : of_packed.tensors) {
        const at::Tensor& other = of_apart.tensors.at(name);
        EXPECT_TRUE(at::equal(tensor, tensor.dim() == 2 ? other.t() : other)) << setting << name;
        to_packed.tensors[name] = other.dim() == 2 ? other.t() : other;
        to_apart.tensors[name] = tensor.dim() == 2 ? tensor.t() : tensor;
      }
      if (step != 2) continue;
      packed = make_optimizer(setting, twins.packed);
      apart = make_optimizer(setting, twins.apart);
      packed->load_state_dict(to_packed);
      apart->load_state_dict(to_apart);
    }
    EXPECT_TRUE(twins.are_equal()) << setting;
  }
}

// The numbers of a tensor must not depend on where it lies in a pack.
TEST(TensorPack, DoesNotDependOnTheOtherTensors) {
  for (const auto& setting : settings()) {
    Tensors together;
    for (const int64_t size : {1, 7, 33, 100, 257}) together.push_back(values({size}, at::kFloat, 0.2));
    Tensors alone;
    for (auto& param : together) alone.push_back(param.clone().requires_grad_(true));
    for (auto& param : together) param.requires_grad_(true);
    auto one = testing::make<Optimizer>(setting[0], setting[1]);
    one->add_param_group({.params = together});
    std::vector<std::shared_ptr<Optimizer>> singles;
    for (const auto& param : alone) {
      singles.push_back(testing::make<Optimizer>(setting[0], setting[1]));
      singles.back()->add_param_group({.params = {param}});
    }
    for (int step = 0; step < 5; ++step) {
      for (size_t i = 0; i < together.size(); ++i) {
        together[i].mutable_grad() = values(together[i].sizes(), at::kFloat, step);
        alone[i].mutable_grad() = together[i].grad().clone();
        singles[i]->step();
      }
      one->step();
    }
    EXPECT_TRUE(testing::bitwise_equal(together, alone)) << setting;
  }
}

TEST(TensorPack, TakesGradientsHoweverTheyLie) {
  const Tensors params = with_gradients({{4, 6}, {4, 6}, {4, 6}, {4, 6}});
  const at::Tensor grad = values({4, 6}, at::kFloat, 0.3);
  params[0].mutable_grad() = grad;
  params[1].mutable_grad() = by_column(grad);
  params[2].mutable_grad() = at::_neg_view(-grad);
  params[3].mutable_grad() = at::_efficientzerotensor({4, 6}, at::TensorOptions(at::kFloat));
  Probe optimizer(params, true);
  optimizer.step();
  EXPECT_EQ(optimizer.calls.size(), 1U);
  const at::Tensor expected = at::ones({4, 6}) - 0.1 * (grad + 0.5);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(params[i], expected)) << i;
  EXPECT_TRUE(at::allclose(params[3], at::full({4, 6}, 0.95)));
  EXPECT_TRUE(at::equal(params[1].grad(), grad)) << "the gradient is the user's";

  params[1].mutable_grad() = at::ones({4, 6}).to_sparse();
  testing::expect_error<Error>([&] { optimizer.step(); }, {"Probe: tensor 1", "(4, 6)", "sparse(false)"});
}

TEST(TensorPack, LetsAutogradNoticeTheUpdate) {
  const Tensors params = with_gradients({{3}});
  RMSprop optimizer(params);
  auto loss = params[0].pow(2).sum();
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(TensorPack, IsNotKeptAliveByATensorThatLeft) {
  const Tensors params = with_gradients({{3}, {1000}});
  RMSprop optimizer(params);
  optimizer.step();
  const at::Tensor before = optimizer.state_dict().tensor("0.square_avg").clone();
  params[0].mutable_grad().reset();
  optimizer.step();
  const at::Tensor left = optimizer.state_dict().tensor("0.square_avg");
  EXPECT_EQ(left.storage().nbytes(), 12U);
  EXPECT_TRUE(at::equal(left, before));
  EXPECT_EQ(optimizer.state_dict().tensor("0.step").item<double>(), 1);
  EXPECT_EQ(optimizer.state_dict().tensor("1.step").item<double>(), 2);
}

}  // namespace
}  // namespace levin::tensor_pack_test
