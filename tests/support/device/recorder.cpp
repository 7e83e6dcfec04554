#include "support/device/recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <atomic>
#include <mutex>

#include "support/device/generators.h"
#include "support/device/memory.h"
#include "support/device/test_device.h"

namespace levin::test {

namespace {

std::atomic<int64_t> graphs_made = 0, graphs_replayed = 0;

// What one replay does, in order.
using Tape = std::vector<std::function<void()>>;

// Operators come from the training thread and from the engine's thread of the device.
std::mutex mutex;
Tape* current = nullptr;

bool is_recording() {
  const std::lock_guard lock(mutex);
  return current != nullptr;
}

void note(std::function<void()> work) {
  const std::lock_guard lock(mutex);
  if (current != nullptr) current->push_back(std::move(work));
}

void copy_memory(const at::Tensor& from, const at::Tensor& to) {
  if (!is_ours(to) || from.is_same(to)) return;
  OnCpu one, other;
  const at::Tensor source = one.alias(from);
  const at::Tensor target = other.alias(to);
  if (source.const_data_ptr() != target.const_data_ptr()) target.copy_(source);
}

std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack, size_t count) {
  std::vector<at::Tensor> all;
  torch::jit::Stack last(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  replace_tensors(last, count, [&](const at::Tensor& tensor) {
    all.push_back(tensor);
    return tensor;
  });
  return all;
}

std::vector<at::Tensor> unowned(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = levin::test::unowned(tensor);
  return tensors;
}

class TestRecording final : public Recording {
 public:
  ~TestRecording() override { DeviceMemory::instance().drop_pool(this); }
  [[nodiscard]] Tape& tape() { return tape_; }
  void replay() override {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below;
    ++graphs_replayed;
    for (const auto& work : tape_) work();
  }

 private:
  Tape tape_;
};

// Ends the recording, and undoes what the step did to memory and generators that were there before it.
class CaptureScope {
 public:
  explicit CaptureScope(TestRecording& recording) : memory_(DeviceMemory::instance().snapshot()) {
    DeviceMemory::instance().use_pool(&recording);
    for (c10::DeviceIndex k = 0; k < kTestDevices; ++k) generators_.push_back(device_generator(k).get_state());
    const std::lock_guard lock(mutex);
    current = &recording.tape();
  }
  ~CaptureScope() {
    {
      const std::lock_guard lock(mutex);
      current = nullptr;
    }
    DeviceMemory::instance().use_pool(nullptr);
    DeviceMemory::instance().restore(memory_);
    for (c10::DeviceIndex k = 0; k < kTestDevices; ++k) {
      at::Generator generator = device_generator(k);
      generator.set_state(generators_[static_cast<size_t>(k)]);
    }
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  DeviceMemory::Snapshot memory_;
  std::vector<at::Tensor> generators_;
};

}  // namespace

std::unique_ptr<Recording> TestRecorder::record(const std::function<void()>& step) {
  auto recording = std::make_unique<TestRecording>();
  {
    const CaptureScope scope(*recording);
    step();
  }
  ++graphs_made;
  return recording;
}

void refuse_while_recording(const char* why) {
  TORCH_CHECK(!is_recording(), "testdev: operation not permitted when a step is recorded: ", why);
}

// A host number is recorded with its current value, like an argument of a kernel launch.
RecordedCall::RecordedCall(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
    : op_(op), recording_(is_recording()) {
  if (!recording_) return;
  const size_t count = op.schema().arguments().size();
  arguments_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  replace_tensors(arguments_, count, [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cpu() ? tensor.clone() : unowned(tensor);
  });
}

void RecordedCall::done(const torch::jit::Stack& stack) const {
  if (!recording_) return;
  const size_t count = op_.schema().returns().size();
  note([op = op_, arguments = arguments_, count, results = unowned(tensors_of(stack, count))] {
    torch::jit::Stack again = arguments;
    run_on_cpu(op, again);
    const auto computed = tensors_of(again, count);
    for (size_t k = 0; k < results.size(); ++k) copy_memory(computed[k], results[k]);
  });
}

void record_copy(const at::Tensor& from, const at::Tensor& to) {
  if (!is_recording()) return;
  note([from = unowned(from), to = unowned(to)] {
    OnCpu one, other;
    other.alias(to).copy_(one.alias(from));
  });
}

at::Tensor for_replays(const at::Tensor& tensor) {
  return is_recording() ? unowned(tensor) : tensor;
}

std::vector<at::Tensor> run_recorded(std::function<std::vector<at::Tensor>(OnCpu&)> kernel) {
  const auto run = [](const auto& work) {
    OnCpu cpu;
    std::vector<at::Tensor> results;
    for (const at::Tensor& result : work(cpu)) results.push_back(cpu.on_device(result));
    return results;
  };
  const auto results = run(kernel);
  if (is_recording()) {
    note([run, kernel = std::move(kernel), results = unowned(results)] {
      const auto computed = run(kernel);
      for (size_t k = 0; k < results.size(); ++k) {
        if (computed[k].defined()) copy_memory(computed[k], results[k]);
      }
    });
  }
  return results;
}

int64_t recordings_made() {
  return graphs_made;
}

int64_t recordings_replayed() {
  return graphs_replayed;
}

void reset_recordings() {
  graphs_made = graphs_replayed = 0;
}

}  // namespace levin::test
