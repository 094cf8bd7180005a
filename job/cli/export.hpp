// What an export is made of; the verb is export_samples() in commands.hpp. Blocks; the main thread.
#pragma once

#include "job/cli/samples.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct ExportPlan {
    std::vector<std::string> metrics;
    // At most 64 each, as the daemon stores them: what one question is about.
    std::vector<std::vector<std::int32_t>> blocks;
    bool of_gpus = false;  // blocks are of GPUs' ids
};

struct ExportCount {
    std::uint64_t samples = 0;
    std::uint64_t without_step = 0;  // of these, not in TensorBoard's files
    std::size_t ranks = 0;           // that have any
};

// One line of CSV (RFC 4180: it ends with CRLF) or of JSON.
inline constexpr std::string_view kCsvHeader = "rank,attempt,generation,step,time,metric,value\r\n";
// Of GPUs; `ranks` as 0+1, empty: none has used it.
inline constexpr std::string_view kGpuCsvHeader =
    "node,gpu,ranks,attempt,generation,step,time,metric,value\r\n";
std::string csv_line(const Sample& sample, std::string_view metric);
std::string json_line(const Sample& sample, std::string_view metric);

// `folder`/rank-00000/ and so on, a tag per metric, and with more than one rank `folder`/job/ with
// the mean over the ranks of each metric and step. Nothing is there under its own name before all
// of it is written. A step that a restart made again is there with either wall time.
// conflict: an export is there and `overwrite` is false; internal: the disk; cancelled.
Result<ExportCount> export_tensorboard(SampleReader& reader, const ExportPlan& plan,
                                       const std::filesystem::path& folder, bool overwrite,
                                       UnixMillis now);

}  // namespace lockstep::cli
