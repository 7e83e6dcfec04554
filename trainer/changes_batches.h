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

class ChangesBatches {
 public:
  virtual ~ChangesBatches() = default;
  /// Called for each training batch, on its device, just before on_train_batch_start, by every rank. What it changes
  /// must be new tensors: the given ones may be views of the data set. Random numbers from LibTorch's default
  /// generators are in checkpoints, so that a resumed run draws the same ones.
  [[nodiscard]] virtual Batch change_batch(Batch batch) = 0;

 protected:
  ChangesBatches() = default;
  ChangesBatches(const ChangesBatches&) = default;
  ChangesBatches& operator=(const ChangesBatches&) = default;
};

}  // namespace levin
