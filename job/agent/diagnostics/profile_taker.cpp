#include "job/agent/diagnostics/profile_taker.hpp"

#include "job/base/limits.hpp"

#include <chrono>
#include <utility>

namespace lockstep {

void ProfileTaker::take(ProfileQuestion question, Done done) {
    stop();
    stopped_ = std::make_shared<std::atomic<bool>>(false);
    question.stopped = stopped_;
    tasks_.spawn("profile", run(std::move(question), std::move(done)));
}

void ProfileTaker::stop() {
    if (const auto stopped = std::exchange(stopped_, nullptr)) {
        stopped->store(true);
    }
    thread_.let_go();
}

Task<void> ProfileTaker::run(ProfileQuestion question, Done done) {
    const auto stopped = question.stopped;
    wire::Profiled out;
    out.generation = question.generation;
    out.number = question.number;
    const std::vector<std::int32_t> wanted = question.wanted;
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::seconds{2 * question.seconds} + limits::kProfileMore +
                       limits::kProfileCopy / 2;
    const std::function<std::vector<wire::RankEvidence>()> work = [question = std::move(question)] {
        return profile_ranks(question);
    };
    auto ranks = co_await thread_.run<std::vector<wire::RankEvidence>>(work, until);
    if (stopped->load()) {
        co_return;
    }
    if (ranks) {
        out.ranks = std::move(*ranks);
    } else {
        for (const std::int32_t rank : wanted) {
            out.ranks.push_back(
                {rank, "", {}, {{"all", "the file system of the job did not answer in time"}}});
        }
    }
    done(std::move(out));
}

}  // namespace lockstep
