#include "levin/strategies/device/model_parallel.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>

#include "levin/core/options/error.h"
#include "levin/strategies/device/pipeline.h"
#include "levin/strategies/device_placement.h"

namespace levin {

namespace {

std::string slots_text(const PlacedPart& part) {
  std::vector<std::string> slots;
  for (const auto& slot : part.slots) slots.push_back(slot.text());
  return part.name + " on " + join(slots);
}

bool belongs_to(const std::string& name, const PlacedPart& part) {
  return name.starts_with(part.name + ".");
}

// The innermost part that contains a submodule; null: none.
const PlacedPart* part_around(const std::string& name, const std::vector<PlacedPart>& parts) {
  const PlacedPart* found = nullptr;
  for (const auto& part : parts) {
    if ((name == part.name || belongs_to(name, part)) && (found == nullptr || part.name.size() > found->name.size())) {
      found = &part;
    }
  }
  return found;
}

}  // namespace

// The module's parts and the actions that run them on their devices.
class ModelParallel::PartsPlacement final : public SlotPlacement {
 public:
  explicit PartsPlacement(ModelParallelOptions options) : options_(std::move(options)) {}
  PartsPlacement(const PartsPlacement&) = delete;
  PartsPlacement& operator=(const PartsPlacement&) = delete;
  ~PartsPlacement() override { release(); }

  /// Throws ConfigError as placed_parts does.
  void place(torch::nn::Module& module) override;
  void begin_run(const ModuleTensors& module, bool training);
  void check_called();
  void release();
  [[nodiscard]] Pipeline* pipeline() { return pipeline_.get(); }
  [[nodiscard]] int64_t micro_batches() const { return pipeline_ ? options_.pipeline->micro_batches : 1; }
  [[nodiscard]] const std::vector<PlacedPart>& placed() const { return parts_; }
  [[nodiscard]] PlacementRecorder& trace() { return recorder_; }

 private:
  struct Action {
    const torch::nn::Module* module;
    std::shared_ptr<PlacedCall> call;
  };
  void add_action(const PlacedPart& part, Pipeline* pipeline, size_t index);
  void fill_sequentials(torch::nn::Module& module, const std::vector<PlacedPart>& parts);

  ModelParallelOptions options_;
  PlacementRecorder recorder_;
  std::vector<PlacedPart> parts_;
  std::vector<Action> actions_;  // of the parts, then of unplaced blocks between them
  std::unique_ptr<Pipeline> pipeline_;
  bool calls_checked_ = false;
};

class ModelParallel::PartsGradients final : public GradientSync {
 public:
  explicit PartsGradients(PartsPlacement& parts) : parts_(parts) {}
  [[nodiscard]] RankFlags backward(const at::Tensor& loss, bool sync, const RankFlags& own) override {
    parts_.check_called();
    return GradientSync::backward(loss, sync, own);
  }
  [[nodiscard]] int64_t micro_batches() const override { return parts_.micro_batches(); }
  void run_micro_batches(size_t count, const std::function<at::Tensor(size_t)>& loss) override {
    parts_.pipeline()->run(count, loss);
  }

