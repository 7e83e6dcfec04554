// A data set whose reads hang: a file system that does not respond, a lock that is never released.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "levin/data/loading/dataset.h"

namespace levin::test {

// From sample `first` on get() never returns; it creates the file `mark` when it hangs.
class HangingData final : public Dataset {
 public:
  HangingData(Batch all, int64_t first, std::string mark)
      : all_(std::move(all)), first_(first), mark_(std::move(mark)) {}
  [[nodiscard]] int64_t size() const override { return all_[0].size(0); }
  [[nodiscard]] Batch get(int64_t index) const override {
    if (index >= first_) {
      std::ofstream(mark_) << "hangs";
      for (;;) ::pause();
    }
    return {all_[0][index], all_[1][index]};
  }

 private:
  Batch all_;
  int64_t first_;
  std::string mark_;
};

}  // namespace levin::test
