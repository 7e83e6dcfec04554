#include "levin/data/loading/wrapped_loader.h"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "levin/core/files/files.h"
#include "support/paths.h"

namespace levin::wrapped_loader_test {
namespace {

// Remembers its calls, and returns different values than Loader's own functions.
class Recorded final : public Loader {
 public:
  void start(int64_t epoch, int64_t first_batch) override { note("start", epoch * 10 + first_batch); }
  bool next(Batch& batch) override {
    batch.tensors.resize(3);
    return note("next"), true;
  }
  [[nodiscard]] bool may_be_read_ahead() const override { return note("may_be_read_ahead"), false; }
  [[nodiscard]] State state_dict() const override {
    State state;
    state.set("row", int64_t{5});
    return note("state_dict"), state;
  }
  void load_state_dict(const State& state) override { note("load_state_dict", state.get<int64_t>("row")); }
  void add_to_checkpoint(State& state) const override { note("add_to_checkpoint"), state.set("rows", int64_t{6}); }
  void stop() override { note("stop"); }
  [[nodiscard]] std::optional<int64_t> num_batches() const override { return note("num_batches"), 7; }
  [[nodiscard]] std::optional<int64_t> batch_size() const override { return note("batch_size"), 8; }
  bool set_batch_size(int64_t samples) override { return note("set_batch_size", samples), true; }
  void use_sequential_order() override { note("use_sequential_order"); }
  bool shard(int64_t rank, int64_t world_size, bool padded) override {
    return note("shard", rank * 100 + world_size * 10 + static_cast<int64_t>(padded)), true;
  }
  void pin_memory(bool pins) override { note("pin_memory", static_cast<int64_t>(pins)); }
  void identify_samples(bool identifies) override { note("identify_samples", static_cast<int64_t>(identifies)); }
  [[nodiscard]] ConfigNode written_options() const override { return note("written_options"), ConfigNode::map(); }
  [[nodiscard]] int64_t num_workers() const override { return note("num_workers"), 9; }

  mutable std::vector<std::string> calls = {};

 private:
  void note(const std::string& call) const { calls.push_back(call); }
  void note(const std::string& call, int64_t value) const { calls.push_back(call + " " + std::to_string(value)); }
};

TEST(WrappedLoader, ForwardsEachCallWithItsArgumentsAndItsResult) {
  const auto inner = std::make_shared<Recorded>();
  WrappedLoader wrapped(inner);
  Loader& loader = wrapped;
  Batch batch;
  State state;
  loader.start(2, 3);
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.tensors.size(), 3);
  EXPECT_FALSE(loader.may_be_read_ahead());
  loader.load_state_dict(loader.state_dict());
  loader.add_to_checkpoint(state);
  EXPECT_EQ(state.get<int64_t>("rows"), 6);
  loader.stop();
  EXPECT_EQ(loader.num_batches(), 7);
  EXPECT_EQ(loader.batch_size(), 8);
  EXPECT_TRUE(loader.set_batch_size(4));
  loader.use_sequential_order();
  EXPECT_TRUE(loader.shard(1, 2, true));
  loader.pin_memory(true);
  loader.identify_samples(true);
  EXPECT_FALSE(loader.written_options().is_null());
  EXPECT_EQ(loader.num_workers(), 9);
  const std::vector<std::string> expected{"start 23",
                                          "next",
                                          "may_be_read_ahead",
                                          "state_dict",
                                          "load_state_dict 5",
                                          "add_to_checkpoint",
                                          "stop",
                                          "num_batches",
                                          "batch_size",
                                          "set_batch_size 4",
                                          "use_sequential_order",
                                          "shard 121",
                                          "pin_memory 1",
                                          "identify_samples 1",
                                          "written_options",
                                          "num_workers"};
  EXPECT_EQ(inner->calls, expected);
}

std::set<std::string> functions(const std::string& file, const std::string& pattern) {
  const std::string text = read_file(test::source_dir() + "/data/" + file);
  std::set<std::string> names;
  const std::regex expression(pattern);
  for (std::sregex_iterator found(text.begin(), text.end(), expression), end; found != end; ++found) {
    names.insert((*found)[1]);
  }
  return names;
}

// A function that Loader gains is forwarded too.
TEST(WrappedLoader, OverridesEachFunctionOfLoader) {
  const std::string overrides = R"((\w+)\([^()]*\) (?:const )?override)";
  auto wanted = functions("loader.h", R"(virtual [^~(]*?(\w+)\()");
  wanted.merge(functions("loader.h", overrides));
  EXPECT_GE(wanted.size(), 16);
  EXPECT_EQ(functions("loading/wrapped_loader.h", overrides), wanted);
}

}  // namespace
}  // namespace levin::wrapped_loader_test
