// The classes of the part levin_images, for run files. core/process/parts.cpp lists the same names.
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/data/sets/image_folder_data.h"

namespace levin {

LEVIN_PART(images) {
  auto& data = Registry<DataModule>::instance();
  data.add<ImageFolderData>("ImageFolderData", "JPEG, PNG and WebP images, one folder per class");
}

}  // namespace levin