 private:
  PartsPlacement& parts_;
};

void ModelParallel::PartsPlacement::place(torch::nn::Module& module) {
  const auto* placement = std::get_if<Placement>(&options_.placement);
  if (placement == nullptr || placement->empty()) return;
  parts_ = placed_parts(module, *placement, slots(), "ModelParallelOptions.placement");
  move_module(module, device());
  for (const auto& part : parts_) move_module(*part.module, part.slots[0].device);
  std::vector<Pipeline::Part> stages;
  for (const auto& part : parts_) {
    if (!part.inside_another) stages.push_back({part.name, part.slots});
  }
  if (options_.pipeline) pipeline_ = std::make_unique<Pipeline>(stages, slots()[0], recorder_);
  size_t stage = 0;
  for (const auto& part : parts_) {
    add_action(part, part.inside_another ? nullptr : pipeline_.get(), part.inside_another ? 0 : stage++);
  }
  fill_sequentials(module, parts_);
}

void ModelParallel::PartsPlacement::add_action(const PlacedPart& part, Pipeline* pipeline, size_t index) {
  auto call = std::make_shared<PlacedCall>(part, slots()[0], recorder_, pipeline, index);
  CallActions::add(part.module, call);
  actions_.push_back({part.module, std::move(call)});
}

// A block that no pattern matches, in a Sequential with placed blocks, runs on the device of the part that contains the
// Sequential, so its input has to be moved there.
void ModelParallel::PartsPlacement::fill_sequentials(torch::nn::Module& module, const std::vector<PlacedPart>& parts) {
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto sequential = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(item.value());
    if (sequential == nullptr) continue;
    const auto blocks = sequential->named_children();
    const bool any = std::any_of(blocks.begin(), blocks.end(),
                                 [](const auto& block) { return CallActions::of(block.value().get()) != nullptr; });
    if (!any) continue;
    const PlacedPart* around = part_around(item.key(), parts);
    for (const auto& block : blocks) {
      if (CallActions::of(block.value().get()) != nullptr) continue;
      const DeviceSlot slot = around == nullptr ? slots()[0] : around->slots[0];
      add_action({item.key() + "." + block.key(), block.value().get(), {slot}, false}, nullptr, 0);
    }
  }
}

void ModelParallel::PartsPlacement::begin_run(const ModuleTensors& module, bool training) {
  calls_checked_ = false;
  if (!pipeline_ || !training) return;
  std::vector<at::Tensor> placed;
  for (const PlacedPart& part : parts_) {
    for (const at::Tensor& parameter : part.module->parameters()) placed.push_back(parameter);
  }
  for (const auto& [name, parameter] : module.parameters) {
    const at::Tensor& wanted = parameter;
    const bool is_placed =
        std::any_of(placed.begin(), placed.end(), [&](const at::Tensor& one) { return one.is_same(wanted); });
    if (is_placed || !parameter.requires_grad()) continue;
    throw ConfigError(
        "ModelParallelOptions.placement: " + name +
        " belongs to no part, and with a pipeline every parameter that is trained must belong to a stage. " +
        "Name its submodule in the placement, or leave pipeline unset.");
  }
}

void ModelParallel::PartsPlacement::release() {
  for (const auto& action : actions_) CallActions::remove(action.module, action.call.get());
  actions_.clear();
  pipeline_.reset();
  parts_.clear();
}

void ModelParallel::PartsPlacement::check_called() {
  if (calls_checked_) return;
  calls_checked_ = true;
  for (size_t k = 0; k < parts_.size(); ++k) {
    if (actions_[k].call->calls() > 0) continue;
    throw Error("ModelParallel: " + slots_text(parts_[k]) +
                " was not called on its device: the step called it directly, or not at all. Call it through "
                "levin::call(module, x), or make it a block of a torch::nn::Sequential. Of an exported program, name a "
                "module that Python calls.");
  }
}

ModelParallel::ModelParallel(ModelParallelOptions options) {
  options = checked(std::move(options), "ModelParallelOptions");
  const auto* placement = std::get_if<Placement>(&options.placement);
  if (options.pipeline && (placement == nullptr || placement->empty())) {
    throw ConfigError(
        "ModelParallelOptions.pipeline: requires a placement, which defines its stages. Name the parts, or leave "
        "pipeline unset.");
  }
  parts_ = &make<PartsPlacement>(std::move(options));
  make<PartsGradients>(*parts_);
}

ModelParallel::~ModelParallel() = default;

void ModelParallel::set_up(const ModuleTensors& module, bool training) {
  parts_->begin_run(module, training);
  Strategy::set_up(module, training);
}

void ModelParallel::tear_down() {
  Strategy::tear_down();
  parts_->release();
}

std::vector<PlacedPart> ModelParallel::parts() const {
  return parts_->placed();
}

void ModelParallel::set_recording(bool on) {
  parts_->trace().set_recording(on);
}

PlacementTrace ModelParallel::trace() const {
  return parts_->trace().trace();
}

}  // namespace levin
