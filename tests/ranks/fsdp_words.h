// The strategy fsdp as rank_program's words describe it.
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

}  // namespace levin::test
