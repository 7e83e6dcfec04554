#include "levin/data/sets/mnist.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "data/http_server.h"
#include "levin/core/options/error.h"
#include "levin/data/sets/idx.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::mnist_test {
namespace {

using test::error_of;
using test::holds;
using test::HttpServer;
using test::TemporaryFolder;

const std::string kDebian = "/usr/share/datasets/fashion-mnist";

// Skips where Debian's package dataset-fashion-mnist is not installed.
#define NEED_FASHION_MNIST() \
  if (!std::filesystem::exists(kDebian)) GTEST_SKIP() << "dataset-fashion-mnist is not installed"

Batch first_batch(Loader& loader) {
  loader.start(0);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  return batch;
}

// The sums were computed with python3: sum(gzip.open(path).read()[16:]).
TEST(FashionMnist, HoldsThePixelsAndLabelsOfDebiansArchives) {
  NEED_FASHION_MNIST();
  const at::Tensor train = read_idx(kDebian + "/train-images-idx3-ubyte.gz");
  EXPECT_EQ(train.sizes(), (std::vector<int64_t>{60000, 28, 28}));
  EXPECT_EQ(train.sum().item<int64_t>(), 3431114169);
  EXPECT_EQ(train[0].sum().item<int64_t>(), 76247);
  EXPECT_EQ(train[59999].sum().item<int64_t>(), 16684);
  const at::Tensor test = read_idx(kDebian + "/t10k-images-idx3-ubyte.gz");
  EXPECT_EQ(test.sizes(), (std::vector<int64_t>{10000, 28, 28}));
  EXPECT_EQ(test.sum().item<int64_t>(), 573469082);
  const at::Tensor labels = read_idx(kDebian + "/train-labels-idx1-ubyte.gz");
  EXPECT_EQ(labels[0].item<int64_t>(), 9);
  EXPECT_EQ(labels.sum().item<int64_t>(), 270000);
}

TEST(FashionMnist, SplitsTrainingImagesAndKeepsThemAll) {
  NEED_FASHION_MNIST();
  FashionMnist data({.normalize = false});
  EXPECT_EQ(data.folder(), kDebian);
  data.prepare_data();
  data.setup(Stage::fit);
  const auto train = data.train_dataloader();
  EXPECT_EQ(train->num_batches(), 860);  // ceil(55000 / 64)
  const Loaders val = data.val_dataloader();
  ASSERT_EQ(val.size(), 1U);
  EXPECT_EQ(val[0]->num_batches(), 79);  // ceil(5000 / 64)
  double pixels = 0;
  int64_t labels = 0;
  for (Loader* loader : {train.get(), val[0].get()}) {
    loader->start(0);
    for (Batch batch; loader->next(batch);) {
      pixels += batch[0].sum(at::kDouble).item<double>() * 255;
      labels += batch[1].sum().item<int64_t>();
    }
  }
  EXPECT_NEAR(pixels, 3431114169.0, 100.0);
  EXPECT_EQ(labels, 270000);
}

TEST(FashionMnist, GivesTheTestImagesInOrderNormalizedAndShapedAsAsked) {
  NEED_FASHION_MNIST();
  FashionMnist plain({.normalize = false});
  FashionMnist flat({.flatten = true});
  for (FashionMnist* data : {&plain, &flat}) data->setup(Stage::test);
  const Batch a = first_batch(*plain.test_dataloader()[0]);
  const Batch b = first_batch(*flat.test_dataloader()[0]);
  EXPECT_EQ(a[0].sizes(), (std::vector<int64_t>{64, 1, 28, 28}));
  EXPECT_EQ(b[0].sizes(), (std::vector<int64_t>{64, 784}));
  EXPECT_EQ(a[1][0].item<int64_t>(), 9);
  EXPECT_EQ(a[1].scalar_type(), at::kLong);
  EXPECT_NEAR(a[0][0].sum().item<double>() * 255, 33456.0, 1.0);
  EXPECT_TRUE(b[0].allclose(a[0].flatten(1).sub(0.2860).div(0.3530), 1e-5, 1e-5));
  EXPECT_EQ(FashionMnist::class_names().at(9), "Ankle boot");
}

TEST(FashionMnist, HoldsOutTheSameImagesInEveryRun) {
  NEED_FASHION_MNIST();
  FashionMnist one({.val_size = 100}), two({.val_size = 100}), other({.val_size = 100, .split_seed = 1});
  for (FashionMnist* data : {&one, &two, &other}) data->setup(Stage::validate);
  const at::Tensor images = first_batch(*one.val_dataloader()[0])[0];
  EXPECT_TRUE(at::equal(images, first_batch(*two.val_dataloader()[0])[0]));
  EXPECT_FALSE(at::equal(images, first_batch(*other.val_dataloader()[0])[0]));
}

at::Tensor classes_of(const at::Tensor& labels) {
  return at::bincount(labels, {}, /*minlength=*/10);
}

TEST(FashionMnist, AStratifiedSplitHoldsOutEveryClassAlike) {
  NEED_FASHION_MNIST();
  for (const bool stratified : {false, true}) {
    FashionMnist data({.batch_size = 1000, .val_size = 1000, .stratified_split = stratified});
    data.setup(Stage::validate);
    // The training images have 6000 of each class.
    const at::Tensor classes = classes_of(first_batch(*data.val_dataloader()[0])[1]);
    EXPECT_EQ(at::equal(classes, at::full({10}, 100)), stratified) << classes;
  }
}

TEST(FashionMnist, BatchesHoldEveryClassAlikeAsAsked) {
  NEED_FASHION_MNIST();
  FashionMnist stratified({.batch_size = 50, .batching = {.stratified = true}});
  stratified.setup(Stage::fit);
  const auto loader = stratified.train_dataloader();
  loader->start(0);
  Batch batch;
  for (int k = 0; k < 5 && loader->next(batch); ++k) {
    // The 55,000 images that are left have about 5,500 of each class, so a batch of 50 has four to six.
    const at::Tensor classes = classes_of(batch[1]);
    EXPECT_GE(classes.min().item<int64_t>(), 4) << classes;
    EXPECT_LE(classes.max().item<int64_t>(), 6) << classes;
  }
  FashionMnist balanced({.batch_size = 5000, .batching = {.weights = SampleWeights::balanced}});
  balanced.setup(Stage::fit);
  const auto drawn = balanced.train_dataloader();
  const at::Tensor first = first_batch(*drawn)[1], second = first_batch(*drawn)[1];
  EXPECT_TRUE(at::equal(first, second)) << "an epoch's order depends on the seed and the epoch alone";
  EXPECT_LT(classes_of(first).sub(500).abs().max().item<int64_t>(), 100) << "4.7 standard deviations";
}

TEST(FashionMnist, RefusesBatchingThatContradictsItself) {
  const auto both = error_of<ConfigError>(
      [] { FashionMnist data({.batching = {.weights = SampleWeights::balanced, .stratified = true}}); });
  EXPECT_TRUE(holds(both, {"Options.batching.weights", "stratified"})) << both;
}

TEST(Mnist, ReportsWhichFilesAreMissingWhereAndWhatToSet) {
  const TemporaryFolder folder;
  Mnist data({.root = folder.path(), .download = false});
  EXPECT_TRUE(holds(error_of<DataError>([&] { data.prepare_data(); }),
                    {"Mnist", folder.path(), "train-images-idx3-ubyte.gz", ".download"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { data.setup(Stage::fit); }), {folder.path(), "train-images"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { data.train_dataloader(); }), {"setup(Stage::fit)"}));
  EXPECT_TRUE(holds(error_of<ConfigError>([] { Mnist({.batch_size = 0}); }), {"MnistOptions.batch_size", "got 0"}));
}

TEST(Mnist, DownloadsIntoItsFolderAndRefusesWrongArchives) {
  const TemporaryFolder folder;
  const HttpServer server({HttpServer::answer("not an archive")});
  Mnist data({.root = folder / "mnist", .url = server.url()});
  EXPECT_TRUE(holds(error_of<DataError>([&] { data.prepare_data(); }),
                    {server.url() + "train-images-idx3-ubyte.gz", "expected MD5 f68b3c2dcbeaaa9fbdd348bbdeb94873"}));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "mnist"));
}

}  // namespace
}  // namespace levin::mnist_test
