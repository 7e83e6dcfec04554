#include "levin/recompute/chain_recorder.h"

#include <algorithm>
#include <utility>

namespace levin {

namespace {

int64_t references(const TensorList& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.has_storage()) {
      count += static_cast<int64_t>(tensor.use_count()) + static_cast<int64_t>(tensor.storage().use_count());
    }
  }
  return count;
}

int64_t versions(const TensorList& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.defined() ? tensor._version() : 0;
  return sum;
}

bool share_memory(const TensorList& some, const TensorList& others) {
  return std::any_of(some.begin(), some.end(), [&](const at::Tensor& one) {
    return std::any_of(others.begin(), others.end(), [&](const at::Tensor& other) {
      return one.defined() && other.defined() && one.has_storage() && other.has_storage() && one.is_alias_of(other);
    });
  });
}

}  // namespace

bool ChainRecorder::Border::is_there() const {
  return std::any_of(storages.begin(), storages.end(), [](const auto& storage) { return !storage.expired(); });
}

// A storage's address is not reused while a weak reference exists.
bool ChainRecorder::Border::is(const at::Tensor& one) const {
  if (!one.defined() || !one.has_storage() || one.unsafeGetTensorImpl() != tensor) return false;
  return storages.empty() || std::any_of(storages.begin(), storages.end(), [&](const auto& storage) {
           const auto there = storage.lock();
           return there && there.get() == one.storage().unsafeGetStorageImpl();
         });
}

ChainRecorder::ChainRecorder(MemoryMeter& meter, const std::vector<at::Tensor>& known) : meter_(meter) {
  for (const at::Tensor& tensor : known) {
    if (tensor.defined() && tensor.has_storage()) known_.insert(tensor.storage().unsafeGetStorageImpl());
  }
}

ChainRecorder::~ChainRecorder() = default;

void ChainRecorder::open() {
  meter_.wait();
  meter_.mark();
  before_ = meter_.held();
  begun_ = std::chrono::steady_clock::now();
}

Stretch ChainRecorder::close() {
  meter_.wait();
  Stretch interval;
  interval.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  interval.before = before_;
  interval.peak = meter_.peak();
  interval.after = meter_.held();
  for (Border& border : borders_) {
    if (border.gone || border.bytes == 0 || border.is_there()) continue;
    border.gone = true;
    interval.freed += border.bytes;
    if (&border != &borders_.back()) interval.late += border.bytes;
  }
  return interval;
}

void ChainRecorder::begin_forward() {
  open();
}

TensorList ChainRecorder::around(const torch::nn::Module* module, const ModuleForward& forward,
                                 const TensorList& inputs) {
  if (within_) {
    inner_.insert(module);
    return forward(inputs, nullptr);
  }
  inner_.clear();
  const Stretch gap = close();
  const bool follows =
      !stations_.empty() && stations_.back().module != nullptr && !inputs.empty() && borders_.back().is(inputs[0]);
  if (!follows) add_station(nullptr, gap, inputs);
  struct Within {
    explicit Within(bool& flag) : flag_(flag) { flag_ = true; }
    ~Within() { flag_ = false; }
    bool& flag_;
  } const inside(within_);
  const int64_t before = references(inputs);
  const int64_t version = versions(inputs);
  open();
  TensorList outputs = forward(inputs, nullptr);
  const Stretch interval = close();
  const bool holds_input = !share_memory(inputs, outputs) && references(inputs) > before;
  add_station(module, interval, outputs);
  stations_.back().takes_previous = follows;
  stations_.back().holds_input = holds_input;
  stations_.back().changes_input = versions(inputs) != version;
  stations_.back().blocks_within = inner_.size();
  open();
  return outputs;
}

void ChainRecorder::add_station(const torch::nn::Module* module, const Stretch& forward, const TensorList& outputs) {
  Station station;
  station.module = module;
  station.forward = forward;
  Border border;
  std::set<const c10::StorageImpl*> earlier;
  for (const Border& one : borders_) {
    for (const auto& storage : one.storages) {
      if (const auto there = storage.lock()) earlier.insert(there.get());
    }
  }
  std::set<const c10::StorageImpl*> seen = known_;
  for (const at::Tensor& tensor : outputs) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    if (border.tensor == nullptr) border.tensor = tensor.unsafeGetTensorImpl();
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (!seen.insert(storage).second) continue;
    border.storages.push_back(tensor.storage().getWeakStorageImpl());
    (earlier.contains(storage) ? station.passed_on : border.bytes) += static_cast<int64_t>(storage->nbytes());
  }
  station.output = border.bytes;
  station.returns_input = module != nullptr && border.tensor != nullptr && border.tensor == borders_.back().tensor;
  stations_.push_back(station);
  borders_.push_back(std::move(border));
  if (!station.returns_input) watch_gradient(outputs, stations_.size() - 1);
}

// Not on a weight that is passed to a block: it outlives this recorder, and so would the hook.
void ChainRecorder::watch_gradient(const TensorList& outputs, size_t station) {
  for (const at::Tensor& tensor : outputs) {
    if (!tensor.defined() || !tensor.requires_grad() || tensor.is_leaf()) continue;
    tensor.register_hook([this, station](const at::Tensor& gradient) { reach(station, gradient); });
    return;
  }
}

void ChainRecorder::end_forward(const at::Tensor& loss) {
  const Stretch interval = close();
  add_station(nullptr, interval, {loss});
}

void ChainRecorder::begin_backward() {
  in_backward_ = stations_.size();
  open();
}

void ChainRecorder::reach(size_t station, const at::Tensor& gradient) {
  if (station >= in_backward_) {
    out_of_order_ = true;
    return;
  }
  const Stretch interval = close();
  if (in_backward_ < stations_.size()) stations_[in_backward_].backward = interval;
  Station& reached = stations_[station];
  reached.has_backward = true;
  reached.output_there = borders_[station].is_there();
  reached.input_there = station > 0 && borders_[station - 1].is_there();
  reached.output_gradient = gradient.has_storage() ? static_cast<int64_t>(gradient.storage().nbytes()) : 0;
  in_backward_ = station;
  open();
}

void ChainRecorder::end_backward() {
  const Stretch interval = close();
  if (in_backward_ < stations_.size()) stations_[in_backward_].backward = interval;
  for (size_t k = 1; k < stations_.size(); ++k) {  // the gradient of their output is the gradient of their input
    if (!stations_[k].returns_input) continue;
    stations_[k].has_backward = stations_[k - 1].has_backward;
    stations_[k].output_gradient = stations_[k - 1].output_gradient;
    stations_[k].output_there = stations_[k - 1].output_there;
  }
}

}  // namespace levin
