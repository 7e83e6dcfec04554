#include "levin/trainer/step/publish_output.h"

#include <algorithm>
#include <string>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/tensor_text.h"
#include "levin/strategies/device/scatter_gather.h"
#include "levin/trainer/run/run.h"
#include "levin/trainer/step/step_notes.h"

namespace levin {

namespace {

using Outputs = std::vector<std::pair<std::string, at::Tensor>>;

std::string about_output(std::string_view name) {
  return "step_output(\"" + cut_text(std::string(name)) + "\"): ";
}

template <class Named>
void check_name(const Named& others, std::string_view name) {
  if (name.empty()) throw Error("step_output: an output needs a name.");
  const bool taken = std::any_of(others.begin(), others.end(), [&](const auto& other) { return other.first == name; });
  if (taken) throw Error(about_output(name) + "was called twice in one step. Give each output a name of its own.");
}

const at::Tensor* find(const Outputs& outputs, const std::string& name) {
  const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const auto& one) { return one.first == name; });
  return found == outputs.end() ? nullptr : &found->second;
}

at::Tensor joined(const std::string& name, const std::vector<StepShare>& shares) {
  std::vector<at::Tensor> parts;
  std::vector<int64_t> sizes;
  bool are_numbers = true, are_rows = true;
  for (const StepShare& share : shares) {
    const at::Tensor* own = find(share.outputs, name);
    if (own == nullptr || !own->defined()) {
      throw Error(about_output(name) + "only some parts of the batch have published it. Publish it in every step, or " +
                  "compute batches whole.");
    }
    are_numbers = are_numbers && own->dim() == 0 && own->is_floating_point();
    are_rows = are_rows && own->dim() > 0 && own->size(0) == share.samples;
    parts.push_back(*own);
    sizes.push_back(share.samples);
  }
  if (are_rows) return gather(parts, shares[0].slot);
  if (are_numbers) return mean_loss(parts, sizes, shares[0].slot);
  throw Error(about_output(name) + "a part of " + count_of(sizes[0], "sample") + " has published the shape " +
              shape_text(parts[0].sizes()) +
              ", and parts can be joined where the first dimension is the samples, or where each is one floating point "
              "number. Publish one of these.");
}

}  // namespace

void publish_output(Run& run, std::string_view name, const at::Tensor& value) {
  if (run.fit.recording != nullptr) {  // a tensor of its own, so that one that the step keeps is noticed
    check_name(run.fit.recording->outputs, name);
    run.fit.recording->outputs.emplace_back(name, value.defined() ? value.detach() : value);
    return;
  }
  at::Tensor detached = value.defined() && value.requires_grad() ? value.detach() : value;
  if (StepShare* share = this_share()) {
    check_name(share->outputs, name);
    share->outputs.emplace_back(name, std::move(detached));
  } else {
    check_name(run.entry.outputs, name);
    run.entry.outputs.add(std::string(name), std::move(detached));
  }
}

void join_outputs(Run& run, const std::vector<StepShare>& shares) {
  Outputs first;  // of which each stands for the parts' outputs of its name
  for (const StepShare& share : shares) {
    for (const auto& output : share.outputs) {
      if (find(first, output.first) == nullptr) first.push_back(output);
    }
  }
  for (const auto& [name, value] : first) {
    publish_output(run, name, shares.size() == 1 ? value : joined(name, shares));  // to an enclosing share, if any
  }
}

void give_outputs_again(Run& run, const StepNotes& notes) {
  for (const auto& [name, value] : notes.outputs) {
    run.entry.outputs.add(name, value.defined() ? value.clone() : value);
  }
}

}  // namespace levin
