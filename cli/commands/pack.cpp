#include "levin/cli/commands/pack.h"

#include <chrono>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/core/options/error.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/process/progress_line.h"
#include "levin/data/streams/pack_images.h"

namespace levin {

namespace {

std::string pack_usage(int width) {
  return "levin pack FOLDER STORE [options]\n\n" +
         wrapped(
             "Packs a folder of images, with a sub-folder for each class, into shards that StreamData reads (MDS): "
             "smaller images and few files. STORE is a folder or s3://bucket/prefix.",
             width) +
         "\n" + own_options_table(describe_options<PackOptions>(), width);
}

std::string summary_text(const PackSummary& summary, const std::string& store, double seconds) {
  return store + ": " + count_of(summary.images, "image") + " in " + count_of(summary.shards, "shard") + ", " +
         bytes_text(summary.bytes_after) + " of " + bytes_text(summary.bytes_before) + ", in " +
         formatted("%.1f", seconds) + " s.";
}

}  // namespace

int run_pack(const std::vector<std::string>& arguments, int width) {
  Console& console = Console::instance();
  Problems problems;
  PackOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(pack_usage(width));
  if (read.rest.size() < 2) {
    problems.add({}, "levin pack", "a folder of images and a store are needed. Write levin pack FOLDER STORE.");
  }
  refuse_rest(read.rest, own_options(PackOptions::fields()), 2, "a third path. Pack one folder at a time.", problems);
  if (!problems.empty()) return report_problems(problems, "nothing was packed. See levin pack --help.");

  const auto start = std::chrono::steady_clock::now();
  PackSummary summary;
  {
    ProgressTask progress("Pack", ProgressUnit::items, "images");
    summary = pack_images(read.rest[0], read.rest[1], options,
                          [&](int64_t done, int64_t all) { progress.update(done, all); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& each : summary.skipped) console.warn("left out: " + each);
  if (!summary.skipped.empty())
    console.warn(count_of(std::ssize(summary.skipped), "image was", "images were") + " left out.");
  console.print(summary_text(summary, read.rest[1], seconds));
  return kExitOk;
}

}  // namespace levin
