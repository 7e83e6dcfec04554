#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/version.h"
#include "levin/models/onnx/graph.h"
#include "loggers/event_reader.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::onnx_file_test {
namespace {

using test::error_of;
using test::Fields;
using test::fields_of;
using test::holds;
using test::raw;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t k = 0; k + 1 < hex.size(); k += 2) bytes += static_cast<char>(std::stoi(hex.substr(k, 2), nullptr, 16));
  return bytes;
}

// What Python's package onnx 1.23.2 gives for the same model: helper.make_model(…).SerializeToString().
const std::string kPythons = from_hex(
    "080812056c6576696e1a05302e322e303afb010a270a01780a0a6e65742e77656967687412064d61744d756c1a064d61744d756c22064d6174"
    "4d75"
    "6c0a380a064d61744d756c12095472616e73706f73651a095472616e73706f736522095472616e73706f73652a0d0a047065726d40014000a0"
    "01"
    "070a2d0a095472616e73706f73651201791a017922094c65616b7952656c752a0f0a05616c706861150000003fa0010112056d6f64656c2a2c"
    "08"
    "0208031001420a6e65742e7765696768744a180000c03f000000c0000000000000803e00008040000000415a180a017812130a110801120d0a"
    "07"
    "120562617463680a02080262180a017912130a110801120d0a0208030a071205626174636842040a001012");

onnx::Graph small_graph() {
  onnx::Graph graph;
  graph.nodes = {{"MatMul", {"x", "net.weight"}, {"MatMul"}, {}},
                 {"Transpose", {"MatMul"}, {"Transpose"}, {{"perm", std::vector<int64_t>{1, 0}}}},
                 {"LeakyRelu", {"Transpose"}, {"y"}, {{"alpha", 0.5}}}};
  graph.initializers = {{"net.weight", torch::tensor({{1.5, -2.0, 0.0}, {0.25, 4.0, 8.0}}, torch::kFloat)}};
  graph.inputs = {{"x", torch::kFloat, {{1, 0}, {0, 2}}}};
  graph.outputs = {{"y", torch::kFloat, {{0, 3}, {1, 0}}}};
  return graph;
}

TEST(OnnxFile, IsByteForByteWhatPythonWrites) {
  ASSERT_STREQ(version(), "0.2.0") << "the version is in the bytes: record them again";
  const test::TemporaryFolder folder;
  onnx::write_graph(folder / "small.onnx", small_graph());
  EXPECT_EQ(read_file(folder / "small.onnx"), kPythons);
}

TEST(OnnxFile, HasWeightsNextToItWhereOneFileWouldGetTooLarge) {
  const test::TemporaryFolder folder;
  onnx::Graph graph = small_graph();
  graph.initializers.emplace_back("more", torch::arange(128, torch::kLong));
  graph.initializers.emplace_back("most", torch::arange(256, torch::kFloat));
  onnx::write_graph(folder / "one.onnx", graph, /*max_bytes=*/24 + 1024 + 1024);
  EXPECT_FALSE(std::filesystem::exists(folder / "one.onnx.data"));
  onnx::write_graph(folder / "small.onnx", graph, /*max_bytes=*/24 + 1024 + 1023);
  const std::string data = read_file(folder / "small.onnx.data");
  ASSERT_EQ(data.size(), 2048u);
  EXPECT_EQ(raw<int64_t>(data.substr(8)), 1);
  EXPECT_EQ(raw<float>(data.substr(1024 + 4 * 7)), 7.0F);
  Fields inner = fields_of(fields_of(read_file(folder / "small.onnx"))[7].at(0));
  ASSERT_EQ(inner[5].size(), 3u);
  EXPECT_EQ(fields_of(inner[5][0])[9].at(0).size(), 24u) << "raw_data of a small tensor";
  Fields most = fields_of(inner[5][2]);
  EXPECT_EQ(most[9].size(), 0u);
  EXPECT_EQ(raw<int64_t>(most[14].at(0)), 1) << "data_location";
  std::map<std::string, std::string> entries;
  for (const std::string& entry : most[13]) entries[fields_of(entry)[1].at(0)] = fields_of(entry)[2].at(0);
  EXPECT_EQ(entries, (std::map<std::string, std::string>{
                         {"location", "small.onnx.data"}, {"offset", "1024"}, {"length", "1024"}}));
}

