#include "levin/recompute/segment.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <optional>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/tensors.h"
#include "levin/libtorch/saved_tensors.h"
#include "levin/libtorch/tensor_memory.h"
#include "levin/recompute/kept_results.h"
#include "levin/recompute/surroundings.h"

namespace levin {

// Note [How a segment is computed again]
// The forward pass runs with gradients, so that its graph is the one without recomputation, but an empty slot is kept
// instead of each saved tensor. The first slot that backward reads recomputes the segment, from its inputs, with the
// original random numbers and autocast, and fills all slots that backward still needs: the k-th tensor saved now is the
// k-th saved then. It stops when the last of them is filled. A slot's tensor is freed as soon as its operator has used
// it, and the segment with its last slot. A second backward (retain_graph) recomputes it again. Chen et al. 2016,
// "Training Deep Nets with Sublinear Memory Cost"; the non-reentrant form of torch.utils.checkpoint.

namespace {

using Tensors = std::vector<at::Tensor>;

// Thrown through the forward pass when the rest of it is not needed. Not a std::exception, so that handlers for those
// do not catch it.
struct Complete {};

int& depth_of_recomputing() {
  thread_local int depth = 0;
  return depth;
}

class Recomputing {
 public:
  Recomputing() { ++depth_of_recomputing(); }
  ~Recomputing() { --depth_of_recomputing(); }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;
};

// Restores running statistics without touching their version counters: no saved tensor has changed.
class BuffersAsTheyWere {
 public:
  explicit BuffersAsTheyWere(const Tensors& buffers) : buffers_(buffers) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& buffer : buffers) copies_.push_back(buffer.variable_data().clone());
  }
  ~BuffersAsTheyWere() {
    const at::NoGradGuard no_grad;
    for (size_t k = 0; k < buffers_.size(); ++k) buffers_[k].variable_data().copy_(copies_[k]);
  }
  BuffersAsTheyWere(const BuffersAsTheyWere&) = delete;
  BuffersAsTheyWere& operator=(const BuffersAsTheyWere&) = delete;

 private:
  const Tensors& buffers_;
  Tensors copies_;
};

// An input of a segment, kept until backward.
class SavedInput {
 public:
  // Kept like an operator's saved tensor: by the hooks of the enclosing segment, if any, so that nested segments keep
  // nothing of each other. `offload`: a tensor of another device is copied to page-locked memory of the host, in
  // parallel with its stream.
  SavedInput(const at::Tensor& input, bool offload);

  // Returns the input; throws c10::Error if it was changed in place since.
  [[nodiscard]] at::Tensor tensor() const;

 private:
  SavedTensor saved_;
  at::Tensor on_host_;  // defined: the copy
  c10::Device device_ = c10::Device(c10::kCPU);
  bool requires_grad_ = false;
};

// Page-locked, so that the copy is asynchronous, where the device's backend has such memory.
at::Tensor host_memory_for(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU);
  const auto format = tensor.suggest_memory_format();
  try {
    return at::empty(tensor.sizes(), options.pinned_memory(true), format);
  } catch (const c10::Error&) {
    return at::empty(tensor.sizes(), options, format);
  }
}

at::Tensor copied_to_host(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = host_memory_for(tensor);
  copy.copy_(tensor.detach(), /*non_blocking=*/copy.is_pinned());
  return copy;
}

// A leaf (the batch, a weight) is kept by its owner; tensors taken by the hooks of an enclosing segment are not kept.
SavedInput::SavedInput(const at::Tensor& input, bool offload) {
  const bool on_host = !input.defined() || input.is_cpu();
  if (!offload || on_host || input.is_leaf() || SavedTensorScope::active()) {
    saved_ = SavedTensor(input, /*is_output=*/false);
    return;
  }
  on_host_ = copied_to_host(input);
  device_ = input.device();
  requires_grad_ = input.requires_grad();
}

at::Tensor SavedInput::tensor() const {
  if (!on_host_.defined()) return saved_.unpack();
  const at::NoGradGuard no_grad;
  return on_host_.to(device_, /*non_blocking=*/true).set_requires_grad(requires_grad_);
}

// A weight, or a view of one, is in memory anyway.
bool belongs_to_weight(const at::Tensor& tensor) {
  if (!tensor.requires_grad()) return false;
  return tensor.is_leaf() || (tensor.is_view() && tensor._base().is_leaf());
}

