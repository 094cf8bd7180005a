// Reads in a job's folder for a handler: away from the control thread, because the folder may be of
// a file system that hangs, as the job does. Control thread only, except for the work.
#pragma once

#include "daemon/http/routes.hpp"
#include "job/base/result.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

// What a read of the folder holds until it has returned; nothing: too many have not.
std::shared_ptr<void> begin_folder_read(RouteContext::Reads& reads, const std::string& folder);
Error too_many_folder_reads();
Error folder_does_not_answer();

// What `work` returns. unavailable: it does not within the context's read_patience, or too many
// reads of this folder have not returned. `work` owns all that it uses.
template <class T>
Task<Result<T>> read_in_folder(RouteContext context, std::string folder, std::function<T()> work) {
    const std::shared_ptr<void> under_way = begin_folder_read(*context.reads, folder);
    if (!under_way) {
        co_return fail(too_many_folder_reads());
    }
    const std::function<T()> read = [work = std::move(work), under_way] { return work(); };
    const auto until = std::chrono::steady_clock::now() + context.read_patience;
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
