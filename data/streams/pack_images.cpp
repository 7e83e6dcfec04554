#include "levin/data/streams/pack_images.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/images/jpeg_encoder.h"
#include "levin/data/loading/prefetcher.h"
#include "levin/data/streams/mosaic_writer.h"

namespace levin {

namespace {

constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

at::Tensor tensor_of(std::string_view bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.const_data_ptr<uint8_t>()), static_cast<size_t>(tensor.numel())};
}

// Returns the bytes of the image in the store.
std::string packed_image(const std::string& path, const std::string& bytes, const PackOptions& options) {
  const auto decoder = open_image(path, bytes, options.max_pixels);
  const ImageSize all = decoder->size();
  const bool shrinks = options.size > 0 && std::min(all.height, all.width) > options.size;
  const at::Tensor pixels = decoder->decode();  // also of an image that keeps its bytes: damage is found here
  if (!shrinks && bytes.starts_with("\xFF\xD8")) return bytes;
  ImageSize size = shrinks ? size_with_shorter_side(all, options.size) : all;
  return encode_jpeg(resize_images(pixels, size), options.quality);
}

// A fetched image: its bytes and the size of its file, or only the text of the error that left it out.
Batch packed_sample(const ImageFolder& images, int64_t index, const PackOptions& options) {
  const std::string path = images.path(index);
  try {
    const std::string bytes = read_file(path, kMaxImageBytes);
    at::Tensor before = at::empty({}, at::TensorOptions().dtype(at::kLong));
    *before.mutable_data_ptr<int64_t>() = static_cast<int64_t>(bytes.size());
    return Batch({tensor_of(packed_image(path, bytes, options)), before});
  } catch (const Error& error) {
    if (options.on_error == OnImageError::raise) throw DataError(error.what());
    return Batch({tensor_of(error.what())});
  }
}

// Removes what an earlier, unfinished or overwritten pack has left: the index first, so that no part looks complete.
void clear_store(ObjectStore& store, bool overwrite) {
  if (store.find("index.json")) {
    if (!overwrite) {
      throw DataError(store.url("index.json") +
                      " exists: there is a data set already. Give a different store, or "
                      "replace it with --overwrite.");
    }
    store.remove("index.json");
  }
  store.remove(kClassesFile);
  for (const StoredObject& object : store.list("shard.")) {
    if (is_mosaic_shard(object.key)) store.remove(object.key);
  }
}

void prepare_folder(const std::string& folder, const std::string& path) {
  make_folder(path);
  if (is_inside(path + "/index.json", folder)) {
    throw DataError(path + " is inside of " + folder +
                    ", and would become one of its classes. Write the store next "
                    "to the folder of images.");
  }
  remove_leftovers(path);
}

}  // namespace

PackSummary pack_images(const std::string& folder, const std::string& store, PackOptions options,
                        const std::function<void(int64_t done, int64_t all)>& progress) {
  options = checked(std::move(options), "PackOptions");
  const auto images = std::make_shared<const ImageFolder>(folder);
  const std::shared_ptr<ObjectStore> target = open_store(store);
  if (!is_remote(store)) prepare_folder(folder, target->url());
  clear_store(*target, options.overwrite);
  MosaicWriter writer(*target, {{"image", "jpeg"}, {"label", "int", 8}, {"file", "str"}},
                      static_cast<uint64_t>(options.shard_size.bytes));
  PackSummary summary;
  Prefetcher prefetcher(std::max<int64_t>(1, options.workers), 4);  // images in memory of each worker
  prefetcher.start(
      [images, options](int64_t index, const std::atomic<bool>&) { return packed_sample(*images, index, options); }, 0,
      images->size());
  int64_t index = 0;
  for (Batch sample; prefetcher.next(sample); ++index) {
    if (sample.count() == 1) {
      summary.skipped.push_back(bytes_of(sample[0]));
    } else {
      writer.add({bytes_of(sample[0]), mosaic_int(images->label(index)), images->sample_id(index)});
      summary.bytes_before += static_cast<uint64_t>(*sample[1].const_data_ptr<int64_t>());
      ++summary.images;
    }
    if (progress) progress(index + 1, images->size());
  }
  if (summary.images == 0) {
    throw DataError(folder + ": no image can be read. The first: " + summary.skipped.at(0));
  }
  target->put(kClassesFile, nlohmann::json{{"label", images->classes()}}.dump(
                                -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                                "\n");
  writer.finish();
  summary.shards = static_cast<int64_t>(writer.shards());
  summary.bytes_after = writer.bytes();
  return summary;
}

}  // namespace levin
