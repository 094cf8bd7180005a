// The version part of slurm_text.hpp: numbers and what is known about them.
#include "job/base/text.hpp"
#include "scheduler-integration/slurm/slurm_text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <array>
#include <charconv>

namespace lockstep {
namespace {

// A security fix: releases before `release` of the same series lack it, and all older series.
struct Fix {
    std::string_view name;
    std::array<SlurmVersion, 3> releases;  // the first fixed one of each series, oldest first
};

// https://www.schedmd.com/security-policy/ and its announcements.
constexpr std::array kFixes{
    Fix{"CVE-2023-41914",
        {SlurmVersion{22, 5, 10}, SlurmVersion{23, 2, 6}, SlurmVersion{23, 11, 0}}},
    Fix{"CVE-2023-49933 to 49938",
        {SlurmVersion{22, 5, 11}, SlurmVersion{23, 2, 7}, SlurmVersion{23, 11, 1}}},
    Fix{"CVE-2025-43904",
        {SlurmVersion{23, 11, 11}, SlurmVersion{24, 5, 8}, SlurmVersion{24, 11, 5}}},
};

bool lacks(const SlurmVersion& version, const Fix& fix) {
    for (const SlurmVersion& fixed : fix.releases) {
        if (version.major == fixed.major && version.minor == fixed.minor) {
            return version.micro < fixed.micro;
        }
    }
    return version < fix.releases.back();
}

}  // namespace

Result<SlurmVersion> parse_slurm_version(std::string_view text) {
    const auto lines = rows::lines(text);
    for (std::string_view line : lines) {
        line = trim(line);
        if (const auto space = line.rfind(' '); space != std::string_view::npos) {
            if (!line.starts_with("slurm")) {
                continue;  // a banner
            }
            line.remove_prefix(space + 1);
        }
        std::array<int, 3> parts{};
        std::size_t count = 0;
        const char* at = line.data();
        const char* const end = line.data() + line.size();
        while (count < parts.size()) {
            const auto [next, ec] = std::from_chars(at, end, parts[count]);
            if (ec != std::errc{} || parts[count] < 0 || parts[count] > 9999) {
                break;
            }
            ++count;
            at = next;
            if (at == end || *at != '.') {
                break;
            }
            ++at;
        }
        // What follows may be a release candidate's "-0rc1" or "pre1".
        if (count >= 2 && parts[0] >= 10) {
            return SlurmVersion{parts[0], parts[1], parts[2]};
        }
    }
    return fail(Errc::invalid, "not Slurm's version: " + printable(text.substr(0, 64)));
}

std::string to_string(const SlurmVersion& version) {
    const std::string minor = std::to_string(version.minor);
    return std::to_string(version.major) + (minor.size() < 2 ? ".0" : ".") + minor + "." +
           std::to_string(version.micro);
}

std::string known_defects(const SlurmVersion& version) {
    std::string parts;
    const auto add = [&](const std::string& part) { parts += (parts.empty() ? "" : "; ") + part; };
    if (version < SlurmVersion{22, 5, 0}) {
        add("older than 22.05, the oldest release Lockstep is tested on");
    }
    if (version >= SlurmVersion{22, 5, 5} && version <= SlurmVersion{22, 5, 8}) {
        add("refuses some valid jobs with GPUs and several tasks (Slurm bug 15857, fixed in "
            "22.05.9)");
    }
    std::string fixes;
    for (const Fix& fix : kFixes) {
        if (lacks(version, fix)) {
            fixes += (fixes.empty() ? "" : ", ") + std::string{fix.name};
        }
    }
    if (!fixes.empty()) {
        add("as published lacks the fixes of " + fixes + "; your distribution may have added them");
    }
    return parts.empty() ? "" : "Slurm " + to_string(version) + ": " + parts;
}

}  // namespace lockstep
