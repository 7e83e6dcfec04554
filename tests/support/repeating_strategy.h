// A CPU that records steps and copies batches ahead like a GPU: a replay runs the step's code again on the same inputs,
// and a copy is a real copy. It tests the trainer's side of both without a GPU.
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
  explicit RepeatingStrategy(std::shared_ptr<DeviceLog> log, bool copies = false) {
    use(std::make_unique<Recorder>(log));
    if (copies) use(std::make_unique<Placement>(log));
  }
  [[nodiscard]] std::string name() const override { return "repeating"; }

  struct Recorder : StrategyRecorder {
    explicit Recorder(std::shared_ptr<DeviceLog> calls) : log(std::move(calls)) {}
    [[nodiscard]] std::shared_ptr<StepRecorder> make_recorder() override {
      return std::make_shared<RepeatingRecorder>(log);
    }
    std::shared_ptr<DeviceLog> log;
  };

 private:
  struct Placement final : DevicePlacement {
    explicit Placement(std::shared_ptr<DeviceLog> calls) : log(std::move(calls)) {}
    [[nodiscard]] std::shared_ptr<DeviceCopier> make_copier() override { return std::make_shared<LateCopier>(log); }
    std::shared_ptr<DeviceLog> log;
  };
};

}  // namespace levin::test
