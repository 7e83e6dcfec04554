// A call of one of Levin's backends that ends later, and the future of its outputs.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/ivalue.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace levin {

class FutureWork : public c10d::Work {
 public:
  /// `title`: in profiles.
  FutureWork(std::vector<at::Tensor> outputs, int rank, c10d::OpType type, const char* title)
      : Work(rank, type, title, outputs),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  /// Null: it went well. May call what waits for the future.
  void end(const std::exception_ptr& failure) {
    if (failure) {
      future_->setError(failure);
    } else {
      future_->markCompleted(outputs_);
    }
    finish(failure);
  }

 private:
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace levin
