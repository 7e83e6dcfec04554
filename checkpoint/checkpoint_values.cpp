#include "levin/checkpoint/checkpoint_values.h"

#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/sharded_checkpoint.h"
#include "levin/checkpoint/sharded_record.h"

namespace levin {

ConfigNode load_checkpoint_values(const std::string& path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code) ? read_sharded_record(sharded_record(path)).values
                                                   : read_checkpoint_values(path);
}

}  // namespace levin
