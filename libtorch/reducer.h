// c10d's reducer of gradients, which Python's DistributedDataParallel runs on. Its constructor takes other arguments in
// most versions. Checked with LibTorch 2.6, 2.7, 2.9, 2.11, 2.13 and 2.15. Internal.
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

struct ReducerOptions {
  int64_t bucket_bytes = 0;  // of gradients that are reduced together
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
};

/// Returns a reducer of the parameters' gradients over the group; `names` are for its errors.
[[nodiscard]] std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                                          std::unordered_map<size_t, std::string> names,
                                                          const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                          const ReducerOptions& options);

/// Makes the reducer send gradients as float16 or bfloat16. Call one of them once, before the first backward.
void send_as_float16(c10d::Reducer& reducer);
void send_as_bfloat16(c10d::Reducer& reducer, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace levin
