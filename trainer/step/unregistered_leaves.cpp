#include "levin/trainer/step/unregistered_leaves.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <memory>
#include <set>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "levin/core/options/error.h"
#include "levin/core/options/registry.h"
#include "levin/core/tensors.h"
#include "levin/data/batch_rows.h"
#include "levin/libtorch/graph_nodes.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/step/run_messages.h"
#include "levin/trainer/step/step_core.h"

namespace levin {

namespace {

// "AddmmBackward0" as "addmm".
std::string operator_name(const GraphNode& node) {
  std::string name = node.name();
  name = name.substr(0, name.find("Backward"));
  if (!name.empty()) name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
  return name;
}

// Operators that only pass a weight on.
bool passes_on(const std::string& name) {
  static const std::set<std::string> names{"t",      "transpose", "permute", "view",  "unsafeView", "reshapeAlias",
                                           "expand", "toCopy",    "clone",   "alias", "slice",      "select",
                                           "to",     "_to_copy"};
  return names.contains(name);
}

// Every node that backward of `root` runs, with the operator that reads its result.
template <class Visit>
void visit_graph(const at::Tensor& root, Visit visit) {
  std::unordered_map<const GraphNode*, std::string> readers;
  std::vector<GraphNode*> waiting;
  const auto add = [&](const GraphNodePtr& node, const std::string& reader) {
    if (node == nullptr || !readers.emplace(node.get(), reader).second) return;
    waiting.push_back(node.get());
  };
  add(node_of(root), "");
  while (!waiting.empty()) {
    GraphNode* node = waiting.back();
    waiting.pop_back();
    const std::string reader = readers.at(node);
    visit(*node, reader);
    const std::string own = operator_name(*node);
    for (const auto& edge : node->next_edges()) add(edge.function, passes_on(own) ? reader : own);
  }
}

bool is_used(const LightningOptimizer& wrapped, const at::Tensor& tensor) {
  const std::vector<at::Tensor> parameters = wrapped.shared()->parameters();
  return std::any_of(parameters.begin(), parameters.end(), [&](const at::Tensor& p) { return p.is_same(tensor); });
}

}  // namespace

void UnregisteredLeaves::add(const StepCore& core, const at::Tensor& loss) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const at::Tensor& parameter : core.module.parameters()) known.insert(parameter.unsafeGetTensorImpl());
  for (const Leaf& leaf : leaves_) known.insert(leaf.tensor._unsafe_get_target());  // of another pass of the batch
  visit_graph(loss, [&](const GraphNode& node, const std::string& reader) {
    const at::Tensor leaf = leaf_of(node);
    if (!leaf.defined() || !known.insert(leaf.unsafeGetTensorImpl()).second) return;
    leaves_.push_back({decltype(Leaf::tensor)(leaf.getIntrusivePtr()), reader});
  });
}

void UnregisteredLeaves::add_read(const at::Tensor& leaf, const std::string& used_by) {
  read_.push_back({decltype(Leaf::tensor)(leaf.getIntrusivePtr()), used_by});
}

