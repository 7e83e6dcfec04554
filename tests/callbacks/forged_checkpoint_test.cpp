// The list of files in a checkpoint cannot be trusted: a run that resumes from a forged one writes and removes only in
// its own checkpoint folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "callbacks/quiet_trainer.h"
#include "levin/callbacks/checkpoint_folder.h"
#include "levin/callbacks/model_checkpoint.h"
#include "levin/checkpoint/checkpoint_file.h"
#include "levin/core/files/files.h"
#include "support/captured_console.h"
#include "support/temporary_folder.h"
#include "support/tiny_module.h"

namespace levin::forged_checkpoint_test {
namespace {

using namespace test;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// What a forged checkpoint claims of files, whose keys a real one has too.
struct Claims {
  std::vector<std::string> best = {};
  std::string best_path = "", last_path = "";
  std::vector<std::string> written = {}, removed = {};
  std::string dirpath = "";  // "": the run's own
};

// ck: the checkpoint folder, with a link to `outside`; outside: must not be touched; ck-outside: its name begins with
// ck.
class Folders {
 public:
  Folders() {
    ModelCheckpointOptions options{.dirpath = folder_ / "template", .monitor = "v", .save_last = true, .save_top_k = 2};
    TinyModule module;
    module.table = {0.9};
    Trainer(quiet(1, ModelCheckpoint(options))).fit(module, tiny_loader(8), tiny_loader(4));
    genuine_ = read_checkpoint(folder_ / "template/last.ckpt");
    fs::remove_all(folder_ / "template");
    for (const char* outside : {"outside", "ck-outside"}) {
      fs::create_directories(folder_ / outside + "/deep.ckpt");
      write_file_durably(folder_ / outside + "/victim.ckpt", std::string("theirs"));
      write_file_durably(folder_ / outside + "/deep.ckpt/shard-0", std::string("theirs"));
      write_file_durably(folder_ / outside + "/deep.ckpt/commit.safetensors", std::string("theirs"));
    }
    before_ = outside();
    reset();
  }

  void reset() const {
    fs::remove_all(ck());
    fs::create_directories(ck() + "/sub");
    fs::create_directory_symlink("../outside", ck() + "/out");
    fs::create_directory_symlink("loop", ck() + "/loop");
    fs::create_symlink("../outside/victim.ckpt", ck() + "/link.ckpt");
  }

  [[nodiscard]] std::string ck() const { return folder_ / "ck"; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return folder_ / name; }

  // A good checkpoint of step 2 that makes these claims.
  void forge(const std::string& path, const Claims& claims) const {
    State forged = genuine_;
    const std::string key = "callbacks." + ModelCheckpoint(options()).state_key();
    State state = forged.part(key);
    const State saved = genuine_.part("callbacks." + ModelCheckpoint(options()).state_key());
    state.set("dirpath", claims.dirpath.empty() ? ck() : claims.dirpath);
    state.set("best_model_path", claims.best_path);
    state.set("last_model_path", claims.last_path);
    ConfigNode best = ConfigNode::map();
    for (const auto& claimed : claims.best) best.set(claimed, ValueType<double>::write(5.0));
    state.values.set("best_k_models", best);
    state.set("point_written", claims.written);
    state.set("point_removed", claims.removed);
    state.set<int64_t>("last_step_saved", 3);  // so that what is there counts as older
    forged.put(key, state);
    write_checkpoint(path, forged);
  }

  // Continues for two epochs, saving after each, better than all before.
  void resume(const std::string& path, bool auto_resume = false) const {
    TinyModule module;
    module.table = {0.9, 0.5, 0.4};
    TrainerOptions trainer = quiet(3, ModelCheckpoint(options()), folder_ / "root");
    trainer.auto_resume = auto_resume;
    Trainer(trainer).fit(module, tiny_loader(8), tiny_loader(4), auto_resume ? "" : path);
  }

  void expect_nothing_outside_touched() const { EXPECT_EQ(outside(), before_); }

 private:
  [[nodiscard]] ModelCheckpointOptions options() const {
    return {.dirpath = ck(), .monitor = "v", .save_last = true, .save_top_k = 2};
  }

  // Names, contents and times.
  [[nodiscard]] std::map<std::string, std::string> outside() const {
    std::map<std::string, std::string> found;
    for (const char* outside : {"outside", "ck-outside"}) {
      for (const auto& entry : fs::recursive_directory_iterator(folder_ / outside)) {
        const std::string time = std::to_string(entry.last_write_time().time_since_epoch().count());
        const std::string content = entry.is_regular_file() ? read_file(entry.path().string()) : "folder";
        found[entry.path().string()] = time + " " + std::to_string(content.size()) + " bytes: " + content.substr(0, 8);
      }
    }
    return found;
  }

