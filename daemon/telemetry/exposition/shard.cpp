#include "daemon/telemetry/exposition/shard.hpp"

#include "daemon/telemetry/exposition/exposition.hpp"
#include "daemon/telemetry/exposition/gpu_exposition.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>

namespace lockstep::telemetry {

Result<Shard> parse_shard(std::string_view text) {
    const auto slash = text.find('/');
    if (slash == std::string_view::npos) {
        return fail(Errc::invalid, "is k/n, for example 0/4");
    }
    const auto index = to_int(text.substr(0, slash));
    const auto count = to_int(text.substr(slash + 1));
    if (!count || *count < 1 || *count > static_cast<std::int64_t>(limits::kShards)) {
        return fail(Errc::invalid, "has 1 to " + std::to_string(limits::kShards) + " parts");
    }
    if (!index || *index < 0 || *index >= *count) {
        return fail(Errc::invalid, "counts its parts from 0 to " + std::to_string(*count - 1));
    }
    return Shard{static_cast<std::size_t>(*index), static_cast<std::size_t>(*count)};
}

std::size_t shards_of(std::size_t ranks, std::size_t gpus, std::size_t max_series_per_job) {
    const std::size_t further = kRankFullSeries + (gpus > 0 ? kNcclBandwidths : 0);
    const std::size_t rank = kRankCoreSeries + (ranks <= limits::kFullTierRanks ? further : 0);
    const std::size_t gpu = 1 + (gpus <= limits::kGpusShownInFull ? kGpuMetrics : kSlimGpuMetrics);
    const std::size_t all = std::min(ranks * rank, max_series_per_job) + gpus * gpu;
    return std::clamp<std::size_t>((all + limits::kSeriesPerShard - 1) / limits::kSeriesPerShard, 1,
                                   limits::kShards);
}

}  // namespace lockstep::telemetry
