// Data parallel over processes that shard what ddp replicates on every rank, by the stages of ZeRO (Rajbhandari et al.
// 2020, https://arxiv.org/abs/1910.02054): 1 the optimizer's state, 2 the gradients too, 3 the weights too, which are
// then unsharded only while they are in use (PyTorch's FSDP, Zhao et al. 2023). User code needs no change.
//
//   levin::Trainer trainer({.devices = 4, .strategy = levin::FSDP({.stage = 2})});
#pragma once

#include <string>

#include "levin/core/options/fields.h"
#include "levin/strategies/process/parallel_strategy.h"

namespace levin {

/// A type for gathered weights or for reduced gradients. same: no conversion.
enum class ShardDtype { same, float32, bfloat16, float16 };
template <>
struct EnumNames<ShardDtype> {
  static constexpr EnumName<ShardDtype> names[] = {{"same", ShardDtype::same},
                                                   {"float32", ShardDtype::float32},
                                                   {"bfloat16", ShardDtype::bfloat16},
                                                   {"float16", ShardDtype::float16}};
};

/// What a checkpoint is. full: one file; sharded: a folder with a file of each rank.
enum class StateDictType { full, sharded };
template <>
struct EnumNames<StateDictType> {
  static constexpr EnumName<StateDictType> names[] = {{"full", StateDictType::full},
                                                      {"sharded", StateDictType::sharded}};
};

/// Options of FSDP.
struct FSDPOptions {
  int64_t stage = 3;
  EnumOption<StateDictType> state_dict_type = StateDictType::full;
  double unit_mb = 25;  // MiB
  bool prefetch = true;
  EnumOption<ShardDtype> param_dtype = ShardDtype::same;
  EnumOption<ShardDtype> reduce_dtype = ShardDtype::same;
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
        field("reduce_dtype", &O::reduce_dtype, "type that gradients are reduced in; same: the type of the weights"),
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

/// Shards of the optimizer's state, the gradients and the weights on every rank. Every rank makes the same calls.
/// set_up() throws ConfigError if the module differs between ranks; a backward pass throws Error for sparse gradients,
/// and RankError if another rank has ended or does not answer within the timeout.
class FSDP final : public ParallelStrategy {
 public:
  using Options = FSDPOptions;
  explicit FSDP(Defaults = {}) : FSDP(FSDPOptions()) {}
  explicit FSDP(FSDPOptions options);
  FSDP(FSDP&&) noexcept = default;  // before it is used, so that options can be given in place

  [[nodiscard]] std::string name() const override { return "fsdp"; }
  void set_up(const ModuleTensors& module, bool training) override;
  void begin_evaluation() override;
  void end_evaluation() override;
  void leave() override;
  void tear_down() override;

 private:
  class Shards;
  class Placement;
  class Gradients;
  class Recorder;
  Shards* shards_;
};

}  // namespace levin
