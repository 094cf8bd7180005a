#include "daemon/http/folder_reads.hpp"

#include "daemon/http/problem.hpp"

#include <utility>

namespace lockstep {
namespace {

// Of one folder at a time. One that hangs counts for as long as it does.
constexpr std::size_t kReadsOfAFolder = 4;

// What a read of the folder holds until it has returned; nothing: too many have not.
std::shared_ptr<void> begin_read(RouteContext::Reads& reads, const std::string& folder) {
    for (auto& [at, open] : reads) {
        std::erase_if(open, [](const std::weak_ptr<void>& read) { return read.expired(); });
    }
    std::erase_if(reads, [](const auto& one) { return one.second.empty(); });
    auto& here = reads[folder];
    if (here.size() >= kReadsOfAFolder) {
        return nullptr;
    }
    std::shared_ptr<void> read = std::make_shared<bool>();
    here.push_back(read);
    return read;
}

}  // namespace

Task<HttpResponse> read_aside(RouteContext context, std::string folder,
                              std::function<HttpResponse()> work) {
    const std::shared_ptr<void> under_way = begin_read(*context.reads, folder);
    if (!under_way) {
        co_return problem(
            Error{Errc::unavailable, "reads of the job's folder do not return: too many at once"});
    }
    const std::function<HttpResponse()> read = [work = std::move(work), under_way] {
        return work();
    };
    const auto until = std::chrono::steady_clock::now() + context.read_patience;
    auto answer = co_await context.readers->run<HttpResponse>(read, until);
    if (!answer) {
        co_return problem(
            Error{Errc::unavailable, "the file system of the job's folder does not answer"});
    }
    co_return std::move(*answer);
}

}  // namespace lockstep
