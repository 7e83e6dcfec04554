#include "levin/libtorch/reducer.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>
#include <type_traits>
#include <utility>

namespace levin {

namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Names = std::unordered_map<size_t, std::string>;

// The arguments that all versions have, after the buckets.
template <class Reducer, class... More>
constexpr bool kTakes = std::is_constructible_v<Reducer, std::vector<at::Tensor>, GradientBuckets, Group,
                                                std::vector<bool>, int64_t, bool, bool, Names, int64_t, More...>;

template <class Reducer>
std::shared_ptr<Reducer> make(const std::vector<at::Tensor>& parameters, Names names, const Group& group,
                              const ReducerOptions& options) {
  const int64_t first = std::min<int64_t>(options.bucket_bytes, c10d::kDefaultFirstBucketBytes);
  const std::vector<size_t> limits = {static_cast<size_t>(first), static_cast<size_t>(options.bucket_bytes)};
  const std::vector<bool> sparse(parameters.size(), false);
  auto [buckets, sizes] = c10d::compute_bucket_assignment_by_size(parameters, limits, sparse);
  // The last parameters' gradients are ready first.
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(sizes.begin(), sizes.end());
  if (!options.buckets.empty()) {
    buckets = options.buckets;
    sizes.assign(buckets.size(), limits[1]);
  }
  const auto with = [&, &buckets = buckets](auto... more) {
    return std::make_shared<Reducer>(parameters, std::move(buckets), group, sparse, options.bucket_bytes,
                                     options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names),
                                     first, more...);
  };
  // skip_all_reduce_unused_params and use_python_reducer since 2.8, bucket_bytes_cap_list since 2.11
  if constexpr (kTakes<Reducer, bool, bool, std::vector<int64_t>>) {
    return with(false, false, std::vector<int64_t>());
  } else if constexpr (kTakes<Reducer, bool, bool>) {
    return with(false, false);
  } else if constexpr (kTakes<Reducer>) {
    return with();
  } else {  // 2.6
    static_assert(std::is_constructible_v<Reducer, std::vector<at::Tensor>, GradientBuckets, std::vector<size_t>, Group,
                                          std::vector<bool>, int64_t, bool, bool, Names, int64_t>,
                  "This LibTorch has changed the constructor of c10d::Reducer: adapt libtorch/reducer.cpp.");
    return std::make_shared<Reducer>(parameters, std::move(buckets), sizes, group, sparse, options.bucket_bytes,
                                     options.find_unused_parameters, options.gradient_as_bucket_view, std::move(names),
                                     first);
  }
}

// c10d has this hook for float16; this one is for bfloat16, whose range is float32's.
class Bfloat16Hook final : public c10d::CppCommHookInterface<Group> {
 public:
  explicit Bfloat16Hook(const Group& group) : CppCommHookInterface<Group>(group) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor& buffer = bucket.getBufferRef();
    std::vector<at::Tensor> small = {buffer.to(at::kBFloat16).div_(state_->getSize())};
    return state_->allreduce(small)->getFuture()->then(
        [buffer](c10::ivalue::Future& sum) {
          const at::Tensor& mean = buffer;
          mean.copy_(sum.value().toTensorVector()[0]);
          return c10::IValue(std::vector<at::Tensor>{mean});
        },
        c10::ListType::create(c10::TensorType::get()));
  }
};

}  // namespace

BucketReducer::BucketReducer(const std::vector<at::Tensor>& parameters, Names names, const Group& group,
                             const ReducerOptions& options)
    : reducer_(make<c10d::Reducer>(parameters, std::move(names), group, options)),
      logger_(std::make_shared<c10d::Logger>(reducer_)) {
  reducer_->set_logger(logger_);
  if (options.static_graph) reducer_->set_static_graph();
  if (options.sent_type == at::kHalf) {
    reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  } else if (options.sent_type == at::kBFloat16) {
    reducer_->register_comm_hook(std::make_unique<Bfloat16Hook>(group));
  }
}

}  // namespace levin
