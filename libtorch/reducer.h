// c10d's reducer of gradients, which Python's DistributedDataParallel runs on. Its constructor takes other arguments in
// most versions. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <vector>

namespace levin {

/// The gradients that are reduced together, as indices of parameters, in the order in which buckets are reduced.
using GradientBuckets = std::vector<std::vector<size_t>>;

struct ReducerOptions {
  int64_t bucket_bytes = 0;      // of gradients that are reduced together
  GradientBuckets buckets = {};  // of the first step; empty: of parameters in their reverse order
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  at::ScalarType sent_type = at::ScalarType::Undefined;  // float16, bfloat16, or the gradients' own
};

/// A c10d::Reducer and its logger, which the reducer calls where the set of unused parameters changes.
class BucketReducer {
 public:
  /// Of the parameters' gradients over the group; `names` are for its errors.
  BucketReducer(const std::vector<at::Tensor>& parameters, std::unordered_map<size_t, std::string> names,
                const c10::intrusive_ptr<c10d::ProcessGroup>& group, const ReducerOptions& options);

  void prepare_for_forward() { reducer_->prepare_for_forward(); }
  void prepare_for_backward(const std::vector<at::Tensor>& outputs) { reducer_->prepare_for_backward(outputs); }
  void delay_all_reduce() { reducer_->delay_all_reduce(); }
  /// After the first step its order of gradients makes the buckets.
  void rebuild_buckets() { reducer_->rebuild_buckets(); }
  [[nodiscard]] GradientBuckets buckets() const { return logger_->get_per_bucket_variable_indices(); }

 private:
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // destroyed before the reducer that it watches
};

}  // namespace levin
