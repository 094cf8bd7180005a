#include "daemon/lockstepd/slurm_metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace lockstep {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kCallBuckets{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                               1,     2.5,  5,     10,   30,  120};

// From a free node to a week.
const Histogram::BucketBoundaries kWaitBuckets{1,     5,     15,     60,     300,     900,
                                               3'600, 7'200, 21'600, 86'400, 259'200, 604'800};

Counter& slurm_counter(Registry& registry, const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}
Gauge& slurm_gauge(Registry& registry, const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

// The family has what `now` has, and no series of what was there before; `gauges` are those it has.
template <class Key>
void show_gauges(prometheus::Family<Gauge>& family, std::map<Key, Gauge*>& gauges,
                 const std::map<Key, std::uint64_t>& now, const auto& labels_of) {
    for (auto one = gauges.begin(); one != gauges.end();) {
        if (now.count(one->first) == 0) {
            family.Remove(one->second);
            one = gauges.erase(one);
        } else {
            ++one;
        }
    }
    for (const auto& [key, jobs] : now) {
        Gauge*& gauge = gauges[key];
        if (gauge == nullptr) {
            gauge = &family.Add(labels_of(key));
        }
        gauge->Set(static_cast<double>(jobs));
    }
}

}  // namespace

struct SlurmMetrics::Families {
    explicit Families(Registry& registry)
        : calls(prometheus::BuildCounter()
                    .Name("lockstep_slurm_calls_total")
                    .Help("Runs of Slurm's programs.")
                    .Register(registry)),
          durations(prometheus::BuildHistogram()
                        .Name("lockstep_slurm_call_duration_seconds")
                        .Help("How long Slurm's programs took.")
                        .Register(registry)),
          waits(prometheus::BuildHistogram()
                    .Name("lockstep_slurm_queue_wait_seconds")
                    .Help("From a job's submission to Slurm to its start, of jobs that started "
                          "while lockstepd ran.")
                    .Register(registry)),
          pending(prometheus::BuildGauge()
                      .Name("lockstep_slurm_pending_reason_jobs")
                      .Help("Jobs waiting in Slurm, by Slurm's reason.")
                      .Register(registry)),
          jobs(prometheus::BuildGauge()
                   .Name("lockstep_slurm_jobs")
                   .Help("Jobs in Slurm, by partition and Slurm's word for the state.")
                   .Register(registry)),
          submitted(slurm_counter(registry, "lockstep_slurm_submitted_total",
                                  "Attempts that Slurm acknowledged.")),
          refused(slurm_counter(registry, "lockstep_slurm_refused_total",
                                "Attempts that Slurm refused for good.")),
          unclear(slurm_counter(registry, "lockstep_slurm_unclear_total",
                                "Submissions of which it was not known whether Slurm took them.")),
          adopted(slurm_counter(registry, "lockstep_slurm_adopted_total",
                                "Unclear submissions that were found in Slurm by name.")),
          forgotten(slurm_counter(registry, "lockstep_slurm_forgotten_total",
                                  "Jobs that Slurm acknowledged and then no longer knew.")),
          surplus(slurm_counter(registry, "lockstep_slurm_surplus_total",
                                "Further copies of an attempt in Slurm that were cancelled.")),
          malformed(slurm_counter(registry, "lockstep_slurm_malformed_rows_total",
                                  "Rows of Slurm's answers that did not parse.")),
          attempts(slurm_gauge(registry, "lockstep_slurm_attempts",
                               "Attempts that are followed in Slurm now.")),
          sending(slurm_gauge(registry, "lockstep_slurm_sending", "Submissions in flight now.")),
          leftovers(slurm_gauge(registry, "lockstep_slurm_leftovers",
                                "Jobs of attempts that have ended and that Slurm still holds.")),
          leftovers_cancelled(slurm_counter(registry, "lockstep_slurm_leftovers_cancelled_total",
                                            "Of such jobs, those that were cancelled.")),
          reachable(slurm_gauge(registry, "lockstep_slurm_reachable",
                                "Whether Slurm answered the last query.")),
          last_success(prometheus::BuildGauge()
                           .Name("lockstep_slurm_last_success_timestamp_seconds")
                           .Help("Last answer of Slurm, seconds since the Unix epoch.")
                           .Register(registry)) {}

    prometheus::Family<Counter>& calls;
    prometheus::Family<Histogram>& durations;
    prometheus::Family<Histogram>& waits;
    prometheus::Family<Gauge>& pending;
    std::map<std::string, Gauge*> reasons;  // of `pending`
    prometheus::Family<Gauge>& jobs;
    std::map<std::pair<std::string, std::string>, Gauge*> places;  // of `jobs`
    Counter& submitted;
    Counter& refused;
    Counter& unclear;
    Counter& adopted;
    Counter& forgotten;
    Counter& surplus;
    Counter& malformed;
    Gauge& attempts;
    Gauge& sending;
    Gauge& leftovers;
    Counter& leftovers_cancelled;
    Gauge& reachable;
    prometheus::Family<Gauge>& last_success;  // empty until there was one
};

void SlurmMetrics::called(std::string_view program, bool good, double seconds) {
    if (!families_) {
        return;
    }
    const std::string name{program};
    families_->calls.Add({{"program", name}, {"result", good ? "ok" : "failed"}}).Increment();
    families_->durations.Add({{"program", name}}, kCallBuckets).Observe(seconds);
}

void SlurmMetrics::waited(const std::string& partition, double seconds) {
    if (families_) {
        families_->waits.Add({{"partition", partition}}, kWaitBuckets).Observe(seconds);
    }
}

void SlurmMetrics::follow(std::function<SlurmValues()> source) {
    source_ = std::move(source);
    families_ = std::make_shared<Families>(metrics_.registry());
}

void SlurmMetrics::refresh() {
    if (!families_) {
        return;
    }
    const SlurmValues now = source_();
    const auto add = [](Counter& to, std::uint64_t value, std::uint64_t& before) {
        to.Increment(static_cast<double>(value - before));
        before = value;
    };
    add(families_->submitted, now.submitted, last_.submitted);
    add(families_->refused, now.refused, last_.refused);
    add(families_->unclear, now.unclear, last_.unclear);
    add(families_->adopted, now.adopted, last_.adopted);
    add(families_->forgotten, now.forgotten, last_.forgotten);
    add(families_->surplus, now.surplus, last_.surplus);
    add(families_->malformed, now.malformed_rows, last_.malformed_rows);
    families_->attempts.Set(static_cast<double>(now.attempts));
    families_->sending.Set(static_cast<double>(now.sending));
    families_->leftovers.Set(static_cast<double>(now.leftovers));
    add(families_->leftovers_cancelled, now.leftovers_cancelled, last_.leftovers_cancelled);
    families_->reachable.Set(now.reachable ? 1 : 0);
    if (now.last_success > 0) {
        families_->last_success.Add({}).Set(now.last_success);
    }
    const auto by_reason = [](const std::string& reason) {
        return prometheus::Labels{{"reason", reason}};
    };
    show_gauges(families_->pending, families_->reasons, now.pending_reasons, by_reason);
    const auto by_place = [](const std::pair<std::string, std::string>& place) {
        return prometheus::Labels{{"partition", place.first}, {"state", place.second}};
    };
    show_gauges(families_->jobs, families_->places, now.jobs, by_place);
}

}  // namespace lockstep
