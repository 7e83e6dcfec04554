#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "levin/core/options/error.h"
#include "levin/data/loading/dataloader.h"
#include "levin/data/sets/image_folder_data.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::image_folder_test {
namespace {

using test::error_of;
using test::holds;
using test::TemporaryFolder;

const nlohmann::json& recorded() {
  static const nlohmann::json all = [] {
    std::ifstream stream(test::source_dir() + "/tests/data/reference/images.json");
    return nlohmann::json::parse(stream);
  }();
  return all;
}

std::string file_named(const std::string& name) {
  for (const auto& file : recorded().at("files")) {
    if (file.at("name") != name) continue;
    const auto digits = file.at("file").get<std::string>();
    std::string bytes;
    for (size_t i = 0; i < digits.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    }
    return bytes;
  }
  throw std::runtime_error("no recorded file is called " + name);
}

void write(const TemporaryFolder& folder, const std::string& name, const std::string& content = "") {
  std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
  (void)folder.write(name, content);
}

// Two classes of `each` images, JPEG and PNG in turn.
void write_images(const TemporaryFolder& folder, const std::string& root, int each) {
  const std::string jpeg = file_named("jpeg 4:2:0"), png = file_named("png rgb");
  for (const char* name : {"cat", "dog"}) {
    for (int i = 0; i < each; ++i) {
      const std::string file = root + "/" + name + "/" + std::to_string(i);
      write(folder, file + (i % 2 == 0 ? ".jpg" : ".png"), i % 2 == 0 ? jpeg : png);
    }
  }
}

TEST(ImageFolder, ListsWhatTorchvisionLists) {
  const auto& c = recorded().at("folder");
  const TemporaryFolder folder;
  for (const auto& name : c.at("names")) write(folder, name.get<std::string>());
  const ImageFolder images(folder.path());
  EXPECT_EQ(images.classes(), c.at("classes").get<std::vector<std::string>>());
  const auto& samples = c.at("samples");
  ASSERT_EQ(images.size(), static_cast<int64_t>(samples.size()));
  for (int64_t i = 0; i < images.size(); ++i) {
    const auto& sample = samples[static_cast<size_t>(i)];
    EXPECT_EQ(images.path(i), folder / sample[0].get<std::string>());
    EXPECT_EQ(images.label(i), sample[1].get<int64_t>());
  }
}

TEST(ImageFolder, ReportsWhatItMisses) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& root, const std::vector<std::string>& classes = {}) {
    return error_of<DataError>([&] { const ImageFolder images(folder / root, {.classes = classes}); });
  };
  EXPECT_TRUE(holds(error("none"), {"none: cannot list the images", "No such file", "sub-folder of images for each"}));
  write(folder, "flat/1.jpg");
  EXPECT_TRUE(holds(error("flat"), {"flat: it has no sub-folders", "one for each class"}));
  write(folder, "some/cat/1.jpg");
  write(folder, "some/dog/readme.txt");
  EXPECT_TRUE(holds(error("some"), {"some/dog: no file ends in .jpg, .jpeg, .png or .webp", "Add images"}));
  EXPECT_TRUE(holds(error("some", {"ant", "cat"}), {"\"dog\" is none of the classes ant, cat", "Rename or remove"}));
}

TEST(ImageFolder, GivesPixelsAndNumberOfTheClass) {
  const TemporaryFolder folder;
  write_images(folder, "all", 2);
  const ImageFolder plain(folder / "all");
  EXPECT_EQ(plain.get(0)[0].sizes(), (at::IntArrayRef{3, 21, 26}));
  EXPECT_EQ(plain.get(1)[0].sizes(), (at::IntArrayRef{3, 7, 9}));
  EXPECT_EQ(plain.get(3)[1].item<int64_t>(), 1);
  const ImageFolder sized(folder / "all", {.classes = {"ant", "cat", "dog"}, .view = {.size = 8}});
  EXPECT_EQ(sized.get(1)[0].sizes(), (at::IntArrayRef{3, 8, 8}));
  EXPECT_EQ(sized.get(3)[1].item<int64_t>(), 2);
}

