// What "levin help trainer" prints: every option in a line, the most used first, and "levin help trainer.NAME",
// everything about one of them.
#pragma once

#include <string>
#include <vector>

#include "levin/core/fields.h"

namespace levin {

/// "trainer", "Trainer", "TRAINER.max_epochs": whether "levin help TOPIC" is about the trainer's options.
[[nodiscard]] bool is_about_trainer(const std::string& topic);

/// The text; an unknown option is a problem.
[[nodiscard]] std::string trainer_help(const std::string& topic, const std::vector<FieldInfo>& options, int width,
                                       Problems& problems);

}  // namespace levin
