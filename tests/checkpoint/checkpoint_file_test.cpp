// Checkpoints on disk: written, read, damaged in every way, and checked by a reader that shares no code with Levin's.
#include "levin/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>
#include <xxhash.h>

#include <csignal>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "levin/checkpoint/values_json.h"
#include "levin/core/files/files.h"
#include "support/error_text.h"
#include "support/temporary_folder.h"

namespace levin::checkpoint_file_test {
namespace {

using test::error_of;
using test::has;
using test::TemporaryFolder;

std::string error_of_reading(const std::string& path) {
  return error_of<CheckpointError>([&] { (void)read_checkpoint(path); });
}

bool bitwise_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

State small_state() {
  State state;
  state.set<int64_t>("epoch", 3);
  state.set<std::string>("name", "run");
  state.tensors["model.weight"] = torch::arange(6, at::kFloat).view({2, 3});
  state.tensors["model.flags"] = torch::tensor({true, false, true});
  return state;
}

// ---- a reader of its own: fread and JSON, nothing of Levin's --------------------------------------------------------

struct Plain {
  nlohmann::json header;
  std::string data;
};

Plain read_plainly(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string bytes;
  for (int c; (c = std::fgetc(file)) != EOF;) bytes.push_back(static_cast<char>(c));
  std::fclose(file);
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
  return {nlohmann::json::parse(bytes.substr(8, length)), bytes.substr(8 + length)};
}

// A header of the test's making, with the checksum that makes it trusted: for attacks on what comes after.
std::string forged(const std::string& tensors, const std::string& metadata, const std::string& data,
                   const std::string& format = R"(,"levin.format":"1")") {
  const std::string prefix = R"({"__metadata__":{"levin.checksum":")";
  std::string text = prefix + "0000000000000000\"" + format + metadata + "}" + tensors + "}";
  std::string file(8, '\0');
  const uint64_t length = text.size();
  std::memcpy(file.data(), &length, 8);
  file += text;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(XXH3_64bits(file.data(), file.size())));
  file.replace(8 + prefix.size(), 16, digits);
  return file + data;
}

std::string error_of_forged(const std::string& tensors,
                            const std::string& metadata = R"(,"levin.values":"{}","xxh3:t":"0")",
                            const std::string& data = "") {
  const TemporaryFolder folder;
  write_file_durably(folder / "f.ckpt", forged(tensors, metadata, data));
  return error_of_reading(folder / "f.ckpt");
}

// ---- round trips ----------------------------------------------------------------------------------------------------

TEST(CheckpointFile, KeepsEveryTypeAndShape) {
  const TemporaryFolder folder;
  State state;
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar,
                          at::kByte, at::kBool}) {
    const std::string name = c10::toString(type);
    state.tensors[name] = torch::randint(0, 2, {3, 5}).mul(type == at::kByte || type == at::kBool ? 1 : -1).to(type);
    state.tensors[name + ".empty"] = torch::empty({0, 4}, type);
    state.tensors[name + ".scalar"] = torch::ones({}, type);
    state.tensors[name + ".transposed"] = state.tensors[name].t();
  }
  write_checkpoint(folder / "a.ckpt", state);
  const State read = read_checkpoint(folder / "a.ckpt");
  ASSERT_EQ(read.tensors.size(), state.tensors.size());
  for (const auto& [name, tensor] : state.tensors) EXPECT_TRUE(bitwise_equal(read.tensors.at(name), tensor)) << name;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.ckpt"});
}

TEST(CheckpointFile, KeepsNanPayloadsAndSignedZero) {
  const TemporaryFolder folder;
  const std::vector<int32_t> patterns{
      0x7fc00001, static_cast<int32_t>(0xffc12345), static_cast<int32_t>(0x80000000), 0x00000001, 0x7f800000,
      0x7fa00000};
  State state;
  state.tensors["x"] = torch::tensor(patterns, at::kInt).view(at::kFloat);
  write_checkpoint(folder / "a.ckpt", state);
  const at::Tensor bits = read_checkpoint(folder / "a.ckpt").tensor("x").view(at::kInt);
  for (size_t i = 0; i < patterns.size(); ++i) EXPECT_EQ(bits[static_cast<int64_t>(i)].item<int32_t>(), patterns[i]);
}

TEST(CheckpointFile, WritesViewsAndGradientTensorsDensely) {
  const TemporaryFolder folder;
  State state;
  const at::Tensor base = torch::arange(20, at::kFloat).requires_grad_();
  state.tensors["every_third"] = base.slice(0, 1, 20, 3);
  write_checkpoint(folder / "a.ckpt", state);
  const at::Tensor read = read_checkpoint(folder / "a.ckpt").tensor("every_third");
  EXPECT_TRUE(torch::equal(read, torch::tensor({1., 4., 7., 10., 13., 16., 19.}, at::kFloat)));
  EXPECT_FALSE(read.requires_grad());
  EXPECT_EQ(read.storage().nbytes(), 28U);
}

