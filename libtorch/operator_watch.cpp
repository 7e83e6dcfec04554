#include "levin/libtorch/operator_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/libtorch/borrowed_keys.h"
#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

struct Watcher {
  std::function<void(const OperatorWatch::Storages&)> before;
  std::function<void(const OperatorWatch::Storages&)> after;
};
std::unique_ptr<Watcher> watcher;  // read by backward's threads only while the training thread waits for them
std::atomic<bool> is_watching = false;

void add_storage(const at::Tensor& tensor, OperatorWatch::Storages& storages) {
  if (tensor.defined() && tensor.has_storage()) storages.push_back(tensor.storage().unsafeGetStorageImpl());
}

void add_storages(const c10::IValue& value, OperatorWatch::Storages& storages) {
  if (value.isTensor()) {
    add_storage(value.toTensor(), storages);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add_storage(tensor, storages);
  } else if (value.isList()) {  // of optional tensors, as in index
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) add_storage(item.toTensor(), storages);
    }
  }
}

void call_watched(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inside(kOperatorWatchKey);
  if (!watcher) return op.callBoxed(stack);
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  OperatorWatch::Storages read;
  OperatorWatch::Storages written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    add_storages(values[i], read);
    if (is_written(arguments[i])) add_storages(values[i], written);
  }
  if (!read.empty()) watcher->before(read);
  op.callBoxed(stack);
  if (!written.empty()) watcher->after(written);
}

// Registered from the first use to the end of the process.
void start_watching() {
  static const torch::Library library = register_fallback<&call_watched>(kOperatorWatchKey);
}

}  // namespace

OperatorWatch::OperatorWatch(std::function<void(const Storages&)> before, std::function<void(const Storages&)> after)
    : guard_(c10::DispatchKeySet(kOperatorWatchKey)) {
  if (is_watching.exchange(true))
    throw Error("fsdp: another run with stage 3 is active in this process. Run one after the other.");
  start_watching();
  watcher = std::make_unique<Watcher>(Watcher{std::move(before), std::move(after)});
}

OperatorWatch::~OperatorWatch() {
  watcher.reset();
  is_watching = false;
}

OperatorWatch::Unseen::Unseen() : guard_(c10::DispatchKeySet(kOperatorWatchKey)) {}

}  // namespace levin
