// What of this machine is taken and who waits for what: reservations and a queue without
// starvation. Pure; control thread.
//
// All nodes of a local job share this machine. Memory and GPUs are never promised twice. Cores may
// be shared by the ranks of one job that wants more than there are (it is warned), but a second job
// waits until enough cores are free: a job's need is capped at the machine. A job that holds GPUs
// holds certain ones, by name; no other job gets these.
#pragma once

#include "job/base/machine.hpp"
#include "job/base/result.hpp"
#include "job/model/spec/spec.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// What one attempt takes of the machine, over all its nodes.
struct LocalNeed {
    std::int32_t cores = 1;  // capped at the machine's
    std::int64_t memory_mb = 0;
    std::int32_t gpus = 0;
    bool operator==(const LocalNeed&) const = default;
};

class Ledger {
  public:
    // GPUs without names are named by their numbers.
    explicit Ledger(Machine capacity);

    // invalid, with the pointer of the field to change, for what can never run here; otherwise the
    // warnings.
    Result<std::vector<std::string>> admit(const Resources& resources) const;
    LocalNeed need(const Resources& resources) const;

    // Puts `name` at the end of the queue.
    void enqueue(const std::string& name, const LocalNeed& need);
    // Takes room for what runs already (adopted), even beyond the capacity. `gpus`: those it was
    // given by the daemon that started it; if that is not known, free ones are counted as its own.
    void occupy(const std::string& name, const LocalNeed& need, std::vector<std::string> gpus = {});
    // The front of the queue if it fits now; it then holds its room and has left the queue. Nobody
    // overtakes: a large job at the front gets its room in the end.
    std::string take_next();
    // Gives room back, or leaves the queue. Unknown names are ignored.
    void release(const std::string& name);
    // The GPUs that `name` holds, of its nodes one after the other; empty if it holds none.
    std::vector<std::string> gpus_of(const std::string& name) const;
    // Why `name` waits, in plain words; "" if it does not.
    std::string reason(const std::string& name) const;

    const Machine& capacity() const { return capacity_; }
    // What is taken of it, by what runs and not by what waits.
    Machine used() const;
    bool queued(const std::string& name) const;

  private:
    struct Waiting {
        std::string name;
        LocalNeed need;
    };
    struct Held {
        LocalNeed need;
        std::vector<std::string> gpus;
    };
    bool fits(const LocalNeed& need) const;
    Machine free() const;
    std::vector<std::string> free_gpus() const;

    Machine capacity_;
    std::map<std::string, Held> held_;
    std::deque<Waiting> queue_;
};

}  // namespace lockstep
