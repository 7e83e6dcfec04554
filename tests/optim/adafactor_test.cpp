// Adafactor on shards: ranks, here threads, that each have a range of every parameter end where one optimizer with the
// full parameters does.
#include <barrier>
#include <thread>

#include "optim/support.h"

namespace levin::adafactor_test {
namespace {

constexpr size_t kRanks = 3;

// The sum of what the ranks' threads bring, in the order of ranks.
class ThreadSum {
 public:
  at::Tensor sum(size_t rank, const at::Tensor& value) {
    values_[rank] = value.clone();
    barrier_.arrive_and_wait();
    at::Tensor total = values_[0].clone();
    for (size_t k = 1; k < kRanks; ++k) total.add_(values_[k]);
    barrier_.arrive_and_wait();
    return total;
  }

 private:
  std::array<at::Tensor, kRanks> values_;
  std::barrier<> barrier_{kRanks};
};

class ThreadShards final : public ParameterShards {
 public:
  ThreadShards(size_t rank, ThreadSum& sum) : rank_(rank), sum_(sum) {}
  void add(const at::Tensor& shard, Range range) { ranges_[shard.unsafeGetTensorImpl()] = std::move(range); }
  std::optional<Range> range_of(const at::Tensor& param) const override {
    const auto found = ranges_.find(param.unsafeGetTensorImpl());
    return found == ranges_.end() ? std::nullopt : std::optional(found->second);
  }
  at::Tensor sum_over_ranks(const at::Tensor& value) const override { return sum_.sum(rank_, value); }

 private:
  size_t rank_;
  ThreadSum& sum_;
  std::map<const c10::TensorImpl*, Range> ranges_;
};

struct Parameter {
  std::vector<int64_t> shape;
  std::array<int64_t, kRanks + 1> borders;  // rank k has the elements from borders[k] to borders[k + 1]
};

// Borders within rows, a rank without a part, and tensors of one, two and four dimensions.
const std::vector<Parameter> kParameters = {{{3, 4}, {0, 5, 7, 12}},
                                            {{2, 3, 2, 4}, {0, 13, 13, 48}},
                                            {{5}, {0, 2, 3, 5}},
                                            {{4, 1}, {0, 0, 1, 4}},
                                            {{1, 6}, {0, 6, 6, 6}}};

at::Tensor values_of(const Parameter& parameter, int64_t seed) {
  const int64_t count = c10::multiply_integers(parameter.shape);
  return at::arange(1, count + 1, at::kDouble).mul_(0.37 * static_cast<double>(seed)).sin_();
}

at::Tensor gradient_of(const Parameter& parameter, int64_t step) {
  return values_of(parameter, step + 3) + 0.1;
}

const AdafactorOptions kOptions{.lr = 0.2, .weight_decay = 0.1};

struct RankResult {
  std::vector<at::Tensor> shards;
  State state;
};

RankResult train_rank(size_t rank, ThreadSum& sum, int64_t steps) {
  auto shards = std::make_shared<ThreadShards>(rank, sum);
  std::vector<at::Tensor> params;
  for (const Parameter& parameter : kParameters) {
    const int64_t begin = parameter.borders[rank], end = parameter.borders[rank + 1];
    params.push_back(values_of(parameter, 1).narrow(0, begin, end - begin).clone().requires_grad_(true));
    shards->add(params.back(), {begin, parameter.shape});
  }
  Adafactor optimizer(params, kOptions);
  optimizer.use_shards(shards);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < params.size(); ++i) {
      const int64_t begin = kParameters[i].borders[rank];
      if (params[i].numel() == 0) continue;
      params[i].mutable_grad() = gradient_of(kParameters[i], step).narrow(0, begin, params[i].numel()).clone();
    }
    optimizer.step();
  }
  EXPECT_NO_THROW(optimizer.check_layouts(optimizer.state_dict()));
  return {params, optimizer.state_dict()};
}

TEST(Adafactor, UpdatesShardsAsItUpdatesFullParameters) {
  constexpr int64_t kSteps = 4;
  std::vector<at::Tensor> params;
  for (const Parameter& parameter : kParameters) {
    params.push_back(values_of(parameter, 1).reshape(parameter.shape).requires_grad_(true));
  }
  Adafactor optimizer(params, kOptions);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < params.size(); ++i) {
      params[i].mutable_grad() = gradient_of(kParameters[i], step).reshape(kParameters[i].shape);
    }
    optimizer.step();
  }

  ThreadSum sum;
  std::array<RankResult, kRanks> results;
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { results[rank] = train_rank(rank, sum, kSteps); });
  }
  for (std::thread& rank : ranks) rank.join();

  const State full = optimizer.state_dict();
  for (size_t i = 0; i < params.size(); ++i) {
    std::vector<at::Tensor> shards;
    for (const RankResult& result : results) shards.push_back(result.shards[i].detach());
    const at::Tensor error = at::cat(shards) - params[i].detach().reshape({-1});
    EXPECT_LE(error.abs().max().item<double>(), 1e-12) << "parameter " << i;
    const std::string key = std::to_string(i) + ".row_var";
    if (!full.tensors.contains(key)) continue;
    for (const RankResult& result : results) {
      ASSERT_EQ(result.state.tensors.contains(key), result.shards[i].numel() > 0) << key;
      if (!result.state.tensors.contains(key)) continue;
      EXPECT_TRUE(at::allclose(result.state.tensor(key), full.tensor(key), 1e-12, 1e-14)) << key;
    }
  }
}

// torch.optim.Adafactor takes torch.finfo(dtype).eps for eps[0] unless it is given. These numbers are exact.
TEST(Adafactor, DividesByNoLessThanTheMachineEpsilonOfItsType) {
  for (const auto& [type, epsilon] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 0x1p-52}, {at::kFloat, 0x1p-23}, {at::kHalf, 0x1p-10}, {at::kBFloat16, 0x1p-7}}) {
    const at::Tensor param = at::ones({2}, type).requires_grad_(true);
    Adafactor optimizer({param}, {.lr = 0.5});
    param.mutable_grad() = at::tensor({epsilon / 8, 0.0}, at::kDouble).to(type);
    optimizer.step();
    EXPECT_TRUE(at::equal(param.detach().to(at::kDouble), at::tensor({1 - 0.5 / 8, 1.0}, at::kDouble)))
        << type << ": " << param;
  }
}

TEST(Adafactor, LoadsAFullStateIntoShards) {
  ThreadSum sum;
  ThreadShards shards(0, sum);
  const Parameter& matrix = kParameters[0];
  const at::Tensor shard = values_of(matrix, 1).narrow(0, 0, 5).clone().requires_grad_(true);
  shards.add(shard, {0, matrix.shape});
  Adafactor optimizer({shard}, kOptions);
  optimizer.use_shards(std::shared_ptr<const ParameterShards>(&shards, [](const ParameterShards*) {}));
  State state = optimizer.state_dict();
  state.tensors["0.step"] = at::scalar_tensor(7.0, at::kFloat);
  state.tensors["0.row_var"] = at::rand({3, 1}, at::kDouble);
  state.tensors["0.col_var"] = at::rand({1, 4}, at::kDouble);
  optimizer.load_state_dict(state);
  EXPECT_TRUE(at::equal(optimizer.state_dict().tensor("0.row_var"), state.tensor("0.row_var")));
  state.tensors["0.row_var"] = at::rand({5}, at::kDouble);
  testing::expect_error<CheckpointError>([&] { optimizer.load_state_dict(state); }, {"\"0.row_var\"", "(5)", "(3, 1)"});
}

}  // namespace
}  // namespace levin::adafactor_test
