// Safetensors files of other programs: hand-written here, byte by byte, so that Levin does not read what Levin wrote.
#include "levin/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "levin/checkpoint/checkpoint_file.h"
#include "levin/checkpoint/safetensors_writer.h"
#include "levin/core/files/files.h"
#include "levin/libtorch/version.h"
#include "support/error_text.h"
#include "support/sanitized.h"
#include "support/temporary_folder.h"
#include "support/wait_until.h"

namespace levin::safetensors_test {
namespace {

using test::has;
using test::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string error_of(const std::string& header, const std::string& data = "") {
  const TemporaryFolder folder;
  write_file_durably(folder / "a.safetensors", file_of(header, data));
  try {
    const SafetensorsFile file(folder / "a.safetensors");
    for (const auto& entry : file.entries()) (void)file.read(entry);
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with(folder / "a.safetensors: ")) << text;
    return text;
  }
  return "";
}

TEST(SafetensorsFile, ReadsAnotherProgramsFile) {
  const TemporaryFolder folder;
  // Unpadded header, narrow tensor first, so that the floats are not aligned in the file; metadata of any key.
  const std::string header =
      R"({"b":{"shape":[1],"dtype":"U8","data_offsets":[0,1]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[1,9]},"e":{"dtype":"I64","shape":[0,3],"data_offsets":[9,9]}})";
  write_file_durably(folder / "a.safetensors", file_of(header, std::string("\x07\0\0\x80\x3f\0\0\0\xc0", 9)));
  const SafetensorsFile file(folder / "a.safetensors");
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.entries()[0].name, "b");
  EXPECT_EQ(file.entries()[1].begin, 8 + header.size() + 1);
  EXPECT_TRUE(torch::equal(file.read(file.entries()[0]), torch::tensor({7}, at::kByte)));
  EXPECT_TRUE(torch::equal(file.read(file.entries()[1]), torch::tensor({{1.0F}, {-2.0F}})));
  EXPECT_EQ(file.read(file.entries()[2]).sizes(), at::IntArrayRef({0, 3}));
  write_file_durably(folder / "empty.safetensors", file_of("{}", ""));
  EXPECT_TRUE(SafetensorsFile(folder / "empty.safetensors").entries().empty());
}

TEST(SafetensorsFile, ReadsEveryTypeOfTheFormatThatLibTorchHas) {
  const TemporaryFolder folder;
  const std::vector<std::pair<const char*, at::ScalarType>> types{{"F64", at::kDouble},
                                                                  {"F32", at::kFloat},
                                                                  {"F16", at::kHalf},
                                                                  {"BF16", at::kBFloat16},
                                                                  {"F8_E4M3", at::kFloat8_e4m3fn},
                                                                  {"F8_E5M2", at::kFloat8_e5m2},
                                                                  {"C64", at::kComplexFloat},
                                                                  {"I64", at::kLong},
                                                                  {"I32", at::kInt},
                                                                  {"I16", at::kShort},
                                                                  {"I8", at::kChar},
                                                                  {"U64", at::kUInt64},
                                                                  {"U32", at::kUInt32},
                                                                  {"U16", at::kUInt16},
                                                                  {"U8", at::kByte},
                                                                  {"BOOL", at::kBool}};
  for (const auto& [word, type] : types) {
    const size_t width = c10::elementSize(type);
    const std::string data = std::string(width - 1, '\0') + "\1";
    write_file_durably(folder / "a", file_of(std::string(R"({"x":{"dtype":")") + word +
                                                 R"(","shape":[],"data_offsets":[0,)" + std::to_string(width) + "]}}",
                                             data));
    const SafetensorsFile file(folder / "a");
    const at::Tensor x = file.read(file.entries()[0]);
    EXPECT_EQ(x.scalar_type(), type) << word;
    EXPECT_EQ(std::memcmp(x.const_data_ptr(), data.data(), width), 0) << word;
    write_safetensors(folder / "b", {{"x", x}});
    EXPECT_EQ(SafetensorsFile(folder / "b").entries()[0].dtype, type) << word;
  }
}

TEST(SafetensorsFile, ReadsF8E8M0OrNamesTheLibTorchThatHasIt) {
  const std::string header = R"({"x":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}})";
#if LEVIN_TORCH_AT_LEAST(2, 7)
  const TemporaryFolder folder;
  write_file_durably(folder / "a", file_of(header, "\x7f"));
  const SafetensorsFile file(folder / "a");
  const at::Tensor x = file.read(file.entries()[0]);
  EXPECT_EQ(x.scalar_type(), at::kFloat8_e8m0fnu);
  EXPECT_EQ(*static_cast<const uint8_t*>(x.const_data_ptr()), 0x7f);
  write_safetensors(folder / "b", {{"x", x}});
  EXPECT_EQ(SafetensorsFile(folder / "b").entries()[0].dtype, at::kFloat8_e8m0fnu);
#else
  EXPECT_TRUE(has(error_of(header, "\x7f"),
                  "the header's entry of tensor \"x\" is wrong: dtype \"F8_E8M0\" needs "
                  "LibTorch 2.7 or newer; this is Levin with LibTorch " +
                      torch_version()));
#endif
}

