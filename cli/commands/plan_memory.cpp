#include "levin/cli/commands/plan_memory.h"

#include <algorithm>
#include <set>

#include "levin/cli/commands/help_text.h"
#include "levin/cli/commands/plan_devices.h"
#include "levin/cli/commands/report.h"
#include "levin/cli/config/arguments.h"
#include "levin/cli/config/resolve_run.h"
#include "levin/cli/config/run_parts.h"
#include "levin/cli/config/text_layout.h"
#include "levin/core/files/files.h"
#include "levin/core/options/error.h"
#include "levin/core/options/units.h"
#include "levin/core/process/console.h"
#include "levin/core/process/main_guard.h"
#include "levin/core/tensors.h"
#include "levin/recompute/memory_picture.h"
#include "levin/recompute/segment_names.h"
#include "levin/strategies/strategy.h"
#include "levin/trainer/averages_weights.h"
#include "levin/trainer/lightning_module.h"
#include "levin/trainer/loops/entry.h"
#include "levin/trainer/plan/rank_plan.h"
#include "levin/trainer/plan/resolve_plan.h"
#include "levin/trainer/trainer.h"
#include "levin/yaml/yaml_file.h"

namespace levin {

namespace {

constexpr size_t kInOneLine = 6;

size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool says_something(const std::string& line) {
  const size_t start = line.find_first_not_of(" \t\r");
  return start != std::string::npos && line[start] != '#';
}

std::string flow_list(const std::vector<std::string>& modules) {
  std::string text;
  for (const std::string& name : modules) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return "[" + text + "]";
}

std::vector<std::string> recompute_lines(const std::vector<std::string>& modules, size_t indent) {
  const std::string space(indent, ' ');
  if (modules.empty()) return {};
  if (modules.size() <= kInOneLine) return {space + "recompute: {modules: " + flow_list(modules) + "}"};
  std::vector<std::string> lines = {space + "recompute:", space + "  modules:"};
  for (const std::string& name : modules) lines.push_back(space + "    - \"" + name + "\"");
  return lines;
}

// The lines below `trainer:`, whose children have the same indentation.
void edit_block(std::vector<std::string>& lines, size_t trainer, const std::vector<std::string>& modules) {
  size_t end = trainer + 1;
  size_t indent = 0;
  for (; end < lines.size() && (!says_something(lines[end]) || indent_of(lines[end]) > 0); ++end) {
    if (indent == 0 && says_something(lines[end])) indent = indent_of(lines[end]);
  }
  if (indent == 0) indent = 2;
  size_t place = trainer + 1;
  for (size_t k = trainer + 1; k < end; ++k) {
    if (indent_of(lines[k]) != indent || lines[k].compare(indent, 10, "recompute:") != 0) continue;
    size_t last = k + 1;  // what belongs to the key; a comment below it does not
    for (size_t next = last; next < end; ++next) {
      if (says_something(lines[next]) && indent_of(lines[next]) <= indent) break;
      if (says_something(lines[next])) last = next + 1;
    }
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(k), lines.begin() + static_cast<std::ptrdiff_t>(last));
    place = k;
    break;
  }
  const auto added = recompute_lines(modules, indent);
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(place), added.begin(), added.end());
}

// trainer: {max_epochs: 3}
void edit_flow(std::string& line, const std::vector<std::string>& modules) {
  if (modules.empty()) return;
  const size_t brace = line.find('{');
  const size_t next = line.find_first_not_of(' ', brace + 1);
  const bool alone = next != std::string::npos && line[next] == '}';
  line.insert(brace + 1, "recompute: {modules: " + flow_list(modules) + "}" + (alone ? "" : ", "));
}

std::vector<std::string> modules_in(const std::string& text, const std::string& path, Problems& problems) {
  const ConfigNode config = read_yaml_text(text, path, problems);
  const ConfigNode* trainer = config.find("trainer");
  const ConfigNode* recompute = trainer == nullptr ? nullptr : trainer->find("recompute");
  const ConfigNode* modules = recompute == nullptr ? nullptr : recompute->find("modules");
  std::vector<std::string> names;
  if (modules == nullptr) return names;
  for (const ConfigNode& item : modules->items) names.push_back(item.text);
  return names;
}