std::vector<Batch> pass(Loader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<Batch> all;
  loader.start(epoch, first_batch);
  for (Batch batch; loader.next(batch);) all.push_back(batch);
  return all;
}

ImageFolderDataOptions small_options(const TemporaryFolder& folder) {
  return {.train = folder / "train", .size = 12, .resize = 14, .batch_size = 4, .num_workers = 0};
}

TEST(ImageFolderData, AugmentsBySeedEpochAndSampleAlone) {
  const TemporaryFolder folder;
  write_images(folder, "train", 7);
  auto batches = [&](int64_t workers, int64_t epoch, int64_t batch_size, int64_t first = 0) {
    auto options = small_options(folder);
    options.num_workers = workers;
    options.batch_size = batch_size;
    options.val_fraction = 0;
    ImageFolderData data(options);
    data.setup(Stage::fit);
    return pass(*data.train_dataloader(), epoch, first);
  };
  const auto whole = batches(0, 1, 4), rest = batches(3, 1, 4, 2), other = batches(0, 2, 4), large = batches(2, 1, 14);
  ASSERT_EQ(whole.size(), 4U);
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(whole[0][0].sizes(), (at::IntArrayRef{4, 3, 12, 12}));
  EXPECT_EQ(whole[0][0].scalar_type(), at::kFloat);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(rest[i][0], whole[i + 2][0]));
    EXPECT_TRUE(at::equal(rest[i][1], whole[i + 2][1]));
  }
  EXPECT_FALSE(at::equal(other[0][0], whole[0][0]));
  EXPECT_TRUE(at::equal(large[0][0], at::cat({whole[0][0], whole[1][0], whole[2][0], whole[3][0]})));
}

// With the whole image, unchanged in size, what is left of the augmentation is the flip.
TEST(ImageFolderData, MirrorsHalfOfTheTrainingImages) {
  const TemporaryFolder folder;
  for (int i = 0; i < 40; ++i) write(folder, "train/a/" + std::to_string(i) + ".png", file_named("png grey"));
  ImageFolder images(folder / "train", {.view = {.size = 8}, .flip = true});
  DataLoader loader(
      std::make_shared<ImageFolder>(folder / "train", ImageFolderOptions{.view = {.size = 8}, .flip = true}),
      {.batch_size = 40, .seed = 1}, nullptr, image_collate());
  const at::Tensor x = pass(loader, 0)[0][0];
  const at::Tensor plain = images.get(0)[0].to(at::kFloat).div(255);
  int64_t mirrored = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const bool is_mirrored = at::equal(x[i], plain.flip({2}));
    ASSERT_TRUE(is_mirrored || at::equal(x[i], plain));
    mirrored += is_mirrored ? 1 : 0;
  }
  EXPECT_GT(mirrored, 8);
  EXPECT_LT(mirrored, 32);
}

TEST(ImageFolderData, HoldsOutTheSameImagesForAnySeedOfTheRun) {
  const TemporaryFolder folder;
  write_images(folder, "train", 10);
  auto options = small_options(folder);
  options.val_fraction = 0.3;
  ImageFolderData data(options), again(options);
  data.setup(Stage::fit);
  again.setup(Stage::validate);
  EXPECT_EQ(data.train_dataloader()->num_batches(), 4);  // 14 images
  const auto val = pass(*data.val_dataloader()[0], 0), second = pass(*again.val_dataloader()[0], 5);
  ASSERT_EQ(val.size(), 2U);
  for (size_t i = 0; i < val.size(); ++i) EXPECT_TRUE(at::equal(val[i][0], second[i][0]));
}

