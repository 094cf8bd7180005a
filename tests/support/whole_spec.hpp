// A specification that is taken, with a value of its own in most of its fields.
#pragma once

namespace lockstep::test {

inline constexpr const char* kWholeSpec =
    R"x({"name":"a.b-c_1","framework":"pytorch","command":["python3","t.py","{rank}"],
"resources":{"nodes":2,"ranks_per_node":4,"gpus_per_node":1,"cpus_per_rank":2,
"memory_mb_per_node":500,"time_limit":"1-02:03:04"},
"environment":{"A":"1","B_2":"x\ny"},"working_directory":"/tmp",
"checkpoint":{"directory":"/ckpt"},
"capture":{"preset":"none","loss":"l=(?P<loss>[0-9.]+)"},"labels":{"team":"vision"},
"launch":"rank","submission":"automatic","roles":[],"slurm":{},"secrets":[],"sweep":{},
"after":[],"container":{},"watch":{"hang_seconds":30,"straggler_score":0.5},
"recovery":{"max_restarts":5,"max_attempts":4,"on":["hang"],"on_nonfinite_loss":"warn",
"exclude_failed_nodes":false}})x";

}  // namespace lockstep::test
