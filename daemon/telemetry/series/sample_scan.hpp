// Every stored sample of one metric, page by page: what an export reads. Nothing is folded and
// nothing left out: a step that a later generation made again is here with either.
//
// Order: chunk by chunk as they were stored, within one rank by rank; then the newest rows, which
// are in no chunk, as the chunks will have them: by generation, then rank by rank. So the samples
// of one rank come as they arrived, and the same question about a job that is over has the same
// answer.
//
// A page ends at a place in that order. Rows that become chunks between two pages are neither
// missed nor given twice: the place among the newest rows is a generation's rank. What is before it
// is done, also where more arrives later; the rest is read from the chunks that hold it by then.
// Pure but for its source; any thread.
#pragma once

#include "daemon/telemetry/series/history_scan.hpp"
#include "job/base/limits.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// Where the next page begins.
struct SamplePlace {
    std::int64_t chunk = 0;    // those with lower ids are done,
    std::uint64_t row = 0;     // and so many rows of this one
    Start start{};             // earlier ones are done altogether,
    std::uint32_t entity = 0;  // and of this one all ranks below
    friend bool operator==(const SamplePlace&, const SamplePlace&) = default;
};
std::string to_cursor(const SamplePlace& place);
// Nothing: to_cursor() did not make it.
std::optional<SamplePlace> parse_cursor(std::string_view cursor);

struct SampleAsk {
    std::string metric;
    std::vector<std::uint32_t> entities;  // ascending
    // Both ends included; a sample without a step only if neither is given.
    std::optional<std::int64_t> from, to;
    std::optional<std::int32_t> attempt;
    std::optional<std::uint32_t> generation;
    // Samples in the page, 1..limits::kSamplesPage; of the newest rows all that a rank has of a
    // generation come in one page.
    std::size_t limit = limits::kSamplesPage;
    SamplePlace place{};
};

// Neighbouring samples of one rank and generation.
struct SampleRun {
    Start start;
    std::uint32_t entity = 0;
    std::vector<std::int64_t> steps;  // -1 = not given
    std::vector<double> times;        // seconds since the Unix epoch, the rank's clock
    std::vector<double> values;       // bit for bit what was reported
};
struct SamplePage {
    std::vector<SampleRun> runs;
    std::size_t samples = 0;
    std::size_t damaged = 0;  // chunks of it that do not read back; logged
    std::optional<SamplePlace> next;
};

// `tail`: the rows that are in no chunk of the source, whose newest chunk is `newest`.
Result<SamplePage> read_samples(HistorySource& source, const SampleAsk& ask,
                                const std::vector<TailRows>& tail, std::int64_t newest);

// {metric, runs: [{rank, attempt, generation, steps, times, values}], next_cursor, damaged_chunks}.
// A step that was not given is null, a value that is not finite "nan", "inf" or "-inf". `name`: the
// members that say whose a run is, as `"rank":3`; that if not given.
using NameEntity = std::function<std::string(std::uint32_t entity)>;
std::string to_json_text(const SampleAsk& ask, const SamplePage& page, const NameEntity& name = {});

}  // namespace lockstep::telemetry
