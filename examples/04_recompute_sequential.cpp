// checkpoint_sequential in C++: a deep Sequential keeps only the inputs of some segments, and the layers within a
// segment are recomputed in backward. The gradients are bitwise identical, dropout included.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <levin/levin.h>

constexpr int64_t kLayers = 300, kWidth = 64, kBatch = 1024;

/// The peak memory of live tensors in bytes, as LibTorch's allocator reports it on the thread that allocates.
struct Peak : c10::MemoryReportingInfoBase {
  int64_t alive = 0, most = 0;
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    alive += size;  // below 0 where memory is freed
    most = std::max(most, alive);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

torch::nn::Sequential deep_net() {
  torch::nn::Sequential net;
  for (int64_t k = 0; k < kLayers; ++k) {
    torch::nn::Linear layer(kWidth, kWidth);
    torch::nn::init::orthogonal_(layer->weight);
    net->push_back(layer);
    if (k % 50 == 0) net->push_back(torch::nn::Dropout(0.01));
  }
  return net;
}

/// One forward and backward pass: the gradients of all weights, and the memory it took in MiB.
std::pair<torch::Tensor, double> train(torch::nn::Sequential& net, const torch::Tensor& x, int64_t segments) {
  net->zero_grad();
  torch::manual_seed(1);  // for dropout
  const auto peak = std::make_shared<Peak>();
  const c10::DebugInfoGuard reports(c10::DebugInfoKind::PROFILER_STATE, peak);
  const auto y = segments == 0 ? net->forward(x) : levin::recompute_sequential(net, segments, x);
  y.square().mean().backward();
  const double mib = static_cast<double>(peak->most) / (1 << 20);
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad().flatten());
  return {torch::cat(gradients), mib};
}

int main() {
  return levin::main_guard([] {
    torch::manual_seed(0);
    auto net = deep_net();
    const auto x = torch::randn({kBatch, kWidth});
    const auto [gradients, memory] = train(net, x, 0);
    std::cout << "all kept: " << memory << " MiB\n";
    for (const int64_t segments : {2, 10, 17, 50, 300}) {
      const auto [again, less] = train(net, x, segments);
      std::cout << segments << " segments: " << less << " MiB, gradients "
                << (torch::equal(gradients, again) ? "equal" : "DIFFERENT") << "\n";
    }
  });
}
