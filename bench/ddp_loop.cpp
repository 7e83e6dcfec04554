// A hand-written training loop on c10d: the gradients in one buffer, all-reduced after backward.
#define USE_C10D_GLOO
#include "ddp_loop.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "gpt_runs.h"
#include "levin/strategies/process/shm_backend.h"
#include "overhead_runs.h"

namespace bench::ddp {

namespace {

namespace nn = torch::nn;
using Clock = std::chrono::steady_clock;
using Group = c10::intrusive_ptr<c10d::Backend>;

constexpr size_t kSlotHalf = 1 << 20;

Group meet_in_memory(c10d::Store& store, int rank, int ranks) {
  std::unique_ptr<levin::ShmSegment> segment;
  if (rank == 0) {
    segment = std::make_unique<levin::ShmSegment>(ranks, kSlotHalf);
    const std::string offer = segment->offer();
    store.set("offer", std::vector<uint8_t>(offer.begin(), offer.end()));
  } else {
    const auto offer = store.get("offer");
    segment = std::make_unique<levin::ShmSegment>(std::string(offer.begin(), offer.end()), rank, ranks);
  }
  store.add("arrived", 1);
  while (store.add("arrived", 0) < ranks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return c10::make_intrusive<levin::ShmBackend>(std::move(segment), std::chrono::minutes(1));
}

Group meet(const std::string& backend, const std::string& file, int rank, int ranks) {
  const auto store = c10::make_intrusive<c10d::FileStore>(file, ranks);
  if (backend == "shm") return meet_in_memory(*store, rank, ranks);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, ranks, options);
}

void average_gradients(const Group& group, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> flat;
  for (const auto& parameter : parameters) flat.push_back(parameter.grad().flatten());
  std::vector<at::Tensor> all = {at::cat(flat)};
  group->allreduce(all)->wait();
  all[0].div_(group->getSize());
  int64_t place = 0;
  for (const auto& parameter : parameters) {
    parameter.grad().copy_(all[0].narrow(0, place, parameter.numel()).view_as(parameter));
    place += parameter.numel();
  }
}

// Microseconds a step.
double loop(const Group& group, torch::optim::Optimizer& optimizer, int64_t steps,
            const std::function<at::Tensor(int64_t)>& loss) {
  const std::vector<at::Tensor>& parameters = optimizer.param_groups()[0].params();
  const auto start = Clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss(step).backward();
    if (group->getSize() > 1) average_gradients(group, parameters);
    optimizer.step();
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / static_cast<double>(steps);
}

double mlp(const Group& group, int64_t steps) {
  constexpr int64_t kBatch = 64;
  const auto data = load_fashion_mnist();
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(784, 64), nn::ReLU(), nn::Linear(64, 10));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto order = torch::randperm(data.x.size(0), torch::kLong);
  const auto own = order.slice(0, group->getRank(), std::nullopt, group->getSize()).contiguous();
  return loop(group, optimizer, steps, [&](int64_t step) {
    const auto indices = own.narrow(0, step * kBatch, kBatch);
    return nn::functional::cross_entropy(net->forward(data.x.index_select(0, indices)),
                                         data.y.index_select(0, indices));
  });
}

double gpt(const Group& group, int64_t steps) {
  torch::manual_seed(0);
  GPT model(gpt::model_options());
  model.train();
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3).betas({0.9, 0.95}));
  const auto bytes = gpt::load_bytes();
  torch::manual_seed(static_cast<uint64_t>(group->getRank()));
  return loop(group, optimizer, steps, [&](int64_t) { return gpt::random_loss(model, bytes); });
}

// Microseconds.
double all_reduces(const Group& group, int64_t bytes) {
  constexpr int64_t kTimes = 30;
  std::vector<at::Tensor> tensors = {at::zeros({bytes / 4})};
  for (int64_t k = 0; k < 3; ++k) group->allreduce(tensors)->wait();
  const auto start = Clock::now();
  for (int64_t k = 0; k < kTimes; ++k) group->allreduce(tensors)->wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kTimes;
}

// This process becomes `ranks` of them; what rank 0's `work` returns, nothing on the others.
std::optional<double> on_ranks(int ranks, const std::string& backend, const std::function<double(const Group&)>& work) {
  const auto file = std::filesystem::temp_directory_path() / ("levin_bench_ddp." + std::to_string(::getpid()));
  int rank = 0;  // LibTorch has no threads yet, so that a process may be doubled
  for (int k = 1; k < ranks && rank == 0; ++k) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child == 0) rank = k;
  }
  at::set_num_threads(1);
  const double measurement = work(meet(backend, file.string(), rank, ranks));
  if (rank != 0) return std::nullopt;
  while (::wait(nullptr) > 0) {
  }
  std::filesystem::remove(file);
  return measurement;
}

}  // namespace

std::optional<double> hand_written_loop(const std::string& model, int64_t steps, int ranks,
                                        const std::string& backend) {
  return on_ranks(ranks, backend,
                  [&](const Group& group) { return model == "mlp" ? mlp(group, steps) : gpt(group, steps); });
}

std::optional<double> all_reduce(int64_t bytes, int ranks, const std::string& backend) {
  return on_ranks(ranks, backend, [&](const Group& group) { return all_reduces(group, bytes); });
}

}  // namespace bench::ddp
