// A folder of images as one data set in shards: smaller images, read in order of the disk, without a file for each.
//
//   levin::pack_images("photos/train", "packed/train", {.size = 160, .quality = 90, .workers = 4});
//   levin::StreamData data({.path = "packed/train", .image_size = 128});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "levin/core/options/fields.h"
#include "levin/core/options/units.h"
#include "levin/data/images/image_decoder.h"
#include "levin/data/sets/image_folder.h"

namespace levin {

/// The file beside index.json with the names of the classes, by the column that has their numbers:
/// {"label": ["cat", "dog"]}.
constexpr const char* kClassesFile = "classes.json";

/// The file beside it while images are packed, and after a pack that was interrupted: what the new shards are called.
constexpr const char* kUnfinishedPack = "pack.unfinished";

/// Options of pack_images() and of `levin pack`.
struct PackOptions {
  int64_t size = 0;      // pixels of the shorter side; 0, and for smaller images: unchanged
  int64_t quality = 90;  // of the JPEGs, as PIL counts it
  ByteSize shard_size = {int64_t{64} << 20};
  int64_t workers = 2;  // threads that read and shrink images
  EnumOption<OnImageError> on_error = OnImageError::raise;
  bool overwrite = false;
  int64_t max_pixels = kMaxPixels;  // of a file

  template <class = void>
  static auto fields() {
    using O = PackOptions;
    return levin::fields(
        field("size", &O::size, "pixels of the shorter side; smaller images are not enlarged; 0: the images' own")
            .min(0)
            .max(65500),
        field("quality", &O::quality, "of the JPEGs").min(1).max(100),
        field("shard_size", &O::shard_size, "the most that a shard has, such as 64MiB; it is held in memory"),
        field("workers", &O::workers, "threads that read and shrink images").min(1).max(1024),
        field("on_error", &O::on_error, "an image that cannot be read: raise the error, or skip the image"),
        field("overwrite", &O::overwrite, "replace the data set that is in the store"),
        field("max_pixels", &O::max_pixels, "of a file; larger images are an error").min(1));
  }
};

/// What pack_images() has done.
struct PackSummary {
  int64_t images = 0;
  int64_t shards = 0;
  uint64_t bytes_before = 0;              // of the files that were packed
  uint64_t bytes_after = 0;               // of the shards
  std::vector<std::string> skipped = {};  // files, with what is wrong with them
};

/// Packs a folder with a sub-folder for each class (see ImageFolder) into MDS shards in a folder or an object store,
/// with the columns image (JPEG), label and file (the name below the folder). The shards are the same for any number of
/// workers. A JPEG that is not to be shrunk keeps its bytes. index.json is written last: without it a store is not
/// complete, and packing again replaces what was left. A data set that is replaced stays until the new one is complete.
/// Calls `progress` with the images done and their number. Throws
/// ConfigError for options out of range, DataError if the store has an index and `overwrite` is false, if an image
/// cannot be read (on_error raise), if none can, or StorageError.
PackSummary pack_images(const std::string& folder, const std::string& store, PackOptions options = {},
                        const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

}  // namespace levin
