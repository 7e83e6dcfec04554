// pack_images(): a folder of images as a data set in shards.
#include "levin/data/streams/pack_images.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/process/folder_lock.h"
#include "levin/core/storage/open_store.h"
#include "levin/data/images/image_transforms.h"
#include "levin/data/images/jpeg_encoder.h"
#include "levin/data/loading/sample_generator.h"
#include "levin/data/streams/stream_data.h"
#include "levin/data/streams/stream_source.h"
#include "levin/loggers/image.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::pack_images_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::holds;
using test::TemporaryFolder;

// Ten JPEGs in two classes: 40 x 60 pixels, with coarse shapes that a JPEG can represent.
std::string write_photos(const TemporaryFolder& folder) {
  for (int k = 0; k < 10; ++k) {
    const std::string name = std::string("photos/") + (k % 2 == 0 ? "cat" : "dog") + "/" + std::to_string(k) + ".jpg";
    fs::create_directories(fs::path(folder.path() + "/" + name).parent_path());
    const at::Tensor coarse = at::randint(256, {3, 5, 7}).to(at::kByte);
    folder.write(name, encode_jpeg(resize_images(coarse, {40, 60}), 95));
  }
  return folder.path() + "/photos";
}

std::string contents(const std::string& store) {
  std::string all;
  for (const StoredObject& object : open_store(store)->list()) {
    all += object.key + "\n" + read_file(store + "/" + object.key);
  }
  return all;
}

TEST(PackImages, ShrinksEachImageAndKeepsItsClassAndName) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  const PackSummary summary = pack_images(photos, store, {.size = 20});
  EXPECT_EQ(summary.images, 10);
  StreamSource source(store);
  const ImageFolder images(photos);
  ASSERT_EQ(source.size(), 10);
  const auto shard = source.open(0);
  for (int64_t k = 0; k < 10; ++k) {
    const Batch sample = shard->get(k);
    const at::Tensor expected = resize_images(images.get(k)[0], {20, 30});
    EXPECT_TRUE(at::equal(sample[0], open_image("expected", encode_jpeg(expected, 90), kMaxPixels)->decode()));
    EXPECT_EQ(sample[1].item<int64_t>(), images.label(k));
  }
  EXPECT_EQ(nlohmann::json::parse(read_file(store + "/classes.json")), (nlohmann::json{{"label", {"cat", "dog"}}}));
}

TEST(PackImages, WritesTheSameBytesWithAnyNumberOfWorkers) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder);
  PackOptions options{.size = 20, .shard_size = {4000}, .workers = 1};
  EXPECT_GT(pack_images(photos, folder.path() + "/one", options).shards, 1);
  options.workers = 4;
  (void)pack_images(photos, folder.path() + "/four", options);
  EXPECT_EQ(contents(folder.path() + "/one"), contents(folder.path() + "/four"));
}

TEST(PackImages, KeepsTheBytesOfAJpegThatIsNotShrunk) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder);
  for (const int64_t size : {0, 40, 100}) {
    const std::string store = folder.path() + "/store" + std::to_string(size);
    (void)pack_images(photos, store, {.size = size});
    EXPECT_NE(contents(store).find(read_file(photos + "/dog/3.jpg")), std::string::npos) << size;
  }
}

TEST(PackImages, RefusesAStoreThatExistsAndReplacesOneThatIsIncomplete) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  const PackOptions small{.size = 20, .shard_size = {4000}};
  const int64_t shards = pack_images(photos, store, small).shards;
  EXPECT_NE(error_of<DataError>([&] { (void)pack_images(photos, store, {}); }).find("--overwrite"), std::string::npos);
  fs::remove(store + "/index.json");
  EXPECT_NE(error_of<DataError>([&] { (void)pack_images(photos, store, {}); }).find("is not empty"), std::string::npos);
  folder.write("store/pack.unfinished", "");
  EXPECT_LT(pack_images(photos, store, {.size = 20}).shards, shards);
  EXPECT_FALSE(fs::exists(store + "/shard.00001.mds")) << "left by the first";
  EXPECT_FALSE(fs::exists(store + "/pack.unfinished"));
  EXPECT_EQ(pack_images(photos, store, {.size = 20, .overwrite = true}).images, 10);
  EXPECT_FALSE(fs::exists(store + "/shard.00000.mds")) << "replaced by part.00000.mds";
  EXPECT_EQ(StreamSource(store).size(), 10);
}

