#include "daemon/telemetry/exposition/rendezvous_metrics.hpp"

#include "job/base/enum_table.hpp"

namespace lockstep::telemetry {
namespace {

const prometheus::Histogram::BucketBoundaries kBuckets{0.1, 0.25, 0.5, 1,   2.5, 5,
                                                       10,  30,   60,  120, 300};

}  // namespace

RendezvousMetrics::RendezvousMetrics(DaemonMetrics& metrics)
    : duration_(prometheus::BuildHistogram()
                    .Name("lockstep_rendezvous_duration_seconds")
                    .Help("From the allocation, or the end of the last generation, until every "
                          "rank had been started.")
                    .Register(metrics.registry())
                    .Add({}, kBuckets)) {
    constexpr std::array<const char*, kRendezvousResults> kResults{"completed", "failed",
                                                                   "timed_out"};
    static_assert(names_all_of<RendezvousResult>(kResults));
    auto& rounds = prometheus::BuildCounter()
                       .Name("lockstep_rendezvous_rounds_total")
                       .Help("Times that the nodes of a job were to meet.")
                       .Register(metrics.registry());
    for (std::size_t i = 0; i < kRendezvousResults; ++i) {
        rounds_[i] = &rounds.Add({{"result", kResults[i]}});
    }
}

void RendezvousMetrics::completed(double seconds) {
    duration_.Observe(seconds);
    ended(RendezvousResult::completed);
}

}  // namespace lockstep::telemetry