TEST(OnnxFile, NamesAPathThatCannotBeWritten) {
  EXPECT_TRUE(holds(error_of<Error>([] { onnx::write_graph("/no/such/folder/x.onnx", small_graph()); }),
                    {"/no/such/folder/x.onnx"}));
}

TEST(OnnxFile, HasTheTypesOfOnnx) {
  const std::vector<std::pair<at::ScalarType, int64_t>> known = {
      {torch::kFloat, 1}, {torch::kByte, 2}, {torch::kChar, 3},  {torch::kShort, 5},   {torch::kInt, 6},
      {torch::kLong, 7},  {torch::kBool, 9}, {torch::kHalf, 10}, {torch::kDouble, 11}, {torch::kBFloat16, 16}};
  for (const auto& [dtype, number] : known) EXPECT_EQ(onnx::onnx_type(dtype), number) << dtype;
  EXPECT_TRUE(holds(error_of<Error>([] { (void)onnx::onnx_type(at::kQInt8); }),
                    {"with tensors of type QInt8, with which ONNX's operators do not compute"}));
  EXPECT_TRUE(holds(error_of<Error>([] { (void)onnx::onnx_type(at::kComplexFloat); }), {"of type ComplexFloat"}));
}

TEST(BatchNumber, IsTheLineThroughWhatWasSeen) {
  const std::vector<onnx::TracePoint> points{{2, 0}, {3, 0}, {5, 0}};
  EXPECT_EQ(onnx::trace_points(0), points);
  EXPECT_EQ(onnx::fit_batch_number(points, {7, 7, 7}), (onnx::BatchNumber{0, 7}));
  EXPECT_EQ(onnx::fit_batch_number(points, {8, 12, 20}), (onnx::BatchNumber{4, 0}));
  EXPECT_EQ(onnx::fit_batch_number(points, {-3, -4, -6}), (onnx::BatchNumber{-1, -1}));
  EXPECT_EQ(onnx::fit_batch_number(points, {4, 9, 25}), std::nullopt) << "a square";
  EXPECT_EQ(onnx::fit_batch_number({{4, 0}}, {9}), (onnx::BatchNumber{0, 9}));
}

TEST(BatchNumber, FollowsTheLengthToo) {
  const auto points = onnx::trace_points(12);
  const auto seen = [&](auto function) {
    std::vector<int64_t> values;
    for (const auto& [batch, length] : points) values.push_back(function(batch, length));
    return onnx::fit_batch_number(points, values);
  };
  EXPECT_EQ(seen([](int64_t, int64_t) { return 5; }), (onnx::BatchNumber{0, 5}));
  EXPECT_EQ(seen([](int64_t, int64_t length) { return length - 1; }), (onnx::BatchNumber{0, -1, 1}));
  EXPECT_EQ(seen([](int64_t batch, int64_t length) { return 3 * batch * length; }), (onnx::BatchNumber{0, 0, 0, 3}));
  EXPECT_EQ(seen([](int64_t batch, int64_t length) { return batch * (length + 2) - 4 * length + 9; }),
            (onnx::BatchNumber{2, 9, -4, 1}));
  EXPECT_EQ(seen([](int64_t, int64_t length) { return length * length; }), std::nullopt);
  EXPECT_EQ(seen([](int64_t batch, int64_t length) { return length > 10 ? batch : 0; }), std::nullopt);
}

TEST(BatchNumber, IsShownAsAnExpression) {
  EXPECT_EQ((onnx::BatchNumber{0, 3}).text(), "3");
  EXPECT_EQ((onnx::BatchNumber{1, 0}).text(), "batch");
  EXPECT_EQ((onnx::BatchNumber{4, 1}).text(), "4*batch+1");
  EXPECT_EQ((onnx::BatchNumber{0, -1, 1}).text(), "length-1");
  EXPECT_EQ((onnx::BatchNumber{-1, 2, 0, 6}).text(), "6*batch*length-1*batch+2");
}

}  // namespace
}  // namespace levin::onnx_file_test
