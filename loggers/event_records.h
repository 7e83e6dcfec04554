// The records of TensorBoard's event files: what a run logs, encoded as Event messages with length and checksums.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "levin/core/files/wire_message.h"
#include "levin/core/options/config_node.h"
#include "levin/loggers/log_values.h"

namespace levin {

/// Returns the CRC-32C (Castagnoli), the checksum of TensorBoard's records.

[[nodiscard]] uint32_t crc32c(std::string_view bytes);

/// Returns the checksum as records contain it: rotated and shifted, because a checksum of bytes that contain their own
/// checksum is weak.
[[nodiscard]] uint32_t masked_crc32c(std::string_view bytes);

namespace detail {
/// Returns the same checksum on processors without the instruction.
[[nodiscard]] uint32_t crc32c_by_table(std::string_view bytes);
}  // namespace detail

/// Returns a record: length, its checksum, event, its checksum.
[[nodiscard]] std::string framed_event(const WireMessage& event);

/// Returns the first record of each file.
[[nodiscard]] std::string version_record(double time);
/// Returns the record of a session that starts at `step`: TensorBoard drops what it has read from that step on.
[[nodiscard]] std::string session_start_record(double time, int64_t step);

/// `prefix` precedes each name.
[[nodiscard]] std::string scalars_record(const MetricList& metrics, const std::string& prefix, const LogPoint& at);
[[nodiscard]] std::string histogram_record(const std::string& tag, const Histogram& histogram, const LogPoint& at);
[[nodiscard]] std::string image_record(const std::string& tag, const LogImage& image, const LogPoint& at);
/// Markdown.
[[nodiscard]] std::string text_record(const std::string& tag, std::string_view text, const LogPoint& at);
/// Returns a value whose content is meant for a TensorBoard plugin.
[[nodiscard]] std::string plugin_record(const std::string& tag, const std::string& plugin, const WireMessage& content,
                                        const LogPoint& at);

/// Returns the table in Markdown; line ends within cells become spaces.
[[nodiscard]] std::string markdown_table(const LogTable& table);

/// Returns true if a file begins as version_record does; event files of other programs do not.
[[nodiscard]] bool is_own_event_file(std::string_view first_bytes);

// What TensorBoard's HPARAMS tab reads: a run's hyperparameters, the metrics to show with them, and how the run ended.

using HparamValue = std::variant<bool, double, std::string>;
using HparamList = std::vector<std::pair<std::string, HparamValue>>;

/// Flattens hyperparameters: nested maps become names joined by "/", lists become strings; quoted scalars stay strings.
[[nodiscard]] HparamList flat_hparams(const ConfigNode& hparams);

[[nodiscard]] std::string session_start_info_record(const HparamList& hparams, const LogPoint& at);
/// Returns the columns of the tab; TensorBoard uses the columns of one run for all.
[[nodiscard]] std::string experiment_record(const HparamList& hparams, const std::vector<std::string>& metric_tags,
                                            const LogPoint& at);
[[nodiscard]] std::string session_end_info_record(bool success, const LogPoint& at);

}  // namespace levin