constexpr const char* kNothingPlanned = "nothing was planned. See levin plan memory --help.";
constexpr const char* kBest = "best under the budget";

std::string memory_usage(int width) {
  return "levin plan memory --config FILE… [options] [overrides…]\n\n" +
         wrapped(
             "Measures the run's module on the largest of its first batches, without training it: what each block "
             "keeps for backward, and how long it takes. Says what a step holds and takes when nothing, each block, √n "
             "segments or the best choice under a budget is computed again in backward, and how large a batch fits. "
             "docs/planning.md has the model.",
             width) +
         "\n" + own_options_table(describe_options<PlanMemoryOptions>(), width);
}

std::string text_of(int64_t bytes) {
  return bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
}

std::string step_text(double seconds) {
  return seconds >= 1 ? formatted("%.2f s", seconds) : formatted("%.1f ms", seconds * 1e3);
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
    console.print(padded_to(line.name, 22) +
                  formatted("%9zu  %14s  %9s  %5.1f %%  %14s", line.segments.size(),
                            text_of(line.prediction.peak).c_str(), step_text(line.prediction.seconds).c_str(), slower,
                            line.largest_batch > 0 ? std::to_string(line.largest_batch).c_str() : "none"));
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
    console.print(padded_to(one.device, 8) + formatted("%7ld %14s %14s %16s %15s", one.samples,
                                                       text_of(one.weights).c_str(), text_of(one.gradients).c_str(),
                                                       text_of(one.optimizer_state).c_str(),
                                                       text_of(one.peak).c_str()));
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

// Whether the run has several ranks, each of which does the same as the one device measured here. Throws ConfigError
// for strategies that the planner does not know.
bool has_ranks(TrainerOptions given) {
  const auto* devices = std::get_if<int64_t>(&given.devices);
  const auto* list = std::get_if<std::vector<int64_t>>(&given.devices);
  const bool several =
      (devices != nullptr && *devices != 1) || (list != nullptr && list->size() > 1) || given.num_nodes > 1;
  if (given.strategy.empty() || given.strategy.is_name("auto")) return several;
  const auto strategy = given.strategy.object("TrainerOptions.strategy");
  if (!strategy->placement().replica_slots().empty()) return false;  // dp: see replica_devices
  if (const std::string why = why_not_planned(*strategy); !why.empty()) {
    throw ConfigError("trainer.strategy: " + why +
                      ", and the planner knows steps on one device only. Use --trainer.strategy=ddp or single_device "
                      "to see what one device would hold.");
  }
  return several && strategy->ranks().is_distributed();
}

// The devices of this process that compute each batch together, by strategies dp and dp_balanced; else none.
std::vector<std::string> replica_devices(const TrainerOptions& given) {
  if (given.strategy.empty() || given.strategy.is_name("auto")) return {};
  Component<Strategy> choice = given.strategy;
  if (choice.object("TrainerOptions.strategy")->placement().replica_slots().empty()) return {};
  TrainerOptions plain = given;
  plain.recompute = {};  // its budget is refused with several devices
  std::vector<std::string> devices;
  for (const DeviceSlot& slot : resolve_plan(plain).slots) devices.push_back(slot.text());
  return devices;
}

// Options for one device that keep everything that affects the memory of a step.
TrainerOptions one_step(const TrainerOptions& given) {
  TrainerOptions options;
  options.accelerator = given.accelerator;
  options.precision = given.precision;
  options.gradient_clip_val = given.gradient_clip_val;
  options.gradient_clip_algorithm = given.gradient_clip_algorithm;
  // The number of accumulated batches matters only in that gradients persist between them.
  const auto* batches = std::get_if<int64_t>(&given.accumulate_grad_batches);
  options.accumulate_grad_batches = batches != nullptr ? *batches : int64_t{2};
  options.micro_batch_size = given.micro_batch_size;
  options.channels_last = given.channels_last;
  options.float32_matmul_precision = given.float32_matmul_precision;
  options.devices = 1;
  options.limit_val_batches = int64_t{0};
  options.barebones = true;
  return options;
}

// Adds the segments that the run recomputes, block by block, or a note where the planner cannot tell what that saves.
void add_own_segments(const RecomputeChoice& recompute, const LightningModule& module, MeasuredMemory& result) {
  if (!recompute.options || recompute.is_planned()) return;
  if (recompute.options->keep != Keep::nothing || recompute.options->offload) {
    result.notes.push_back(
        "The run's recompute keeps more than inputs, or keeps them elsewhere (keep, offload), which is not planned: "
        "the table has no line for it.");
    return;
  }
  std::set<std::string> blocks;
  for (const BlockCost& block : result.cost.blocks) blocks.insert(block.name);
  for (const NamedSegment& segment : named_segments(module, *recompute.options)) {
    std::vector<std::string> names;
    for (const torch::nn::Module* part : segment.modules) {
      for (const auto& item : module.named_modules()) {
        if (item.value().get() == part) names.push_back(item.key());
      }
    }
    const bool known = !names.empty() && blocks.contains(names.front()) && blocks.contains(names.back());
    if (known) {
      result.own_segments.push_back(names);
    } else {
      result.notes.push_back("The run's recompute names " + segment.name +
                             ", which is not among the blocks that were measured: its line is without it.");
    }
  }
}

std::string last_file(const std::vector<ConfigSource>& sources) {
  std::string path;
  for (const ConfigSource& source : sources) {
    if (const auto* file = std::get_if<ConfigFile>(&source)) path = file->path;
  }
  return path;
}

}  // namespace

