#include "daemon/http/routes/folder_reads.hpp"

#include "daemon/http/base/problem.hpp"
#include "job/base/limits.hpp"

#include <utility>

namespace lockstep {

std::shared_ptr<void> begin_folder_read(RouteContext::Reads& reads, const std::string& folder) {
    for (auto& [at, open] : reads) {
        std::erase_if(open, [](const std::weak_ptr<void>& read) { return read.expired(); });
    }
    std::erase_if(reads, [](const auto& one) { return one.second.empty(); });
    auto& here = reads[folder];
    if (here.size() >= limits::kReadsOfAFolder) {
        return nullptr;
    }
    std::shared_ptr<void> read = std::make_shared<bool>();
    here.push_back(read);
    return read;
}

Error too_many_folder_reads() {
    return {Errc::unavailable, "too many reads of the job's folder are blocked"};
}

Error folder_does_not_answer() {
    return {Errc::unavailable, "the file system of the job's folder does not answer"};
}

Task<HttpResponse> read_aside(RouteContext context, std::string folder,
                              std::function<HttpResponse()> work) {
    auto answer =
        co_await read_in_folder<HttpResponse>(context, std::move(folder), std::move(work));
    co_return answer ? std::move(*answer) : problem(answer.error());
}

}  // namespace lockstep
