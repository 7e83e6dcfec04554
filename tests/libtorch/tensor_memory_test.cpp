// What tensors and storages hold, replaced, as LibTorch's own functions and autograd see it.
#include "levin/libtorch/tensor_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "levin/libtorch/operator_values.h"

namespace levin::tensor_memory_test {
namespace {

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

TEST(TensorMemory, MovesFromOneStorageToAnother) {
  const at::Tensor from = at::full({3}, 2.0), to = at::ones({3}), view = to.narrow(0, 1, 2);
  set_memory(storage_of(to), exchange_memory(storage_of(from), at::DataPtr(nullptr, at::kCPU)));
  EXPECT_EQ(from.storage().data(), nullptr);
  EXPECT_TRUE(to.eq(2).all().item<bool>());
  EXPECT_TRUE(view.eq(2).all().item<bool>());
}

TEST(TensorMemory, OfAStorageIsFreedAndAllocatedUnderItsViews) {
  const at::Tensor whole = at::ones({4}), view = whole.narrow(0, 2, 2);
  free_storage(whole);
  EXPECT_EQ(whole.storage().nbytes(), 0u);
  EXPECT_EQ(whole.storage().data(), nullptr);
  allocate_storage(whole);
  EXPECT_EQ(whole.storage().nbytes(), whole.nbytes());
  whole.fill_(3);
  EXPECT_TRUE(view.eq(3).all().item<bool>());
}

TEST(TensorMemory, IsReadInTheGivenShape) {
  const at::Tensor numbers = at::arange(6, at::kFloat);
  const at::Tensor made = tensor_over(numbers.storage(), numbers.key_set(), at::kFloat, {2, 2}, {1, 2}, 1);
  EXPECT_TRUE(made.is_alias_of(numbers));
  EXPECT_TRUE(made.equal(numbers.narrow(0, 1, 4).view({2, 2}).t()));
}

TEST(TensorAlias, CountsChangesWithItsTensorUnlessItHasANewVersion) {
  const at::Tensor tensor = at::ones({2}).set_requires_grad(true).mul(2);
  const at::Tensor alias = alias_of(tensor), independent = alias_with_new_version(tensor);
  EXPECT_FALSE(alias.requires_grad());
  EXPECT_TRUE(alias.is_alias_of(tensor) && independent.is_alias_of(tensor));
  const int64_t before = tensor._version();
  alias.add_(1);
  EXPECT_EQ(tensor._version(), before + 1);
  EXPECT_EQ(independent._version(), 0);
}

TEST(TensorAlias, WithASharedVersionLetsAutogradDetectAChange) {
  const at::Tensor x = at::ones({2}).set_requires_grad(true);
  const at::Tensor factor = at::full({2}, 3.0);
  const at::Tensor other = alias_with_new_version(factor);
  share_version(other, factor);
  const at::Tensor loss = x.mul(factor).sum();
  other.add_(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(TensorData, IsReplacedInEveryHandle) {
  const at::Tensor weight = at::ones({2}).set_requires_grad(true), handle = weight;
  const at::Tensor data = at::full({3}, 5.0);
  set_tensor_data(weight, data);
  EXPECT_TRUE(handle.is_alias_of(data));
  EXPECT_TRUE(handle.requires_grad());
  EXPECT_EQ(handle.sizes(), data.sizes());
}

TEST(WrappedNumber, DoesNotDecideTheTypeOfAResult) {
  const at::Tensor number = at::full({}, 2.0, at::kDouble), tensor = at::ones({}, at::kFloat);
  EXPECT_EQ(at::result_type(number, tensor), at::kDouble);
  EXPECT_FALSE(is_wrapped_number(number));
  wrap_number(number);
  EXPECT_TRUE(is_wrapped_number(number));
  EXPECT_EQ(at::result_type(number, tensor), at::kFloat);
}

}  // namespace
}  // namespace levin::tensor_memory_test
