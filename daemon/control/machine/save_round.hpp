// The ranks are asked for a checkpoint by a signal. Most programs die of it, so the agents are
// asked first whether every rank catches it; if one does not, nobody gets it and the caller hears
// why. Value; control thread only.
#pragma once

#include "daemon/control/machine/attempt_run.hpp"
#include "daemon/control/machine/draft.hpp"
#include "daemon/control/machine/effect.hpp"
#include "job/base/result.hpp"
#include "job/model/job.hpp"
#include "job/model/wire/wire.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

class SaveRound {
  public:
    using Time = std::chrono::steady_clock::time_point;

    bool under_way() const { return asked_.has_value(); }
    // Somebody wants one. A job that names the signal has said that its ranks know what to do with
    // it: they get it at once.
    void want(Draft& draft, const AttemptRun& run, const SaveInput& input);
    void answer(Draft& draft, const Agent& link, const wire::CanSave& answer);
    // A question under this key is under way: the key is a checkpoint's.
    bool holds(const std::string& user, const std::string& key) const;
    // Everybody has answered: the signal is ordered with the draft. Or somebody has not in time, or
    // cannot: whoever asked is told at once.
    void look(Draft& draft);
    // The order is durable: to every agent.
    static void send(Effects& out, const AttemptRun& run, std::int32_t generation);
    // Whoever waits for the answers gets this one.
    void end(Effects& out, const Status& status);

  private:
    struct Asker {
        std::string by;
        std::string key;  // Idempotency-Key; "" = none
    };
    // What follows from the answers that are there: the signal is to be sent, for the first of
    // these; the others have asked meanwhile, each under another key. All callers are to be
    // answered with that.
    struct Order {
        std::vector<Asker> askers;
        std::vector<std::function<void(Status)>> done;
    };
    struct Asked {
        std::int32_t generation;
        std::int32_t round;
        std::vector<Asker> askers;
        Time since;
        std::set<std::int32_t> awaited;  // slots
        std::string problem;             // of the first that was heard; "" = none so far
        std::vector<std::function<void(Status)>> done;
    };
    // ASK_SAVE to every node of the live generation; if that is under way, its answer is this one's
    // too (conflict: too many have joined it). One of a generation before is answered: conflict.
    void ask(Effects& out, const Job& job, const AttemptRun& run, const SaveInput& input, Time now);
    // Nothing: there is nothing to order; those who are refused are answered.
    std::optional<Order> outcome(Effects& out, const Job& job, Time now);
    static void order(Draft& draft, const std::vector<Asker>& askers);
    // Takes part in the round that is under way. False: too many do.
    bool join(Asked& joined, const SaveInput& input) const;

    std::optional<Asked> asked_;
    std::int32_t round_ = 0;
};

}  // namespace lockstep
