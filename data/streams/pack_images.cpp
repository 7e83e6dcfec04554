#include "levin/data/streams/pack_images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/utf8.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/process/main_guard.h"
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
  try {
    return encode_jpeg(resize_images(pixels, size), options.quality);
  } catch (const Error& error) {
    throw DataError(path + ": " + error.what() + " Pack it with a smaller --size, or remove the file.");
  }
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

constexpr const char* kIndex = "index.json";
constexpr const char* kNames[] = {"shard", "part"};  // of shards: a data set that replaces another has the other name

// What a store holds before images are packed into it.
struct StoreBefore {
  bool has_index = false;
  std::string name = kNames[0];        // that new shards can have
  std::vector<std::string> goes = {};  // shards that no index names once the new one is there
};

// Only what a pack has left may be removed.
StoreBefore look_into(ObjectStore& store, bool overwrite) {
  StoreBefore before;
  std::vector<StoredObject> objects = store.list();
  std::erase_if(objects, [](const StoredObject& each) { return each.key == "run.lock"; });  // of this pack
  const auto has = [&](const std::string& key) {
    return std::any_of(objects.begin(), objects.end(), [&](const StoredObject& each) { return each.key == key; });
  };
  before.has_index = has(kIndex);
  if (before.has_index && !overwrite) {
    throw DataError(store.url(kIndex) +
                    " exists: there is a data set already. Give a different store, or "
                    "replace it with --overwrite.");
  }
  if (!objects.empty() && !before.has_index && !has(kUnfinishedPack)) {
    throw DataError(store.url() + " is not empty and holds no data set: it has " + cut_text(objects[0].key) +
                    ". Give an empty folder, or a new one.");
  }
  if (before.has_index && store.read(kIndex).find("\"" + std::string(kNames[0]) + ".") != std::string::npos) {
    before.name = kNames[1];
  }
  for (const StoredObject& object : objects) {
    for (const char* name : kNames) {
      if (is_mosaic_shard(object.key, name)) before.goes.push_back(object.key);
    }
  }
  return before;
}

void prepare_folder(const std::string& folder, const std::string& path) {
  if (is_inside(path + "/" + kIndex, folder)) {
    throw DataError(path + " is inside of " + folder +
                    ", and would become one of its classes. Write the store next "
                    "to the folder of images.");
  }
  make_folder(path);
  remove_leftovers(path);
}

bool is_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

// The data set that was to be replaced stays as it was.
void give_up(ObjectStore& store, const MosaicWriter& writer) {
  warn_if_it_throws("removing what was packed", [&] {
    for (size_t k = 0; k < writer.shards(); ++k) store.remove(writer.shard_name(k));
    store.remove(kUnfinishedPack);
  });
}

// Readers of MDS need names in UTF-8.
void check_names(const ImageFolder& images) {
  for (int64_t k = 0; k < images.size(); ++k) {
    if (!is_utf8(images.sample_id(k))) {
      throw DataError(images.path(k) +
                      ": the name is not in UTF-8, which the data set needs. Rename the file or its folder.");
    }
  }
}

}  // namespace

PackSummary pack_images(const std::string& folder, const std::string& store, PackOptions options,
                        const std::function<void(int64_t done, int64_t all)>& progress) {
  options = checked(std::move(options), "PackOptions");
  const auto images = std::make_shared<const ImageFolder>(folder);
  const std::shared_ptr<ObjectStore> target = open_store(store);
  check_names(*images);
  std::optional<FolderLock> lock;
  if (!is_remote(store)) {
    prepare_folder(folder, target->url());
    lock.emplace(target->url(), std::chrono::milliseconds(0));
  }
  const StoreBefore before = look_into(*target, options.overwrite);
  target->put(kUnfinishedPack, before.name + "\n");
  MosaicWriter writer(*target, {{"image", "jpeg"}, {"label", "int", 8}, {"file", "str"}},
                      static_cast<uint64_t>(options.shard_size.bytes), before.name);
  PackSummary summary;
  Prefetcher prefetcher(std::max<int64_t>(1, options.workers), 4);  // images in memory of each worker
  prefetcher.start(
      [images, options](int64_t index, const std::atomic<bool>&) { return packed_sample(*images, index, options); }, 0,
      images->size());
  int64_t index = 0;
  const auto pack = [&] {
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
  };
  try {
    pack();
  } catch (const Error&) {
    if (before.has_index) give_up(*target, writer);
    throw;
  }
  target->put(kClassesFile, nlohmann::json{{"label", images->classes()}}.dump(
                                -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                                "\n");
  writer.finish();
  std::set<std::string> kept;
  for (size_t k = 0; k < writer.shards(); ++k) kept.insert(writer.shard_name(k));
  for (const std::string& key : before.goes) {
    if (!kept.contains(key)) target->remove(key);
  }
  target->remove(kUnfinishedPack);
  summary.shards = static_cast<int64_t>(writer.shards());
  summary.bytes_after = writer.bytes();
  return summary;
}

}  // namespace levin
