// The strategy of a run by rank_program.
#pragma once

#include <string>

#include "levin/levin.h"
#include "ranks/words.h"

namespace levin::test {

inline ShardDtype shard_dtype(const std::string& name) {
  return name == "bfloat16" ? ShardDtype::bfloat16 : ShardDtype::same;
}

inline FSDP fsdp(const Words& words) {
  FSDPOptions options;
  options.stage = words.number("stage", 3);
  options.unit_mb = std::stod(words.text("unit_mb", "25"));
  options.prefetch = !words.has("no_prefetch");
  options.param_dtype = shard_dtype(words.text("param_dtype", ""));
  options.reduce_dtype = shard_dtype(words.text("reduce_dtype", ""));
  options.cpu_offload = words.has("cpu_offload");
  options.process_group_backend = backend_of(words);
  if (words.text("state_dict_type", "") == "sharded") options.state_dict_type = StateDictType::sharded;
  return FSDP(options);
}

inline void use_strategy(const Words& words, TrainerOptions& options) {
  if (words.text("strategy", "") == "fsdp") {
    options.strategy = fsdp(words);
  } else if (words.has("strategy") || words.number("devices", 1) > 1) {
    DDPOptions ddp;
    ddp.find_unused_parameters = words.has("find_unused");
    ddp.gradient_as_bucket_view = words.has("bucket_view");
    ddp.static_graph = words.has("static_graph");
    ddp.bucket_cap_mb = words.has("small_buckets") ? 1e-4 : 25;
    if (words.text("hook", "") == "fp16") ddp.comm_hook = CommHook::fp16_compress;
    if (words.text("hook", "") == "bf16") ddp.comm_hook = CommHook::bf16_compress;
    ddp.process_group_backend = backend_of(words);
    if (words.has("timeout")) ddp.timeout = Seconds(static_cast<double>(words.number("timeout", 5)));
    options.strategy = DDP(ddp);
  }
}

}  // namespace levin::test
