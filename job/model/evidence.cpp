#include "job/model/evidence.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <algorithm>
#include <cstdio>

namespace lockstep {
namespace {

constexpr std::size_t kCalls = 3;

std::string with_number(const char* format, std::int32_t number) {
    std::array<char, 32> text{};
    const int size = std::snprintf(text.data(), text.size(), format, number);
    return std::string(text.data(), static_cast<std::size_t>(size));
}

std::string_view trimmed(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) {
        return {};
    }
    return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::string one_frame(std::string_view text) {
    return printable(text.substr(0, limits::kTextBytes));
}

bool starts_with(std::string_view text, std::string_view with) {
    return text.substr(0, with.size()) == with;
}

// "#1  0x00007f1c in poll (fds=…) at poll.c:29" → "poll"; eu-stack leaves out "in".
std::string_view function_of(std::string_view line) {
    const auto space = line.find(' ');
    std::string_view rest = trimmed(space == std::string_view::npos ? "" : line.substr(space));
    if (starts_with(rest, "0x")) {
        const auto end = rest.find(' ');
        rest = trimmed(end == std::string_view::npos ? "" : rest.substr(end));
        if (starts_with(rest, "in ")) {
            rest = trimmed(rest.substr(3));
        }
    }
    // Arguments; a C++ name may hold brackets of its own.
    const auto arguments = rest.find(" (");
    return trimmed(rest.substr(0, arguments));
}

}  // namespace

bool is_evidence_name(std::string_view name) {
    return std::find(kEvidenceNames.begin(), kEvidenceNames.end(), name) != kEvidenceNames.end();
}

std::array<std::string, 3> evidence_folders(std::int32_t generation, std::int32_t rank) {
    return {"evidence", with_number("gen-%d", generation), with_number("rank-%05d", rank)};
}

std::string top_python_frame(std::string_view text) {
    std::string first;
    bool wanted = false;  // the next frame is the newest of a thread
    bool main = false;
    for (const std::string& line : split(text, '\n')) {
        if (starts_with(line, "Thread ")) {
            wanted = true;
            main = line.find("\"MainThread\"") != std::string::npos;
        } else if (wanted && starts_with(line, "    ") && !trimmed(line).empty()) {
            wanted = false;
            if (main) {
                return one_frame(trimmed(line));
            }
            if (first.empty()) {
                first = one_frame(trimmed(line));
            }
        }
    }
    return first;
}

// gdb counts threads from the newest to thread 1, which is the main one; eu-stack begins with it.
std::string top_native_frame(std::string_view text) {
    std::string found;
    std::size_t calls = kCalls;  // none, before the first thread
    bool main = false;
    for (const std::string& line : split(text, '\n')) {
        if (starts_with(line, "Thread ") || starts_with(line, "TID ")) {
            main = starts_with(line, "Thread 1 ") || found.empty();
            calls = 0;
            if (main) {
                found.clear();
            }
        } else if (starts_with(line, "#") && main && calls < kCalls) {
            const std::string_view name = function_of(line);
            if (!name.empty() && name != "??") {
                found += (found.empty() ? "" : " < ") + std::string{name};
                ++calls;
            }
        }
    }
    return one_frame(found);
}

}  // namespace lockstep
