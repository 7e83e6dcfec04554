// Files of tools/compile_step.py that are damaged, forged, or made for a different machine: each error, without running
// code.
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "levin/core/options/error.h"
#include "levin/libtorch/version.h"
#include "levin/models/compiled/step_file.h"
#include "levin/models/compiled_module.h"

namespace levin::compiled_file_test {

using Json = nlohmann::json;

Json description() {
  const Json graph = {{"dynamic_batch", false},
                      {"inputs", Json::array({"tensor:w", "batch:0"})},
                      {"outputs", Json::array({"loss", "gradient:w"})}};
  const Json parameter = {{"name", "w"}, {"shape", Json::array({2})}, {"dtype", "float32"}, {"requires_grad", true}};
  const Json input = {{"shape", Json::array({4, 2})}, {"dtype", "float32"}};
  Json json = Json::object();
  json["format"] = "levin-compiled-1";
  json["torch"] = torch_version();
  json["device"] = "cpu";
  json["machine"] = "x86_64";
  json["cpu_flags"] = Json::array({"sse"});
  json["parameters"] = Json::array({parameter});
  json["buffers"] = json["constants"] = Json::array();
  json["batch"] = Json::array({input});
  json["graphs"]["training"] = json["graphs"]["evaluation"] = graph;
  return json;
}

// A safetensors file with one tensor.
std::string weights(const std::string& name, const std::string& shape, size_t numbers) {
  std::string header = "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[0," +
                       std::to_string(numbers * 4) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  return length + header + std::string(numbers * 4, '\0');
}

class CompiledFile : public ::testing::Test {
 protected:
  CompiledFile() : folder_(std::filesystem::temp_directory_path() / ("levin_compiled_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~CompiledFile() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return (folder_ / "net.pt2").string(); }

  void write(const std::vector<std::pair<std::string, std::string>>& records) const {
    caffe2::serialize::PyTorchStreamWriter archive(path());
    for (const auto& [name, content] : records) archive.writeRecord(name, content.data(), content.size());
    archive.writeEndOfFile();
  }
  void write_description(const Json& json) const {
    write({{"extra/levin.json", json.dump()}, {"extra/weights.safetensors", weights("w", "[2]", 2)}});
  }

  template <class Action>
  std::string error_of(const Action& action) const {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  [[nodiscard]] std::string error() const {
    return error_of([&] { CompiledModule({.path = path(), .trust = true}); });
  }
  void expect(const std::string& message, const std::vector<std::string>& parts) const {
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << "\n  in: " << message;
  }

  std::filesystem::path folder_;
};

TEST_F(CompiledFile, without_a_path_is_an_error_that_names_the_option) {
  expect(error_of([] { CompiledModule({}); }), {"CompiledModuleOptions.path: must be set"});
}

TEST_F(CompiledFile, that_is_missing_or_no_archive_is_named) {
  expect(error(), {path(), "is not a file", "tools/compile_step.py"});
  std::ofstream(path()) << "not a zip archive";
  expect(error(), {path(), "is damaged, or not an archive"});
}

TEST_F(CompiledFile, without_a_compiled_step_says_what_to_do) {
  write({{"other", "1"}});
  expect(error(), {path(), "holds no compiled step", "a model exported without a loss"});
}

TEST_F(CompiledFile, whose_description_is_damaged_says_what_is_wrong) {
  write({{"extra/levin.json", "{"}});
  expect(error(), {"its description cannot be used: not JSON at byte"});
  Json json = description();
  json.erase("graphs");
  write_description(json);
  expect(error(), {"its description is not complete", "graphs"});
  json = description();
  json["format"] = "levin-compiled-9";
  write_description(json);
  expect(error(), {"its format is \"levin-compiled-9\", and this Levin reads levin-compiled-1"});
  json = description();
  json["parameters"][0]["dtype"] = "complex64";
  write_description(json);
  expect(error(), {"it names the type \"complex64\""});
}

TEST_F(CompiledFile, whose_graphs_name_what_is_not_described_is_refused) {
  Json json = description();
  json["graphs"]["training"]["inputs"][0] = "tensor:v";
  write_description(json);
  expect(error(), {"it describes no tensor \"v\""});
  json = description();
  json["graphs"]["training"]["inputs"][1] = "batch:7";
  write_description(json);
  expect(error(), {"it does not describe batch:7"});
  json = description();
  json["graphs"]["evaluation"]["outputs"] = Json::array({"prediction"});
  write_description(json);
  expect(error(), {"a graph has no loss"});
  json["graphs"]["evaluation"]["outputs"] = Json::array({"loss", "riddle"});
  write_description(json);
  expect(error(), {"it has an unknown \"riddle\""});
}

TEST_F(CompiledFile, for_another_LibTorch_device_or_processor_names_both) {
  Json json = description();
  json["torch"] = "2.5.1";
  write_description(json);
  expect(error(),
         {"was compiled by PyTorch 2.5.1, and this Levin runs LibTorch " + torch_version(), "Compile it again"});
  json = description();
  json["device"] = "cuda";
  write_description(json);
  expect(error(), {"was compiled for cuda, and Levin runs compiled steps on CPUs"});
  json = description();
  json["machine"] = "aarch64";
  write_description(json);
  expect(error(), {"was compiled for aarch64 processors, and this machine has x86_64"});
  json = description();
  json["cpu_flags"] = Json::array({"sse", "avx1024", "tea"});
  write_description(json);
  expect(error(), {"for a processor with avx1024, tea, which this one lacks"});
}

TEST_F(CompiledFile, is_read_but_not_run_unless_it_is_trusted) {
  write_description(description());
  expect(error_of([&] { CompiledModule({.path = path()}); }),
         {"CompiledModule: " + path(), "holds native code", "set trust: true"});
}

TEST_F(CompiledFile, whose_weights_do_not_match_its_description_names_the_tensor) {
  write({{"extra/levin.json", description().dump()}, {"extra/weights.safetensors", weights("v", "[2]", 2)}});
  expect(error(), {"its weights lack \"w\""});
  write({{"extra/levin.json", description().dump()}, {"extra/weights.safetensors", weights("w", "[3]", 3)}});
  expect(error(), {"\"w\" has shape (3) in its weights and (2) in its description"});
  write({{"extra/levin.json", description().dump()}, {"extra/weights.safetensors", "short"}});
  expect(error(), {"its weights cannot be read"});
  write({{"extra/levin.json", description().dump()}});
  expect(error(), {"extra/weights.safetensors cannot be read, because the file is damaged"});
}

TEST_F(CompiledFile, whose_code_is_no_library_gives_the_loaders_words) {
  write({{"extra/levin.json", description().dump()},
         {"extra/weights.safetensors", weights("w", "[2]", 2)},
         {"data/aotinductor/training/model.so", "no library"}});
  expect(error(), {"the system's loader cannot load the code of its training graph", "Compile the step again"});
}

}  // namespace levin::compiled_file_test
