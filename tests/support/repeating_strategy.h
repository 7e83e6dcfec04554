// A CPU that records steps and copies batches ahead as a GPU does: a repetition runs the step's code again, on the same
// inputs, and a copy is one. This tests the trainer's part of both without a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "levin/core/device_work.h"
#include "levin/strategies/strategy.h"

namespace levin::test {

/// The calls made to a strategy's device.
struct DeviceLog {
  int warm_ups = 0;
  int records = 0;
  int replays = 0;
  std::string wait = "";  // record() fails as CUDA does when a step waits, with this text
  std::vector<std::string> copies = {};
};

class RepeatingRecorder final : public StepRecorder {
 public:
  explicit RepeatingRecorder(std::shared_ptr<DeviceLog> log) : log_(std::move(log)) {}

  void warm_up(const std::function<void()>& step) override {
    ++log_->warm_ups;
    step();
  }
  std::unique_ptr<Recording> record(const std::function<void()>& step) override {
    TORCH_CHECK(log_->wait.empty(), log_->wait);
    ++log_->records;
    return std::make_unique<Repetition>(log_, step);
  }

 private:
  struct Repetition final : Recording {
    Repetition(std::shared_ptr<DeviceLog> log, std::function<void()> step)
        : log_(std::move(log)), step_(std::move(step)) {}
    void replay() override {
      ++log_->replays;
      step_();
    }
    std::shared_ptr<DeviceLog> log_;
    std::function<void()> step_;
  };
  std::shared_ptr<DeviceLog> log_;
};

/// Copies are late: until receive() they hold -1.
class LateCopier final : public DeviceCopier {
 public:
  explicit LateCopier(std::shared_ptr<DeviceLog> log) : log_(std::move(log)) {}

  void send(std::vector<at::Tensor>& tensors) override {
    log_->copies.push_back("send");
    sources_ = tensors;
    for (at::Tensor& tensor : tensors) tensor = at::empty_like(tensor).fill_(-1);
    copies_ = tensors;
  }
  void receive(const std::vector<at::Tensor>& tensors) override {
    log_->copies.push_back("receive");
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].is_same(copies_.at(i))) copies_[i].copy_(sources_[i]);
    }
  }

 private:
  std::shared_ptr<DeviceLog> log_;
  std::vector<at::Tensor> sources_, copies_;
};

class RepeatingStrategy final : public Strategy {
 public:
  explicit RepeatingStrategy(std::shared_ptr<DeviceLog> log, bool copies = false)
      : log_(std::move(log)), copies_(copies) {}

  [[nodiscard]] std::string name() const override { return "repeating"; }
  [[nodiscard]] at::Device device() const override { return at::kCPU; }
  [[nodiscard]] int64_t rank() const override { return 0; }
  [[nodiscard]] int64_t world_size() const override { return 1; }
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool /*sync*/, const RankNotes& own) override {
    loss.backward();
    return own;
  }
  [[nodiscard]] at::Tensor reduce(const at::Tensor& value, ReduceOp /*op*/) override { return value; }
  [[nodiscard]] bool any(bool value) override { return value; }
  void barrier() override {}
  [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override {
    return std::make_shared<RepeatingRecorder>(log_);
  }
  [[nodiscard]] std::shared_ptr<DeviceCopier> make_copier() override {
    return copies_ ? std::make_shared<LateCopier>(log_) : nullptr;
  }

 private:
  std::shared_ptr<DeviceLog> log_;
  bool copies_;
};

}  // namespace levin::test
