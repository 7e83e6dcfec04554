#include "levin/models/onnx/make_graph.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "levin/core/count_of.h"
#include "levin/core/error.h"
#include "levin/models/onnx/operators.h"
#include "levin/models/onnx/schema_facts.h"

namespace levin::onnx {

namespace {

class GraphMaker final : public ValueNames {
 public:
  GraphMaker(const Program& program, int64_t opset)
      : program_(program), graph_(opset), names_(program.values.size()), needed_(program.values.size(), false) {}

  Graph make(const PortNames& names) {
    const std::vector<size_t> calls = needed_calls();
    add_inputs(names.inputs);
    for (const size_t k : calls) translate(program_.calls[k]);
    throw_if_any();
    for (size_t k = 0; k < program_.outputs.size(); ++k) add_output(program_.outputs[k], names.outputs.at(k));
    return graph_.take();
  }

  std::string name_of(int64_t id) override {
    if (id == kNoValue) throw NotTranslated("with an undefined tensor");
    std::string& name = names_[static_cast<size_t>(id)];
    if (!name.empty()) return name;
    const ProgramValue& value = value_of(id);
    if (value.number) return name = graph_.cast(graph_.batch_number(*value.number), value.dtype);
    if (!value.tensor.defined()) throw NotTranslated("with " + origin_of(id));
    return name = value.name.empty() ? graph_.constant(value.tensor) : graph_.add_initializer(value.name, value.tensor);
  }

  void set_name(int64_t id, const std::string& name) override { names_[static_cast<size_t>(id)] = name; }

 private:
  struct Failure {
    int64_t count = 0;
    std::string after = "";  // the parameter used last before the first
  };

  [[nodiscard]] const ProgramValue& value_of(int64_t id) const { return program_.values[static_cast<size_t>(id)]; }

  // Those on which an output depends and whose results are no constants, in the order in which they were called. What
  // is computed of weights by an operator without a translation becomes a constant.
  std::vector<size_t> needed_calls() {
    for (const int64_t output : program_.outputs) {
      if (output != kNoValue) needed_[static_cast<size_t>(output)] = true;
    }
    std::vector<size_t> calls;
    for (size_t k = program_.calls.size(); k-- > 0;) {
      const ProgramCall& call = program_.calls[k];
      const bool has_translation = translations().contains(call.name);
      const bool is_needed = std::any_of(call.results.begin(), call.results.end(), [&](int64_t id) {
        const ProgramValue& value = value_of(id);
        const bool is_constant = value.tensor.defined() && !(value.is_weight && has_translation);
        return needed_[static_cast<size_t>(id)] && !is_constant;
      });
      if (!is_needed) continue;
      calls.push_back(k);
      each_read_value(call, [&](int64_t id) { needed_[static_cast<size_t>(id)] = true; });
    }
    std::reverse(calls.begin(), calls.end());
    return calls;
  }

  void add_inputs(const std::vector<std::string>& names) {
    const size_t count = program_.inputs.size();
    std::vector<size_t> used;
    std::string used_names;
    for (size_t k = 0; k < count; ++k) {
      if (!needed_[static_cast<size_t>(program_.inputs[k])]) continue;
      used.push_back(k);
      used_names += (used_names.empty() ? "" : ", ") + value_of(program_.inputs[k]).name;
    }
    if (used.empty()) throw Error("the model's output depends on none of its inputs.");
    if (!names.empty() && names.size() != count && names.size() != used.size()) {
      throw ConfigError("OnnxOptions.input_names (--input_names): got " +
                        count_of(static_cast<int64_t>(names.size()), "name") + " for " +
                        count_of(static_cast<int64_t>(used.size()), "input") + " (" + used_names + ").");
    }
    for (size_t k = 0; k < used.size(); ++k) {
      const int64_t id = program_.inputs[used[k]];
      const ProgramValue& value = value_of(id);
      const std::string name = names.empty() ? value.name : names[names.size() == count ? used[k] : k];
      set_name(id, graph_.add_input({name, value.dtype, value.sizes}));
    }
  }

  void add_output(int64_t id, const std::string& name) {
    try {
      const std::string result = name_of(id);
      const ProgramValue& value = value_of(id);
      (void)onnx_type(value.dtype);
      graph_.add_output({name, value.dtype, value.sizes}, result);
    } catch (const NotTranslated& reason) {
      throw Error("output \"" + name + "\" cannot be exported " + reason.what() +
                  ". Let the model return another tensor, or export another method.");
    }
  }

