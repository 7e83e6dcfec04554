// Backward of replicas in parallel: concurrent, bitwise identical to sequential passes, with clear errors.
#include "levin/strategies/device/parallel_backward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "levin/core/options/error.h"
#include "levin/strategies/device/scatter_gather.h"
#include "support/error_text.h"

namespace levin::parallel_backward_test {
namespace {

using test::error_of;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 5));
    second = register_module("second", torch::nn::Linear(5, 5));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    frozen = register_module("frozen", torch::nn::Linear(5, 3));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = second->forward(torch::tanh(first->forward(x)));
    return frozen->forward(second->forward(hidden.exp()));  // second: twice
  }
  torch::nn::Linear first = nullptr, second = nullptr, unused = nullptr, frozen = nullptr;
};
TORCH_MODULE(Net);

using Step = std::function<at::Tensor(size_t, NetImpl&, const at::Tensor&)>;

at::Tensor plain_step(size_t, NetImpl& net, const at::Tensor& x) {
  return net.forward(x).pow(2).mean();
}

// A module with replicas that each take a shard of 7 samples.
class Group {
 public:
  explicit Group(size_t count = 3) {
    torch::manual_seed(1);
    net = Net();
    x = torch::randn({7, 6});
    const auto slots = cpu_slots(static_cast<int64_t>(count));
    modules = {net.ptr()};
    const auto copies = clone_for(*net, slots);
    for (const auto& copy : copies) modules.push_back(std::dynamic_pointer_cast<NetImpl>(copy));
    parallel = std::make_shared<ParallelApply>(slots);
    replicas = std::make_shared<Replicas>(*net, copies, slots);
  }

  at::Tensor loss(bool side_by_side, const Step& step = plain_step) {
    const size_t count = modules.size();
    const auto& slots = parallel->slots();
    const auto sizes = share_sizes(x.size(0), count);
    const auto shares = scatter(x, sizes, slots);
    if (side_by_side) {
      EXPECT_TRUE(can_run_backward_in_parallel(*replicas, *parallel, count));
      replicas->refresh_leaves(count);
    } else {
      replicas->refresh(count);
    }
    std::vector<at::Tensor> losses(count);
    (*parallel)(count, [&](size_t k) { losses[k] = step(k, *modules[k], shares[k]); });
    if (side_by_side) losses = with_parallel_backward(replicas, parallel, losses);
    return mean_loss(losses, sizes, slots[0]);
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> found;
    for (const auto& parameter : net->parameters()) found.push_back(parameter.grad());
    return found;
  }

  Net net = nullptr;
  at::Tensor x;
  std::vector<std::shared_ptr<NetImpl>> modules;
  std::shared_ptr<ParallelApply> parallel;
  std::shared_ptr<Replicas> replicas;
};

void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t k = 0; k < found.size(); ++k) {
    ASSERT_EQ(found[k].defined(), wanted[k].defined()) << k;
    EXPECT_TRUE(!found[k].defined() || found[k].equal(wanted[k])) << k;
  }
}