TEST(CheckpointFile, KeepsValuesWithTheirTextQuotesAndOrder) {
  State state;
  auto plain = [](const char* text) { return ConfigNode::scalar(text); };
  state.values.set("z", ConfigNode::list({plain("1e-3"), plain("0.001"), plain("true"), plain("True"), plain("null"),
                                          plain(".inf"), plain("-0.0"), plain("007"), plain("12345678901234567890123"),
                                          plain(""), plain("1.0"), plain("1e+20"), plain("[1]"), plain("\"q\"")}));
  state.values.set("a", ConfigNode::scalar("3", true));
  state.values.set("text", ConfigNode::scalar("line\n\"quote\" \\ \x01 \xc3\xa9", true));
  ConfigNode tricky = ConfigNode::map();
  tricky.set("plain", ConfigNode::scalar("x", true));
  state.values.set("looks_plain", tricky);
  ConfigNode deeper = ConfigNode::map();
  deeper.set("map", tricky);
  state.values.set("looks_map", deeper);
  state.values.set("nothing", ConfigNode());
  state.values.set("no_items", ConfigNode::list());
  state.values.set("no_entries", ConfigNode::map());
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", state);
  const ConfigNode read = read_checkpoint(folder / "a.ckpt").values;
  EXPECT_TRUE(read.same_as(state.values));
  const ConfigNode *want = state.values.find("z"), *got = read.find("z");
  for (size_t i = 0; i < want->items.size(); ++i) {
    EXPECT_EQ(got->items[i].text, want->items[i].text);
    EXPECT_FALSE(got->items[i].quoted) << want->items[i].text;
  }
  EXPECT_TRUE(read.find("a")->quoted);
  EXPECT_EQ(read.entries[0].key, "z");
  EXPECT_EQ(read.entries[1].key, "a");
}

TEST(CheckpointFile, EveryDoubleComesBackTheSame) {
  State state;
  std::vector<double> numbers{0.1,     1e-320,        -0.0, 5e-324, 1.7976931348623157e308,
                              1.0 / 3, 123456789.123, 1e22, 1e16,   0.4};
  torch::manual_seed(1);
  const at::Tensor bits =
      torch::randint(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), {2000}, at::kLong);
  for (int64_t i = 0; i < bits.size(0); ++i) {
    const double number = std::bit_cast<double>(bits[i].item<int64_t>());
    if (std::isfinite(number)) numbers.push_back(number);
  }
  state.set("numbers", numbers);
  const auto read = State{values_from_json(values_to_json(state.values)), {}}.get<std::vector<double>>("numbers");
  ASSERT_EQ(read.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_EQ(std::bit_cast<int64_t>(read[i]), std::bit_cast<int64_t>(numbers[i]));
}

// ---- the bytes ------------------------------------------------------------------------------------------------------