  // Where a value without numbers or a name comes from, as a noun.
  [[nodiscard]] std::string origin_of(int64_t id) const {
    for (const ProgramCall& call : program_.calls) {
      const auto at = std::find(call.results.begin(), call.results.end(), id);
      if (at == call.results.end()) continue;
      return "result " + std::to_string(at - call.results.begin() + 1) + " of " +
             c10::toString(call.op.operator_name()) + ", which has no translation";
    }
    return "a tensor that C++ makes without operators, another one for each size of the inputs";
  }

  void translate(const ProgramCall& call) {
    if (has_failed_argument(call)) return give_up(call);
    try {
      check_types(call);
      const bool is_unset = leaves_memory_unset(call.name) && value_of(call.results.at(0)).is_unset;
      const auto found = translations().find(is_unset ? "zeros" : call.name);  // any numbers will do
      if (found == translations().end()) throw NotTranslated(why_unknown(call));
      OperatorCall translated(program_, call, *this, graph_);
      found->second(translated);
      check_sizes(call);
    } catch (const NotTranslated& reason) {
      fail(call, reason.what());
    } catch (const std::out_of_range&) {  // a dimension that a translation expects
      fail(call, "of tensors with these sizes");
    }
    for (const ProgramArgument& argument : call.arguments) {
      for (const int64_t id : argument.values) {
        if (id != kNoValue && value_of(id).kind == TracedValue::Kind::parameter) last_parameter_ = value_of(id).name;
      }
    }
  }

  // An operator before this one is to blame for its sizes.
  [[nodiscard]] bool has_failed_argument(const ProgramCall& call) const {
    bool has_failed = false;
    each_read_value(call, [&](int64_t id) {
      has_failed = has_failed || (value_of(id).kind == TracedValue::Kind::result && !value_of(id).problem.empty());
    });
    return has_failed;
  }

  void check_types(const ProgramCall& call) const {
    const auto check = [&](int64_t id) { (void)onnx_type(value_of(id).dtype); };
    std::for_each(call.results.begin(), call.results.end(), check);
    each_read_value(call, check);
  }

  void check_sizes(const ProgramCall& call) const {
    const auto check = [&](int64_t id, const char* what) {
      if (!value_of(id).problem.empty()) throw NotTranslated(what + value_of(id).problem);
    };
    for (const int64_t id : call.results) check(id, "its result ");
    each_read_value(call, [&](int64_t id) { check(id, "a tensor that it reads "); });
  }

  static std::string why_unknown(const ProgramCall& call) {
    if (is_random(call.op)) return "it draws random numbers; put the model into evaluation mode (eval())";
    if (leaves_memory_unset(call.name)) return "C++ fills its memory without operators, in another way for each size";
    return "no translation";
  }

  // Others that use the results are translated as if there were some, so that all failures are found at once.
  void give_up(const ProgramCall& call) {
    for (const int64_t id : call.results) {
      if (names_[static_cast<size_t>(id)].empty()) set_name(id, "untranslated");
    }
  }

  // What is computed of weights has its numbers anyway.
  void fail(const ProgramCall& call, const std::string& reason) {
    const bool has_numbers = std::all_of(call.results.begin(), call.results.end(),
                                         [&](int64_t id) { return value_of(id).tensor.defined(); });
    if (has_numbers) return;
    give_up(call);
    Failure& failure = failures_[c10::toString(call.op.operator_name()) + "\n" + reason];
    if (failure.count++ == 0) failure.after = last_parameter_;
  }

  void throw_if_any() const {
    if (failures_.empty()) return;
    std::string text = "the model calls operators that cannot be exported:";
    for (const auto& [what, failure] : failures_) {
      const size_t end = what.find('\n');
      text += "\n  " + what.substr(0, end) + " (" + count_of(failure.count, "time") +
              (failure.after.empty() ? "" : ", first after " + failure.after) + "): " + what.substr(end + 1) + ".";
    }
    throw Error(text +
                "\nWrite these parts with other operators (docs/export.md lists those there are), export fixed sizes "
                "(--fixed_batch, no --dynamic_length) where a size is the reason, or export another method.");
  }

  const Program& program_;
  GraphBuilder graph_;
  std::vector<std::string> names_;
  std::vector<bool> needed_;
  std::map<std::string, Failure> failures_ = {};
  std::string last_parameter_ = "";
};

}  // namespace

Graph make_graph(const Program& program, const PortNames& names, int64_t opset) {
  return GraphMaker(program, opset).make(names);
}

}  // namespace levin::onnx
