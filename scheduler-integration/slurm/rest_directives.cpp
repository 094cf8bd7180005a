#include "scheduler-integration/slurm/rest_directives.hpp"

#include "job/base/text.hpp"
#include "scheduler-integration/slurm/text_rows.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace lockstep::rest {

std::optional<std::int64_t> megabytes(std::string_view text) {
    const char unit = text.empty() ? '\0' : text.back();
    const bool has_unit = unit == 'K' || unit == 'M' || unit == 'G' || unit == 'T';
    const auto count = rows::number(text.substr(0, text.size() - (has_unit ? 1 : 0)));
    if (!count || *count > 1'000'000'000'000) {
        return std::nullopt;
    }
    switch (unit) {
        case 'K':
            return (*count + 1023) / 1024;
        case 'G':
            return *count * 1024;
        case 'T':
            return *count * 1024 * 1024;
        default:
            return *count;
    }
}

std::optional<std::int64_t> point_in_time(const std::string& text, std::int64_t now) {
    if (text == "now") {
        return now;
    }
    if (text.starts_with("now+")) {
        const std::string_view rest = std::string_view{text}.substr(4);
        const auto end = std::min(rest.find_first_not_of("0123456789"), rest.size());
        const auto count = rows::number(rest.substr(0, end));
        std::string_view unit = rest.substr(end);
        if (unit.ends_with('s')) {
            unit.remove_suffix(1);
        }
        constexpr std::array<std::pair<std::string_view, std::int64_t>, 6> kUnits{
            {{"", 1},
             {"second", 1},
             {"minute", 60},
             {"hour", 3600},
             {"day", 86'400},
             {"week", 604'800}}};
        for (const auto& [name, seconds] : kUnits) {
            if (count && *count < 1'000'000'000 && unit == name) {
                return now + *count * seconds;
            }
        }
        return std::nullopt;
    }
    for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
        std::tm parts{};
        const char* end = ::strptime(text.c_str(), format, &parts);
        if (end != nullptr && *end == '\0') {
            parts.tm_isdst = -1;
            const std::time_t seconds = std::mktime(&parts);
            return seconds < 0 ? std::nullopt : std::optional<std::int64_t>{seconds};
        }
    }
    return std::nullopt;
}

Result<std::vector<Directive>> read_directives(std::string_view script) {
    constexpr std::string_view kPrefix = "#SBATCH";
    std::vector<Directive> out;
    for (std::size_t from = 0; from < script.size();) {
        const auto end = std::min(script.find('\n', from), script.size());
        const std::string_view line = script.substr(from, end - from);
        from = end + 1;
        if (!line.starts_with('#') && !trim(line).empty()) {
            break;  // sbatch stops there too
        }
        for (const std::string_view other : {"#SLURM", "#PBS", "#BSUB"}) {
            if (line.starts_with(other)) {
                return fail(Errc::invalid, "not a directive of ours: " + printable(line));
            }
        }
        if (!line.starts_with(kPrefix)) {
            continue;
        }
        std::string_view words = line.substr(kPrefix.size());
        const bool is_option = words.starts_with(" --");
        words.remove_prefix(std::min<std::size_t>(3, words.size()));
        const auto equal = words.find('=');
        std::string_view option = words.substr(0, equal);
        std::string_view value =
            equal == std::string_view::npos ? std::string_view{} : words.substr(equal + 1);
        std::string_view forbidden = " \t\"'\\#\r";
        if (value.size() > 1 && value.front() == '"' && value.back() == '"') {
            value = value.substr(1, value.size() - 2);
            forbidden.remove_prefix(1);  // what the quotes are for
        }
        const bool plain = is_option &&
                           option.find_first_of(" \t\"'\\#\r") == std::string_view::npos &&
                           value.find_first_of(forbidden) == std::string_view::npos;
        Directive directive{std::string{option}, std::string{value}};
        const bool twice = std::any_of(out.begin(), out.end(), [&](const Directive& one) {
            return one.option == directive.option;
        });
        if (!plain || directive.option.empty() || twice) {
            return fail(Errc::invalid, "not a directive of ours: " + printable(line));
        }
        out.push_back(std::move(directive));
    }
    return out;
}

}  // namespace lockstep::rest
