#include "levin/cli/commands/plan_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "levin/cli/commands/command_words.h"
#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/plan_devices.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/planned_config.h"
#include "levin/core/console.h"
#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/core/exit_codes.h"
#include "levin/core/files.h"
#include "levin/core/tensor_text.h"
#include "levin/recompute/memory_picture.h"

namespace levin {

namespace {

constexpr const char* kConclusion = "nothing was planned. See levin plan memory --help.";
constexpr const char* kBest = "best under the budget";

std::string memory_usage(int width) {
  return "levin plan memory --config FILE… [options] [overrides…]\n\n" +
         wrapped(
             "Measures the run's module on the largest of its first batches, without training it: what each block "
             "keeps for backward, and how long it takes. Says what a step holds and takes when nothing, each block, √n "
             "segments or the best choice under a budget is computed again in backward, and how large a batch fits. "
             "docs/planning.md has the model.",
             width) +
         "\n" + options_table(describe_options<PlanMemoryOptions>(), width);
}

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

std::string step_text(double seconds) {
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), seconds >= 1 ? "%.2f s" : "%.1f ms", seconds >= 1 ? seconds : seconds * 1e3);
  return text.data();
}

// "√n segments" has two columns less than bytes.
std::string in_columns(const std::string& text, size_t width) {
  const auto shown = static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  return text + std::string(shown < width ? width - shown : 0, ' ');
}

void print_table(const MeasuredMemory& measured, MemoryBudget budget, const std::vector<MemoryLine>& lines) {
  Console& console = Console::instance();
  const ChainCost& cost = measured.cost;
  console.print(measured.model + " on " + measured.device + ", " + count_of(each_block(cost).size(), "block") +
                ": parameters " + text_of(cost.parameters) + ", gradients " + text_of(cost.gradients) +
                ", optimizer state " + text_of(cost.optimizer_state) +
                (cost.callbacks > 0 ? ", callbacks " + text_of(cost.callbacks) : "") +
                (cost.workspaces > 0 ? ", workspaces " + text_of(cost.workspaces) : "") + ", a batch of " +
                count_of(cost.batch, "sample") + " " + text_of(cost.inputs) + ". Budget " + text_of(budget.bytes) +
                (budget.is_free_memory ? ", 9/10 of what is free." : "."));
  for (const std::string& note : measured.notes) console.print(note);
  if (each_block(cost).empty()) console.print(kNoBlocks);
  console.print("plan                   segments  predicted peak       step   slower   largest batch");
  for (const MemoryLine& line : lines) {
    const double slower = 100 * (line.prediction.seconds / lines[0].prediction.seconds - 1);
    std::array<char, 160> text = {};
    std::snprintf(text.data(), text.size(), "%9zu  %14s  %9s  %5.1f %%  %14s", line.segments.size(),
                  text_of(line.prediction.peak).c_str(), step_text(line.prediction.seconds).c_str(), slower,
                  line.largest_batch > 0 ? std::to_string(line.largest_batch).c_str() : "none");
    console.print(in_columns(line.name, 22) + text.data());
  }
}

// The memory of each device without recomputation, and the additional memory of gathered outputs on the first.
void print_devices(const MeasuredMemory& measured) {
  Console& console = Console::instance();
  const auto all = predict_devices(measured.cost, measured.smaller, measured.samples, measured.devices, {});
  console.print(measured.strategy + " on " + count_of(all.size(), "device") + ", a batch of " +
                count_of(measured.samples, "sample") + ", without recomputation:");
  console.print("device  samples        weights      gradients  optimizer state  predicted peak");
  int64_t sum = 0;
  for (const DeviceMemory& one : all) {
    std::array<char, 160> text = {};
    std::snprintf(text.data(), text.size(), "%7lld %14s %14s %16s %15s", static_cast<long long>(one.samples),
                  text_of(one.weights).c_str(), text_of(one.gradients).c_str(), text_of(one.optimizer_state).c_str(),
                  text_of(one.peak).c_str());
    console.print(in_columns(one.device, 8) + text.data());
    sum += one.peak;
  }
  console.print("all of them together: " + text_of(sum));
  const auto outputs = model_outputs(measured.cost, measured.smaller, measured.samples);
  if (!outputs) return;
  console.print("The outputs of " + outputs->block + " for the whole batch are " + text_of(outputs->bytes) + ". " +
                measured.strategy +
                " computes the loss of each share where its outputs are. Gathering them on the first device, as "
                "levin::DataParallel and PyTorch's DataParallel do, would add " +
                text_of(outputs->bytes) + " there, and " + text_of(outputs->bytes + outputs->gradient_bytes) +
                " with their gradients.");
}

