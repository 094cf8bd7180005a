#include "job/cli/samples.hpp"

#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/fields.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::cli {
namespace {

constexpr auto kBetweenSampleTries = std::chrono::seconds{1};
constexpr int kSampleTries = limits::kSamplesPatience / kBetweenSampleTries;

std::string set_of(const std::vector<std::int32_t>& ranks) {
    std::string out;
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
            ++last;
        }
        out += (out.empty() ? "" : ",") + std::to_string(ranks[i]);
        out += last > i ? "-" + std::to_string(ranks[last]) : "";
        i = last + 1;
    }
    return out;
}

double number_of(const Json& value) {
    if (value.is_number()) {
        return value.get<double>();
    }
    if (value == "inf" || value == "-inf") {
        const double infinite = std::numeric_limits<double>::infinity();
        return value == "inf" ? infinite : -infinite;
    }
    return std::numeric_limits<double>::quiet_NaN();
}

Status each_of(const Json& run, const std::function<Status(const Sample&)>& use) {
    const Json& steps = items_at(run, "steps");
    const Json& times = items_at(run, "times");
    const Json& values = items_at(run, "values");
    Sample sample;
    SampleGpu gpu;
    if (run.contains("id")) {
        gpu.node = one_line(text_at(run, "node"));
        gpu.gpu = integer_at(run, "gpu").value_or(-1);
        for (const Json& rank : items_at(run, "ranks")) {
            gpu.ranks.push_back(rank.is_number_integer() ? rank.get<std::int64_t>() : -1);
        }
        sample.gpu = &gpu;
    }
    const char* number = sample.gpu == nullptr ? "rank" : "id";
    sample.rank = static_cast<std::int32_t>(integer_at(run, number).value_or(-1));
    sample.attempt = integer_at(run, "attempt").value_or(0);
    sample.generation = integer_at(run, "generation").value_or(0);
    if (sample.rank < 0 || steps.size() != values.size() || times.size() != values.size()) {
        return fail(Errc::corrupt, "the daemon's answer is not what it should be");
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        sample.step = steps[i].is_number_integer() ? steps[i].get<std::int64_t>() : -1;
        sample.time = number_of(times[i]);
        sample.value = number_of(values[i]);
        if (const Status used = use(sample); !used) {
            return used;
        }
    }
    return {};
}

}  // namespace

Result<Json> SampleReader::page(const std::string& target) {
    for (int tries = 1;; ++tries) {
        if (interrupted_()) {
            return fail(Errc::cancelled, "interrupted");
        }
        auto answer = context_.client.get_json(target);
        const bool again = !answer && answered_ && tries < kSampleTries &&
                           (may_pass(answer.error()) || answer.error().code == Errc::exhausted);
        if (!again) {
            answered_ = true;
            return answer;
        }
        context_.sleep(kBetweenSampleTries);
    }
}

Status SampleReader::each(const SampleQuery& query,
                          const std::function<Status(const Sample&)>& use) {
    std::string target = "/v1/jobs/" + id_ + "/samples?metric=" + query_encode(query.metric) +
                         (query.of_gpus ? "&entity=gpu&gpus=" : "&ranks=") + set_of(query.ranks) +
                         "&limit=" + std::to_string(limits::kSamplesPage);
    if (query.part) {
        target += "&attempt=" + std::to_string(query.part->attempt) +
                  "&generation=" + std::to_string(query.part->generation) +
                  "&from=" + std::to_string(query.part->from) +
                  "&to=" + std::to_string(query.part->to);
    }
    std::string cursor;
    do {
        const auto answer =
            page(cursor.empty() ? target : target + "&cursor=" + query_encode(cursor));
        LOCKSTEP_TRY(answer);
        for (const Json& run : items_at(*answer, "runs")) {
            if (const Status used = each_of(run, use); !used) {
                return used;
            }
        }
        damaged_ += integer_at(*answer, "damaged_chunks").value_or(0);
        cursor = text_at(*answer, "next_cursor");
    } while (!cursor.empty());
    return {};
}

}  // namespace lockstep::cli
