// Whose turn it is to be submitted to Slurm: a few at once, the others in line, and no more than so
// many a second. Control thread; it does not wake anybody: whoever gives a turn back tells the
// first in line.
#pragma once

#include "scheduler-integration/slurm/scheduler/options.hpp"
#include "scheduler-integration/slurm/scheduler/tracked.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace lockstep {

class SlurmTurns {
  public:
    // `options` must outlive it.
    explicit SlurmTurns(const SlurmSchedulerOptions& options) : options_(options) {}

    // False: it is in line now, for want of room, because others are before it, or because Slurm is
    // down. A turn is given before the intent is written: what
    // only waits in line is not in doubt after a crash.
    bool take(SlurmTracked& tracked, bool reachable);
    void give_back(SlurmTracked& tracked);  // and its place in line
    // Slurm answers questions, so an sbatch that hangs is that one's trouble and must not hold up
    // the others: one whose job is there already, and one that has had its time. Not without end:
    // each is a process. `sending`: submissions in flight.
    void free_hanging(const SlurmTrackedMap& all, SteadyTime now, std::uint64_t sending);
    bool has_room() const { return taken_ < options_.submissions_at_once; }
    // Of the line, by key in SlurmTrackedMap; who is followed no more may still be its first.
    bool anybody_waits() const { return !line_.empty(); }
    const std::string& first() const { return line_.front(); }
    void drop_first() { line_.pop_front(); }
    void leave(const std::string& key) { std::erase(line_, key); }
    // When the submission that is about to be made may start; counts it.
    SteadyTime next_send(SteadyTime now);

  private:
    const SlurmSchedulerOptions& options_;
    std::deque<std::string> line_;
    std::size_t taken_ = 0;
    SteadyTime next_send_;
};

}  // namespace lockstep
