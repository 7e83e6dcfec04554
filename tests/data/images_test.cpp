// Decoders and transforms against Pillow and torchvision: reference/images.py recorded their results.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/data/images/image_transforms.h"
#include "levin/loggers/image.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace levin::images_test {
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

std::string bytes_of(const nlohmann::json& digits) {
  const auto text = digits.get<std::string>();
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

at::Tensor tensor_of(const nlohmann::json& digits, const std::vector<int64_t>& sizes, at::ScalarType type = at::kByte) {
  std::string bytes = bytes_of(digits);
  return at::from_blob(bytes.data(), sizes, at::TensorOptions().dtype(type)).clone();
}

ImageSize size_of(const nlohmann::json& json) {
  return {json.at(0).get<int64_t>(), json.at(1).get<int64_t>()};
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.sizes() == b.sizes() ? a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>() : 1e9;
}

std::string file_named(const std::string& name) {
  for (const auto& file : recorded().at("files")) {
    if (file.at("name") == name) return bytes_of(file.at("file"));
  }
  throw std::runtime_error("no recorded file is called " + name);
}

TEST(ImageDecoder, GivesThePixelsThatPillowReads) {
  const TemporaryFolder folder;
  for (const auto& file : recorded().at("files")) {
    const auto name = file.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const std::string path = folder.write(name, bytes_of(file.at("file")));
    const ImageSize size{file.at("height").get<int64_t>(), file.at("width").get<int64_t>()};
    const auto decoder = open_image(path);
    ASSERT_EQ(decoder->size(), size);
    const at::Tensor pixels = decoder->decode();
    EXPECT_EQ(largest_difference(pixels, tensor_of(file.at("pixels"), {3, size.height, size.width})), 0);
  }
}

TEST(ImageDecoder, GivesABoxAsCutOutOfTheWholeImage) {
  const TemporaryFolder folder;
  for (const auto& file : recorded().at("files")) {
    SCOPED_TRACE(file.at("name").get<std::string>());
    const std::string path = folder.write("image", bytes_of(file.at("file")));
    const at::Tensor whole = open_image(path)->decode();
    const int64_t height = whole.size(1), width = whole.size(2);
    for (const auto& [top, left] : {std::pair{0, 0}, std::pair{1, 3}, std::pair{3, 1}, std::pair{4, 5}}) {
      for (const auto& [bottom, right] : {std::pair{0, 0}, std::pair{1, 0}, std::pair{0, 1}}) {
        const ImageBox box{top, left, height - top - bottom, width - left - right};
        const at::Tensor part = open_image(path)->decode(box, {});
        EXPECT_TRUE(at::equal(part, whole.narrow(1, top, box.height).narrow(2, left, box.width))) << top << " " << left;
      }
    }
  }
}

// A half-size image by libjpeg is close to the mean of 2 x 2 pixels.
TEST(ImageDecoder, DecodesAJpegAtASmallerSizeThatIsStillLargeEnough) {
  const TemporaryFolder folder;
  const std::string path = folder.write("image.jpg", file_named("jpeg 4:4:4"));  // 26 x 21
  const auto decoded = [&](int64_t height, int64_t width) {
    const at::Tensor pixels = open_image(path)->decode({0, 0, 21, 26}, {height, width});
    return std::vector<int64_t>{pixels.size(1), pixels.size(2)};
  };
  EXPECT_EQ(decoded(11, 13), (std::vector<int64_t>{21, 26}));
  EXPECT_EQ(decoded(10, 13), (std::vector<int64_t>{11, 13}));
  EXPECT_EQ(decoded(5, 6), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(decoded(1, 1), (std::vector<int64_t>{3, 4}));
  const at::Tensor half = open_image(path)->decode({4, 6, 16, 20}, {8, 10});
  ASSERT_EQ(half.sizes(), (at::IntArrayRef{3, 8, 10}));
  const at::Tensor means =
      resize_images(open_image(path)->decode().to(at::kFloat).narrow(1, 4, 16).narrow(2, 6, 20), {8, 10});
  EXPECT_LT(half.to(at::kFloat).sub(means).abs().mean().item<double>(), 6);
}

TEST(ImageDecoder, ReportsWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& content, int64_t max_pixels = kMaxPixels) {
    const std::string path = folder.write("image", content);
    return error_of<DataError>([&] { (void)open_image(path, max_pixels)->decode(); });
  };
  const std::string jpeg = file_named("jpeg 4:2:0"), png = file_named("png rgb");
  EXPECT_TRUE(holds(error(""), {"image: the file is empty", "Replace the file or remove it"}));
  EXPECT_TRUE(holds(error("GIF89a..."), {"expected a JPEG, PNG or WebP image", "GIF89a", "Convert the image"}));
  EXPECT_TRUE(holds(error(jpeg.substr(0, 20)), {"the image is damaged", "Premature end", "Replace the file"}));
  EXPECT_TRUE(holds(error(jpeg.substr(0, jpeg.size() - 60)), {"the image is damaged", "Premature end"}));
  std::string broken = jpeg;
  broken.replace(jpeg.size() - 60, 2, "\xFF\xD9");  // the end of the image, too early
  EXPECT_TRUE(holds(error(broken), {"the image is damaged", "Corrupt JPEG data"}));
  EXPECT_TRUE(holds(error(png.substr(0, 20)), {"the image is damaged", "ends too early"}));
  EXPECT_TRUE(holds(error(png.substr(0, png.size() - 30)), {"the image is damaged", "ends too early"}));
  const std::string webp = file_named("webp"), animation = file_named("webp animation");
  EXPECT_TRUE(holds(error(webp.substr(0, 20)), {"the image is damaged", "ends too early"}));
  EXPECT_TRUE(holds(error(webp.substr(0, webp.size() - 30)), {"the image is damaged", "ends too early"}));
  broken = webp;
  broken.replace(23, 3, "abc");  // in the place of the start code of VP8
  EXPECT_TRUE(holds(error(broken), {"the image is damaged", "libwebp cannot read it"}));
  EXPECT_TRUE(holds(error(animation.substr(0, animation.size() / 4)), {"the image is damaged"}));
  EXPECT_TRUE(holds(error(webp, 100), {"the image has 27 x 22 pixels", "max_pixels"}));
  broken = png;
  broken[60] = static_cast<char>(broken[60] ^ 5);
  EXPECT_TRUE(holds(error(broken), {"the image is damaged", "IDAT"}));
  EXPECT_TRUE(holds(error(jpeg, 100), {"26 x 21 pixels, more than the 100 allowed", "max_pixels"}));
  EXPECT_TRUE(holds(error(png, 62), {"9 x 7 pixels, more than the 62 allowed"}));
  EXPECT_EQ(error(png, 63), "");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)open_image(folder / "none.jpg"); }), {"none.jpg", "No such file"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)open_image(folder.path()); }), {folder.path()}));
}

