// One node of an attempt as a machine without I/O: it takes the daemon's orders and what its driver
// has seen, with the time, and answers with what is to be done, as data. It has no clock, sends
// nothing, starts nothing, waits for nothing: its driver, Node, does. (It does log.)
//
//   waiting ──WORLD──▶ ready ──START──▶ running ──all ranks ended──▶ waiting (DONE)
//      ▲                 │ABORT: DONE      │ABORT, STOP, a failure: ranks stopped first
//      └─────────────────┘                 └ STOP, SIGTERM: settle (≤ 5 s for the last ACK), exit
//
// What keeps two generations apart on a node is here and nowhere else: a WORLD of an older
// generation, or of one that was aborted, a START or ABORT of another one than the node is in is
// not obeyed; ABORT is answered with JOIN once no rank of that generation lives here, and JOIN
// never says that a generation is over whose ranks live.
//
// The driver does the effects of an input in their order, then takes the answers to them (see each
// effect) before any other input. Agent thread only.
#pragma once

#include "job/agent/machine/node_effect.hpp"
#include "job/agent/machine/node_input.hpp"
#include "job/base/attempt_end.hpp"
#include "job/base/clock.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Exit codes of `lockstep-agent run`.
inline constexpr int kAgentDone = 0;
// It could not start; or the attempt is over and has failed, or was ended from outside.
inline constexpr int kAgentFailed = 1;
inline constexpr int kAgentClaimed = 3;  // another agent has (had) this node
inline constexpr int kAgentFenced = 4;   // the daemon does not want this agent any more
inline constexpr int kAgentLonely = 5;  // no daemon for limits::kOrphanPatience and nothing to show
inline constexpr int kAgentCancelled = kCancelledExit;

// When an input came.
struct NodeTime {
    std::chrono::steady_clock::time_point steady{};
    UnixMillis wall = 0;
};

class NodeMachine {
  public:
    struct Timing {
        std::chrono::milliseconds grace{};   // for ranks that a newer generation replaces
        std::chrono::milliseconds settle{};  // for the last acknowledgements, before exit
    };
    NodeMachine(std::string incarnation, Timing timing);

    NodeEffects take(const NodeInput& input, const NodeTime& now);

    // What HELLO says: the generation that the node is in, 0 = none yet, and whether ranks of it
    // live here.
    std::int32_t generation() const { return run_.world.generation; }
    bool ranks_run() const { return run_.phase == Phase::running; }
    // They are prepared, and START has not come.
    bool ranks_ready() const { return run_.phase == Phase::ready; }
    // The processes of its ranks, also after they have ended; empty before they are there.
    const std::vector<wire::StartedRank>& started() const { return run_.started; }
    bool connected() const { return connected_; }
    bool stopping() const { return stopping_; }  // no further generation is taken part in
    bool finished() const { return finished_; }  // node_effect::Exit was among the effects
    // While it leaves: when it goes, whatever is not acknowledged.
    std::chrono::steady_clock::time_point leave_until() const { return leave_until_; }

  private:
    enum class Phase : std::uint8_t { waiting, ready, running };
    // What is true of one generation on this node, from its WORLD until the next one's. Without a
    // number: before the first.
    struct Generation {
        wire::World world{};
        Phase phase = Phase::waiting;
        bool join_wanted = false;  // ABORT came while ranks ran
        std::vector<wire::StartedRank> started{};
        std::set<std::string> warned{};  // each is said once
        wire::ResultFile result{};
        bool saved = false;  // all of `result` is in its file
    };

    void hear(const wire::World& world);
    void hear(const wire::Table& table);
    void hear(const wire::Start& start);
    void hear(const wire::Abort& abort);
    void hear(const wire::Stop& stop);
    void hear(const wire::Examine& examine);
    void hear(const wire::Profile& profile);
    void hear(const wire::AskSave& ask);
    void hear(const wire::Save& save);
    void hear(const wire::Fenced& fenced);
    void hear(const node_input::Welcomed& welcomed);
    void hear(const node_input::Disconnected&) { connected_ = false; }
    void hear(const node_input::PortsHeld& held);
    void hear(const node_input::PortsMissing& missing);
    void hear(const node_input::SetupBegun&) { setup_running_ = true; }
    void hear(const node_input::SetupEnded&);
    void hear(const node_input::RanksPrepared& prepared);
    void hear(const node_input::RanksStarted& started);
    void hear(const node_input::RanksNotStarted& failed);
    void hear(const node_input::RanksChanged& changed);
    void hear(const node_input::RankExited& one);
    void hear(const node_input::RanksEnded&) { ranks_ended(); }
    void hear(const node_input::ResultSaved& saved);
    void hear(const node_input::FaultSeen& seen);
    void hear(const node_input::WarningSeen& seen);
    void hear(const node_input::TimeLimitNear&);
    void hear(const node_input::ShutDown& order);
    void hear(const node_input::Refused& refused) { fence(refused.why); }
    void hear(const node_input::Orphaned& orphaned);
    void hear(const node_input::LeavingBegun& leaving);
    void hear(const node_input::LeavingLook& look);

    bool is_current(std::int32_t generation) const;
    bool has_hosts(const wire::World& world);
    void hear_awaited();
    void prepare(const wire::World& given);
    void join();
    void say_started();
    void done();
    void save_result();
    void drop_ready_ranks();
    void ranks_ended();
    void shut_down(std::chrono::milliseconds grace);
    void fence(const std::string& why);
    void fault(std::int32_t rank, std::string_view cause, const std::string& message);
    int code_at_end() const;
    void finish(int code);

    template <class E>
    void want(E effect) {
        out_.emplace_back(std::move(effect));
    }
    template <class M>
    void send(M message) {
        want(node_effect::Send{std::move(message)});
    }

    std::string incarnation_;
    Timing timing_;
    NodeTime now_;     // of the input that is being taken
    NodeEffects out_;  // its effects so far

    std::optional<NodeJob> job_;
    bool connected_ = false;
    std::string daemon_;  // of the last WELCOME
    wire::Table table_;   // the newest that came
    bool setup_running_ = false;
    Generation run_;
    std::optional<wire::World> awaiting_;    // waits for TABLE, or for the job's setup
    std::optional<wire::World> next_world_;  // waits for the old generation's ranks to end
    std::int32_t aborted_ = 0;  // the newest generation that ABORT came for: it is over for good
    bool stopping_ = false;
    bool settling_ = false;
    bool fenced_ = false;
    bool finished_ = false;
    std::string farewell_;             // said in BYE; "" = nothing is
    bool ended_ranks_ = false;         // it was told to end from outside while ranks ran
    std::optional<JobState> outcome_;  // as STOP says
    std::chrono::steady_clock::time_point leave_until_{};
};

}  // namespace lockstep
