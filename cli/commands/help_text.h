// What --help, "levin list" and "levin help NAME" print: plain text in columns, wrapped to the terminal's width.
#pragma once

#include <string>
#include <vector>

#include "levin/cli/config/arguments.h"
#include "levin/core/options/fields.h"
#include "levin/core/options/registry.h"

namespace levin {

/// The classes of one interface in help.
struct ClassKind {
  std::string name = "";   // their name in "levin list NAME": "callbacks"
  std::string where = "";  // their key in a run file: "trainer.callbacks"
  std::vector<ClassEntry> classes = {};
  std::string type = "";                  // the name of an option's type: "callback"
  std::vector<std::string> aliases = {};  // further names of classes
};

/// Returns the kind whose classes are at the key `where` of a run file; null if there is none.
[[nodiscard]] const ClassKind* kind_at(const std::vector<ClassKind>& kinds, const std::string& where);

/// The classes of this program, and the Trainer's options: functions, because a plugin adds classes, and because this
/// file includes no LibTorch.
struct KnownNames {
  void (*open_plugins)(const std::vector<std::string>& paths, Problems& problems) = nullptr;
  std::vector<ClassKind> (*kinds)() = nullptr;
  std::vector<FieldInfo> (*trainer)() = nullptr;
};

/// The kind of all classes in a registry.
template <class Interface>
ClassKind class_kind(const std::string& name, const std::string& where) {
  const auto& registry = Registry<Interface>::instance();
  ClassKind kind{name, where, {}, Interface::registry_name(), registry.aliases()};
  for (const auto& entry : registry.entries()) kind.classes.push_back(entry);
  return kind;
}

/// The default of an option on one line; a class without options is its name.
[[nodiscard]] std::string default_text(const FieldInfo& field);

/// Breaks `text` into lines of at most `width` characters, at spaces if possible; each starts with `indent` spaces.
[[nodiscard]] std::string wrapped(const std::string& text, int width, int indent = 0);

/// `name` on a line, and its meaning below it.
[[nodiscard]] std::string described(const std::string& name, const std::string& doc, int width);

/// Name, type, default and meaning of each option, in columns; the meaning below the others where too little of `width`
/// is left for it.
[[nodiscard]] std::string options_table(const std::vector<FieldInfo>& fields, int width);

/// The same for the own options of a command, which are written --NAME.
[[nodiscard]] std::string own_options_table(std::vector<FieldInfo> fields, int width);

/// An overview of the program: for "levin", "levin --help" and "levin help".
[[nodiscard]] std::string usage_text(int width);

/// "levin fit --help": how to call it, the top-level keys, and `trainer`, the overview of the trainer's options.
[[nodiscard]] std::string command_help(Command command, const std::string& trainer, int width);

/// "levin list [KIND]": names with one line each, by where they come from: the user's own classes first, then Levin's,
/// examples, and models of articles. An unknown kind is a problem.
[[nodiscard]] std::string list_text(const std::string& kind, const std::vector<ClassKind>& kinds, int width,
                                    Problems& problems);

/// "levin help NAME": every option of a class, and how a run file names it; an unknown name is a problem.
[[nodiscard]] std::string class_help(const std::string& name, const std::vector<ClassKind>& kinds, int width,
                                     Problems& problems);

// --- What "levin help trainer" prints: every option in a line, the most used first, and "levin help trainer.NAME",
// everything about one of them.

/// "trainer", "Trainer", "TRAINER.max_epochs": whether "levin help TOPIC" is about the trainer's options.
[[nodiscard]] bool is_about_trainer(const std::string& topic);

/// The text; an unknown option is a problem.
[[nodiscard]] std::string trainer_help(const std::string& topic, const std::vector<FieldInfo>& options, int width,
                                       Problems& problems);

}  // namespace levin