std::string kind_text(at::IntArrayRef sizes, at::ScalarType type) {
  return shape_text(sizes) + " " + c10::toString(type);
}

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  Segment(SegmentOptions options, const Tensors& inputs, Tensors buffers, detail::SegmentScope::Again again);

  class Slot;
  std::shared_ptr<Slot> add_slot(const at::Tensor& tensor);
  void add_kept() { slots_.emplace_back(); }
  void compute_again();

  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] KeptResults* kept() { return kept_ ? &*kept_ : nullptr; }
  [[nodiscard]] std::recursive_mutex& mutex() { return mutex_; }

 private:
  class Refill;
  Tensors inputs() const;

  SegmentOptions options_;
  std::vector<SavedInput> inputs_;
  Tensors buffers_;
  detail::SegmentScope::Again again_;
  Surroundings surroundings_;
  std::optional<KeptResults> kept_;
  std::vector<std::weak_ptr<Slot>> slots_;  // in the order they were saved; a weight's is empty
  std::recursive_mutex mutex_;              // devices' threads may read slots of one segment
};

// Replaces one saved tensor.
class Segment::Slot {
 public:
  Slot(std::shared_ptr<Segment> segment, const at::Tensor& tensor)
      : segment_(std::move(segment)), sizes_(tensor.sizes().vec()), type_(tensor.scalar_type()) {}

  at::Tensor take() {
    const std::lock_guard lock(segment_->mutex());
    if (!value_.defined()) segment_->compute_again();
    if (value_._version() != version_) {
      throw Error("recompute: " + segment_->name() + " saves a tensor of shape " + shape_text(sizes_) +
                  " for backward and changes it in place afterwards. Use the operation that is not in place.");
    }
    return std::exchange(value_, at::Tensor());
  }

  void fill(const at::Tensor& tensor) {
    if (tensor.sizes() != at::IntArrayRef(sizes_) || tensor.scalar_type() != type_) {
      throw Error("recompute: " + segment_->name() + " computes something else the second time: " +
                  kind_text(tensor.sizes(), tensor.scalar_type()) + " where it was " + kind_text(sizes_, type_) +
                  ". Its forward pass must depend on its inputs and on LibTorch's random numbers alone.");
    }
    value_ = alias_of(tensor);
    version_ = value_._version();  // take() detects later changes
  }

 private:
  std::shared_ptr<Segment> segment_;
  std::vector<int64_t> sizes_;
  at::ScalarType type_;
  at::Tensor value_;  // undefined: to be computed
  int64_t version_ = 0;
};

// The slot of one saved tensor of the forward pass.
class SlotHooks final : public PackHooks {
 public:
  explicit SlotHooks(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (belongs_to_weight(tensor)) {
      weight_ = tensor;
      version_ = weight_._version();
      segment_->add_kept();
    } else {
      slot_ = segment_->add_slot(tensor);
    }
  }

  at::Tensor call_unpack_hook() override {
    if (slot_) return slot_->take();
    if (weight_._version() != version_) {
      throw Error("recompute: a weight of " + segment_->name() + ", of shape " + shape_text(weight_.sizes()) +
                  ", was changed in place between its forward pass and backward (version " + std::to_string(version_) +
                  ", now " + std::to_string(weight_._version()) + "). Update weights after backward.");
    }
    return weight_;
  }

 private:
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Segment::Slot> slot_;
  at::Tensor weight_;
  int64_t version_ = 0;
};

// Of the forward pass.
class ForwardHooks final : public SavedTensorHooks {
 public:
  explicit ForwardHooks(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  std::unique_ptr<PackHooks> make() override { return std::make_unique<SlotHooks>(segment_); }

 private:
  std::shared_ptr<Segment> segment_;
};

// Of the forward pass that is run again.
class Segment::Refill final : public SavedTensorHooks {
 public:
  explicit Refill(const Segment& segment) : slots_(segment.slots_) {
    for (size_t k = 0; k < slots_.size(); ++k) {
      if (!slots_[k].expired()) wanted_ = k + 1;
    }
  }

  std::unique_ptr<PackHooks> make() override { return std::make_unique<Hooks>(*this); }
  [[nodiscard]] size_t seen() const { return seen_; }
  [[nodiscard]] bool complete() const { return seen_ >= wanted_; }
  [[nodiscard]] size_t wanted() const { return wanted_; }

