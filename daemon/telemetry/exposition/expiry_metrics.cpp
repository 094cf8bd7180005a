#include "daemon/telemetry/exposition/expiry_metrics.hpp"

namespace lockstep::telemetry {
namespace {

double unix_seconds(UnixMillis time) {
    constexpr double kMillis = 1000;
    return static_cast<double>(time) / kMillis;
}

prometheus::Family<prometheus::Gauge>& gauges(prometheus::Registry& registry, const char* name,
                                              const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

}  // namespace

ExpiryMetrics::ExpiryMetrics(prometheus::Registry& registry)
    : certificates_(gauges(registry, "lockstep_certificate_not_after_timestamp_seconds",
                           "End of the TLS certificate in use, seconds since the Unix epoch.")),
      tokens_(gauges(registry, "lockstep_token_not_after_timestamp_seconds",
                     "End of the first to end of the tokens that were made for 60 days or more and "
                     "used in the last two, by role; seconds since the Unix epoch.")) {}

void ExpiryMetrics::certificate(UnixMillis not_after) {
    certificates_.Add({}).Set(unix_seconds(not_after));
}

void ExpiryMetrics::tokens(const std::map<std::string, UnixMillis>& not_after) {
    for (auto one = by_role_.begin(); one != by_role_.end();) {
        if (not_after.count(one->first) == 0) {
            tokens_.Remove(one->second);
            one = by_role_.erase(one);
        } else {
            ++one;
        }
    }
    for (const auto& [role, end] : not_after) {
        prometheus::Gauge*& gauge = by_role_[role];
        if (gauge == nullptr) {
            gauge = &tokens_.Add({{"role", role}});
        }
        gauge->Set(unix_seconds(end));
    }
}

}  // namespace lockstep::telemetry