int64_t largest_share(int64_t batch, size_t devices) {
  const auto count = static_cast<int64_t>(std::max<size_t>(1, devices));
  return std::max<int64_t>(1, (batch + count - 1) / count);
}

std::vector<DeviceMemory> predict_devices(const ChainCost& one, const ChainCost& other, int64_t batch,
                                          const std::vector<std::string>& devices, const Segments& segments) {
  const auto count = static_cast<int64_t>(devices.size());
  std::vector<DeviceMemory> result;
  for (int64_t k = 0; k < std::min(count, std::max<int64_t>(1, batch)); ++k) {
    const int64_t samples = batch / count + (k < batch % count ? 1 : 0);
    ChainCost cost = at_batch(one, other, samples);
    DeviceMemory device{devices[static_cast<size_t>(k)], samples, cost.parameters, cost.gradients, 0, 0};
    if (k == 0) {
      device.optimizer_state = cost.optimizer_state;
    } else {
      // A replica's gradients are taken from it in backward, and go into the sum on the first device.
      cost.inputs = cost.inputs * samples / std::max<int64_t>(1, batch);
      cost.gradients = cost.optimizer_state = cost.optimizer_peak = cost.callbacks = 0;
      cost.gradients_stay = false;
    }
    device.peak = predict_memory(cost, segments).peak;
    result.push_back(device);
  }
  return result;
}

std::optional<ModelOutputs> model_outputs(const ChainCost& one, const ChainCost& other, int64_t batch) {
  const ChainCost cost = at_batch(one, other, batch);
  for (size_t k = cost.blocks.size(); k-- > 0;) {
    const BlockCost& block = cost.blocks[k];
    if (block.chain == kFixedBlock && block.name.starts_with("what ")) continue;  // the loss, not a submodule
    return ModelOutputs{block.name, block.output, block.output_gradient};
  }
  return std::nullopt;
}

