// Which scope each route asks for.
#pragma once

#include "daemon/http/base/router.hpp"

#include <map>
#include <string>

namespace lockstep {

// By hand, so that a route whose scope changes is seen.
inline const std::map<std::string, Scope>& expected_scopes() {
    static const std::map<std::string, Scope> scopes{{"submitJob", Scope::write},
                                                     {"renderJob", Scope::write},
                                                     {"listJobs", Scope::read},
                                                     {"getJob", Scope::read},
                                                     {"getJobSpec", Scope::read},
                                                     {"getJobScript", Scope::read},
                                                     {"cancelJob", Scope::write},
                                                     {"restartJob", Scope::write},
                                                     {"checkpointJob", Scope::write},
                                                     {"cancelSweep", Scope::write},
                                                     {"getJobRanks", Scope::read},
                                                     {"getJobLogs", Scope::read},
                                                     {"getJobSeries", Scope::read},
                                                     {"getJobEvents", Scope::read},
                                                     {"streamEvents", Scope::read},
                                                     {"getCluster", Scope::read},
                                                     {"listNodes", Scope::read},
                                                     {"whoAmI", Scope::read},
                                                     {"connectAgent", Scope::agent},
                                                     {"getHealth", Scope::open},
                                                     {"getReadiness", Scope::open},
                                                     {"getMetrics", Scope::metrics},
                                                     {"removeJob", Scope::write},
                                                     {"listSecrets", Scope::read},
                                                     {"putSecret", Scope::secrets},
                                                     {"removeSecret", Scope::secrets},
                                                     {"getJobDisk", Scope::read},
                                                     {"getPage", Scope::open},
                                                     {"getJobNodes", Scope::read},
                                                     {"getJobGpus", Scope::read},
                                                     {"searchJobLogs", Scope::read},
                                                     {"getPageAsset", Scope::open},
                                                     {"createSignInCode", Scope::read},
                                                     {"signIn", Scope::open},
                                                     {"signOut", Scope::open},
                                                     {"getOpenApi", Scope::open},
                                                     {"createToken", Scope::write},
                                                     {"listTokens", Scope::read},
                                                     {"revokeToken", Scope::write},
                                                     {"putSlurmToken", Scope::write},
                                                     {"forgetSlurmToken", Scope::write},
                                                     {"getJobEvidence", Scope::read},
                                                     {"getJobHeatmap", Scope::read},
                                                     {"takeJobEvidence", Scope::write},
                                                     {"getJobEvidenceFile", Scope::read},
                                                     {"getJobProfiles", Scope::read},
                                                     {"takeJobProfile", Scope::write},
                                                     {"getJobProfileFile", Scope::read},
                                                     {"getNode", Scope::read},
                                                     {"getJobMetricNames", Scope::read},
                                                     {"getJobSamples", Scope::read},
                                                     {"getJobMetrics", Scope::metrics},
                                                     {"listScrapeTargets", Scope::metrics}};
    return scopes;
}

}  // namespace lockstep