// Headers of a few bytes that ask for gigabytes: the error comes before the memory.
TEST(ImageDecoder, RefusesFilesThatClaimToBeHuge) {
  const TemporaryFolder folder;
  std::string jpeg = file_named("jpeg grey");
  const size_t frame = jpeg.find(std::string("\xFF\xC0", 2));
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)open_image(folder.write("a", jpeg)); }),
                    {"65500 x 65500 pixels, more than the 100000000 allowed"}));
}

// A line of pixels is a small file, but gigabytes once it is scaled so that its shorter side has hundreds of pixels.
TEST(ImageView, RefusesANarrowImageThatWouldBecomeHuge) {
  const TemporaryFolder folder;
  const std::string line =
      png_of({.height = 1, .width = 20'000, .channels = 1, .samples = std::vector<uint8_t>(20'000)});
  const std::string path = folder.write("line.png", line);
  at::Generator generator = at::detail::createCPUGenerator();
  const auto error = [&](int64_t shorter_side) {
    const ImageView view{.crop = ImageCrop::center, .size = 8, .shorter_side = shorter_side};
    return error_of<DataError>([&] {
      EXPECT_EQ(read_image(path, view, generator).sizes(), (at::IntArrayRef{3, 8, 8}));
    });
  };
  EXPECT_EQ(error(8), "");
  EXPECT_TRUE(holds(error(256), {"line.png: with a shorter side of 256 pixels the image has 5120000 x 256",
                                 "more than the 100000000 allowed", "leave it out"}));
}

