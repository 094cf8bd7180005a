// The questions lockstepd asks a Slurm, whichever way they get there: by Slurm's own programs
// (slurm_cli.hpp) or by slurmrestd. Control thread; every call has a deadline of its own.
#pragma once

#include "job/async/asio.hpp"
#include "job/base/result.hpp"
#include "scheduler-integration/slurm/batch_script.hpp"
#include "scheduler-integration/slurm/slurm_info.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What a Slurm is and can do, as found at start.
struct SlurmFacts {
    SlurmVersion version;
    SlurmConfig config;
    std::vector<SlurmPartition> partitions;
    std::optional<bool> has_pyxis{};  // srun takes --container-image; none = not known
    // One of several is Slurm's default, and it is not known which: SlurmRest::probe().
    bool default_untold = false;

    const SlurmPartition* default_partition() const;
    const SlurmPartition* partition(std::string_view name) const;
};

class SlurmBackend {
  public:
    virtual ~SlurmBackend() = default;
    virtual std::string_view name() const = 0;  // "slurm", "slurmrestd"
    // unavailable: no answer. not_found: Slurm's programs are not there. invalid: too old.
    virtual Task<Result<SlurmFacts>> probe() = 0;
    // Hands in the script at `path`, once.
    virtual Task<SubmitReply> submit(std::string path) = 0;
    // The same of an attempt whose script the backend makes itself (!writes_scripts()).
    virtual bool writes_scripts() const { return true; }
    virtual Task<SubmitReply> submit_attempt(AttemptRequest request, slurm::BatchSite site) {
        static_cast<void>(site);
        std::string path = request.directory + "/" + std::string{slurm::kBatchFileName};
        auto submitting = submit(std::move(path));
        co_return co_await std::move(submitting);
    }
    // An attempt is followed from now on; an earlier daemon may have handed it over.
    virtual Task<void> took_up(AttemptRequest request) {
        static_cast<void>(request);
        co_return;
    }
    // Every job of our user that the controller still knows, in any state. One request.
    virtual Task<Result<JobTable>> jobs() = 0;
    // What accounting knows of a name since a time in Unix seconds.
    virtual Task<Result<JobTable>> history(std::string job_name, std::int64_t since) = 0;
    // Only if it has this name: after a crash slurmctld gives numbers out again, and then the job
    // that has the number is somebody else's. Success if there is none.
    virtual Task<Status> cancel(std::int64_t id, std::string name) = 0;
    // What the answers of jobs() leave out. not_found: Slurm has no such job of this name.
    virtual Task<Result<SlurmJobDetail>> detail(std::int64_t id, std::string name) = 0;
    // What would become of this script if it were handed in; empty: there is no way to ask.
    virtual Task<Result<std::optional<TestOnlyReply>>> estimate(std::string script) {
        static_cast<void>(script);
        co_return std::optional<TestOnlyReply>{};
    }
    virtual Task<Status> ping() = 0;
    virtual Task<Result<NodeTable>> nodes() = 0;
    // Ends what is in flight: an order that was on its way may or may not have arrived.
    virtual void stop() = 0;
};

}  // namespace lockstep
