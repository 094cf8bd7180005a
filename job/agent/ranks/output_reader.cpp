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

std::optional<std::int64_t> since_the_first_epoch(const CapturedLoss& found) {
    std::int64_t before = 0;
    if (!found.from_zero || !found.of || !found.epoch || !found.step ||
        __builtin_mul_overflow(*found.epoch, *found.of, &before)) {
        return std::nullopt;
    }
    return counted_on(before, *found.step);
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
    if (waiting_ && !partial_.empty()) {
        look_for_bar(out);  // a draw ends with the next one
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
    let_go(out);
    return out;
}

void OutputReader::line(double now, std::vector<RankReport>& out) {
    if (partial_.empty()) {
        return;
    }
    if (watches_) {
        warning_ = trains_alone(partial_);
        const auto said = world_size_ > 0 && !warning_ ? printed_world(partial_) : std::nullopt;
        warning_ = said ? wrong_world(*said, world_size_) : std::move(warning_);
        watches_ = !warning_;
    }
    auto found = capture_.line(partial_);
    if (!found) {
        look_for_bar(out);
    } else {
        take(std::move(*found), now, out);
    }
    partial_.clear();
}

void OutputReader::look_for_bar(std::vector<RankReport>& out) {
    const auto drawn = parse_progress_bar(partial_);
    if (!drawn) {
        return;
    }
    if (waiting_ && !waiting_->found.bar) {
        waiting_->found.step = drawn->done;
        let_go(out);
    }
    bar_ = drawn;
}

bool OutputReader::is_of_last(const CapturedLoss& found) const {
    if (found.redrawn && numbered_ && numbered_->redrawn) {
        return found.step == numbered_->step && found.epoch == numbered_->epoch;
    }
    if (!last_ || !found.step_is_batch || !last_->step_is_batch || found.step != last_->step ||
        found.epoch != last_->epoch) {
        return false;
    }
    // Keras with verbose=2 prints an epoch's last batch alone: the next one is another epoch's.
    const bool alone = batch_ && !batch_->moved && batch_->number == batch_->of && !found.epoch &&
                       found.step == batch_->number && found.of == batch_->of;
    return !alone || found.loss == last_->loss;
}

void OutputReader::let_go(std::vector<RankReport>& out) {
    const auto waiting = std::exchange(waiting_, std::nullopt);
    if (!waiting) {
        return;
    }
    const CapturedLoss& found = waiting->found;
    if (!found.bar && found.step && last_ && last_->step && *found.step < *last_->step) {
        base_ = count_;  // another bar has begun
    }
    out.push_back(number(found, waiting->time));
}

void OutputReader::take(CapturedLoss found, double now, std::vector<RankReport>& out) {
    if (waiting_ && waiting_->found.bar && found.bar && found.step == waiting_->found.step &&
        found.epoch == waiting_->found.epoch) {
        if (found.loss != waiting_->found.loss) {
            waiting_ = Waiting{std::move(found), now};
            let_go(out);
        }
        return;
    }
    if (waiting_ && !waiting_->found.bar) {
        bar_.reset();  // it is not drawn anew behind each print
    }
    let_go(out);
    if (is_of_last(found) || (found.bar && found.step == 0)) {
        return;
    }
    const bool of_trainer = found.preset == "huggingface" && !found.step;
    if (const auto same = of_trainer ? parse_progress_bar(partial_) : std::nullopt) {
        found.step = same->done;  // printed behind it
        found.step_is_batch = true;
    } else if (of_trainer && bar_) {
        found.step = bar_->done;  // unless it is drawn anew
        waiting_ = Waiting{std::move(found), now};
        return;
    }
    if (found.bar && last_ && found.loss == last_->loss) {
        waiting_ = Waiting{std::move(found), now};
    } else {
        out.push_back(number(found, now));
    }
}

bool OutputReader::begins_again(const CapturedLoss& found) const {
    return numbered_ && numbered_->epoch && found.epoch && *found.epoch > *numbered_->epoch &&
           (*found.step < *numbered_->step || *found.step == 0);
}

std::int64_t OutputReader::since_last(const CapturedLoss& found) const {
    const bool same = last_ && last_->step && found.step &&
                      last_->step_is_batch == found.step_is_batch &&
                      (!found.step_is_batch || found.epoch == last_->epoch);
    return same && *found.step > *last_->step && *last_->step >= 0 ? *found.step - *last_->step : 0;
}

bool OutputReader::is_of_next_epoch(const CapturedLoss& found) const {
    const bool later = found.epoch && batch_->epoch && *found.epoch > *batch_->epoch;
    if (*found.of != batch_->of) {
        return later || batch_->number >= batch_->of - 1;
    }
    if (*found.step > batch_->number) {
        return later && !found.bar;  // a bar of the whole run may name the epoch, too
    }
    const std::int64_t back = batch_->number - *found.step;
    return later || batch_->number >= batch_->of || back > batch_->of / 2;
}

// The batches of the epochs before, and this one.
std::int64_t OutputReader::of_batch(const CapturedLoss& found) {
    const std::int64_t next = counted_on(count_, 1);
    if (*found.step < 0 || *found.of < *found.step) {
        return next;
    }
    Batch batch{*found.step, *found.of, found.epoch, batch_ ? batch_->base : count_, false};
    if (const auto of_epochs = since_the_first_epoch(found)) {
        batch.base = *of_epochs - *found.step;
    } else if (batch_ && is_of_next_epoch(found)) {
        const bool both = found.epoch && batch_->epoch && *found.epoch > *batch_->epoch;
        std::int64_t gone = 0;
        const bool fits =
            !__builtin_mul_overflow(both ? *found.epoch - *batch_->epoch : 1, batch_->of, &gone);
        batch.base = counted_on(batch.base, fits ? gone : 0);
    } else if (batch_ && (*found.of != batch_->of || *found.step <= batch_->number)) {
        return next;  // another loop's, or of another process
    } else {
        batch.moved = batch_.has_value();
    }
    const std::int64_t step = counted_on(batch.base, batch.number);
    batch_ = batch;
    return last_ && step <= count_ ? next : step;
}

RankReport OutputReader::number(const CapturedLoss& found, double now) {
    const bool own_step = found.step && !found.step_is_batch;
    // "step 100/938" without the number of its epoch begins again once it was 938/938.
    // Behind its last step an epoch's mean may be printed, which has none.
    const bool was_at_end = own_step && numbered_ && found.of && numbered_->of == found.of &&
                            numbered_->step == numbered_->of && *found.step < *numbered_->step;
    if (own_step && (was_at_end || begins_again(found))) {
        base_ = counted_on(count_, *found.step == 0 ? 1 : 0);
    }
    count_ = own_step                 ? counted_on(base_, *found.step)
             : found.step && found.of ? of_batch(found)
                                      : counted_on(count_, 1);
    RankReport report;
    report.step = count_;
    report.time = now;
    report.has_loss = true;
    report.metrics.emplace_back("loss", found.loss);
    report.metrics.insert(report.metrics.end(), found.parts.begin(), found.parts.end());
    if (found.epoch) {
        report.metrics.emplace_back("epoch", static_cast<double>(*found.epoch));
    }
    if (const auto steps = since_last(found); steps > 0 && now > last_time_) {
        report.metrics.emplace_back("step_seconds",
                                    (now - last_time_) / static_cast<double>(steps));
    }
    last_ = found;
    last_time_ = now;
    if (own_step) {
        numbered_ = found;
    }
    return report;
}

}  // namespace lockstep
