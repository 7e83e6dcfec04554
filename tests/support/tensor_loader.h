// A loader over tensors in memory, in order: for tests that do not need the data folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "levin/data/loader.h"

namespace levin::test {

class TensorLoader final : public Loader {
 public:
  TensorLoader(std::vector<at::Tensor> tensors, int64_t batch_size) : tensors_(std::move(tensors)), size_(batch_size) {}

  void start(int64_t, int64_t first_batch) override { at_ = first_batch * size_; }
  bool next(Batch& batch) override {
    const int64_t samples = tensors_[0].size(0);
    if (at_ >= samples) return false;
    batch = Batch();
    for (const auto& tensor : tensors_) batch.tensors.push_back(tensor.slice(0, at_, std::min(at_ + size_, samples)));
    at_ += size_;
    return true;
  }
  [[nodiscard]] std::optional<int64_t> num_batches() const override {
    return (tensors_[0].size(0) + size_ - 1) / size_;
  }
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return size_; }

 private:
  std::vector<at::Tensor> tensors_;
  int64_t size_;
  int64_t at_ = 0;
};

}  // namespace levin::test
