#include "levin/trainer/loops/batch_to_measure.h"

#include <algorithm>
#include <utility>

#include "levin/data/batch_rows.h"
#include "levin/trainer/run/batch_stream.h"
#include "levin/trainer/run/loader_set.h"

namespace levin {

namespace {

constexpr int64_t kMostBatches = 32;

}  // namespace

int64_t batch_bytes(const Batch& batch) {
  int64_t bytes = 0;
  const auto add = [&bytes](const at::Tensor& tensor) { bytes += static_cast<int64_t>(tensor.nbytes()); };
  for (const at::Tensor& tensor : batch.tensors) add(tensor);
  if (has_values(batch)) {
    Batch seen = batch;
    visit_values(seen, add);
  }
  return bytes;
}

Batch first_samples(const Batch& batch, int64_t samples) {
  const int64_t all = batch.size();
  return cut_rows(batch, 0, samples, [&](size_t place) {
    const at::Tensor& tensor = batch.tensors[place];
    return tensor.dim() > 0 && tensor.size(0) == all ? tensor.narrow(0, 0, samples).clone() : tensor;
  });
}

std::optional<BatchToMeasure> largest_of_next_batches(Run& run) {
  Loader& loader = *run.fit.train.loaders[0];
  const State loader_state = loader.state();
  BatchStream stream(loader, run.fit.train.num_batches[0]);
  stream.start(run.progress.epoch, run.fit.epoch.next_batch);
  BatchToMeasure largest;
  Batch fetched;
  while (largest.batches_seen < kMostBatches && stream.next(fetched)) {
    if (largest.batches_seen++ == 0 || batch_bytes(fetched) > batch_bytes(largest.batch))
      largest.batch = std::move(fetched);
    fetched = Batch();
  }
  if (!loader_state.empty()) loader.load_state(loader_state);  // training takes these batches too
  // Allocations of their threads would be counted, and the process's allocator is replaced meanwhile.
  for (const LoaderSet* set : {&run.fit.train, &run.entry.eval}) {
    for (const auto& each : set->loaders) each->stop();
  }
  if (largest.batches_seen == 0) return std::nullopt;
  run.entry.place = {Hook::none, std::max<int64_t>(1, largest.batch.size()), 0, 1};
  largest.batch = transfer_batch(run, std::move(largest.batch), 0);
  return largest;
}

}  // namespace levin
