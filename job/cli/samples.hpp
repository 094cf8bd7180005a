// Reads every stored sample of a job from the API, a page at a time, so that the memory it takes
// does not grow with the job. Blocks; the main thread.
#pragma once

#include "job/cli/context.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Whose a sample is, if it is no rank's.
struct SampleGpu {
    std::string node;
    std::int64_t gpu = 0;
    std::vector<std::int64_t> ranks;  // that use it, or used it last
};

struct Sample {
    std::int32_t rank = 0;  // or the GPU's id
    std::int64_t attempt = 0;
    std::int64_t generation = 0;
    std::int64_t step = -1;  // -1 = reported without one
    double time = 0;         // seconds since the Unix epoch, the rank's clock; NaN = not known
    double value = 0;
    const SampleGpu* gpu = nullptr;  // good until the next sample; nullptr = a rank's
};

struct GenerationSteps {
    std::int64_t attempt = 0;
    std::int64_t generation = 0;
    std::int64_t from = 0, to = 0;  // both included
};

struct SampleQuery {
    std::string metric;
    std::vector<std::int32_t> ranks;  // ascending; neighbours, so that the query stays short
    std::optional<GenerationSteps> part;
    bool of_gpus = false;  // `ranks` are ids of GPUs
};

class SampleReader {
  public:
    // `interrupted`: asked before every page; true ends the reading with cancelled.
    SampleReader(const Context& context, std::string id, std::function<bool()> interrupted)
        : context_(context), id_(std::move(id)), interrupted_(std::move(interrupted)) {}

    // Calls `use` for every sample, those of one rank in the order of arrival. A daemon that does
    // not answer for a while is asked again; the first page is not.
    Status each(const SampleQuery& query, const std::function<Status(const Sample&)>& use);
    std::int64_t damaged() const { return damaged_; }  // parts that the daemon could not read

  private:
    Result<Json> page(const std::string& target);

    const Context& context_;
    std::string id_;
    std::function<bool()> interrupted_;
    std::int64_t damaged_ = 0;
    bool answered_ = false;
};

}  // namespace lockstep::cli