bool UnregisteredLeaves::report(const StepCore& core, const Batch& batch) const {
  std::vector<at::Tensor> inputs = batch.tensors;
  Batch values = batch;
  visit_values(values, [&](at::Tensor& tensor) { inputs.push_back(tensor); });
  std::vector<std::string> names;
  bool is_trained = false;
  std::unordered_set<const c10::TensorImpl*> named;
  const auto add_name = [&](const Leaf& leaf, bool needs_gradient) {
    auto alive = leaf.tensor.lock();
    if (!alive.defined()) return;
    const at::Tensor tensor(std::move(alive));
    if (needs_gradient && !tensor.grad().defined()) return;
    const auto shares = [&](const at::Tensor& input) { return input.defined() && input.is_alias_of(tensor); };
    if (std::any_of(inputs.begin(), inputs.end(), shares)) return;
    if (!named.insert(tensor.unsafeGetTensorImpl()).second) return;
    names.push_back(shape_text(tensor.sizes()) + " " + c10::toString(tensor.scalar_type()) +
                    (leaf.used_by.empty() ? "" : " in " + leaf.used_by));
    for (const auto& wrapped : core.optimizers) is_trained = is_trained || is_used(wrapped, tensor);
  };
  for (const Leaf& leaf : leaves_) add_name(leaf, false);
  for (const Leaf& leaf : read_) add_name(leaf, true);
  if (names.empty()) return false;
  if (core.strategy.ranks().rank() != 0) return true;
  const std::string model = detail::readable_type_name(typeid(core.module));
  const bool one = names.size() == 1;
  warn_of_run(
      "training_step: the loss depends on " + count_of(names.size(), "tensor") + " that " +
      (one ? "requires a gradient and is" : "require gradients and are") + " not among the parameters of " + model +
      ": " + join(names) + ". " + (one ? "It is" : "They are") + " in no checkpoint" +
      (is_trained ? "" : " and never trained") +
      (core.has_peers() ? ", and ranks have different values of " + std::string(one ? "it" : "them") : "") +
      ". Register the layer, such as layer_{register_module(\"layer\", torch::nn::Linear(8, 1))}, or the tensor with "
      "register_parameter; if it should not be trained, turn its gradient off with set_requires_grad(false).");
  return true;
}

namespace {

bool is_looked_at(const StepCore& core) {
  const auto is_power_of_2 = [](int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); };
  if (core.place.is_trial || core.found_leaves) return false;
  if (core.recording != nullptr) return false;  // its inputs are not the batch's tensors
  return !core.looked_at_leaves || is_power_of_2(core.place.total_batches) ||
         (core.place.batch_idx == 0 && is_power_of_2(core.place.epoch));
}

UnregisteredLeaves& leaves_of(StepCore& core) {
  if (core.leaves == nullptr) core.leaves = std::make_shared<UnregisteredLeaves>();
  return *core.leaves;
}

// The leaves that the open ReadLeavesScope of this thread has recorded.
struct ReadLeaves {
  UnregisteredLeaves* leaves = nullptr;
  std::unordered_set<const c10::TensorImpl*> known = {};

  void add(const at::Tensor& tensor, const char* used_by) {
    if (!tensor.defined() || !tensor.requires_grad() || !tensor.is_leaf()) return;
    if (!known.insert(tensor.unsafeGetTensorImpl()).second) return;
    std::string name = used_by;
    name = name.substr(name.rfind(':') + 1);  // "aten::addmm" as "addmm"
    leaves->add_read(tensor, passes_on(name) ? "" : name);
  }
};

thread_local ReadLeaves read_here;

std::unique_ptr<at::ObserverContext> add_inputs(const at::RecordFunction& call) {
  if (read_here.leaves == nullptr || !at::GradMode::is_enabled()) return nullptr;
  for (const c10::IValue& input : call.inputs()) {
    if (input.isTensor()) read_here.add(input.toTensor(), call.name());
    if (!input.isTensorList()) continue;
    for (const at::Tensor& tensor : input.toTensorVector()) read_here.add(tensor, call.name());
  }
  return nullptr;
}

}  // namespace

void note_leaves(StepCore& core, const at::Tensor& loss) {
  if (is_looked_at(core)) leaves_of(core).add(core, loss);
}

ReadLeavesScope::ReadLeavesScope(StepCore& core) {
  const bool is_nested = read_here.leaves != nullptr;  // in a step that runs another trainer
  if (is_nested || core.module.automatic_optimization() || !is_looked_at(core)) return;
  read_here.leaves = &leaves_of(core);
  for (const at::Tensor& parameter : core.module.parameters()) {
    read_here.known.insert(parameter.unsafeGetTensorImpl());
  }
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&add_inputs).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

ReadLeavesScope::~ReadLeavesScope() {
  if (!handle_) return;
  at::removeCallback(*handle_);
  read_here = {};
}

void report_leaves(StepCore& core, const Batch& batch) {
  const auto leaves = std::exchange(core.leaves, nullptr);
  if (leaves == nullptr) return;
  core.looked_at_leaves = true;
  core.found_leaves = leaves->report(core, batch);
}

}  // namespace levin
