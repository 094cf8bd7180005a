#include "job/agent/ranks/output_reader.hpp"

#include "job/base/limits.hpp"
#include "job/model/spec/misconfiguration.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// What a script prints may be any number: where the sum is none, it begins again at `step`.
std::int64_t counted_on(std::int64_t from, std::int64_t step) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(from, step, &sum) ? step : sum;
}

}  // namespace

std::vector<RankReport> OutputReader::feed(std::string_view bytes, double now) {
    std::vector<RankReport> out;
    // A gigabyte may pass through here: memchr finds each kind of line end, once.
    std::size_t begin = 0;
    std::size_t newline = bytes.find('\n');
    std::size_t carriage = bytes.find('\r');
    while (begin < bytes.size()) {
        const std::size_t end = std::min({newline, carriage, bytes.size()});
        const std::size_t room = limits::kLineBytes - partial_.size();
        partial_.append(bytes.substr(begin, std::min(room, end - begin)));
        if (end == bytes.size()) {
            break;
        }
        line(now, out);
        begin = end + 1;
        if (end == newline) {
            newline = bytes.find('\n', begin);
        } else {
            carriage = bytes.find('\r', begin);
        }
    }
    if (out.size() > 1) {
        // Printed together or read together: the time between them is not known.
        for (auto& report : out) {
            std::erase_if(report.metrics, [](const auto& m) { return m.first == "step_seconds"; });
        }
    }
    return out;
}

std::vector<RankReport> OutputReader::end(double now) {
    std::vector<RankReport> out;
    line(now, out);
    return out;
}

void OutputReader::line(double now, std::vector<RankReport>& out) {
    if (partial_.empty()) {
        return;
    }
    if (watches_) {
        warning_ = trains_alone(partial_);
        watches_ = !warning_;
    }
    const auto found = capture_.line(partial_);
    partial_.clear();
    if (!found) {
        return;
    }
    const bool redrawn = last_ && found->step_is_batch && last_->step_is_batch &&
                         found->step == last_->step && found->epoch == last_->epoch;
    if (!redrawn) {
        out.push_back(number(*found, now));
    }
}

bool OutputReader::begins_again(const CapturedLoss& found) const {
    return last_ && last_->epoch && found.epoch && *found.epoch > *last_->epoch && last_->step &&
           !last_->step_is_batch && (*found.step < *last_->step || *found.step == 0);
}

std::int64_t OutputReader::since_last(const CapturedLoss& found) const {
    const bool same = last_ && last_->step && found.step &&
                      last_->step_is_batch == found.step_is_batch &&
                      (!found.step_is_batch || found.epoch == last_->epoch);
    return same && *found.step > *last_->step && *last_->step >= 0 ? *found.step - *last_->step : 0;
}

RankReport OutputReader::number(const CapturedLoss& found, double now) {
    const bool own_step = found.step && !found.step_is_batch;
    if (own_step && begins_again(found)) {
        base_ = counted_on(count_, *found.step == 0 ? 1 : 0);
    }
    count_ = own_step ? counted_on(base_, *found.step) : counted_on(count_, 1);
    RankReport report;
    report.step = count_;
    report.time = now;
    report.has_loss = true;
    report.metrics.emplace_back("loss", found.loss);
    if (found.epoch) {
        report.metrics.emplace_back("epoch", static_cast<double>(*found.epoch));
    }
    if (const auto steps = since_last(found); steps > 0 && now > last_time_) {
        report.metrics.emplace_back("step_seconds",
                                    (now - last_time_) / static_cast<double>(steps));
    }
    last_ = found;
    last_time_ = now;
    return report;
}

}  // namespace lockstep
