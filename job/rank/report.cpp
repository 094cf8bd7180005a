#include "job/rank/report.hpp"

#include "job/model/wire/batch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

namespace lockstep {
namespace {

template <class Number>
void append_number(std::string& text, Number value) {
    std::array<char, 32> digits{};  // the shortest form of a double takes at most 24 characters
    const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
    text.append(digits.begin(), end);
}

}  // namespace

void Report::begin(std::int64_t step) {
    text_ = R"({"op":"report","step":)";
    append_number(text_, step);
}

void Report::begin(std::int64_t step, std::int64_t epoch) {
    begin(step);
    text_ += R"(,"epoch":)";
    append_number(text_, epoch);
}

bool Report::name(std::string_view text) {
    constexpr std::array<std::string_view, 5> kReserved{"op", "step", "epoch", "kind", "time"};
    if (!is_metric_name(text) ||
        std::find(kReserved.begin(), kReserved.end(), text) != kReserved.end()) {
        ++refused_;
        return false;
    }
    text_ += ",\"";
    text_ += text;
    text_ += "\":";
    return true;
}

void Report::metric(std::string_view text, double value) {
    if (!name(text)) {
        return;
    }
    if (std::isfinite(value)) {
        append_number(text_, value);
    } else if (std::isnan(value)) {
        text_ += "\"nan\"";
    } else {
        text_ += value > 0 ? "\"inf\"" : "\"-inf\"";
    }
}

void Report::metric(std::string_view text, std::int64_t value) {
    if (name(text)) {
        append_number(text_, value);
    }
}

void Report::time(double unix_seconds) {
    text_ += R"(,"time":)";
    append_number(text_, unix_seconds);
}

void Report::kind(std::string_view word) {
    if (!is_metric_name(word)) {
        ++refused_;
        return;
    }
    text_ += R"(,"kind":")";
    text_ += word;
    text_ += '"';
}

std::string_view Report::finish() {
    text_ += '}';
    return text_;
}

}  // namespace lockstep