TEST(CheckpointFile, IsSafetensorsForAnIndependentReader) {
  const TemporaryFolder folder;
  State state = small_state();
  state.tensors["ids"] = torch::tensor({int64_t{7}, int64_t{-1}});
  write_checkpoint(folder / "a.ckpt", state);
  const Plain file = read_plainly(folder / "a.ckpt");
  for (const auto& [key, value] : file.header["__metadata__"].items()) EXPECT_TRUE(value.is_string()) << key;
  EXPECT_EQ(nlohmann::json::parse(file.header["__metadata__"]["levin.values"].get<std::string>()),
            nlohmann::json::parse(R"({"epoch": 3, "name": "run"})"));
  const auto& weight = file.header["model.weight"];
  EXPECT_EQ(weight["dtype"], "F32");
  EXPECT_EQ(weight["shape"], nlohmann::json({2, 3}));
  for (int i = 0; i < 6; ++i) {
    float value = -1;
    std::memcpy(&value, file.data.data() + weight["data_offsets"][0].get<size_t>() + 4 * static_cast<size_t>(i), 4);
    EXPECT_EQ(value, static_cast<float>(i));
  }
  const auto& ids = file.header["ids"];
  EXPECT_EQ(ids["dtype"], "I64");
  EXPECT_EQ(file.data.substr(ids["data_offsets"][0].get<size_t>(), 16),
            std::string("\x07\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 16));
  const auto& flags = file.header["model.flags"];
  EXPECT_EQ(file.data.substr(flags["data_offsets"][0].get<size_t>()), std::string("\1\0\1", 3));
  EXPECT_EQ(file.data.size(), 16U + 24U + 3U);
}

TEST(CheckpointFile, AlignsTheDataAndEachTensor) {
  const TemporaryFolder folder;
  for (size_t extra = 0; extra < 9; ++extra) {
    State state = small_state();
    state.set("padding", std::string(extra, 'x'));
    state.tensors["a.byte"] = torch::ones({1}, at::kByte);
    state.tensors["b.half"] = torch::ones({3}, at::kHalf);
    state.tensors["c.double"] = torch::ones({3}, at::kDouble);
    write_checkpoint(folder / "a.ckpt", state);
    const Plain file = read_plainly(folder / "a.ckpt");
    EXPECT_EQ((read_file(folder / "a.ckpt").size() - file.data.size()) % 8, 0U);
    EXPECT_EQ(file.header["c.double"]["data_offsets"][0].get<int>() % 8, 0);
    EXPECT_EQ(file.header["model.weight"]["data_offsets"][0].get<int>() % 4, 0);
    EXPECT_EQ(file.header["b.half"]["data_offsets"][0].get<int>() % 2, 0);
  }
}

// ---- damage ---------------------------------------------------------------------------------------------------------

TEST(CheckpointFile, NoticesEveryFlippedBit) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", small_state());
  const std::string good = read_file(folder / "a.ckpt");
  const int fd = ::open((folder / "a.ckpt").c_str(), O_WRONLY);
  auto put = [&](size_t at, char byte) { ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(at)), 1); };
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    put(bit / 8, static_cast<char>(good[bit / 8] ^ (1 << (bit % 8))));
    const std::string error = error_of_reading(folder / "a.ckpt");
    ASSERT_TRUE(has(error, folder / "a.ckpt")) << "bit " << bit << " was not noticed: " << error;
    put(bit / 8, good[bit / 8]);
  }
  ::close(fd);
  EXPECT_EQ(error_of_reading(folder / "a.ckpt"), "");
}

TEST(CheckpointFile, NoticesACutAtEveryByteAndAnAppendedByte) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", small_state());
  const size_t whole = read_file(folder / "a.ckpt").size();
  for (size_t size = whole + 1; size != SIZE_MAX; --size) {
    ASSERT_EQ(::truncate((folder / "a.ckpt").c_str(), static_cast<off_t>(size)), 0);
    ASSERT_EQ(error_of_reading(folder / "a.ckpt").empty(), size == whole) << size << " bytes";
  }
}

TEST(CheckpointFile, NamesTheDamagedTensorAndItsBytes) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", small_state());
  std::string bytes = read_file(folder / "a.ckpt");
  bytes[bytes.size() - 3 - 10] ^= 1;  // the last three bytes are the flags
  write_file_durably(folder / "a.ckpt", bytes);
  const std::string error = error_of_reading(folder / "a.ckpt");
  EXPECT_TRUE(has(error, "\"model.weight\"")) << error;
  EXPECT_TRUE(has(error, "to " + std::to_string(bytes.size() - 3))) << error;
  EXPECT_TRUE(has(error, "checksum")) << error;
}

TEST(CheckpointFile, RefusesOtherFilesWithTheReason) {
  const TemporaryFolder folder;
  EXPECT_TRUE(has(error_of_reading(folder / "absent.ckpt"), "No such file"));
  EXPECT_TRUE(has(error_of_reading(folder.path()), "Is a directory"));
  write_file_durably(folder / "zip.ckpt", "PK\x03\x04 a torch.save file is a zip archive");
  EXPECT_TRUE(has(error_of_reading(folder / "zip.ckpt"), "no checkpoint"));
  EXPECT_TRUE(has(error_of_reading(folder / "zip.ckpt"), "tools/convert_checkpoint.py"));
  write_file_durably(folder / "text.ckpt", "epoch: 3, global_step: 18");
  EXPECT_TRUE(has(error_of_reading(folder / "text.ckpt"), "damaged, cut short or no checkpoint"));
  const std::string header = R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  std::string other(8, '\0');
  other[0] = static_cast<char>(header.size());
  write_file_durably(folder / "other.ckpt", other + header);
  EXPECT_TRUE(has(error_of_reading(folder / "other.ckpt"), "another program"));
}