TEST(ImageFolderData, NumbersTheClassesOfTheTestAsInTraining) {
  const TemporaryFolder folder;
  write_images(folder, "train", 3);
  write(folder, "test/dog/1.png", file_named("png rgb"));
  auto options = small_options(folder);
  options.test = folder / "test";
  ImageFolderData data(options);
  data.setup(Stage::test);
  const auto batches = pass(*data.test_dataloader()[0], 0);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0][1].item<int64_t>(), 1);
  EXPECT_EQ(data.prediction_text(batches[0][1]), std::vector<std::string>{"dog"});
  EXPECT_EQ(data.classes(), (std::vector<std::string>{"cat", "dog"}));
}

TEST(ImageFolderData, RaisesOrSkipsWhatCannotBeRead) {
  const TemporaryFolder folder;
  write_images(folder, "train", 5);
  write(folder, "train/cat/1.png", file_named("png rgb").substr(0, 70));
  auto options = small_options(folder);
  options.val_fraction = 0;
  options.shuffle = false;
  {
    ImageFolderData data(options);
    data.setup(Stage::fit);
    const auto loader = data.train_dataloader();
    EXPECT_TRUE(holds(error_of<DataError>([&] { (void)pass(*loader, 0); }),
                      {"sample 1", "cat/1.png", "damaged", "Replace the file"}));
  }
  options.on_error = OnImageError::skip;
  ImageFolderData data(options);
  data.setup(Stage::fit);
  const auto loader = data.train_dataloader();
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const auto batches = pass(*loader, epoch);
    ASSERT_EQ(batches.size(), 3U);
    EXPECT_EQ(batches[0].size(), 3);
    EXPECT_EQ(batches[1].size(), 4);
  }
  const auto& images = dynamic_cast<const ImageFolder&>(*dynamic_cast<const DataLoader&>(*loader).dataset());
  EXPECT_EQ(images.skipped(), 1);
}

TEST(ImageFolderData, ChecksItsOptions) {
  const auto error = [](ImageFolderDataOptions options) {
    options.train = "images";
    return error_of<ConfigError>([&] { const ImageFolderData data(options); });
  };
  EXPECT_TRUE(holds(error({.size = 300}), {"resize", "at least size, 300", "got 256"}));
  EXPECT_TRUE(holds(error({.mean = {0.5}}), {"mean", "three numbers"}));
  EXPECT_TRUE(holds(error({.std = {1, 0, 1}}), {"std", "three numbers > 0"}));
  EXPECT_TRUE(holds(error({.min_scale = 0}), {"min_scale", "> 0"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { const ImageFolderData data({}); }), {"train", "must be set"}));
  ImageFolderData data({.train = "images"});
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)data.train_dataloader(); }), {"call setup()"}));
}

TEST(ImageFolderData, PredictsImagesWithoutFoldersOfClasses) {
  const TemporaryFolder folder;
  write_images(folder, "train", 3);
  auto options = small_options(folder);
  options.on_error = OnImageError::skip;
  const auto predicted = [&](const std::string& root) {
    options.test = folder / root;
    ImageFolderData data(options);
    data.setup(Stage::predict);
    const auto loader = data.predict_dataloader()[0];
    loader->identify_samples(true);
    return pass(*loader, 0);
  };
  const std::string png = file_named("png rgb");
  for (const char* name : {"3.png", "1.png", "more/2.png", "more/text.txt"})
    write(folder, std::string("new/") + name, png);
  write(folder, "new/2.png", png.substr(0, 70));
  const auto batches = predicted("new");
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].names(), std::vector<std::string>{"images"});
  EXPECT_EQ(*batches[0].ids(), (std::vector<std::string>{"1.png", "3.png", "more/2.png"}));  // the damaged one is none
  write(folder, "sorted/dog/a.png", png);
  write(folder, "sorted/cat/b/c.png", png);
  const auto sorted = predicted("sorted");
  EXPECT_EQ(*sorted[0].ids(), (std::vector<std::string>{"cat/b/c.png", "dog/a.png"}));
  EXPECT_TRUE(at::equal(sorted[0][1], at::tensor({0, 1}, at::kLong)));             // there as before
  std::filesystem::create_directory_symlink("../..", folder / "sorted/cat/b/up");  // has no end
  EXPECT_EQ(predicted("sorted")[0].ids()->size(), 2U);
  write(folder, "sorted/ant/a.png", png);
  EXPECT_EQ(predicted("sorted")[0].count(), 1U);
  write(folder, "none/readme.txt");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)predicted("none"); }), {"none: no file in it ends in .jpg"}));
}