// Every third byte of a file of each kind, changed: pixels or the documented error.
TEST(ImageDecoder, SurvivesChangedBytes) {
  const TemporaryFolder folder;
  for (const char* name : {"jpeg 4:2:0", "jpeg progressive", "jpeg cmyk", "png palette", "png grey of 16 bits", "webp",
                           "webp lossless", "webp animation"}) {
    const std::string whole = file_named(name);
    for (size_t i = 2; i < whole.size(); i += 3) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (i % 2 == 0 ? 0xFF : 0x11));
      const std::string path = folder.write("image", changed);
      try {
        const auto decoder = open_image(path, 100'000);
        const ImageSize size = decoder->size();
        const at::Tensor pixels = decoder->decode();
        ASSERT_EQ(pixels.sizes(), (at::IntArrayRef{3, size.height, size.width})) << name << " " << i;
      } catch (const DataError& error) {
        ASSERT_TRUE(holds(error.what(), {path})) << name << " " << i;
      }
    }
  }
}

TEST(ResizeImages, GivesTorchvisionsPixels) {
  for (const auto& c : recorded().at("resize")) {
    const bool floats = c.at("floats").get<bool>();
    const at::ScalarType type = floats ? at::kFloat : at::kByte;
    const ImageSize from = size_of(c.at("from")), size = size_of(c.at("size"));
    const int64_t channels = floats ? 1 : 3;
    SCOPED_TRACE(std::to_string(size.height) + " x " + std::to_string(size.width));
    const at::Tensor image = tensor_of(c.at("image"), {channels, from.height, from.width}, type);
    const at::Tensor expected = tensor_of(c.at("result"), {channels, size.height, size.width}, type);
    EXPECT_LE(largest_difference(resize_images(image, size), expected), floats ? 1e-6 : 1);
    const at::Tensor interleaved = image.permute({1, 2, 0}).contiguous().permute({2, 0, 1});  // as decoders give it
    EXPECT_LE(largest_difference(resize_images(interleaved, size), expected), floats ? 1e-6 : 1);
    const at::Tensor batch = resize_images(image.unsqueeze(0).unsqueeze(0), size);
    EXPECT_LE(largest_difference(batch[0][0], expected), floats ? 1e-6 : 1);
  }
}

TEST(ResizeImages, RejectsWhatIsNotAnImage) {
  EXPECT_TRUE(holds(error_of<Error>([] {
                      (void)resize_images(at::zeros({3, 4, 4}, at::kInt), {2, 2});
                    }),
                    {"resize_images", "uint8 or floating point", "3 dimensions of Int"}));
  EXPECT_TRUE(holds(error_of<Error>([] { (void)resize_images(at::zeros({3, 4, 4}), {0, 2}); }), {"2 x 0"}));
}

TEST(ImageTransforms, FindTorchvisionsSizesAndMiddles) {
  for (const auto& c : recorded().at("shorter_side")) {
    EXPECT_EQ(size_with_shorter_side(size_of(c.at("size")), c.at("shorter").get<int64_t>()), size_of(c.at("result")));
  }
  const at::Tensor image = tensor_of(recorded().at("center_crop").at("image"), {3, 9, 12});
  for (const auto& c : recorded().at("center_crop").at("crops")) {
    const ImageSize size = size_of(c.at("size"));
    EXPECT_TRUE(at::equal(center_crop(image, size), tensor_of(c.at("result"), {3, size.height, size.width})))
        << size.height << " x " << size.width;
  }
}

