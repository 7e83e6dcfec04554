// levin pack photos/train packed/train --size 160: a folder of images as a data set in shards.
#pragma once

#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/data/sets/image_folder.h"

namespace levin {

/// Options of "levin pack".
struct PackCommandOptions {
  int64_t size = 0;
  int64_t quality = 90;
  ByteSize shard_size = {int64_t{64} << 20};
  int64_t workers = 2;
  EnumOption<OnImageError> on_error = OnImageError::raise;
  bool overwrite = false;

  template <class = void>
  static auto fields() {
    using O = PackCommandOptions;
    return levin::fields(
        field("size", &O::size, "pixels of the shorter side; smaller images are not enlarged; 0: the images' own")
            .min(0)
            .max(65500),
        field("quality", &O::quality, "of the JPEGs").min(1).max(100),
        field("shard_size", &O::shard_size, "the most that a shard has, such as 64MiB; it is held in memory"),
        field("workers", &O::workers, "threads that read and shrink images").min(1).max(1024),
        field("on_error", &O::on_error, "an image that cannot be read: raise the error, or skip the image"),
        field("overwrite", &O::overwrite, "replace the data set that is in the store"));
  }
};

/// `arguments` follow "levin pack". Returns kExitOk, or kExitBadConfig if they are wrong; throws DataError where
/// pack_images() does.
int run_pack(const std::vector<std::string>& arguments, int width);

}  // namespace levin