  TemporaryFolder folder_;
  State genuine_;
  std::map<std::string, std::string> before_;
};

// Ways out of ck.
Names ways_out(const Folders& folders) {
  Names all;
  for (const std::string victim : {"outside/victim.ckpt", "outside/deep.ckpt", "outside/new.ckpt"}) {
    all.push_back(folders / victim);
    all.push_back(folders.ck() + "/../" + victim);
    all.push_back(folders.ck() + "/sub/../../" + victim);
    all.push_back(folders.ck() + "/none/../../" + victim);
    all.push_back(folders.ck() + "/./..//" + victim);
    all.push_back(folders.ck() + "/out/.." + victim.substr(victim.find('/')));
    all.push_back(folders.ck() + "/out" + victim.substr(victim.find('/')));
    all.push_back(folders.ck() + "-" + victim);
    all.push_back("../" + victim);
  }
  return all;
}

TEST(ForgedCheckpoint, RemovesNothingOutsideTheFolder) {
  const Folders folders;
  for (const bool auto_resume : {false, true}) {
    for (const std::string& way : ways_out(folders)) {
      SCOPED_TRACE(way);
      folders.reset();
      folders.forge(folders.ck() + "/last.ckpt",
                    {.best = {way, way + "/."}, .best_path = way, .last_path = way, .removed = {way}});
      folders.resume(folders.ck() + "/last.ckpt", auto_resume);
      folders.expect_nothing_outside_touched();
    }
  }
}

TEST(ForgedCheckpoint, OverwritesNothingOutsideTheFolder) {
  const Folders folders;
  for (const bool auto_resume : {false, true}) {
    for (const std::string& way : ways_out(folders)) {
      SCOPED_TRACE(way);
      folders.reset();
      folders.forge(folders.ck() + "/last.ckpt", {.written = {way}});
      folders.resume(folders.ck() + "/last.ckpt", auto_resume);
      folders.expect_nothing_outside_touched();
    }
  }
}

TEST(ForgedCheckpoint, ReportsWhichFilesItDoesNotTakeOver) {
  const Folders folders;
  folders.forge(folders.ck() + "/last.ckpt", {.last_path = folders.ck() + "/../outside/victim.ckpt"});
  const CapturedConsole console;
  folders.resume(folders.ck() + "/last.ckpt");
  EXPECT_TRUE(console.has("ModelCheckpoint: " + folders.ck() + "/last.ckpt names a file that is not in " +
                          folders.ck() + ": " + folders.ck() + "/../outside/victim.ckpt. It is left alone."))
      << console.text();
}

// A link inside the folder is a file of the folder, and what it leads to is not.
TEST(ForgedCheckpoint, RemovesALinkAndNotWhatItLeadsTo) {
  const Folders folders;
  folders.forge(folders.ck() + "/last.ckpt", {.removed = {folders.ck() + "/link.ckpt"}});
  folders.resume(folders.ck() + "/last.ckpt");
  EXPECT_FALSE(fs::exists(fs::symlink_status(folders.ck() + "/link.ckpt")));
  folders.expect_nothing_outside_touched();
}

TEST(ForgedCheckpoint, FromElsewhereClaimsNoFilesOfTheFolder) {
  const Folders folders;
  for (const std::string& dirpath : {std::string(), folders / "outside"}) {
    folders.reset();
    const std::string mine = folders.ck() + "/mine.ckpt";
    const std::string named = folders.ck() + "/epoch=1-step=4.ckpt";
    for (const auto& path : {mine, named}) write_file_durably(path, std::string("mine"));
    folders.forge(folders / "given.ckpt", {.best = {mine, folders.ck() + "/sub/../mine.ckpt"},
                                           .best_path = named,
                                           .last_path = mine,
                                           .written = {mine},
                                           .removed = {mine, named},
                                           .dirpath = dirpath});
    const CapturedConsole console;
    folders.resume(folders / "given.ckpt");
    EXPECT_EQ(read_file(mine), "mine");
    EXPECT_EQ(read_file(named), "mine");
    EXPECT_TRUE(fs::exists(folders / "given.ckpt"));
    EXPECT_TRUE(console.has(dirpath.empty() ? "is not in that folder" : "continues in")) << console.text();
  }
}

// A name with a metric's "/" in it lies below the folder; where a link stands for that part, it leads elsewhere.
TEST(ForgedCheckpoint, ASaveDoesNotFollowALinkOutOfTheFolder) {
  const Folders folders;
  TinyModule module;
  module.table = {0.9};
  const CapturedConsole console;
  Trainer trainer(quiet(1, ModelCheckpoint({.dirpath = folders.ck(), .filename = "out/{step}"})));
  EXPECT_THROW(trainer.fit(module, tiny_loader(8), tiny_loader(4)), CheckpointError);
  folders.expect_nothing_outside_touched();
  EXPECT_TRUE(console.has("leads out of " + folders.ck())) << console.text();
}

std::string forged_path(const Folders& folders, std::minstd_rand& random) {
  static const Names parts{"..",
                           "../..",
                           ".",
                           "",
                           "out",
                           "sub",
                           "loop",
                           "none",
                           "outside",
                           "ck-outside",
                           "ck",
                           "/",
                           "victim.ckpt",
                           "deep.ckpt",
                           "a.ckpt",
                           "\n",
                           "last.ckpt",
                           "shard-0",
                           "link.ckpt",
                           std::string("\0", 1),
                           "epoch=0-step=2.ckpt",
                           std::string(300, 'x'),
                           "\xff"};
  std::string path = random() % 4 != 0 ? folders.ck() : random() % 2 == 0 ? folders / "" : "";
  for (size_t count = random() % 6; count > 0; --count) path += "/" + parts[random() % parts.size()];
  if (random() % 2 == 0) path += random() % 2 == 0 ? "/victim.ckpt" : "/../outside/victim.ckpt";
  return path;
}

TEST(ForgedCheckpoint, TouchesNothingOutsideTheFolderForAnyClaim) {
  const Folders folders;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::minstd_rand random(seed);
    const auto some = [&] {
      Names paths(random() % 4);
      for (auto& path : paths) path = forged_path(folders, random);
      return paths;
    };
    Claims claims{some(), forged_path(folders, random), forged_path(folders, random), some(), some()};
    if (random() % 8 == 0) claims.dirpath = forged_path(folders, random);
    folders.reset();
    const std::string path = random() % 4 == 0 ? folders / "given.ckpt" : folders.ck() + "/last.ckpt";
    try {
      folders.forge(path, claims);
    } catch (const CheckpointError&) {
      continue;  // not UTF-8: no file can hold it
    }
    const CapturedConsole console;
    try {
      folders.resume(path, path != folders / "given.ckpt" && random() % 2 == 0);
    } catch (const Error& error) {
      EXPECT_TRUE(has(error.what(), path)) << error.what();
    }
    folders.expect_nothing_outside_touched();
    if (HasFailure()) return;
  }
}

TEST(CheckpointFolder, TakesAClaimedPathAsANameBelowItOrNotAtAll) {
  const std::string ck = "/runs/ck";
  EXPECT_EQ(name_within("/runs/ck/last.ckpt", ck), "last.ckpt");
  EXPECT_EQ(name_within("/runs/ck/val/acc=0.9.ckpt", ck), "val/acc=0.9.ckpt");
  EXPECT_EQ(name_within("/runs/ck/..a.ckpt", ck), "..a.ckpt");
  for (const std::string refused :
       {"", "/runs/ck", "/runs/ck/", "/runs/ck/.ckpt", "/runs/ck/a.txt", "/runs/ck/../a.ckpt", "/runs/ck/a/../b.ckpt",
        "/runs/ck/./a.ckpt", "/runs/ck//a.ckpt", "/runs/ck-b/a.ckpt", "/runs/a.ckpt", "a.ckpt", "../ck/a.ckpt",
        "/runs/ck/a\n.ckpt", "/runs/ck/a/.ckpt"}) {
    EXPECT_EQ(name_within(refused, ck), "") << refused;
  }
  EXPECT_EQ(name_within(std::string("/runs/ck/a\0.ckpt", 16), ck), "");
}

TEST(CheckpointFolder, KnowsWhereLinksLead) {
  const Folders folders;
  const std::string ck = folders.ck();
  for (const std::string inside : {"/a.ckpt", "/sub/a.ckpt", "/none/a.ckpt", "/link.ckpt", "/sub/../a.ckpt", "/out"}) {
    EXPECT_TRUE(is_inside(ck + inside, ck)) << inside;
  }
  for (const std::string outside : {"", "/", "/.", "/..", "/out/a.ckpt", "/../a.ckpt", "/loop/a.ckpt", "-outside/a",
                                    "/out/../a.ckpt", "/none/../../a.ckpt"}) {
    EXPECT_FALSE(is_inside(ck + outside, ck)) << outside;
  }
  fs::create_directory_symlink(ck, folders / "alias");  // the folder itself may be reached by a link
  EXPECT_TRUE(is_inside(folders / "alias/a.ckpt", ck));
  EXPECT_TRUE(is_inside(ck + "/a.ckpt", folders / "alias"));
}

}  // namespace
}  // namespace levin::forged_checkpoint_test