// Means of as many draws as torchvision's were recorded from differ by their standard error alone.
TEST(RandomCropBox, IsDistributedAsTorchvisions) {
  const auto& numbers = recorded().at("random_crop");
  const auto draws = numbers.at("draws").get<int64_t>();
  at::Generator generator = at::detail::createCPUGenerator(3);
  std::map<std::string, std::vector<double>> seen;
  for (int64_t i = 0; i < draws; ++i) {
    const ImageBox box = random_crop_box({480, 640}, {}, generator);
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 480 && box.left + box.width <= 640);
    const auto height = static_cast<double>(box.height), width = static_cast<double>(box.width);
    seen["share"].push_back(height * width / (480 * 640));
    seen["log_ratio"].push_back(std::log(width / height));
    seen["top"].push_back(static_cast<double>(box.top));
    seen["left"].push_back(static_cast<double>(box.left));
    seen["height"].push_back(height);
    seen["width"].push_back(width);
  }
  for (const auto& [name, values] : seen) {
    const at::Tensor all = at::tensor(values, at::kDouble);
    const double mean = numbers.at(name).at(0).get<double>(), spread = numbers.at(name).at(1).get<double>();
    const double error = spread * std::sqrt(2.0 / static_cast<double>(draws));
    EXPECT_NEAR(all.mean().item<double>(), mean, 4 * error) << name;
    EXPECT_NEAR(all.std(false).item<double>(), spread, 4 * error) << name;
  }
}

TEST(RandomCropBox, IsTheMiddleWhereNoDrawFits) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  for (const auto& c : recorded().at("random_crop").at("middles")) {
    const auto& box = c.at("box");
    const ImageBox expected{box[0].get<int64_t>(), box[1].get<int64_t>(), box[2].get<int64_t>(), box[3].get<int64_t>()};
    EXPECT_EQ(random_crop_box(size_of(c.at("size")), {.min_scale = 1}, generator), expected);
  }
}

TEST(ImageBatch, FlipsAndNormalisesToTorchvisionsBits) {
  const auto& c = recorded().at("batch");
  std::vector<Batch> samples;
  for (size_t i = 0; i < 3; ++i) {
    const at::Tensor image = tensor_of(c.at("images")[i], {3, 4, 5}).permute({1, 2, 0}).contiguous().permute({2, 0, 1});
    samples.push_back(
        {image, at::tensor(static_cast<int64_t>(10 + i)), at::scalar_tensor(c.at("flips")[i].get<bool>(), at::kBool)});
  }
  samples.insert(samples.begin() + 1, Batch{});  // one that was skipped
  ColourScale scale;
  for (size_t k = 0; k < 3; ++k) scale.mean[k] = c.at("mean")[k], scale.deviation[k] = c.at("deviation")[k];
  const Batch batch = image_batch(samples, scale);
  ASSERT_EQ(batch.size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor expected = tensor_of(c.at("results")[static_cast<size_t>(i)], {3, 4, 5}, at::kFloat);
    EXPECT_TRUE(at::equal(batch[0][i], expected)) << i;
    EXPECT_EQ(batch[1][i].item<int64_t>(), 10 + i);
  }
}

TEST(ImageBatch, ReportsWhatCannotBeABatch) {
  const Batch small{at::zeros({3, 4, 5}, at::kByte), at::tensor(int64_t{1})};
  const Batch large{at::zeros({3, 6, 5}, at::kByte), at::tensor(int64_t{1})};
  const Batch floats{at::zeros({3, 4, 5}), at::tensor(int64_t{1})};
  EXPECT_TRUE(holds(error_of<DataError>([&] {
                      (void)image_batch({small, large}, {});
                    }),
                    {"differ in size", "5 x 4 and 5 x 6", "Set a size"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)image_batch({Batch{}}, {}); }), {"no image of the batch"}));
  EXPECT_TRUE(holds(error_of<DataError>([&] { (void)image_batch({floats}, {}); }), {"of uint8"}));
}

}  // namespace
}  // namespace levin::images_test
