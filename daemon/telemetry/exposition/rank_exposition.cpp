#include "daemon/telemetry/exposition/rank_exposition.hpp"

#include "daemon/telemetry/exposition/gpu_exposition.hpp"
#include "job/base/limits.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <span>
#include <utility>

namespace lockstep::telemetry {
namespace {

constexpr std::size_t kRankSampleBytes = 56;  // bytes of a sample beside its labels, about
static_assert(limits::kFullTierRanks * (kRankCoreSeries + kRankFullSeries + kNcclBandwidths) <=
                  limits::kSeriesPerJob,
              "the further series of a job that is small enough fit, with all bandwidths");
// What an agent has seen of a rank comes every limits::kInspectorRow; older than so many seconds it
// is not what the rank does now.
constexpr double kSeenPatience = 3 * std::chrono::duration<double>{limits::kInspectorRow}.count();
constexpr std::size_t kPlaceLabels = 90;  // of lockstep_rank_info beside job_id

template <class Number>
void add_number(std::string& labels, std::string_view begin, Number number) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    labels += begin;
    labels.append(digits.data(), end);
    labels += '"';
}

double at(std::span<const double> column, std::uint32_t rank) {
    return column.empty() ? kAbsent : column[rank];
}

}  // namespace

void RankExposition::add(const JobMetricsView& job, const std::string& labels,
                         const JobStats& stats) {
    place(job, labels);
    if (job.series == nullptr) {
        return;
    }
    const NewestReports& newest = job.series->newest();
    const std::size_t world = job.series->present();
    const bool small = world <= limits::kFullTierRanks;
    const auto& ids = job.series->nccl_bandwidths();
    const auto bandwidths = static_cast<std::size_t>(
        std::count_if(ids.begin(), ids.end(), [](const auto& id) { return id.has_value(); }));
    const std::size_t further = kRankFullSeries + bandwidths;
    const bool fits = world * (kRankCoreSeries + further) <= view_.max_series_per_job;
    ShownRanks shown{job.series, &stats, small && fits, bandwidths, {}, {}, {}};
    const std::size_t most = std::min(world, most_ranks()) / shard_.count + 1;
    shown.ranks.reserve(most);
    shown.ends.reserve(most);
    shown.labels.reserve(most * (labels.size() + sizeof ",rank=\"12345\""));
    for (std::uint32_t i = 0; i < world; ++i) {
        if (!newest.reporting(i, view_.now)) {
            continue;
        }
        suppressed_ += small && !fits ? further : 0;
        if (i >= most_ranks()) {
            suppressed_ += kRankCoreSeries;
        } else if (shard_.has(i)) {
            shown.ranks.push_back(i);
            shown.labels += labels;
            add_number(shown.labels, ",rank=\"", i);
            shown.ends.push_back(shown.labels.size());
        }
    }
    shown_.push_back(std::move(shown));
}

// Which GPUs a rank uses is known from its agent only.
void RankExposition::place(const JobMetricsView& job, const std::string& labels) {
    std::vector<RankGpu> gpus;
    if (view_.gpus != nullptr && !job.ranks.empty()) {
        gpus = view_.gpus->ranks(job.job_id, view_.now);
    }
    for (const auto& rank : job.ranks) {
        const std::size_t own = gpus.empty() ? 0 : gpus_of(gpus, rank.rank).size();
        suppressed_ += own - std::min(own, limits::kRankGpusShown);
    }
    placed_.push_back({&job, labels, std::move(gpus)});
}

std::size_t RankExposition::expected_size() const {
    std::size_t size = 0;
    for (const ShownRanks& job : shown_) {
        const std::size_t families =
            kRankCoreSeries - 1 + (job.full ? kRankFullSeries + job.bandwidths : 0);
        size += families * (job.labels.size() + job.ranks.size() * kRankSampleBytes);
    }
    for (const Placed& job : placed_) {
        const std::size_t series = std::max(job.job->ranks.size(), job.gpus.size());
        size += series / shard_.count * (job.labels.size() + kPlaceLabels);
    }
    return size;
}

void RankExposition::write(MetricText& text) const {
    write_info(text);
    for (const RankFamily& family : kRankFamilies) {
        text.family(family.name, family.type, family.help);
        write_family(text, family);
    }
    write_nccl_bandwidth(text);
}

