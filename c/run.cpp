// The functions of levin.h for runs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/c/call.h"
#include "levin/c/guest_run.h"
#include "levin/c/levin.h"
#include "levin/c/tensor.h"
#include "levin/core/options/error.h"
#include "levin/data/batch.h"

namespace levin::c {

namespace {

constexpr int32_t kMaxCount = 4096;  // tensors of a batch, and arguments

void check_count(int32_t count) {
  if (count >= 0 && count <= kMaxCount) return;
  throw InvalidArgument("count is " + std::to_string(count) + ". Pass 0 to " + std::to_string(kMaxCount) + ".");
}

std::vector<std::string> texts_of(const char* const* texts, int32_t count, const std::string& argument) {
  check_count(count);
  std::vector<std::string> all;
  for (int32_t k = 0; k < count; ++k) {
    const std::string name = argument + "[" + std::to_string(k) + "]";
    all.push_back(text_of((&given(texts, argument.c_str()))[k], name.c_str()));
  }
  return all;
}

Batch batch_of(levin_tensor* const* tensors, const char* const* names, int32_t count) {
  check_count(count);
  if (count == 0) throw InvalidArgument("count is 0. Pass the tensors of a batch.");
  std::vector<at::Tensor> list;
  for (int32_t k = 0; k < count; ++k) list.push_back(tensor_of((&given(tensors, "tensors"))[k]));
  return names == nullptr ? Batch(std::move(list))
                          : Batch(std::move(list), BatchNames(texts_of(names, count, "names")));
}

std::shared_ptr<GuestRun> run_of(const levin_run* handle) {
  return std::static_pointer_cast<GuestRun>(Handles::instance().find(HandleKind::run, handle));
}

levin_run* new_run(const ConfigSource& base, const char* const* arguments, int32_t count) {
  auto run = std::make_shared<GuestRun>(base, texts_of(arguments, count, "arguments"));
  return static_cast<levin_run*>(Handles::instance().add(HandleKind::run, std::move(run)));
}

// Sets *out to what `action` returns for the run.
template <class T, class Action>
levin_status get(const char* function, const levin_run* run, T* out, const char* argument, const Action& action) {
  return call(function, [&] {
    T& result = given(out, argument);
    result = action(*run_of(run));
  });
}

}  // namespace

}  // namespace levin::c

using namespace levin::c;

extern "C" {

levin_status levin_run_create(const char* path, const char* const* arguments, int32_t count, levin_run** out) {
  return call("levin_run_create", [&] {
    levin_run*& result = given(out, "out");
    result = new_run(levin::ConfigFile{text_of(path, "path")}, arguments, count);
  });
}

levin_status levin_run_create_from_text(const char* yaml, const char* const* arguments, int32_t count,
                                        levin_run** out) {
  return call("levin_run_create_from_text", [&] {
    levin_run*& result = given(out, "out");
    result = new_run(levin::ConfigText{text_of(yaml, "yaml"), "yaml"}, arguments, count);
  });
}

levin_status levin_run_finish(levin_run* run) {
  return call("levin_run_finish", [&] { run_of(run)->finish(); });
}

levin_status levin_run_free(levin_run* run) {
  return call("levin_run_free", [&] {
    if (run == nullptr) return;
    run_of(run)->check_caller();
    (void)Handles::instance().take(HandleKind::run, run);
  });
}

levin_status levin_run_step(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count,
                            double* loss) {
  return call("levin_run_step", [&] {
    const double value = run_of(run)->step(batch_of(tensors, names, count), loss != nullptr);
    if (loss != nullptr) *loss = value;
  });
}

levin_status levin_run_evaluate(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count) {
  return call("levin_run_evaluate", [&] { run_of(run)->evaluate(batch_of(tensors, names, count)); });
}

levin_status levin_run_predict(levin_run* run, levin_tensor* const* tensors, const char* const* names, int32_t count,
                               levin_tensor** out) {
  return get("levin_run_predict", run, out, "out",
             [&](GuestRun& guest) { return new_tensor(guest.predict(batch_of(tensors, names, count))); });
}

levin_status levin_run_end_epoch(levin_run* run) {
  return call("levin_run_end_epoch", [&] { run_of(run)->end_epoch(); });
}

levin_status levin_run_metric(levin_run* run, const char* name, double* value) {
  return get("levin_run_metric", run, value, "value",
             [&](GuestRun& guest) { return guest.metric(text_of(name, "name")); });
}

levin_status levin_run_log(levin_run* run, const char* name, double value) {
  return call("levin_run_log", [&] { run_of(run)->log(text_of(name, "name"), value); });
}

levin_status levin_run_global_step(levin_run* run, int64_t* value) {
  return get("levin_run_global_step", run, value, "value", [](GuestRun& guest) {
    return guest.with_fabric([](levin::Fabric& fabric) { return fabric.global_step(); });
  });
}

levin_status levin_run_current_epoch(levin_run* run, int64_t* value) {
  return get("levin_run_current_epoch", run, value, "value", [](GuestRun& guest) {
    return guest.with_fabric([](levin::Fabric& fabric) { return fabric.current_epoch(); });
  });
}

levin_status levin_run_call(levin_run* run, const char* hook) {
  return call("levin_run_call", [&] { run_of(run)->call(text_of(hook, "hook")); });
}

levin_status levin_run_should_stop(levin_run* run, int32_t* value) {
  return get("levin_run_should_stop", run, value, "value", [](GuestRun& guest) { return guest.should_stop() ? 1 : 0; });
}

levin_status levin_run_weight_count(levin_run* run, int32_t* count) {
  return get("levin_run_weight_count", run, count, "count",
             [](GuestRun& guest) { return static_cast<int32_t>(guest.weight_names().size()); });
}

levin_status levin_run_weight_name(levin_run* run, int32_t index, const char** name) {
  return get("levin_run_weight_name", run, name, "name", [&](GuestRun& guest) {
    const auto& names = guest.weight_names();
    if (index >= 0 && static_cast<size_t>(index) < names.size()) return names[static_cast<size_t>(index)].c_str();
    throw InvalidArgument("index is " + std::to_string(index) + ", and there are " +
                          levin::count_of(static_cast<int64_t>(names.size()), "weight") + ".");
  });
}

levin_status levin_run_get_weight(levin_run* run, const char* name, levin_tensor** out) {
  return get("levin_run_get_weight", run, out, "out",
             [&](GuestRun& guest) { return new_tensor(guest.weight(text_of(name, "name"))); });
}

levin_status levin_run_set_weight(levin_run* run, const char* name, const levin_tensor* value) {
  return call("levin_run_set_weight", [&] { run_of(run)->set_weight(text_of(name, "name"), tensor_of(value)); });
}

levin_status levin_run_save(levin_run* run, const char* path) {
  return call("levin_run_save", [&] { run_of(run)->save(text_of(path, "path")); });
}

levin_status levin_run_load(levin_run* run, const char* path) {
  return call("levin_run_load", [&] { run_of(run)->load(text_of(path, "path")); });
}

}  // extern "C"
