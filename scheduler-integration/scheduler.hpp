// Where a job runs: the one interface to local processes, sbatch and slurmrestd. Observations are
// three-valued: a state, absent, or unreachable; silence never ends a job.
// Called from the control thread only. A driver owns what it starts, not the job: the job's truth
// is in the store. Every call may be repeated after a crash: submit() of an attempt that the
// scheduler already has adopts it, adopt() does only that.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/clock.hpp"
#include "job/base/result.hpp"
#include "job/model/event.hpp"
#include "job/model/spec/placement.hpp"
#include "scheduler-integration/cluster.hpp"
#include "scheduler-integration/identities.hpp"
#include "scheduler-integration/observation.hpp"
#include "scheduler-integration/signatures.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Admission {
    std::vector<std::string> warnings;  // the job will run, but the user should know
};

// When the scheduler would start a job that is not submitted, as it says at the moment.
struct StartEstimate {
    UnixMillis start = 0;  // 0: it would refuse the job
    std::string nodes{};   // it would start on, as the scheduler writes a list of them
    std::string partition{};
    std::string refusal{};  // why it would refuse it, in the scheduler's words
};

// What became of handing an attempt over.
struct Handover {
    enum class Kind {
        placed,   // the scheduler has it as `id`
        refused,  // it never will: `reason`
        wait,     // not known, or not reachable: call again later; `reason` in plain words
        again,  // nothing of an earlier try can come any more: append an intent, then call with it
    };
    Kind kind = Kind::wait;
    std::string id;
    std::string reason;
    std::string warning{};  // what the job's user should know of how it was handed over
};

// How other exporters of the cluster call a job: a label of lockstep_job_info to join on.
struct ClusterLabel {
    std::string_view name;  // static
    std::string_view value;
};

class Scheduler {
  public:
    using Changed = std::function<void(JobId job, std::int32_t attempt)>;
    // When an attempt ended; 0: it goes on. not_found: no attempt of ours. Any other error: not
    // known now.
    using EndOf = std::function<Task<Result<UnixMillis>>(JobId job, std::int32_t attempt)>;

