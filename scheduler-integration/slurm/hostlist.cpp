#include "scheduler-integration/slurm/hostlist.hpp"

#include "job/base/limits.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace lockstep {
namespace {

// RFC 1123 bounds a host name to 253 characters.
constexpr std::size_t kNameBytes = 253;
// One entry with its brackets: 65,536 single numbers of 6 digits and a comma.
constexpr std::size_t kItemBytes = 7 * limits::kHostlistNames;
// 18 digits fit an int64; no cluster numbers its nodes with more.
constexpr std::size_t kDigits = 18;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_name_character(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
}

tl::unexpected<Error> bad(std::string_view what, std::size_t position) {
    return fail(Errc::invalid,
                "hostlist: " + std::string{what} + " at byte " + std::to_string(position));
}

std::string padded(std::int64_t number, std::size_t width) {
    std::string digits = std::to_string(number);
    if (digits.size() < width) {
        digits.insert(0, width - digits.size(), '0');
    }
    return digits;
}

// Reads one list from left to right; position_ is the byte that errors name.
class Expander {
  public:
    explicit Expander(std::string_view text) : text_(text) {}

    Result<std::vector<std::string>> run() {
        while (position_ < text_.size()) {
            if (!names_.empty() || started_) {
                if (text_[position_] != ',') {
                    return bad("a comma is missing", position_);
                }
                ++position_;
            }
            started_ = true;
            LOCKSTEP_TRY(this->item());
        }
        return std::move(names_);
    }

  private:
    // One entry between commas, texts and groups in turn: t0 [g0] t1 [g1] … tn.
    Status item() {
        const std::size_t begin = position_;
        std::vector<std::string> texts{""};
        std::vector<std::vector<std::string>> groups;
        std::size_t count = 1;
        while (position_ < text_.size() && text_[position_] != ',') {
            if (text_[position_] == '[') {
                std::vector<std::string> numbers;
                if (Status read = group(numbers); !read) {
                    return read;
                }
                if (numbers.size() > (limits::kHostlistNames - names_.size()) / count) {
                    return bad("more than " + std::to_string(limits::kHostlistNames) + " names",
                               begin);
                }
                count *= numbers.size();
                groups.push_back(std::move(numbers));
                texts.emplace_back();
            } else if (is_name_character(text_[position_])) {
                texts.back() += text_[position_++];
            } else {
                return bad("a character that is in no host name", position_);
            }
            if (position_ - begin > kItemBytes) {
                return bad("an entry longer than " + std::to_string(kItemBytes) + " bytes", begin);
            }
        }
        if (position_ == begin) {
            return bad("an empty name", begin);
        }
        if (names_.size() + count > limits::kHostlistNames) {
            return bad("more than " + std::to_string(limits::kHostlistNames) + " names", begin);
        }
        return combine(texts, groups, count, begin);
    }

    // Slurm's order: the last group counts fastest, then the first, the second, …
    Status combine(const std::vector<std::string>& texts,
                   const std::vector<std::vector<std::string>>& groups, std::size_t count,
                   std::size_t begin) {
        std::vector<std::size_t> at(groups.size(), 0);
        for (std::size_t n = 0; n < count; ++n) {
            std::size_t rest = n;
            for (std::size_t k = 0; k < groups.size(); ++k) {
                const std::size_t g = k == 0 ? groups.size() - 1 : k - 1;
                at[g] = rest % groups[g].size();
                rest /= groups[g].size();
            }
            std::string name = texts.front();
            for (std::size_t g = 0; g < groups.size(); ++g) {
                name += groups[g][at[g]];
                name += texts[g + 1];
            }
            if (name.size() > kNameBytes) {
                return bad("a name longer than 253 characters", begin);
            }
            names_.push_back(std::move(name));
        }
        return {};
    }

    // "[00-03,7]" from the bracket on.
    Status group(std::vector<std::string>& numbers) {
        const std::size_t begin = position_++;
        while (true) {
            std::size_t width = 0;
            const std::size_t from = position_;
            const auto low = number(width);
            if (!low) {
                return bad("a number is missing", position_);
            }
            std::int64_t high = *low;
            if (position_ < text_.size() && text_[position_] == '-') {
                ++position_;
                std::size_t ignored = 0;
                const auto read = number(ignored);
                if (!read) {
                    return bad("a number is missing", position_);
                }
                high = *read;
            }
            if (high < *low) {
                return bad("a range that descends", from);
            }
            if (static_cast<std::uint64_t>(high - *low) >=
                limits::kHostlistNames - numbers.size()) {
                return bad("more than " + std::to_string(limits::kHostlistNames) + " names", from);
            }
            for (std::int64_t i = *low; i <= high; ++i) {
                numbers.push_back(padded(i, width));
            }
            if (position_ >= text_.size()) {
                return bad("a bracket that is not closed", begin);
            }
            const char c = text_[position_++];
            if (c == ']') {
                return {};
            }
            if (c != ',') {
                return bad("a character that is in no range", position_ - 1);
            }
        }
    }

    std::optional<std::int64_t> number(std::size_t& width) {
        const std::size_t from = position_;
        while (position_ < text_.size() && is_digit(text_[position_])) {
            ++position_;
        }
        width = position_ - from;
        if (width == 0 || width > kDigits) {
            return std::nullopt;
        }
        std::int64_t value = 0;
        std::from_chars(text_.data() + from, text_.data() + position_, value);
        return value;
    }

    std::string_view text_;
    std::size_t position_ = 0;
    bool started_ = false;
    std::vector<std::string> names_;
};

// A name cut before the digits at its end; `digits` is empty if it ends otherwise: Slurm 22.05
// refuses text behind the last bracket, so such names stay as they are.
struct Cut {
    std::string_view prefix;
    std::string_view digits;
    std::int64_t number = 0;
};

Cut cut(std::string_view name) {
    std::size_t begin = name.size();
    while (begin > 0 && is_digit(name[begin - 1]) && name.size() - begin < kDigits) {
        --begin;
    }
    Cut out{name.substr(0, begin), name.substr(begin), 0};
    std::from_chars(out.digits.data(), out.digits.data() + out.digits.size(), out.number);
    return out;
}

// Whether `next` continues the run: the same number as written by counting on from `last`.
bool follows(const Cut& last, const Cut& next, std::size_t width) {
    return next.number == last.number + 1 && padded(next.number, width) == next.digits;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
    return Expander{text}.run();
}

std::string compress_hostlist(std::span<const std::string> names) {
    std::string out;
    std::size_t i = 0;
    while (i < names.size()) {
        const Cut first = cut(names[i]);
        std::string ranges;
        std::size_t members = 0;
        // All that follows with the same prefix and suffix shares one bracket, range by range.
        while (i < names.size()) {
            const Cut low = cut(names[i]);
            if (low.digits.empty() || low.prefix != first.prefix) {
                break;
            }
            Cut last = low;
            std::size_t next = i + 1;
            while (next < names.size()) {
                const Cut candidate = cut(names[next]);
                if (candidate.prefix != first.prefix || candidate.digits.empty() ||
                    !follows(last, candidate, low.digits.size())) {
                    break;
                }
                last = candidate;
                ++next;
            }
            ranges += ranges.empty() ? "" : ",";
            ranges += low.digits;
            if (next > i + 1) {
                ranges += "-";
                ranges += last.digits;
            }
            members += next - i;
            i = next;
        }
        out += out.empty() ? "" : ",";
        if (members <= 1) {
            out += names[members == 0 ? i++ : i - 1];
        } else {
            out.append(first.prefix).append("[").append(ranges).append("]");
        }
    }
    return out;
}

}  // namespace lockstep