std::string with_recompute(const std::string& text, const std::string& path, const std::vector<std::string>& modules) {
  std::vector<std::string> lines = split(text, '\n');
  const auto trainer =
      std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("trainer:"); });
  if (trainer == lines.end()) {
    if (!modules.empty()) lines.emplace_back("trainer:");
    for (const std::string& line : recompute_lines(modules, 2)) lines.push_back(line);
  } else {
    const size_t value = trainer->find_first_not_of(' ', 8);
    const bool flow = value != std::string::npos && (*trainer)[value] == '{';
    flow ? edit_flow(*trainer, modules) : edit_block(lines, static_cast<size_t>(trainer - lines.begin()), modules);
  }
  std::string planned;
  for (const std::string& line : lines) planned += line + "\n";
  Problems problems;
  if (modules_in(planned, path, problems) == modules && problems.empty()) return planned;
  throw ConfigError(path + ": the plan cannot be written into it without changing the rest, as \"trainer\" is not " +
                    "written as lines below it. Write trainer.recompute there: {modules: " + flow_list(modules) + "}.");
}

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

int run_plan_memory(const std::vector<std::string>& arguments, int width, const MeasureMemory& measure) {
  Problems problems;
  PlanMemoryOptions options;
  const SplitArguments read = read_own_options(arguments, options, problems);
  if (read.help) return print_usage(memory_usage(width));
  if (read.rest.empty()) problems.add({}, "plan memory", "no run to measure. Give --config FILE.");
  if (!problems.empty()) return report_problems(problems, kNothingPlanned);
  const MeasuredMemory measured = at_wanted_batch(measure(read.rest), options.batch_size);
  if (options.apply && measured.config.empty()) {
    problems.add({}, "--apply", "no run file to copy. Name the run with --config FILE.");
    return report_problems(problems, kNothingPlanned);
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
                                         : "best: recompute " + join(module_ranges(measured.cost, best)));
  if (options.apply) apply(measured, best);
  return kExitOk;
}

MeasuredMemory measure_memory(const std::vector<std::string>& run_arguments) {
  Problems problems;
  const FitArguments read = resolve_fit_arguments(run_arguments, RunPlace::elsewhere, problems);
  problems.throw_if_any();
  const RunParts parts = make_parts(read.run.config);
  MeasuredMemory result;
  result.model = read.run.config.model->class_path;
  result.config = last_file(read.sources);
  const bool ranks = has_ranks(read.run.trainer);
  result.devices = replica_devices(read.run.trainer);
  const auto replicas = std::max<int64_t>(1, static_cast<int64_t>(result.devices.size()));
  if (replicas > 1) {
    Component<Strategy> strategy = read.run.trainer.strategy;
    result.strategy = strategy.object("trainer.strategy")->name();
  }
  Trainer trainer(one_step(read.run.trainer));
  const auto measured = measure_fit(trainer, *parts.model, parts.data.get(), replicas);
  if (!measured) throw ConfigError("plan memory: the run has no training batch to measure. Give it data.");
  const MeasuredChain& chain = measured->chain;
  result.cost = chain.cost;
  result.smaller = chain.smaller;
  result.free = measured->free_memory;
  result.samples = chain.samples;
  result.device = trainer.device().str();
  if (chain.batches_seen > 1) {
    result.notes.push_back("Measured on the largest of the first " + std::to_string(chain.batches_seen) + " batches.");
  }
  if (replicas > 1) {
    result.notes.push_back("The table is about the first device, which computes " + std::to_string(chain.cost.batch) +
                           " of a batch's " + std::to_string(chain.samples) + " samples.");
  } else if (chain.samples > chain.cost.batch) {
    result.notes.push_back("micro_batch_size: a batch of " + std::to_string(chain.samples) +
                           " samples goes through the model in parts, and the table is about one of them.");
  }
  for (Component<Callback> callback : read.run.trainer.callbacks) {
    result.cost.callbacks += held_bytes(*callback.object("trainer.callbacks"), *parts.model);
  }
  result.smaller.callbacks = result.cost.callbacks;
  if (ranks) result.cost.gradients_stay = result.smaller.gradients_stay = true;  // in the ranks' buckets
  add_own_segments(read.run.trainer.recompute, *parts.model, result);
  return result;
}

}  // namespace levin