TEST(PackImages, ReplacesADataSetOnlyWhenTheNewOneIsComplete) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  (void)pack_images(photos, store, {.size = 20});
  folder.write("photos/dog/9.jpg", "no image");
  EXPECT_NE(error_of<DataError>([&] { (void)pack_images(photos, store, {.overwrite = true}); }).find("9.jpg"),
            std::string::npos);
  StreamSource source(store);
  EXPECT_EQ(source.size(), 10);
  EXPECT_EQ(source.open(0)->get(9)[1].item<int64_t>(), 1);
}

TEST(PackImages, RefusesWhatItWouldDestroy) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  fs::create_directories(store);
  folder.write("store/classes.json", "{}");
  EXPECT_NE(error_of<DataError>([&] { (void)pack_images(photos, store, {}); }).find("it has classes.json"),
            std::string::npos);
  EXPECT_EQ(read_file(store + "/classes.json"), "{}");
  const FolderLock other(folder.path() + "/packed", std::chrono::milliseconds(0));
  EXPECT_NE(error_of<Error>([&] { (void)pack_images(photos, folder.path() + "/packed", {}); }).find("still alive"),
            std::string::npos);
}

TEST(PackImages, NamesAnImageThatItCannotWrite) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  folder.write("photos/cat/long.png",
               png_of({.height = 1, .width = 70'000, .channels = 1, .samples = std::vector<uint8_t>(70'000)}));
  const std::string error = error_of<DataError>([&] { (void)pack_images(photos, store, {}); });
  EXPECT_TRUE(holds(error, {"cat/long.png: ", "65500 pixels", "--size"})) << error;
  fs::rename(photos + "/cat/long.png", photos + "/cat/\xff.jpg");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)pack_images(photos, store, {}); }), {"not in UTF-8", "Rename"}));
}

TEST(PackImages, NamesAnImageThatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  folder.write("photos/cat/2.jpg", read_file(photos + "/cat/0.jpg").substr(0, 400));
  EXPECT_NE(error_of<DataError>([&] { (void)pack_images(photos, store, {}); }).find("cat/2.jpg"), std::string::npos);
  EXPECT_FALSE(fs::exists(store + "/index.json"));
  const PackSummary summary = pack_images(photos, store, {.on_error = OnImageError::skip});
  EXPECT_EQ(summary.images, 9);
  ASSERT_EQ(summary.skipped.size(), 1);
  EXPECT_NE(summary.skipped[0].find("cat/2.jpg"), std::string::npos);
}

TEST(PackImages, RefusesAStoreInsideOfTheImages) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder);
  const std::string error = error_of<DataError>([&] { (void)pack_images(photos, photos + "/store", {}); });
  EXPECT_NE(error.find("inside"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(photos + "/store"));
}

// ---- the images of a store, as a model takes them

TEST(StoredImages, AreCutAndResizedAsTheFilesAre) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  (void)pack_images(photos, store, {});  // with the bytes of the files
  StreamData data(
      {.path = store, .val_path = store, .columns = {"image", "label"}, .image_size = 24, .batch_size = 10});
  data.setup(Stage::fit);
  const auto loader = data.val_dataloader()[0];
  loader->start(0);
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  const ImageFolder images(photos, {.view = {.crop = ImageCrop::center, .size = 24, .shorter_side = 24}});
  std::vector<Batch> samples;
  for (int64_t k = 0; k < 10; ++k) samples.push_back(images.get(k));
  const ColourScale scale{.mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
  EXPECT_TRUE(at::equal(batch[0], image_batch(samples, scale)[0]));
}

// The part is decoded alone, and its pixels are those of the whole image.
TEST(StoredImages, GiveTheirRandomPartAsCutOutOfTheWholeImage) {
  const TemporaryFolder folder;
  const std::string photos = write_photos(folder), store = folder.path() + "/store";
  (void)pack_images(photos, store, {});
  StreamSourceOptions options;
  options.stream.image = {.crop = ImageCrop::random, .size = 16, .scaled_decoding = false};
  StreamSource source(store, options);
  for (int64_t k = 0; k < 10; ++k) {
    seed_sample_generator(static_cast<uint64_t>(k));
    const Batch sample = source.open(0)->get(k);
    seed_sample_generator(static_cast<uint64_t>(k));
    const ImageBox box = random_crop_box({40, 60}, {}, sample_generator());
    const at::Tensor whole = ImageFolder(photos).get(k)[0];
    const at::Tensor part = whole.narrow(1, box.top, box.height).narrow(2, box.left, box.width);
    EXPECT_TRUE(at::equal(sample[0], resize_images(part, {16, 16}))) << k;
  }
}

}  // namespace
}  // namespace levin::pack_images_test