// Passes values on, and calls on_backward(replica) in backward.
struct Watch : torch::autograd::Function<Watch> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, int64_t replica,
                            const std::function<void(int64_t)>* on_backward) {
    context->saved_data["replica"] = replica;
    context->saved_data["call"] = reinterpret_cast<int64_t>(on_backward);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* call =
        reinterpret_cast<const std::function<void(int64_t)>*>(context->saved_data["call"].toInt());  // of the test
    (*call)(context->saved_data["replica"].toInt());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

Step watched(const std::function<void(int64_t)>& on_backward) {
  return [&on_backward](size_t k, NetImpl& net, const at::Tensor& x) {
    return Watch::apply(net.forward(x).pow(2).mean(), static_cast<int64_t>(k), &on_backward);
  };
}

TEST(ParallelBackward, RunsTheReplicasAtTheSameTimeEachOnItsThread) {
  Group group(2);
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> threads;
  int there = 0;
  bool met = true;
  const std::function<void(int64_t)> meet = [&](int64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    ++there;
    changed.notify_all();
    met = changed.wait_for(lock, std::chrono::seconds(60), [&] { return there == 2; }) && met;
  };
  group.loss(true, watched(meet)).backward();
  EXPECT_TRUE(met);
  EXPECT_EQ(threads.size(), 2U);
}

TEST(ParallelBackward, IsBitwiseIdenticalToSequentialPasses) {
  Group serial, parallel;
  for (int batch = 0; batch < 3; ++batch) {  // the second and third add to what is there
    serial.loss(false).backward();
    parallel.loss(true).backward();
    expect_same(parallel.gradients(), serial.gradients());
  }
  EXPECT_FALSE(parallel.net->unused->weight.grad().defined());
  EXPECT_FALSE(parallel.net->frozen->weight.grad().defined());
  (parallel.loss(true) * 8).backward();  // and in turn with the other way
  (parallel.loss(false) / 4).backward();
  (serial.loss(false) * 8).backward();
  (serial.loss(true) / 4).backward();
  expect_same(parallel.gradients(), serial.gradients());
}

TEST(ParallelBackward, AReplicaWithoutALossOrWithoutAGraphCountsForNothing) {
  for (const size_t without : {0U, 1U, 2U}) {
    for (const bool constant : {false, true}) {
      const Step step = [&](size_t k, NetImpl& net, const at::Tensor& x) {
        if (k != without) return plain_step(k, net, x);
        return constant ? torch::ones({}) : at::Tensor();
      };
      Group serial, parallel;
      serial.loss(false, step).backward();
      parallel.loss(true, step).backward();
      expect_same(parallel.gradients(), serial.gradients());
    }
  }
}

TEST(ParallelBackward, AHookOfAParameterSeesTheSumOnce) {
  Group serial, parallel;
  std::vector<at::Tensor> seen;
  for (Group* group : {&serial, &parallel}) {
    group->net->second->weight.register_hook([&](const at::Tensor& gradient) {
      seen.push_back(gradient.clone());
      return gradient * 2;
    });
  }
  serial.loss(false).backward();
  parallel.loss(true).backward();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[0].equal(seen[1]));
  expect_same(parallel.gradients(), serial.gradients());
}

TEST(ParallelBackward, AnExceptionNamesTheReplicaAndLeavesEarlierGradientsAlone) {
  Group group, other;
  group.loss(true).backward();
  other.loss(false).backward();
  const std::function<void(int64_t)> fail = [](int64_t k) {
    if (k == 1) throw std::runtime_error("a fault in backward");
  };
  EXPECT_EQ(error_of([&] { group.loss(true, watched(fail)).backward(); }),
            "replica 1 of 3 on cpu:1: a fault in backward");
  expect_same(group.gradients(), other.gradients());
  group.loss(true).backward();  // and it still works, with nothing left over
  other.loss(false).backward();
  expect_same(group.gradients(), other.gradients());
}

TEST(ParallelBackward, KeepsTheGraphWhereItIsAskedTo) {
  Group serial, parallel;
  for (auto [group, side_by_side] : {std::pair{&serial, false}, std::pair{&parallel, true}}) {
    const at::Tensor loss = group->loss(side_by_side);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    if (side_by_side) {
      EXPECT_NE(error_of([&] { loss.backward(); })
                    .find("a second time, after it was freed. Call the first backward "
                          "with retain_graph"),
                std::string::npos);
    }
  }
  expect_same(parallel.gradients(), serial.gradients());
  const std::string text = error_of([&] { parallel.loss(true).backward({}, std::nullopt, /*create_graph=*/true); });
  EXPECT_NE(
      text.find("with create_graph, which is not supported on CPUs. Compute gradients of gradients in training_step"),
      std::string::npos)
      << text;
}

TEST(ParallelBackward, IsForSeveralReplicasThatAreTrained) {
  Group group;
  const auto can = [&](size_t count) { return can_run_backward_in_parallel(*group.replicas, *group.parallel, count); };
  EXPECT_TRUE(can(2));
  EXPECT_FALSE(can(1));
  {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(can(2));
  }
  for (auto& parameter : group.net->parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(can(2));
}

}  // namespace
}  // namespace levin::parallel_backward_test
