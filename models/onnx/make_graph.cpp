#include "levin/models/onnx/make_graph.h"

#include <algorithm>
#include <map>
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

  Graph make(const std::vector<std::string>& output_names) {
    const std::vector<size_t> calls = needed_calls();
    add_inputs();
    for (const size_t k : calls) translate(program_.calls[k]);
    throw_if_any();
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const ProgramValue& value = value_of(program_.outputs[k]);
      graph_.add_output({output_names.at(k), value.dtype, value.sizes}, name_of(program_.outputs[k]));
    }
    return graph_.take();
  }

  std::string name_of(int64_t id) override {
    if (id == kNoValue) throw NotTranslated("with an undefined tensor");
    std::string& name = names_[static_cast<size_t>(id)];
    if (!name.empty()) return name;
    const ProgramValue& value = value_of(id);
    if (!value.tensor.defined() && value.kind == TracedValue::Kind::constant) {
      throw NotTranslated("with a tensor that C++ makes without operators, another one for each size of the inputs");
    }
    if (!value.tensor.defined()) throw NotTranslated("of a result that has no translation");
    return name = value.name.empty() ? graph_.constant(value.tensor) : graph_.add_initializer(value.name, value.tensor);
  }

  void set_name(int64_t id, const std::string& name) override { names_[static_cast<size_t>(id)] = name; }

 private:
  struct Failure {
    int64_t count = 0;
    std::string after = "";  // the parameter used last before the first
  };

  [[nodiscard]] const ProgramValue& value_of(int64_t id) const { return program_.values[static_cast<size_t>(id)]; }

  // Those on which an output depends and whose results are no constants, in the order in which they were called.
  std::vector<size_t> needed_calls() {
    for (const int64_t output : program_.outputs) needed_[static_cast<size_t>(output)] = true;
    std::vector<size_t> calls;
    for (size_t k = program_.calls.size(); k-- > 0;) {
      const ProgramCall& call = program_.calls[k];
      const bool is_needed = std::any_of(call.results.begin(), call.results.end(), [&](int64_t id) {
        return needed_[static_cast<size_t>(id)] && !value_of(id).tensor.defined();
      });
      if (!is_needed) continue;
      calls.push_back(k);
      for (size_t p = ignores_first(call.name) ? 1 : 0; p < call.arguments.size(); ++p) {
        if (is_out_argument(call.op, p)) continue;
        for (const int64_t id : call.arguments[p].values) {
          if (id != kNoValue) needed_[static_cast<size_t>(id)] = true;
        }
      }
    }
    std::reverse(calls.begin(), calls.end());
    return calls;
  }

  void add_inputs() {
    for (const int64_t id : program_.inputs) {
      if (!needed_[static_cast<size_t>(id)]) continue;
      const ProgramValue& value = value_of(id);
      graph_.add_input({value.name, value.dtype, value.sizes});
      set_name(id, value.name);
    }
    if (graph_.graph().inputs.empty()) throw Error("the model's output depends on none of its inputs.");
  }

  void translate(const ProgramCall& call) {
    check_sizes(call);
    try {
      const auto found = translations().find(call.name);
      if (found == translations().end()) throw NotTranslated(why_unknown(call));
      OperatorCall translated(program_, call, *this, graph_);
      found->second(translated);
    } catch (const NotTranslated& reason) {
      fail(call, reason.what());
    }
    for (const ProgramArgument& argument : call.arguments) {
      for (const int64_t id : argument.values) {
        if (id != kNoValue && value_of(id).kind == TracedValue::Kind::parameter) last_parameter_ = value_of(id).name;
      }
    }
  }

  void check_sizes(const ProgramCall& call) const {
    const auto check = [&](int64_t id) {
      if (id != kNoValue && !value_of(id).problem.empty()) throw Error(value_of(id).problem);
    };
    for (const int64_t id : call.results) check(id);
    for (const ProgramArgument& argument : call.arguments)
      std::for_each(argument.values.begin(), argument.values.end(), check);
  }

  static std::string why_unknown(const ProgramCall& call) {
    if (is_random(call.op)) return "it draws random numbers; put the model into evaluation mode (eval())";
    if (leaves_memory_unset(call.name)) return "its memory is read before anything is written to it";
    return "no translation";
  }

  // Others that use the results are translated as if there were some, so that all failures are found at once.
  void fail(const ProgramCall& call, const std::string& reason) {
    for (const int64_t id : call.results) {
      if (names_[static_cast<size_t>(id)].empty()) set_name(id, "untranslated");
    }
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
                "\nWrite these parts with other operators (docs/export.md lists those there are), or export "
                "another method.");
  }

  const Program& program_;
  GraphBuilder graph_;
  std::vector<std::string> names_;
  std::vector<bool> needed_;
  std::map<std::string, Failure> failures_ = {};
  std::string last_parameter_ = "";
};

}  // namespace

Graph make_graph(const Program& program, const std::vector<std::string>& output_names, int64_t opset) {
  return GraphMaker(program, opset).make(output_names);
}

}  // namespace levin::onnx