// The training images may be on another machine.
TEST(ImageFolderData, PredictsWithoutTheTrainingFolder) {
  const TemporaryFolder folder;
  write_images(folder, "train", 3);
  auto options = small_options(folder);
  options.test = folder / "new";
  write(folder, "new/dog/1.png", file_named("png rgb"));
  ImageFolderData trained(options);
  trained.setup(Stage::fit);
  const State state = trained.state_dict();
  const auto classes = trained.classes();
  std::filesystem::remove_all(folder / "train");
  ImageFolderData restored(options);
  restored.setup(Stage::predict);
  EXPECT_TRUE(restored.label_names().empty());
  restored.load_state_dict(state);
  EXPECT_EQ(restored.label_names(), classes);
  const auto place = std::find(classes.begin(), classes.end(), "dog") - classes.begin();
  EXPECT_EQ(pass(*restored.predict_dataloader()[0], 0).at(0)[1].item<int64_t>(), place);
  ImageFolderData unknown(options);
  unknown.setup(Stage::predict);
  testing::internal::CaptureStderr();
  EXPECT_EQ(pass(*unknown.predict_dataloader()[0], 0).at(0).count(), 1U);
  EXPECT_TRUE(holds(testing::internal::GetCapturedStderr(), {"names of the classes are unknown", "train"}));
}

// A prediction continues after a batch without any readable image; training does not.
TEST(ImageFolderData, SaysWhichImagesItLeavesOutAndWhy) {
  const TemporaryFolder folder;
  write_images(folder, "train", 3);
  auto options = small_options(folder);
  options.test = folder / "new";
  options.batch_size = 2;
  options.on_error = OnImageError::skip;
  const std::string png = file_named("png rgb");
  for (const char* name : {"new/1.png", "new/2.png", "new/4.png"}) write(folder, name, png.substr(0, 70));
  write(folder, "new/3.png", png);
  ImageFolderData data(options);
  data.setup(Stage::predict);
  const auto loader = data.predict_dataloader()[0];
  loader->identify_samples(true);
  const auto batches = pass(*loader, 0);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_TRUE(batches[0].empty());
  EXPECT_EQ(batches[0].samples()->batch, 0);
  ASSERT_EQ(batches[0].samples()->skipped.size(), 2U);
  EXPECT_EQ(batches[1].samples()->indices, std::vector<int64_t>{2});
  EXPECT_EQ(*batches[1].ids(), std::vector<std::string>{"3.png"});
  const auto& last = batches[1].samples()->skipped.at(0);
  EXPECT_EQ(last.index, 3);
  EXPECT_EQ(last.id, "4.png");
  EXPECT_TRUE(holds(last.reason, {"new/4.png"}));
  loader->identify_samples(false);
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)pass(*loader, 0); }),
                    {"none of its 2 samples can be read", "new/1.png", "Repair the data"}));
}

TEST(ImageFolderData, KeepsTheOrderOfTheFilesUnlessItShuffles) {
  const TemporaryFolder folder;
  write_images(folder, "train", 5);
  auto options = small_options(folder);
  options.val_fraction = 0.3;
  options.shuffle = false;
  ImageFolderData data(options);
  data.setup(Stage::fit);
  std::vector<at::Tensor> classes;
  for (const Batch& batch : pass(*data.train_dataloader(), 0)) classes.push_back(batch[1]);
  const at::Tensor all = at::cat(classes);
  EXPECT_EQ(all.size(0), 7);
  EXPECT_TRUE(at::equal(all, std::get<0>(all.sort())));
}

}  // namespace
}  // namespace levin::image_folder_test
