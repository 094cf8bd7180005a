// Reads in a job's folder for a handler: away from the control thread, because the folder may be of
// a file system that hangs, as the job does. Control thread only, except for the work.
#pragma once

#include "daemon/http/routes/routes.hpp"
#include "job/async/sleep.hpp"
#include "job/base/result.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

// What a read of the folder holds until it has returned; nothing: too many have not, and it is to
// wait for its turn.
std::shared_ptr<void> begin_folder_read(RouteContext::Reads& reads, const std::string& folder);
inline constexpr std::chrono::milliseconds kFirstTurn{1};
inline constexpr std::chrono::milliseconds kLastTurn{128};
Error too_many_folder_reads();
Error folder_does_not_answer();

// What `work` returns. unavailable: it does not within the context's read_patience, or so long too
// many reads of this folder had not returned. `work` owns all that it uses.
template <class T>
Task<Result<T>> read_in_folder(RouteContext context, std::string folder, std::function<T()> work) {
    const auto until = std::chrono::steady_clock::now() + context.read_patience;
    std::shared_ptr<void> under_way = begin_folder_read(*context.reads, folder);
    // Many may follow the logs of one attempt, and each takes microseconds: only a folder that
    // hangs makes anybody wait, and then less and less often.
    net::steady_timer turn{context.io};
    for (auto pause = kFirstTurn; !under_way && std::chrono::steady_clock::now() < until;
         pause = std::min(2 * pause, kLastTurn)) {
        co_await sleep_on(turn, pause);
        under_way = begin_folder_read(*context.reads, folder);
    }
    if (!under_way) {
        co_return fail(too_many_folder_reads());
    }
    const std::function<T()> read = [work = std::move(work), under_way] { return work(); };
    auto answer = co_await context.readers->template run<T>(read, until);
    if (!answer) {
        co_return fail(folder_does_not_answer());
    }
    co_return std::move(*answer);
}

// The same of a whole answer: 503 instead of unavailable.
Task<HttpResponse> read_aside(RouteContext context, std::string folder,
                              std::function<HttpResponse()> work);

}  // namespace lockstep
