#include "job/agent/diagnostics/profile_taker.hpp"

#include "job/async/sleep.hpp"
#include "job/base/limits.hpp"
#include "job/model/profile.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kNoFileSystem = "the file system of the job did not answer in time";

}  // namespace

void ProfileTaker::take(ProfileQuestion question, Collectives collectives, Done done) {
    stop();
    stopped_ = std::make_shared<std::atomic<bool>>(false);
    question.stopped = stopped_;
    const auto shared = std::make_shared<const ProfileQuestion>(std::move(question));
    tasks_.spawn("profile", run(shared, std::move(collectives), std::move(done)));
}

void ProfileTaker::stop() {
    if (const auto stopped = std::exchange(stopped_, nullptr)) {
        stopped->store(true);
    }
    timer_.cancel();
    thread_.let_go();
}

Task<void> ProfileTaker::run(std::shared_ptr<const ProfileQuestion> question,
                             Collectives collectives, Done done) {
    wire::Profiled out;
    out.generation = question->generation;
    out.number = question->number;
    const auto began = std::chrono::steady_clock::now();
    const auto posted = began + std::chrono::seconds{question->seconds} + limits::kInspectorPost;
    auto until = began + std::chrono::seconds{2 * question->seconds} + limits::kProfileMore +
                 limits::kProfileCopy / 2;
    const std::function<ProfiledRanks()> work = [question] { return profile_ranks(*question); };
    auto ranks = co_await thread_.run<ProfiledRanks>(work, until);
    if (question->stopped->load()) {
        co_return;
    }
    if (!ranks) {
        for (const std::int32_t rank : question->wanted) {
            out.ranks.push_back({rank, "", {}, {{"all", kNoFileSystem}}});
            if (collectives) {
                collectives(rank);  // nobody will read it
            }
        }
        done(std::move(out));
        co_return;
    }
    out.ranks = std::move(*ranks);
    ProfileTexts texts;
    if (collectives) {
        // What was asked of nobody, or was answered at once, is over before anything is posted.
        const auto left = posted - std::chrono::steady_clock::now();
        co_await sleep_on(timer_, std::max(left, left.zero()));
        if (question->stopped->load()) {
            co_return;
        }
        for (const std::int32_t rank : question->wanted) {
            if (auto found = collectives(rank)) {
                texts[rank] = std::move(*found);
            }
        }
    }
    if (!texts.empty()) {
        const std::function<ProfiledRanks()> write = [question, texts, taken = out.ranks] {
            return with_collectives(*question, taken, texts);
        };
        until += limits::kProfileCopy / 4;
        if (auto more = co_await thread_.run<ProfiledRanks>(write, until)) {
            out.ranks = std::move(*more);
        } else {
            for (wire::RankEvidence& one : out.ranks) {
                one.missing.push_back({std::string{kProfileCollectives}, kNoFileSystem});
            }
        }
        if (question->stopped->load()) {
            co_return;
        }
    }
    done(std::move(out));
}

}  // namespace lockstep
