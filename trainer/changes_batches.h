// The interface of callbacks that change what is trained on, such as MixUp.
//
//   class Noise : public levin::Callback, public levin::ChangesBatches {
//     levin::Batch change_batch(levin::Batch batch) override {
//       batch[0] = batch[0] + 0.1 * torch::randn_like(batch[0]);
//       return batch;
//     }
//   };
#pragma once

#include "levin/data/batch.h"

namespace levin {

/// The base of callbacks that replace training batches; each rank's callbacks change its own batches, one after another
/// in the order of the callbacks.
class ChangesBatches {
 public:
  virtual ~ChangesBatches() = default;
  /// Returns the batch to train on instead of `batch`, which is on its device. Every rank calls it for each training
  /// batch, just before on_train_batch_start. What it changes must be new tensors: the given ones may be views of the
  /// data set. The states of LibTorch's default generators are in checkpoints, so a resumed run draws the same random
  /// numbers.
  [[nodiscard]] virtual Batch change_batch(Batch batch) = 0;

 protected:
  ChangesBatches() = default;
  ChangesBatches(const ChangesBatches&) = default;
  ChangesBatches& operator=(const ChangesBatches&) = default;
};

}  // namespace levin
