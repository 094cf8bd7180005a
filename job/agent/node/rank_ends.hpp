// How the ranks of this node have ended and why: put together from how their processes did, what
// these have printed, told and left in torch's error file, and of a launcher what is known of its
// ranks. Without the job's secrets.
// Agent thread only; one object serves all generations; what it refers to outlives it.
#pragma once

#include "job/agent/node/daemon_clock.hpp"
#include "job/agent/node/job_environment.hpp"
#include "job/agent/node/node_children.hpp"
#include "job/agent/node/rank_reports.hpp"
#include "job/agent/ranks/rank_group.hpp"
#include "job/model/wire/wire.hpp"

#include <filesystem>
#include <functional>

namespace lockstep {

class RankEnds {
  public:
    struct Sources {
        NodeChildren& children;
        RankReports& reports;
        const JobEnvironment& environment;
        const DaemonClock& clock;
    };
    // `ended`: how a rank has.
    RankEnds(Sources sources, std::function<void(wire::Exited)> ended);

    // Of a generation, before any rank of it is started: what is known of a launcher goes.
    // `launcher`: one process of this node starts its ranks itself.
    void begin(bool launcher);
    // A process has ended badly: says why in `exited`. A launcher is judged with its ranks.
    void judge(wire::Exited& exited, const RankGroup::LastWords& words,
               const std::filesystem::path& error_file);
    // A process has ended, and was judged if it ended badly: `ended` is called of each rank that it
    // was.
    void exited(wire::Exited exited);

  private:
    void judge_child(NodeChildren::Ended& ended);

    Sources from_;
    std::function<void(wire::Exited)> ended_;
    bool launcher_ = false;
    RankGroup::LastWords launcher_words_;
};

}  // namespace lockstep