// The only family of a rank with labels of its own, few: kNcclBandwidths of them.
void RankExposition::write_nccl_bandwidth(MetricText& text) const {
    text.family("lockstep_rank_nccl_bus_bandwidth_bytes_per_second", MetricType::gauge,
                "Newest bus bandwidth of its largest operations of NCCL, by NCCL's Inspector.");
    std::string labels;
    for (const ShownRanks& job : shown_) {
        const auto& ids = job.series->nccl_bandwidths();
        for (std::size_t place = 0; job.full && place < kNcclBandwidths; ++place) {
            const auto& id = ids[place];
            if (!id) {
                continue;
            }
            std::size_t begin = 0;
            for (std::size_t i = 0; i < job.ranks.size(); ++i) {
                const RankSeries& rank = job.series->rank(job.ranks[i]);
                const auto value = rank.latest(*id);
                if (value && view_.now - rank.last_seen() <= kSeenPatience) {
                    labels.assign(job.labels, begin, job.ends[i] - begin);
                    add_label(labels, "collective", nccl_operation_at(place));
                    add_label(labels, "nodes", nccl_nodes_at(place));
                    text.sample(labels, *value);
                }
                begin = job.ends[i];
            }
        }
    }
}

void RankExposition::write_info(MetricText& text) const {
    text.family("lockstep_rank", MetricType::info, "Always 1; the labels say where the rank is.");
    std::string labels;
    std::string node;  // label of the rank before, whose node is mostly the same
    for (const auto& [job, job_labels, gpus] : placed_) {
        std::string_view node_of;
        node.clear();
        for (const auto& rank : job->ranks) {
            const auto number = static_cast<std::size_t>(rank.rank);
            if (number >= most_ranks() || !shard_.has(number)) {
                continue;
            }
            labels = job_labels;
            add_number(labels, ",rank=\"", rank.rank);
            if (rank.node.data() != node_of.data() || rank.node.size() != node_of.size()) {
                node_of = rank.node;
                node.clear();
                add_label(node, "node", rank.node);
            }
            labels += node.empty() ? "" : ",";
            labels += node;
            add_number(labels, ",local_rank=\"", rank.local_rank);
            auto own = gpus.empty() ? std::span<const RankGpu>{} : gpus_of(gpus, rank.rank);
            own = own.first(std::min(own.size(), limits::kRankGpusShown));
            const std::size_t place = labels.size();
            for (const RankGpu& one : own) {
                labels.resize(place);
                add_number(labels, ",gpu=\"", one.gpu->gpu);
                text.sample(labels, std::uint64_t{1});
            }
            if (own.empty()) {
                text.sample(labels, std::uint64_t{1});
            }
        }
    }
}

// `values_of` a job gives what gives the value of a rank.
template <class Values>
void RankExposition::each(MetricText& text, Shown shown, const Values& values_of) const {
    for (const ShownRanks& job : shown_) {
        if (shown == Shown::of_few && !job.full) {
            continue;
        }
        const auto value_of = values_of(job);
        const std::string_view labels = job.labels;
        std::size_t begin = 0;
        for (std::size_t i = 0; i < job.ranks.size(); ++i) {
            const double value = value_of(job.ranks[i]);
            if (!is_absent(value)) {
                text.sample(labels.substr(begin, job.ends[i] - begin), value);
            }
            begin = job.ends[i];
        }
    }
}

void RankExposition::write_family(MetricText& text, const RankFamily& family) const {
    switch (family.values) {
        case RankValues::latest:
            each(text, family.shown, [metric = family.metric](const ShownRanks& job) {
                return [column = job.series->newest().latest(metric)](std::uint32_t rank) {
                    return at(column, rank);
                };
            });
            break;
        case RankValues::total:
            each(text, family.shown, [metric = family.metric](const ShownRanks& job) {
                return [column = job.series->newest().total(metric)](std::uint32_t rank) {
                    return at(column, rank);
                };
            });
            break;
        case RankValues::step:
            each(text, family.shown, [](const ShownRanks& job) {
                return [steps = job.series->newest().last_step()](std::uint32_t rank) {
                    return steps[rank] < 0 ? kAbsent : static_cast<double>(steps[rank]);
                };
            });
            break;
        case RankValues::straggler_score:
            each(text, family.shown, [](const ShownRanks& job) {
                return [scores = std::span{job.stats->straggler_score}](std::uint32_t rank) {
                    return at(scores, rank);
                };
            });
            break;
        case RankValues::report_age:
            each(text, family.shown, [this](const ShownRanks& job) {
                return [received = job.series->newest().last_received(), now = view_.now](
                           std::uint32_t rank) { return std::max(0.0, now - received[rank]); };
            });
            break;
        case RankValues::nonfinite:
            each(text, family.shown, [](const ShownRanks& job) {
                return [counts = job.series->newest().nonfinite()](std::uint32_t rank) {
                    return static_cast<double>(counts[rank]);
                };
            });
            break;
    }
}

}  // namespace lockstep::telemetry
