// Which accepted job goes to the scheduler next: the users in turn, each one's jobs in the order
// they came, after the jobs each is to run after, and no more of a sweep at once than it allows.
// What waits here costs the scheduler nothing. Control thread; no I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class WaitingLine {
  public:
    struct Entry {
        std::string id;
        std::set<std::string> after;    // jobs that are not over yet
        std::string sweep;              // "" = of none
        std::int32_t max_parallel = 0;  // of the sweep; 0 = no limit
        std::string user{};             // whose turn it takes
    };
    // Takes its place; returns why it waits although the line may be empty, or "".
    std::string add(Entry entry);
    // It is with the scheduler already (an earlier daemon brought it there): counts for its sweep.
    void occupy(const Entry& entry);

    struct Settled {
        std::vector<std::string> ready;  // came into the line proper
        // Still wait, for something else now: id and reason.
        std::vector<std::pair<std::string, std::string>> waiting;
        std::vector<std::string> failed;  // were to run after it, and it did not succeed
    };
    // A job is over, wherever it stood. What it held up moves on.
    Settled finished(const std::string& id, bool succeeded);

    // The next for the scheduler, of those users that may have one more there; "" = none. It counts
    // for its sweep until finished(). Without `may` everybody may.
    std::string take_next(const std::function<bool(const std::string& user)>& may = {});
    // How many would be taken before a job that this user adds now, if every user always may.
    std::size_t ahead_of(const std::string& user) const;
    bool empty() const { return turns_.empty(); }
    std::size_t size() const { return ready_.size() + held_up_.size() + in_sweeps_; }

  private:
    struct Sweep {
        std::set<std::string> active;  // in the line proper or with the scheduler
        std::deque<std::string> waiting;
        std::int32_t max_parallel = 0;
        std::string user;
    };
    std::string enter(const Entry& entry);
    void queue(const std::string& user, const std::string& id);
    void leave_queue(const std::string& id);
    void leave_sweep(const std::string& id, Settled& settled);

    std::map<std::string, std::deque<std::string>> queues_;   // by user; none is empty
    std::list<std::string> turns_;                            // of queues_; the front is next
    std::map<std::string, std::string> ready_;                // in queues_ → whose
    std::map<std::string, Entry> held_up_;                    // by id; wait for other jobs
    std::map<std::string, std::set<std::string>> followers_;  // by the job they wait for
    std::map<std::string, Sweep> sweeps_;                     // those with a limit
    std::map<std::string, std::string> sweep_of_;             // of jobs in sweeps_
    std::size_t in_sweeps_ = 0;                               // waiting there
};

}  // namespace lockstep
