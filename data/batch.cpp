#include "levin/data/batch.h"

#include "levin/core/count_of.h"
#include "levin/core/error.h"

namespace levin {

namespace {

void check_index(size_t index, size_t count) {
  if (index < count) return;
  throw Error("Batch: there is no tensor " + std::to_string(index) + ": the batch holds " + std::to_string(count) +
              ". Look at what the data set's get() returns.");
}

}  // namespace

at::Tensor& Batch::operator[](size_t index) {
  check_index(index, tensors.size());
  return tensors[index];
}

const at::Tensor& Batch::operator[](size_t index) const {
  check_index(index, tensors.size());
  return tensors[index];
}

int64_t Batch::size() const {
  if (tensors.empty()) return 0;
  return tensors[0].dim() == 0 ? 1 : tensors[0].size(0);
}

void Batch::check_count(size_t wanted) const {
  if (wanted == tensors.size()) return;
  throw Error("Batch::unpack<" + std::to_string(wanted) + ">: the batch holds " + count_of(tensors.size(), "tensor") +
              ", not " + std::to_string(wanted) + ". Unpack as many as the data set's get() returns.");
}

}  // namespace levin
