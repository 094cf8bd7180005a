// Specs and sites that the tests of the batch script share.
#pragma once

#include "job/base/json.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::slurm {

inline constexpr const char* kJob = "ls-01J3ZQ5T8W9XKCD2E4F6G8H0JK";

inline BatchSite site(Release release = {22, 5}) {
    BatchSite out;
    out.release = release;
    out.agent_path = "/usr/bin/lockstep-agent";
    out.default_time_limit_seconds = 3600;
    return out;
}

inline JobSpec spec_of(const std::string& text) {
    const auto json = parse_json(text);
    EXPECT_TRUE(json.has_value()) << text;
    auto spec = parse_spec(*json);
    EXPECT_TRUE(spec.has_value()) << spec.error().message;
    return *spec;
}

inline AttemptRequest request_of(const JobSpec& spec, const std::string& job = kJob,
                                 std::int32_t attempt = 1) {
    return attempt_request(JobId{job}, attempt, spec,
                           "/shared/runs/" + job + "/a" + std::to_string(attempt));
}

inline AttemptRequest request_of(const std::string& text) {
    return request_of(spec_of(text));
}

inline const char* const kSmallest = R"({"name":"first","framework":"native"})";

inline const char* const kEverything = R"({
    "name":"Vision.DDP_1","framework":"pytorch","command":["python3","train.py"],
    "resources":{"nodes":4,"ranks_per_node":8,"gpus_per_node":8,"cpus_per_rank":12,
                 "memory_mb_per_node":500000,"time_limit":"1-04:00:00"},
    "slurm":{"partition":"gpu,gpu-long","account":"vision","qos":"high",
             "constraint":"(a100|h100)&ib","reservation":"maint_1","nodelist":"n[01-08],m7",
             "exclude":"n[03,05]","exclusive":true,
             "directives":{"switches":"1@00:30:00","contiguous":"","nice":"10",
                           "gres":"lustre:1","mail-type":"END,FAIL",
                           "mail-user":"ada@example.org"}},
    "checkpoint":{"signal":"USR1","seconds_before_timeout":300}})";

// The #SBATCH lines, without "#SBATCH ".
inline std::vector<std::string> sbatch_lines(const std::string& script) {
    static constexpr std::string_view kMark = "#SBATCH ";
    std::vector<std::string> out;
    std::size_t at = 0;
    while (at < script.size()) {
        const auto end = std::min(script.find('\n', at), script.size());
        const std::string line = script.substr(at, end - at);
        if (line.starts_with(kMark)) {
            out.push_back(line.substr(kMark.size()));
        }
        at = end + 1;
    }
    return out;
}

}  // namespace lockstep::slurm