TEST(CheckpointFile, RefusesForgedHeaders) {
  const std::string good = R"(,"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return ",\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string metadata = R"(,"levin.values":"{}","xxh3:t":"0","xxh3:u":"0")";
  const std::string eight(8, '\0');
  EXPECT_TRUE(has(error_of_forged(good, metadata, eight), "checksum differs"));  // all else is right
  EXPECT_TRUE(has(error_of_forged(entry("\"F33\"", "[2]", "[0,8]")), "F33"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[3]", "[0,8]"), metadata, eight), "do not fit"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[-2]", "[0,8]")), "-2"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[2.5]", "[0,10]")), "2.5"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[4611686018427387904,4]", "[0,0]")), "overflow"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[0,9223372036854775807,9]", "[0,0]")), "overflow"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[18446744073709551615]", "[0,0]")), "overflow"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[2]", "[8,0]")), "do not fit"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[2]", "[4,12]"), metadata, eight + "1234"), "byte 4 where 0"));
  EXPECT_TRUE(has(error_of_forged(entry("\"F32\"", "[1000000000000]", "[0,4000000000000]")), "cut short"));
  EXPECT_TRUE(has(error_of_forged(good + R"(,"u":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})", metadata, eight),
                  "expected"));
  EXPECT_TRUE(has(error_of_forged(good + good, metadata, eight), "twice"));
  EXPECT_TRUE(has(error_of_forged(good, R"(,"levin.values":"{}")", eight), "no checksum"));
  EXPECT_TRUE(has(error_of_forged(good, "", eight), "levin.values"));
  EXPECT_TRUE(has(error_of_forged("", R"(,"levin.values":"{\"a\":1,\"a\":2}")"), "twice"));
  EXPECT_TRUE(has(error_of_forged("", R"(,"levin.values":")" + std::string(100000, '[') + "\""), "deeper"));
  EXPECT_TRUE(has(error_of_forged("", R"(,"levin.values":"{\"a\":")"), "not JSON at byte"));
  EXPECT_TRUE(has(error_of_forged(",\"t\":3"), "must have dtype"));
  EXPECT_EQ(error_of_forged("", R"(,"levin.values":"{}")"), "");  // the forger can make a good file too
}

TEST(CheckpointFile, RefusesAFormatThatItDoesNotKnow) {
  const TemporaryFolder folder;
  for (const auto& [format, part] :
       {std::pair{R"(,"levin.format":"2")", "its format is \"2\"; this Levin reads \"1\". Use the Levin that wrote it"},
        {"", "its header has no levin.format"}}) {
    write_file_durably(folder / "f.ckpt", forged("", R"(,"levin.values":"{}")", "", format));
    const std::string error = error_of_reading(folder / "f.ckpt");
    EXPECT_TRUE(has(error, part)) << error;
  }
}

TEST(CheckpointFile, RefusesBoolsThatAreNone) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016lx", static_cast<unsigned long>(XXH3_64bits("\2", 1)));
  const std::string metadata = std::string(R"(,"levin.values":"{}","xxh3:t":")") + digits + "\"";
  EXPECT_TRUE(
      has(error_of_forged(R"(,"t":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]})", metadata, "\2"), "BOOL"));
}

TEST(CheckpointFile, RefusesWhatItCannotHold) {
  const TemporaryFolder folder;
  auto error_with = [&](const std::string& name, const at::Tensor& tensor) {
    State state;
    state.tensors[name] = tensor;
    return error_of<CheckpointError>([&] { write_checkpoint(folder / "a.ckpt", state); });
  };
  EXPECT_TRUE(has(error_with("z", torch::zeros({2}, at::kComplexDouble)), "\"z\""));
  EXPECT_TRUE(has(error_with("s", torch::eye(3).to_sparse()), "\"s\""));
  EXPECT_TRUE(has(error_with("u", at::Tensor()), "undefined"));
  EXPECT_TRUE(has(error_with("__metadata__", torch::zeros({2})), "__metadata__"));
  EXPECT_TRUE(has(error_with("\xff", torch::zeros({2})), "UTF-8"));
  State state;
  state.set<std::string>("text", "\xff\xfe");
  EXPECT_TRUE(has(error_of<CheckpointError>([&] { write_checkpoint(folder / "a.ckpt", state); }), "UTF-8"));
  EXPECT_TRUE(folder.names().empty());
}

// ---- full disk ------------------------------------------------------------------------------------------------------

TEST(CheckpointFile, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_checkpoint(folder / "a.ckpt", small_state());
  const std::string before = read_file(folder / "a.ckpt");
  State large;
  large.tensors["x"] = torch::ones({100000});  // not in the child, which has none of OpenMP's threads
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);  // the write then fails with EFBIG, as it would with ENOSPC
    const rlimit limit{100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = error_of<CheckpointError>([&] { write_checkpoint(folder / "a.ckpt", large); });
    const bool is_reported =
        has(error, "a.ckpt") && has(error, "File too large") && has(error, "previous file is intact");
    ::_exit(is_reported ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "a.ckpt"), before);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.ckpt"});
}

}  // namespace
}  // namespace levin::checkpoint_file_test