 private:
  // Also keeps its tensor, for a forward pass that runs its own backward.
  class Hooks final : public PackHooks {
   public:
    explicit Hooks(Refill& refill) : refill_(refill) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      refill_.take(tensor);
      value_ = alias_of(tensor);
    }
    at::Tensor call_unpack_hook() override { return value_; }

   private:
    Refill& refill_;
    at::Tensor value_;
  };

  void take(const at::Tensor& tensor) {
    const size_t k = seen_++;
    if (k >= wanted_) return;
    if (const auto slot = slots_[k].lock()) slot->fill(tensor);
    if (k + 1 == wanted_) throw Complete();
  }

  const std::vector<std::weak_ptr<Slot>>& slots_;
  size_t wanted_ = 0;
  size_t seen_ = 0;
};

Segment::Segment(SegmentOptions options, const Tensors& inputs, Tensors buffers, detail::SegmentScope::Again again)
    : options_(std::move(options)), buffers_(std::move(buffers)), again_(std::move(again)), surroundings_(inputs) {
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input, options_.offload);
  if (options_.keep == Keep::matmul) kept_.emplace(options_.name);
}

std::shared_ptr<Segment::Slot> Segment::add_slot(const at::Tensor& tensor) {
  auto slot = std::make_shared<Slot>(shared_from_this(), tensor);
  slots_.push_back(slot);
  return slot;
}

Tensors Segment::inputs() const {
  Tensors list;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    try {
      list.push_back(inputs_[k].tensor());
    } catch (const c10::Error& error) {
      throw Error("recompute: input " + std::to_string(k) + " of " + name() +
                  " is not what it was: it was changed in place between its forward pass and backward. Give it a copy "
                  "(x.clone()), or change it after backward. LibTorch: " +
                  error.what_without_backtrace());
    }
  }
  return list;
}

void Segment::compute_again() {
  const Recomputing recomputing;
  const Tensors given = inputs();
  const Surroundings::Scope surroundings(surroundings_);
  const BuffersAsTheyWere buffers(buffers_);
  const at::AutoGradMode gradients(true);
  Refill refill(*this);
  const SavedTensorScope hooks(&refill);
  const KeptResults::Scope results(kept(), KeptResults::Mode::give);
  try {
    again_(given);
  } catch (const Complete&) {
    return;
  }
  if (refill.complete()) return;
  throw Error("recompute: " + name() + " computes something else the second time: it saved " +
              count_of(refill.wanted(), "tensor") + " for backward, and now " + std::to_string(refill.seen()) +
              ". Its forward pass must depend on its inputs and on LibTorch's random numbers alone.");
}

}  // namespace

bool recomputation_applies() {
  return at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
}

bool is_recomputing() {
  return depth_of_recomputing() > 0;
}

namespace detail {

struct SegmentScope::Open {
  Open(SegmentOptions options, Tensors given, Tensors buffers, Again again)
      : inputs(std::move(given)),
        segment(std::make_shared<Segment>(std::move(options), inputs, std::move(buffers), std::move(again))),
        hooks(segment) {
    for (const at::Tensor& input : inputs) versions.push_back(input.defined() ? input._version() : 0);
    scope.emplace(&hooks);
    results.emplace(segment->kept(), KeptResults::Mode::keep);
  }

  Tensors inputs;
  std::vector<int64_t> versions = {};
  std::shared_ptr<Segment> segment;
  ForwardHooks hooks;
  std::optional<SavedTensorScope> scope = {};
  std::optional<KeptResults::Scope> results = {};
};

SegmentScope::SegmentScope(SegmentOptions options, Tensors inputs, Tensors buffers, Again again)
    : open_(std::make_shared<Open>(std::move(options), std::move(inputs), std::move(buffers), std::move(again))) {}

SegmentScope::~SegmentScope() = default;

void SegmentScope::finish() {
  const std::shared_ptr<Open> open = std::move(open_);
  for (size_t k = 0; k < open->inputs.size(); ++k) {
    const at::Tensor& input = open->inputs[k];
    if (!input.defined() || input._version() == open->versions[k]) continue;
    throw Error("recompute: " + open->segment->name() + " has changed its input " + std::to_string(k) + ", of shape " +
                shape_text(input.sizes()) +
                ", in place, and would compute something else from it in backward. Use the operation that is not in "
                "place, or begin with x.clone().");
  }
}

}  // namespace detail

}  // namespace levin
