// The records of TensorBoard's event files: what a run logs, encoded as Event messages with length and checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "levin/core/wire_message.h"
#include "levin/loggers/log_values.h"

namespace levin {

/// Length, its checksum, the event, its checksum.
[[nodiscard]] std::string framed_event(const WireMessage& event);

/// How each file begins.
[[nodiscard]] std::string version_record(double time);
/// "The session starts at `step`": TensorBoard drops what it has read from that step on.
[[nodiscard]] std::string session_start_record(double time, int64_t step);

/// `prefix` precedes each name.
[[nodiscard]] std::string scalars_record(const MetricList& metrics, const std::string& prefix, const LogPoint& at);
[[nodiscard]] std::string histogram_record(const std::string& tag, const Histogram& histogram, const LogPoint& at);
[[nodiscard]] std::string image_record(const std::string& tag, const LogImage& image, const LogPoint& at);
/// Markdown.
[[nodiscard]] std::string text_record(const std::string& tag, std::string_view text, const LogPoint& at);
/// A value whose whole content is for a plugin of TensorBoard.
[[nodiscard]] std::string plugin_record(const std::string& tag, const std::string& plugin, const WireMessage& content,
                                        const LogPoint& at);

/// The table in Markdown; a cell's line ends become spaces.
[[nodiscard]] std::string markdown_table(const LogTable& table);

/// Whether a file begins as version_record does: other programs' event files do not.
[[nodiscard]] bool is_own_event_file(std::string_view first_bytes);

}  // namespace levin
