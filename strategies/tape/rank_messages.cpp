#include "levin/strategies/tape/rank_messages.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <unordered_set>
#include <utility>

#include "levin/libtorch/operator_values.h"

namespace levin {

namespace {

using Storages = std::unordered_set<size_t>;

void add_places(const RecordedArgument& argument, Storages& storages) {
  if (const auto* place = std::get_if<TensorPlace>(&argument)) storages.insert(place->storage);
  if (const auto* list = std::get_if<std::vector<TensorPlace>>(&argument)) {
    for (const TensorPlace& place : *list) storages.insert(place.storage);
  }
}

Storages used_by(const RecordedCall& call) {
  Storages used;
  for (const RecordedArgument& argument : call.arguments) add_places(argument, used);
  for (const TensorPlace& place : call.results) used.insert(place.storage);
  used.erase(TensorPlace::kNoStorage);
  return used;
}

bool share(const Storages& one, const Storages& other) {
  return std::any_of(one.begin(), one.end(), [&](size_t storage) { return other.contains(storage); });
}

struct Pending {
  size_t call;
  Storages memory;
};

}  // namespace

bool is_message(const c10::OperatorHandle& op) {
  return op.operator_name().getNamespace() == "c10d";
}

std::string why_not_resendable(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name == "c10d::allreduce_" || name == "c10d::broadcast_") return "";
  return "sends tensors to other ranks in a way that a recording does not repeat";
}

void wait_for_message(const c10::IValue& work) {
  work.toCustomClass<c10d::Work>()->wait();
}

Received copy_received(const c10::IValue& tensors) {
  Received copies;
  each_tensor(tensors, [&](const at::Tensor& tensor) { copies.push_back(tensor.detach().clone()); });
  return copies;
}

void receive_again(const Received& received, const c10::IValue& tensors) {
  size_t index = 0;
  each_tensor(tensors, [&](const at::Tensor& tensor) {
    at::Tensor to = tensor;
    to.copy_(received.at(index++));
  });
}

std::vector<std::vector<size_t>> plan_waits(const RecordedCalls& recorded) {
  const size_t count = recorded.calls.size();
  std::vector<std::vector<size_t>> waits(count + 1);
  std::vector<Pending> pending;
  for (size_t k = 0; k < count; ++k) {
    const RecordedCall& call = recorded.calls[k];
    if (pending.empty() && call.form != CallForm::message) continue;
    Storages used = used_by(call);
    std::erase_if(pending, [&](const Pending& message) {
      if (!share(message.memory, used)) return false;
      waits[k].push_back(message.call);
      return true;
    });
    if (call.form == CallForm::message) pending.push_back({k, std::move(used)});
  }
  for (const Pending& message : pending) waits[message.call + 1].push_back(message.call);
  return waits;
}

}  // namespace levin
