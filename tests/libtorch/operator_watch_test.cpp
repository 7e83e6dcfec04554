// Operators seen before they run, with real ones of LibTorch.
#include "levin/libtorch/operator_watch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace levin::operator_watch_test {
namespace {

using Storages = OperatorWatch::Storages;

c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// How often each call had the memory of `wanted` among its arguments.
std::function<void(const Storages&)> counter(const at::Tensor& wanted, int64_t& count) {
  return [memory = memory_of(wanted), &count](const Storages& storages) {
    if (std::find(storages.begin(), storages.end(), memory) != storages.end()) ++count;
  };
}

void nothing(const Storages& /*storages*/) {}

TEST(OperatorWatch, SeesAnOperatorOnceAtItsOutermostCall) {
  const at::Tensor weight = at::ones({2, 3});
  int64_t reads = 0;
  {
    const OperatorWatch watch(counter(weight, reads), nothing);
    (void)at::linear(at::ones({4, 3}), weight);  // calls t and mm
    EXPECT_EQ(reads, 1);
    const at::Tensor view = weight.t();
    EXPECT_EQ(reads, 2);
    (void)view.sum();  // a view's memory is the weight's
    EXPECT_EQ(reads, 3);
  }
  (void)weight.sum();
  EXPECT_EQ(reads, 3);
}

TEST(OperatorWatch, SeesBackwardToo) {
  const at::Tensor weight = at::ones({2, 3});
  const at::Tensor x = at::ones({4, 3}).set_requires_grad(true);
  int64_t reads = 0;
  const OperatorWatch watch(counter(weight, reads), nothing);
  const at::Tensor loss = at::linear(x, weight).sum();
  reads = 0;
  loss.backward();
  EXPECT_GE(reads, 1);
}

TEST(OperatorWatch, CanBringMemoryBackJustInTime) {
  const at::Tensor weight = at::full({3}, 2.0);
  c10::StorageImpl* memory = memory_of(weight);
  const size_t bytes = memory->nbytes();
  memory->set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
  memory->set_nbytes(0);
  const auto before = [&](const Storages& storages) {
    if (std::find(storages.begin(), storages.end(), memory) == storages.end() || memory->nbytes() > 0) return;
    memory->set_data_ptr_noswap(memory->allocator()->allocate(bytes));
    memory->set_nbytes(bytes);
    at::Tensor(weight).fill_(5);
  };
  const OperatorWatch watch(before, nothing);
  EXPECT_EQ(weight.sum().item<float>(), 15);
}

TEST(OperatorWatch, TellsWhatWasWrittenTo) {
  const at::Tensor weight = at::ones({2});
  const at::Tensor other = at::ones({2});
  int64_t writes = 0;
  const OperatorWatch watch(nothing, counter(weight, writes));
  (void)weight.add(other);
  other.add_(weight);
  EXPECT_EQ(writes, 0);
  weight.add_(other);
  EXPECT_EQ(writes, 1);
}

TEST(OperatorWatch, LetsOperatorsPassUnseenWhereRequested) {
  const at::Tensor weight = at::ones({2});
  int64_t reads = 0;
  const OperatorWatch watch(counter(weight, reads), nothing);
  {
    const OperatorWatch::Unseen unseen;
    (void)weight.sum();
  }
  EXPECT_EQ(reads, 0);
  (void)weight.sum();
  EXPECT_EQ(reads, 1);
}

TEST(OperatorWatch, WhatItThrowsTheOperatorThrows) {
  const at::Tensor weight = at::ones({2});
  const OperatorWatch watch([](const Storages&) { throw std::runtime_error("another rank ended"); }, nothing);
  EXPECT_THROW((void)weight.sum(), std::runtime_error);
}

TEST(OperatorWatch, ThereIsOneAtATime) {
  const OperatorWatch watch(nothing, nothing);
  EXPECT_THROW(OperatorWatch(nothing, nothing), std::runtime_error);
}

}  // namespace
}  // namespace levin::operator_watch_test
