#include "levin/loggers/histogram.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "levin/core/options/error.h"
#include "levin/loggers/image.h"

namespace levin::histogram_test {
namespace {

// Where a bin must be, by a search over the edges.
void expect_counts(const Histogram& h, const std::vector<double>& values) {
  std::vector<double> counts(h.counts.size(), 0);
  for (const double value : values) {
    size_t bin = 0;
    while (bin + 1 < counts.size() && value >= h.edges[bin + 1]) ++bin;
    ASSERT_GE(value, h.edges[bin]);
    counts.at(bin) += 1;
  }
  EXPECT_EQ(h.counts, counts);
}

TEST(Histogram, CountsNumbersOfAnySizeAndSign) {
  std::vector<double> values = {0, -0.0, 1e-12, -1e-12, 1e-300, -1e-300, 1e30, -1e30, 1, -1, 0.5, -0.5};
  for (double edge = 1e-12; edge < 1e20; edge *= 1.1) {
    for (const double near : {edge, std::nextafter(edge, 0), std::nextafter(edge, 1e300)}) {
      values.push_back(near);
      values.push_back(-near);
    }
  }
  const Histogram h = histogram_of(at::tensor(values, at::kDouble));
  EXPECT_EQ(h.count, static_cast<double>(values.size()));
  EXPECT_EQ(h.min, -1e30);
  EXPECT_EQ(h.max, 1e30);
  EXPECT_EQ(h.edges.size(), h.counts.size() + 1);
  expect_counts(h, values);
}

TEST(Histogram, HasOnlyBinsBetweenTheFirstAndTheLastNumber) {
  const Histogram h = histogram_of(at::tensor({1.0, 1.0, 2.0}));
  EXPECT_LE(h.edges.front(), 1);
  EXPECT_GT(h.edges[1], 1);
  EXPECT_GT(h.edges.back(), 2);
  EXPECT_EQ(h.counts.front(), 2);
  EXPECT_EQ(h.counts.back(), 1);
  EXPECT_EQ(h.sum, 4);
  EXPECT_EQ(h.sum_squares, 6);
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const Histogram h = histogram_of(at::tensor({NAN, inf, -inf, 3.0}, at::kDouble));
  EXPECT_EQ(h.nonfinite, 3);
  EXPECT_EQ(h.count, 1);
  EXPECT_EQ(h.min, 3);
  EXPECT_EQ(h.max, 3);
  const Histogram none = histogram_of(at::tensor({NAN}, at::kDouble));
  EXPECT_EQ(none.nonfinite, 1);
  EXPECT_TRUE(none.counts.empty());
}

TEST(Histogram, TakesEveryType) {
  const at::Tensor numbers = at::arange(-3, 4);
  for (const auto type :
       {at::kInt, at::kLong, at::kShort, at::kChar, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const Histogram h = histogram_of(numbers.to(type));
    EXPECT_EQ(h.count, 7) << c10::toString(type);
    EXPECT_EQ(h.sum_squares, 28) << c10::toString(type);
  }
  EXPECT_EQ(histogram_of(numbers.gt(0)).sum, 3);
  EXPECT_EQ(histogram_of(numbers.reshape({7, 1}).t()).count, 7);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Histogram, OfNothingIsAnError) {
  EXPECT_EQ(message_of([] {
              (void)histogram_of(at::empty({0, 3}));
            }),
            "histogram_of: the tensor is empty, and has no distribution.");
  EXPECT_EQ(message_of([] { (void)histogram_of(at::Tensor()); }),
            "histogram_of: the tensor is undefined, and has no distribution.");
  EXPECT_EQ(message_of([] { (void)histogram_of(at::empty({1}, at::kComplexFloat)); }),
            "histogram_of: complex numbers have no order. Log the histogram of their abs(), real or imaginary part.");
}

TEST(Image, OfFloatsIsClippedAndRounded) {
  const LogImage image = image_of(at::tensor({-1.0, 0.0, 0.5, 1.0, 7.0, NAN}, at::kFloat).reshape({2, 3}));
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.samples, (std::vector<uint8_t>{0, 0, 128, 255, 255, 0}));
}

TEST(Image, HasItsChannelsLast) {
  const LogImage image = image_of(at::arange(12, at::kByte).reshape({3, 2, 2}));
  EXPECT_EQ(image.samples, (std::vector<uint8_t>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
}

TEST(Image, OfABatchIsAGrid) {
  const LogImage image = image_of(at::arange(1, 11, at::kByte).reshape({10, 1, 1, 1}));
  EXPECT_EQ(image.width, 8 + 7 * 2);
  EXPECT_EQ(image.height, 1 + 2 + 1);
  EXPECT_EQ(image.samples[0], 1);
  EXPECT_EQ(image.samples[1], 0);
  EXPECT_EQ(image.samples[3], 2);
  EXPECT_EQ(image.samples[static_cast<size_t>(3 * image.width)], 9);
  EXPECT_EQ(image.samples[static_cast<size_t>(3 * image.width + 6)], 0) << "no eleventh picture";
}

TEST(Image, OfADifferentShapeOrTypeIsAnError) {
  EXPECT_EQ(
      message_of([] {
        (void)image_of(at::empty({2, 5, 5}));
      }),
      "image_of: expected a tensor (height, width), (channels, height, width) or (batch, channels, height, width) "
      "with 1, 3 or 4 channels, got (2, 5, 5).");
  EXPECT_EQ(message_of([] { (void)image_of(at::empty({3, 0, 5})); }), "image_of: the tensor (3, 0, 5) has no pixels.");
  EXPECT_EQ(
      message_of([] {
        (void)image_of(at::empty({5, 5}, at::kLong));
      }),
      "image_of: expected uint8, or floating-point numbers from 0 to 1, got Long. Convert it, e.g. .to(at::kByte).");
  EXPECT_EQ(message_of([] { (void)image_of(at::Tensor()); }), "image_of: the tensor is undefined.");
}

}  // namespace
}  // namespace levin::histogram_test
