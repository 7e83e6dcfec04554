// "levin schema": a JSON schema of run files and sweep files, with which editors complete and check them. It is made
// from the registries and the fields of the options, so that it has the classes of this program.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/commands/help_text.h"
#include "levin/core/options/fields.h"

namespace levin {

/// Options of "levin schema".
struct SchemaOptions {
  std::string output = "";
  std::vector<std::string> plugins = {};
  template <class = void>
  static auto fields() {
    using O = SchemaOptions;
    return levin::fields(field("output", &O::output, "the schema's file; empty: it is printed"),
                         field("plugins", &O::plugins, "a shared library whose classes the schema knows too"));
  }
};

/// The schema (JSON Schema, draft 7) as text. It accepts what Levin reads, except that it does not know ranges of
/// numbers and conditions between options.
[[nodiscard]] std::string schema_text(std::vector<ClassKind> kinds, const std::vector<FieldInfo>& trainer);

/// Runs the arguments after "levin schema"; returns the exit code.
int run_schema(const std::vector<std::string>& arguments, int width, const KnownNames& known);

}  // namespace levin
