// levin pack photos/train packed/train --size 160: a folder of images as a data set in shards.
#pragma once

#include <string>
#include <vector>

namespace levin {

/// `arguments` follow "levin pack"; its options are PackOptions (data/streams/pack_images.h). Returns kExitOk, or
/// kExitBadConfig if they are wrong; throws DataError where pack_images() does.
int run_pack(const std::vector<std::string>& arguments, int width);

}  // namespace levin
