// The batch of recorded steps on a CPU: the same tensors each time, over the memory of the batch that is due.
#include "levin/trainer/step/recorded_batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace levin::recorded_batch_test {
namespace {

at::Tensor numbers(double first) {
  return at::arange(first, first + 6).reshape({2, 3});
}

TEST(RecordedBatch, TakesABatchWithoutACopy) {
  RecordedBatch recorded;
  recorded.make(Batch({numbers(0)}));
  const at::Tensor kept = recorded.batch()[0];
  EXPECT_TRUE(kept.equal(numbers(0)));
  const at::Tensor next = numbers(10);
  recorded.take(Batch({next}));
  EXPECT_EQ(kept.const_data_ptr(), next.const_data_ptr());
  EXPECT_TRUE(kept.equal(numbers(10)));
}

TEST(RecordedBatch, KeepsTheMemoryOfABatchUntilTheNext) {
  RecordedBatch recorded;
  recorded.make(Batch({numbers(0)}));
  const at::Tensor kept = recorded.batch()[0];
  at::Tensor next = numbers(10);
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(next.storage().unsafeGetStorageImpl()));
  recorded.take(Batch({next}));
  next.reset();
  EXPECT_FALSE(memory.expired());
  EXPECT_TRUE(kept.equal(numbers(10)));
  recorded.take(Batch({numbers(20)}));
  EXPECT_TRUE(memory.expired());
}

TEST(RecordedBatch, TakesAPartOfADifferentTensorFromItsOffset) {
  RecordedBatch recorded;
  recorded.make(Batch({numbers(0)}));
  const at::Tensor all = at::arange(100.0, 112.0).reshape({4, 3});
  recorded.take(Batch({all.slice(0, 2)}));
  EXPECT_TRUE(recorded.batch()[0].equal(all.slice(0, 2)));
  EXPECT_EQ(recorded.batch()[0].storage_offset(), 0);
}

TEST(RecordedBatch, TakesViewsOfALargerTensorWithTheirStrides) {
  const at::Tensor blocks = at::arange(0.0, 8.0).reshape({2, 4});
  const at::Tensor others = at::arange(100.0, 108.0).reshape({2, 4});
  const auto views_of = [](const at::Tensor& all) {
    return Batch({all.slice(1, 0, 3), all.slice(1, 1, 4), all.t(), all[1].expand({3, 4})});
  };
  RecordedBatch recorded;
  recorded.make(views_of(blocks));
  for (const at::Tensor& all : {blocks, others}) {
    const Batch views = views_of(all);
    ASSERT_TRUE(recorded.fits(views));
    recorded.take(views);
    const Batch lent = recorded.lent();
    for (size_t k = 0; k < views.count(); ++k) EXPECT_TRUE(lent[k].equal(views[k])) << k;
  }
}

TEST(RecordedBatch, FitsBatchesOfTheSameKind) {
  RecordedBatch recorded;
  recorded.make(Batch({numbers(0)}));
  EXPECT_TRUE(recorded.fits(Batch({numbers(5)})));
  EXPECT_FALSE(recorded.fits(Batch({numbers(5).reshape({3, 2})})));
  EXPECT_FALSE(recorded.fits(Batch({numbers(5).to(at::kLong)})));
  EXPECT_FALSE(recorded.fits(Batch({numbers(5), numbers(6)})));
  EXPECT_FALSE(recorded.fits(Batch({at::full({3, 2}, 1.0).t()}))) << "other strides";
}

}  // namespace
}  // namespace levin::recorded_batch_test