// The cost of a batch of --batch_size, extrapolated from the two measured ones.
MeasuredMemory at_wanted_batch(MeasuredMemory measured, std::optional<int64_t> wanted) {
  if (!wanted) return measured;
  const int64_t batch = *wanted;
  const int64_t share = largest_share(batch, measured.devices.size());
  const ChainCost seen = measured.cost;
  measured.cost = at_batch(seen, measured.smaller, share);
  if (share == measured.smaller.batch) measured.smaller = seen;
  measured.samples = batch;
  measured.notes.push_back("--batch_size: measured with " + count_of(seen.batch, "sample") +
                           (measured.devices.size() > 1 ? " a device" : "") + ", and the figures are for " +
                           std::to_string(share) + ".");
  return measured;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void write_picture(const std::string& path, const MeasuredMemory& measured, MemoryBudget budget,
                   const std::vector<MemoryLine>& lines) {
  MemoryPicture picture{measured.model + ", batch of " + std::to_string(measured.cost.batch), &measured.cost, {}, {}};
  for (auto line = lines.begin(); line != lines.end(); ++line) {  // only the first of equal plans
    const auto same =
        std::find_if(lines.begin(), line, [&](const auto& one) { return one.segments == line->segments; });
    if (same == line) picture.curves.push_back({line->name, line->prediction});
  }
  picture.budget = budget.bytes;
  write_output(path, draw_memory(picture));
  Console::instance().print("memory over the step: " + path);
}

// The run's own segments among the blocks of the chain; of nested ones the outer one.
Segments own_segments(const MeasuredMemory& measured) {
  const auto& blocks = measured.cost.blocks;
  Segments segments;
  for (const auto& names : measured.own_segments) {
    const auto named = [&](const std::string& name) {
      return static_cast<size_t>(
          std::find_if(blocks.begin(), blocks.end(), [&](const BlockCost& block) { return block.name == name; }) -
          blocks.begin());
    };
    const BlockSegment segment{named(names.front()), named(names.back())};
    const bool known = std::any_of(segments.begin(), segments.end(), [&](const BlockSegment& other) {
      return segment.first <= other.last && other.first <= segment.last;
    });
    if (segment.last < blocks.size() && segment.first <= segment.last && !known) segments.push_back(segment);
  }
  std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return segments;
}

// FILE.yaml to FILE.planned.yaml.
std::string planned_name(const std::string& path) {
  for (const char* ending : {".yaml", ".yml", ".json"}) {
    const std::string name = ending;
    if (path.size() > name.size() && path.ends_with(name)) {
      return path.substr(0, path.size() - name.size()) + ".planned.yaml";
    }
  }
  return path + ".planned.yaml";
}

void apply(const MeasuredMemory& measured, const Segments& segments) {
  const std::string path = planned_name(measured.config);
  const auto modules = module_ranges(measured.cost, segments);
  write_file_durably(path, with_recompute(read_file(measured.config), measured.config, modules));
  Console::instance().print("written: " + path + ", which is " + measured.config + " with this plan.");
}

}  // namespace

std::vector<MemoryLine> plan_memory(const MeasuredMemory& measured, MemoryBudget budget) {
  const ChainCost& cost = measured.cost;
  std::vector<MemoryLine> lines;
  auto add = [&](const std::string& name, const Segments& segments) {
    lines.push_back({name, segments, predict_memory(cost, segments),
                     largest_batch(cost, measured.smaller, segments, budget.bytes)});
  };
  add("no recomputation", {});
  add("each block", each_block(cost));
  add("√n segments", square_root_segments(cost));
  if (const auto least = best_segments(cost, least_peak(cost))) add("least memory", *least);
  if (const Segments own = own_segments(measured); !own.empty()) add("the run's recompute", own);
  if (const auto best = best_segments(cost, budget.bytes)) add(kBest, *best);
  return lines;
}

int run_plan_memory(const std::vector<std::string>& words, int width, const MeasureMemory& measure) {
  Problems problems;
  const CommandWords read = read_command_words(words, field_names<PlanMemoryOptions>(), {"apply"}, problems);
  if (read.help) {
    Console::instance().print(memory_usage(width));
    return kExitOk;
  }
  PlanMemoryOptions options;
  read_options(read.options, options, "", problems);
  if (read.run.empty()) problems.add({}, "plan memory", "there is no run to measure. Give --config FILE.");
  if (!problems.empty()) return report_problems(problems, kConclusion);
  const MeasuredMemory measured = at_wanted_batch(measure(read.run), options.batch_size);
  if (options.apply && measured.config.empty()) {
    problems.add({}, "--apply", "there is no run file to write again. Name the run with --config FILE.");
    return report_problems(problems, kConclusion);
  }
  const MemoryBudget budget = options.budget ? MemoryBudget{options.budget->bytes} : measured.free;
  const std::vector<MemoryLine> lines = plan_memory(measured, budget);
  print_table(measured, budget, lines);
  if (measured.devices.size() > 1) print_devices(measured);
  if (!options.picture.empty()) write_picture(options.picture, measured, budget, lines);
  if (lines.back().name != kBest) {
    Console::instance().error("--budget: " + cannot_meet(measured.cost, measured.smaller, budget));
    return kExitBadConfig;
  }
  const Segments& best = lines.back().segments;
  Console::instance().print(best.empty() ? "best: nothing has to be computed again."
                                         : "best: recompute " + joined(module_ranges(measured.cost, best)));
  if (options.apply) apply(measured, best);
  return kExitOk;
}

}  // namespace levin