TEST(SafetensorsFile, RefusesInvalidFilesWithTheReason) {
  EXPECT_TRUE(
      has(error_of(R"({"t":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "1"), "dtype \"F4\" is unknown"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123"), "byte 1 where 0"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("u":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                           "123"),
                  "byte 1 where 2"));
  EXPECT_TRUE(
      has(error_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "123"), "cut short or added to"));
  EXPECT_TRUE(
      has(error_of(R"({"t":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})"), "overflows"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,1e1]}})"), "not a whole number"));
  EXPECT_TRUE(
      has(error_of(R"({"t":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\2"), "other than 0 and 1"));
  EXPECT_TRUE(has(error_of(R"({"__metadata__":{"a":1}})"), "\"a\" is not text"));
  EXPECT_TRUE(has(error_of(R"({"__metadata__":[]})"), "not a map"));
  EXPECT_TRUE(has(error_of("[]"), "not a map"));
  EXPECT_TRUE(has(error_of("{"), "not JSON at byte"));
  const std::string empty = R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_TRUE(has(error_of("{" + empty + "," + empty + "}"), "\"t\" twice"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "twice"));
  EXPECT_TRUE(has(error_of(R"({"__metadata__":{"a":"1","a":"1"}})"), "\"a\" twice"));
  EXPECT_TRUE(has(error_of(R"({"__metadata__":{},"__metadata__":{}})"), "twice"));
  for (const char* entry : {"1", "[]", "{}", "\"\"", "null", R"({"dtype":"U8","shape":[0]})",
                            R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1})"}) {
    EXPECT_TRUE(has(error_of(std::string(R"({"t":)") + entry + "}"), "must have dtype, shape and data_offsets"));
  }
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":1,"shape":[0],"data_offsets":[0,0]}})"), "has no dtype"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","shape":{},"data_offsets":[0,0]}})"), "shape is not a list"));
  EXPECT_TRUE(has(error_of(R"({"t":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})"), "not a whole number"));
  for (const char* offsets : {"[]", "[0]", "[0,0,0]", "0", "{}"}) {
    EXPECT_TRUE(has(error_of(std::string(R"({"t":{"dtype":"U8","shape":[0],"data_offsets":)") + offsets + "}}"),
                    "data_offsets are not two numbers"));
  }
  // Nothing is allocated for a header that promises more than the file holds.
  EXPECT_TRUE(
      has(error_of(R"({"t":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})"), "cut short"));
}

TEST(SafetensorsFile, AnInvalidFileDoesNotStayOpen) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = open_files();
  EXPECT_TRUE(has(error_of("{"), "not JSON at byte"));
  EXPECT_EQ(open_files(), before);
}

TEST(SafetensorsFile, ManyKeysTakeNoQuadraticTime) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of(header + "}"), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(test::kSanitized ? 100 : 20));  // 3 minutes where it is quadratic
}

TEST(SafetensorsFile, AnErrorOfOneThreadIsThrownWhenAllAreDone) {
  std::atomic<int> running = 0, done = 0;
  std::atomic<bool> thrown = false;
  try {
    read_in_parallel(50, uint64_t{1} << 40, [&](size_t i) {
      ++running;
      if (i == 3) thrown = true;
      if (i == 3) throw CheckpointError("third");
      EXPECT_TRUE(i < 3 || test::wait_until([&] { return thrown.load(); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a read
      ++done;
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    EXPECT_STREQ(error.what(), "third");
  }
  EXPECT_EQ(done + 1, running);
  EXPECT_LT(running, 50);
  std::vector<int> seen(100, 0);
  read_in_parallel(100, uint64_t{1} << 40, [&](size_t i) { ++seen[i]; });
  EXPECT_EQ(seen, std::vector<int>(100, 1));
}

TEST(CheckpointFile, OtherProgramsFilesHaveNoChecksumsAndDamagedOnesOfOursDoNotPassForThem) {
  const TemporaryFolder folder;
  State state;
  state.set<int64_t>("epoch", 1);
  state.tensors["model.w"] = torch::ones({2});
  write_checkpoint(folder / "a.ckpt", state);
  const std::string good = read_file(folder / "a.ckpt");
  const CheckpointFile intact(folder / "a.ckpt");
  for (const auto& entry : intact.file().entries()) EXPECT_NO_THROW(intact.verify(entry));
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write_file_durably(folder / "b.ckpt", bad);
    EXPECT_THROW(
        {
          const CheckpointFile file(folder / "b.ckpt", CheckpointFile::Accept::any_safetensors);
          for (const auto& entry : file.file().entries()) file.verify(entry);
        },
        CheckpointError)
        << "bit " << bit;
  }
  write_safetensors(folder / "c", {{"w", torch::ones({2})}}, {{"format", "pt"}});
  const CheckpointFile other(folder / "c", CheckpointFile::Accept::any_safetensors);
  EXPECT_FALSE(other.is_checkpoint());
  EXPECT_TRUE(torch::equal(other.read(other.file().entries()[0]), torch::ones({2})));
  EXPECT_THROW(CheckpointFile(folder / "c"), CheckpointError);
}

}  // namespace
}  // namespace levin::safetensors_test
