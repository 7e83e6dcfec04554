// Data parallel over processes that shard what ddp replicates on every rank, by the stages of ZeRO (Rajbhandari et al.
// 2020, https://arxiv.org/abs/1910.02054): 1 the optimizer's state, 2 the gradients too, 3 the weights too, which are
// then unsharded only while they are in use (PyTorch's FSDP, Zhao et al. 2023). User code needs no change.
//
//   levin::Trainer trainer({.devices = 4, .strategy = levin::FSDP({.stage = 2})});
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/core/fields.h"
#include "levin/strategies/process/flat_unit.h"
#include "levin/strategies/process/parallel_strategy.h"

namespace levin {

class SpilledMemory;

enum class ShardDtype { same, float32, bfloat16, float16 };
template <>
struct EnumNames<ShardDtype> {
  static constexpr std::array names{std::pair{"same", ShardDtype::same}, std::pair{"float32", ShardDtype::float32},
                                    std::pair{"bfloat16", ShardDtype::bfloat16},
                                    std::pair{"float16", ShardDtype::float16}};
};

enum class StateDictType { full, sharded };
template <>
struct EnumNames<StateDictType> {
  static constexpr std::array names{std::pair{"full", StateDictType::full},
                                    std::pair{"sharded", StateDictType::sharded}};
};

struct FSDPOptions {
  int64_t stage = 3;
  StateDictType state_dict_type = StateDictType::full;
  double unit_mb = 25;  // MiB
  bool prefetch = true;
  ShardDtype param_dtype = ShardDtype::same;
  ShardDtype reduce_dtype = ShardDtype::same;
  bool cpu_offload = false;
  bool broadcast_buffers = true;
  std::string spill_dir = "auto";
  std::string process_group_backend = "auto";
  Seconds timeout = std::chrono::minutes(5);
  Seconds startup_timeout = std::chrono::minutes(30);
  template <class = void>
  static auto fields() {
    using O = FSDPOptions;
    return levin::fields(
        field("stage", &O::stage, "what is sharded: 1 the optimizer state, 2 gradients too, 3 weights too")
            .check([](int64_t stage) { return stage >= 1 && stage <= 3; }, "1, 2 or 3"),
        field(
            "state_dict_type", &O::state_dict_type,
            "checkpoints: full, one file that loads anywhere, or sharded, a folder to which each rank writes its part"),
        field("unit_mb", &O::unit_mb, "MiB of weights that are gathered, and of gradients that are reduced, together")
            .check([](double size) { return size > 0; }, "> 0"),
        field("prefetch", &O::prefetch, "stage 3: gather the next weights while the current ones compute"),
        field("param_dtype", &O::param_dtype,
              "type that weights are gathered and computed in; the optimizer keeps the parameters' own type: same, "
              "float32, bfloat16 or float16"),
        field("reduce_dtype", &O::reduce_dtype, "type that gradients are reduced in; same: that of the weights"),
        field("cpu_offload", &O::cpu_offload, "keep the optimizer's part on the CPU, and update it there"),
        field("broadcast_buffers", &O::broadcast_buffers, "give all ranks rank 0's buffers before each step"),
        field("spill_dir", &O::spill_dir,
              "stage 3: the folder on a disk where the model is made, before a fit; auto: $TMPDIR, /tmp or /var/tmp; "
              "off: it is made in memory"),
        field("process_group_backend", &O::process_group_backend, kProcessGroupBackends)
            .check(is_process_group_backend, "auto, gloo, shm or nccl"),
        field("timeout", &O::timeout, "how long a rank waits for the others once training runs"),
        field("startup_timeout", &O::startup_timeout, "the same until the first step is done"));
  }
};

class FSDP final : public ParallelStrategy {
 public:
  using Options = FSDPOptions;
  explicit FSDP(Defaults = {}) : FSDP(FSDPOptions()) {}
  explicit FSDP(FSDPOptions options);
  FSDP(FSDP&&) noexcept;  // before it is used, so that options can be given in place
  ~FSDP() override;

  [[nodiscard]] std::string name() const override { return "fsdp"; }
  [[nodiscard]] std::shared_ptr<void> model_sharded_context(bool training) override;
  void place(torch::nn::Module& module) override;
  void set_up(const ModuleTensors& module, bool training) override;
  void leave() override;
  void tear_down() override;
  void before_forward(bool sync) override;
  [[nodiscard]] RankNotes backward(const at::Tensor& loss, bool sync, const RankNotes& own) override;
  [[nodiscard]] RankNotes backward_without_loss(bool sync, const RankNotes& own) override;
  [[nodiscard]] at::Tensor backward_recorded(const at::Tensor& loss, bool sync, const at::Tensor& own) override;
  [[nodiscard]] bool has_notes_on_device() const override { return !device().is_cpu() && !options_.cpu_offload; }

  [[nodiscard]] bool is_sharded() const override { return !units_.empty(); }
  [[nodiscard]] bool shards_modules() const override { return true; }
  [[nodiscard]] bool has_sharded_gradients() const override { return is_sharded() && options_.stage >= 2; }
  [[nodiscard]] bool has_sharded_weights() const override { return is_sharded() && options_.stage == 3; }
  [[nodiscard]] bool saves_shards() const override {
    return is_sharded() && options_.state_dict_type == StateDictType::sharded;
  }
  void begin_evaluation() override;
  void end_evaluation() override;
  void begin_update() override;
  void end_update(bool changed) override;
  [[nodiscard]] std::optional<PartPlace> place_of(const at::Tensor& parameter) const override;
  [[nodiscard]] at::Tensor part_of(const at::Tensor& parameter) const override;
  [[nodiscard]] at::Tensor whole_of(const at::Tensor& parameter, const at::Tensor& part) override;
  [[nodiscard]] at::Tensor whole_on_rank_zero(const at::Tensor& parameter, const at::Tensor& part) override;
  [[nodiscard]] std::vector<at::Tensor> held() const override;
  [[nodiscard]] std::string sharding_text() const override;

 private:
  struct Engine;  // groups, gatherer, reducer
  struct Index {
    size_t unit = 0;
    size_t entry = 0;
  };

  [[nodiscard]] bool shares_weights(bool training) const;
  void make_units();
  void replay_others();
  [[nodiscard]] at::Tensor finish_backward(const at::Tensor& own);
  void gather_wholes();
  [[nodiscard]] at::Tensor padded(const at::Tensor& parameter, const at::Tensor& part) const;
  [[nodiscard]] at::Tensor put_together(const at::Tensor& parameter, const at::Tensor& padded_parts) const;
  void show_gradient_parts();
  void show_gradient_wholes();
  [[nodiscard]] const Index& index_of(const at::Tensor& parameter) const;

  FSDPOptions options_;
  ModuleTensors module_;
  std::vector<std::unique_ptr<FlatUnit>> units_;
  std::unordered_map<const c10::TensorImpl*, Index> index_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SpilledMemory> spilled_;  // from the construction of the module until set_up() is done
  bool places_by_unit_ = false;             // weights are moved to the device with their unit
  std::vector<std::pair<at::Tensor, at::Tensor>> whole_gradients_;  // during an update: parameter and its gradient
};

}  // namespace levin
