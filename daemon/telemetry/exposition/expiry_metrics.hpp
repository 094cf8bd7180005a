// When lockstepd's certificate and tokens end, as gauges of /metrics. Anybody on the machine may
// read those: no token's owner or id is in them. Control thread only.
#pragma once

#include "job/base/clock.hpp"

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

namespace lockstep::telemetry {

class ExpiryMetrics {
  public:
    // The registry outlives it. There is a series for what there is: a daemon without TLS has none
    // of a certificate.
    explicit ExpiryMetrics(prometheus::Registry& registry);
    // Of the certificate in use.
    void certificate(UnixMillis not_after);
    // By role; a role that is not there any more loses its series.
    void tokens(const std::map<std::string, UnixMillis>& not_after);

  private:
    prometheus::Family<prometheus::Gauge>& certificates_;
    prometheus::Family<prometheus::Gauge>& tokens_;
    std::map<std::string, prometheus::Gauge*> by_role_;  // of tokens_
};

}  // namespace lockstep::telemetry
