// Processes that wait beside the ranks of this node to be ranks of the next generation, with the
// modules imported that a cold start would wait for (/recovery/warm_standby). One for each rank:
// the same program, arguments, folder, limits and CPUs as its rank, kept at the end of its
// interpreter's start by Lockstep's hooks (job/rank/python/hooks/_lockstep_standby.py), so that
// what follows is what follows in a cold rank. They are started one after another once every rank
// has made a step or ended, and end with the agent, whatever ends it. One that does not get ready
// is ended; its rank then has none in this generation.
// Agent thread only; must outlive the TaskGroup's coroutines.
#pragma once

#include "job/agent/ranks/secret_mask.hpp"
#include "job/agent/ranks/spawn.hpp"
#include "job/async/task_group.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Standbys {
  public:
    struct Handlers {
        // Why a rank has none, or one that is no use: for the job's user. The same text for every
        // rank of which the same is true; masked.
        std::function<void(std::int32_t local_rank, std::string text)> warn;
        // One was ended by somebody else's SIGKILL, which may have been the kernel's.
        std::function<void()> killed;
    };
    struct Timing {
        // Scripts that report no step: by then they have started.
        std::chrono::milliseconds start{60'000};
        std::chrono::milliseconds ready{300'000};  // from its start until its modules are there
    };
    // `hooks`: the folder in which the hooks of a rank leave stacks.<pid>. A rank whose Python has
    // not read them has no standby: it would run the script a second time.
    Standbys(TaskGroup& tasks, std::string hooks, Handlers handlers, Timing timing);
    ~Standbys();

    struct Rank {
        SpawnRequest process;
        std::int64_t pid = 0;
    };
    // These ranks run, by local rank; those that wait for an earlier start are ended. `mask`: of
    // what they print; null: nothing is hidden.
    void begin(std::vector<std::string> modules, std::vector<Rank> ranks,
               std::shared_ptr<const SecretMask> mask);
    void stepped(std::int32_t local_rank);
    void ended(std::int32_t local_rank);
    // Starts the next one that is due. Cheap; as often as one likes while the ranks are to go on.
    void look();
    // The process that is this rank from now on; nothing: a cold start is due.
    std::optional<WarmProcess> take(std::int32_t local_rank, const SpawnRequest& request);
    // No generation follows.
    void end();
    // The same, and nothing is waited for any more.
    void close();

  private:
    struct One;
    using OnePointer = std::shared_ptr<One>;
    struct Place {
        Rank rank;
        bool hooked = false;  // its Python has read the hooks
        bool stepped = false;
        bool ended = false;
        bool given_up = false;  // in this generation
        OnePointer standby;
    };

    Place* place_of(std::int32_t local_rank);
    void look_for_hooks(Place& place) const;
    void look_at_import(Place& place);
    bool is_due() const;
    void start(std::int32_t local_rank);
    Result<OnePointer> spawn(const Place& place);
    void give_up(std::int32_t local_rank, const std::string& why);
    std::string last_words(const One& one) const;
    void drop(OnePointer& standby);
    Task<void> hear(OnePointer one);
    Task<void> watch(OnePointer one);
    void on_death(One& one, bool killed, const std::string& how);

    TaskGroup& tasks_;
    std::string hooks_;
    Handlers handlers_;
    Timing timing_;
    std::shared_ptr<const SecretMask> mask_;
    std::vector<std::string> modules_;
    std::vector<Place> places_;
    std::vector<OnePointer> dying_;
    std::chrono::steady_clock::time_point began_{};
};

}  // namespace lockstep