    virtual ~Scheduler() = default;
    // Once, before anything else but admit() and on_change(); an error ends the daemon's start.
    virtual Task<Status> begin() { co_return Status{}; }
    // Stops watching; what runs goes on. The object may go once it has finished.
    virtual Task<void> stop() = 0;
    // Called soon after poll() of the attempt may have changed.
    virtual void on_change(Changed changed) = 0;
    // What it still holds of attempts that have ended is found with this, and ended; may be called
    // once the unfinished jobs are loaded.
    virtual void know_ends(EndOf end_of) { static_cast<void>(end_of); }
    // Attempts of an earlier daemon are handed over again in turns of the event loop that wait now,
    // in any order: what of them runs is not known before, so until then nothing is to be started.
    virtual void taking_up() {}
    // "local", "slurm", "slurmrestd": as the API and the settings call it.
    virtual std::string_view name() const = 0;
    // As sentences for people call it: "Slurm".
    virtual std::string_view title() const { return "the scheduler"; }
    // All of its nodes are this one machine, whatever a job calls them.
    virtual bool is_one_machine() const { return false; }
    // It ends an allocation itself whose time is over, by a limit that people may move and a clock
    // that may stand still, and says so (Observation::cause): lockstepd does not count along.
    virtual bool keeps_time_limit() const { return false; }
    // Refuses what can never run here: invalid, with the pointer of the field to change.
    virtual Result<Admission> admit(const JobSpec& spec) const = 0;
    // Whether it can run anything for this user of Lockstep; denied says why not and what to do.
    virtual Status admit_user(const std::string& user) const {
        static_cast<void>(user);
        return {};
    }
    // Where users hand over what lets it act in their name; nullptr: it acts in lockstepd's, and
    // jobs run as lockstepd's own Unix user.
    virtual Identities* identities() { return nullptr; }
    // Where jobs run as their users because these have signed them; nullptr: signatures mean
    // nothing.
    virtual Signatures* signatures() { return nullptr; }
    // Where agents find lockstepd has changed: their attempts' files say so already wherever
    // lockstepd may write them; the driver updates the others now.
    virtual void agents_moved() {}
    // Hands the attempt over; idempotent per (job, attempt). A scheduler that could have taken an
    // attempt without our hearing of it answers `again` first: an attempt goes there only with
    // request.intent_is_fresh, and each intent is good for one try.
    virtual Task<Handover> submit(AttemptRequest request) = 0;
    // Takes up an attempt that an earlier daemon handed over, and starts nothing: for one that is
    // to end. False: the scheduler has nothing of it, and nothing can come any more. unavailable:
    // not known yet.
    virtual Task<Result<bool>> adopt(AttemptRequest request) = 0;
    // By (job, attempt), not by id: an id may never have reached us.
    virtual Task<Observation> poll(JobId job, std::int32_t attempt) = 0;
    // Whether an agent of this allocation, the first of the attempt to call in, may have it. False:
    // the allocation is a second copy that is being ended. True: it is not ended as one while
    // the claim is written down, after which claimed() is called.
    virtual bool may_claim(const JobId& job, std::int32_t attempt, const std::string& allocation) {
        static_cast<void>(job);
        static_cast<void>(attempt);
        static_cast<void>(allocation);
        return true;
    }
    // The attempt belongs to this allocation from now on; any other of its name is to end.
    virtual void claimed(const JobId& job, std::int32_t attempt, const std::string& allocation) {
        static_cast<void>(job);
        static_cast<void>(attempt);
        static_cast<void>(allocation);
    }
    // Its ranks have ended, or are being ended: how the allocation ends is wanted soon. `done`:
    // they have done their work, and an end that the scheduler calls a success needs no second
    // look. The last call counts.
    virtual void expect_end(const JobId& job, std::int32_t attempt, bool done) {
        static_cast<void>(job);
        static_cast<void>(attempt);
        static_cast<void>(done);
    }
    // The job has ended: what is left of the attempt is to end by itself, and is ended if it does
    // not. Nothing is asked about it any more.
    virtual void over(const JobId& job, std::int32_t attempt) {
        static_cast<void>(job);
        static_cast<void>(attempt);
    }
    // Whether it still ends what is left of a job that over() was said of: on which nodes ("" = it
    // does not say). Soon after the end, while that is usual, it says nothing.
    virtual std::optional<std::string> leaving(const JobId& job) const {
        static_cast<void>(job);
        return std::nullopt;
    }
    // Asks the allocation to end, by force if it must. Absent is success.
    virtual Task<Status> cancel(JobId job, std::int32_t attempt) = 0;
    // Its machines as of the last query; makes no query itself. The first call may find nothing
    // yet.
    virtual Cluster cluster() = 0;
    // Whether it answers at the moment; for /readyz.
    virtual Task<Status> ping() = 0;
    // The batch script of an attempt, if this scheduler runs one; byte for byte what would be
    // submitted. invalid: it cannot be made, with the pointer of the field to change.
    virtual Result<std::optional<std::string>> script(const AttemptRequest& request) const {
        static_cast<void>(request);
        return std::optional<std::string>{};
    }
    // The file with that script in an attempt's directory; "" = it runs none.
    virtual std::string_view batch_file() const { return {}; }
    // The variable by which what it starts knows its allocation, agents among it; "" = there is
    // none.
    virtual std::string_view allocation_variable() const { return {}; }
    // For `id`, what submit() or poll() called an attempt; nothing: nobody else knows it by that.
    virtual std::optional<ClusterLabel> cluster_label(std::string_view id) const {
        static_cast<void>(id);
        return std::nullopt;
    }
    // Which agent was ended for memory, by the last words that the scheduler's daemons left in the
    // logs of the attempt's directory; nothing if they did not say. Reads the ends of a few files.
    virtual std::optional<MemoryEvidence> memory_evidence(const std::filesystem::path& directory,
                                                          std::int32_t nodes) const {
        static_cast<void>(directory);
        static_cast<void>(nodes);
        return std::nullopt;
    }
    // What the scheduler's own daemons left in the attempt's directory of an agent that did not
    // come, by node rank: one printable line; "" if they did not say. Reads the end of a file.
    virtual std::string launch_words(const std::filesystem::path& directory,
                                     std::int32_t node_rank) const {
        static_cast<void>(directory);
        static_cast<void>(node_rank);
        return {};
    }
    // Asks when it would start this; nothing is submitted. Empty: it cannot tell. unavailable: no
    // answer now. exhausted: too many are asked for already.
    virtual Task<Result<std::optional<StartEstimate>>> estimate(AttemptRequest request) {
        static_cast<void>(request);
        co_return std::optional<StartEstimate>{};
    }
};

}  // namespace lockstep
