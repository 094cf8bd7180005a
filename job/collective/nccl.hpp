// The communicator for GPUs: NCCL, one process (or thread) per GPU.
//
// Nothing here waits for ever. Initialisation is non-blocking and ends in time with the names of
// the ranks that did not come, have another NCCL or other ids. A thread of the communicator watches
// what is under way; an error of NCCL's, or an operation that is not done after `silence`, ends the
// operations of every rank, and the error says by which rank it came (see verdict() in
// nccl_watch.hpp): ranks tell each other by keys, which need no GPU and no NCCL.
#pragma once

#include "job/collective/communicator.hpp"
#include "job/collective/key_store.hpp"
#include "job/collective/nccl_library.hpp"
#include "job/collective/nccl_watch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

using NcclUniqueId = std::array<std::byte, 128>;
// Gives every rank the same ids, one for 128 ranks; `make` makes one where this rank is asked for
// it. exchange_nccl_ids (job/rank/nccl_ids.hpp) is one.
using ExchangeNcclIds = std::function<Result<std::vector<NcclUniqueId>>(
    const std::function<Result<NcclUniqueId>()>& make)>;

struct NcclOptions {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::int32_t gpu = 0;  // index among those that this process sees
    // What the ranks are called in errors and verdicts, where these are some of the job's: by their
    // number here. Empty: by that number.
    std::vector<std::int32_t> names;
    std::int32_t name_of(std::int32_t number) const {
        return names.empty() ? number : names[static_cast<std::size_t>(number)];
    }
    // In front of this communicator's keys; new for every communicator.
    std::string prefix = "nccl";
    std::string nccl_library = kNcclLibrary;
    std::string cuda_driver = kCudaDriver;
    std::chrono::milliseconds init_timeout{120'000};
    std::chrono::milliseconds silence{600'000};
    // Operations that failed are ended, but the communicator can still be shrunk.
    bool elastic = false;
    // How long ranks are waited for to say where they are, once something is wrong.
    std::chrono::milliseconds verdict_timeout{10'000};
    // Asked every 100 ms while NCCL makes connections, in its initialisation and the first
    // operation of a kind: true ends that with `cancelled`.
    std::function<bool()> give_up = nullptr;
    // Called with what came of that, or with the ranks that did not come to the initialisation in
    // time (of those that make an id only where it is one), before the communicator fails. In the
    // thread that found it: the one that makes the communicator, or its watch.
    std::function<void(const NcclVerdict&)> on_verdict = nullptr;
};

class NcclCommunicator : public Communicator {
  public:
    // The communicator of those that are left, made by all of them with the same `gone`, sorted:
    // ranks of this one. What is under way here ends; this communicator can only be destroyed then.
    // invalid: NCCL before 2.27, or `gone`; unavailable: NCCL shrinks none that has an error of its
    // own (ncclRemoteError): the ranks that are left make a new one then.
    //
    // For programs that keep their own account of who does what. No job's ranks are shrunk in
    // place: after a loss they start again as a new generation, an elastic job's as well. The
    // shares of the samples and of a sharded optimizer's state, the batch and the ranks' numbers
    // follow the size of the world, and only a start has every framework make them anew, from a
    // checkpoint that all ranks agree on; a step that some ranks have applied and others not is
    // lost with it.
    virtual Result<std::unique_ptr<NcclCommunicator>> shrink(
        std::span<const std::int32_t> gone) = 0;
};

// `keys`: any thread; must outlive the communicator. not_found: NCCL or the driver does not load,
// or there is no such GPU; conflict: another NCCL or other ids than rank 0's; timed_out: ranks that
// did not come, or were not ready in time; unavailable: NCCL's own error.
Result<std::unique_ptr<NcclCommunicator>> make_nccl(const NcclOptions& options, KeyStore& keys,
                                                    const ExchangeNcclIds& exchange);

}  // namespace lockstep
