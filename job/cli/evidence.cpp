// What the ranks of a hang were doing: the part of `lockstep show`, and `lockstep evidence`.
#include "job/model/evidence.hpp"

#include "job/base/text.hpp"
#include "job/cli/cli_limits.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/views.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kEvidenceTurn{250};
constexpr int kTurns = limits::kEvidenceNowPatience / kEvidenceTurn;

struct Kind {
    std::string_view word;  // of --what
    std::vector<std::string_view> names;
};

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> kAll{
        {"all", {kStateText, kKernelText, kPythonText, kNativeText, kRasText, kNcclText}},
        {"stack", {kPythonText, kNativeText}},
        {"state", {kStateText}},
        {"kernel", {kKernelText}},
        {"python", {kPythonText}},
        {"native", {kNativeText}},
        {"ras", {kRasText}},
        {"nccl", {kNcclText}},
        {"flight-recorder", {kFlightDumpName}}};
    return kAll;
}

// An item of the list by its attempt and generation, which its time tells from an earlier look.
std::string list_time(const Json& list) {
    const Json& items = items_at(list, "items");
    return items.empty() ? "" : text_at(items.front(), "time");
}

Status take_now(Context& context, const std::string& base) {
    const auto before = context.client.get_json(base + kNewestEvidence);
    LOCKSTEP_TRY(before);
    LOCKSTEP_TRY(context.client.post_json(base + "/evidence", ""));
    for (int turn = 0; turn < kTurns; ++turn) {
        context.sleep(kEvidenceTurn);
        const auto list = context.client.get_json(base + kNewestEvidence);
        if (!list && !may_pass(list.error())) {
            return fail(list.error());
        }
        if (list && list_time(*list) != list_time(*before)) {
            return {};
        }
    }
    return fail(Errc::timed_out,
                "the ranks were asked, and no answer has come; lockstep evidence "
                "shows it when it does");
}

bool has_file(const Json& rank, std::string_view name) {
    const Json& files = items_at(rank, "files");
    return std::any_of(files.begin(), files.end(),
                       [&](const Json& file) { return text_at(file, "name") == name; });
}

// The texts of one rank, each under its name if there are several. Of one that is not `listed`
// it is not known which files there are: all are requested.
Exit print_files(Context& context, const std::string& base, const Json& item, const Json& rank,
                 const Kind& kind, bool listed) {
    const std::string query = "?attempt=" + integer_text(item, "attempt") +
                              "&generation=" + integer_text(item, "generation") +
                              "&rank=" + integer_text(rank, "rank");
    bool any = false;
    for (const std::string_view name : kind.names) {
        if (listed && !has_file(rank, name)) {
            continue;
        }
        std::string path = base;
        path.append("/evidence/").append(name).append(query);
        const auto text = whole_file(context, path);
        if (!text && !listed && text.error().code == Errc::not_found) {
            continue;
        }
        if (!text) {
            return report(context, text.error());
        }
        if (kind.names.size() > 1) {
            context.out << "==> rank " << integer_text(rank, "rank") << " " << name << "\n";
        }
        // A terminal obeys what it is sent, so foreign text is cleaned; a pipe gets the bytes.
        context.out << (context.terminal.interactive ? harmless(*text) : *text);
        any = true;
    }
    for (const Json& gap : items_at(rank, "missing")) {
        const std::string what = text_at(gap, "what");
        const bool meant = kind.word == "all" || what == "all" ||
                           std::any_of(kind.names.begin(), kind.names.end(), [&](auto name) {
                               return name.substr(0, what.size()) == what;
                           });
        if (meant) {
            context.err << "rank " << integer_text(rank, "rank") << ": no " << what << ": "
                        << text_at(gap, "why") << "\n";
        }
    }
    context.out << std::flush;
    return any ? Exit::ok : Exit::not_found;
}

}  // namespace

Result<std::string> whole_file(Context& context, const std::string& target) {
    std::string out;
    for (;;) {
        const auto answer = context.client.get(target + "&offset=" + std::to_string(out.size()));
        LOCKSTEP_TRY(answer);
        out += answer->body;
        if (answer->body.empty() || !to_int(answer->header("Lockstep-Log-Next"))) {
            return out;
        }
    }
}

Lines evidence_view(const Terminal& terminal, const Json& item, std::size_t most) {
    Lines lines;
    lines.push_back(paint(terminal, Style::bold,
                          "evidence  attempt " + integer_text(item, "attempt") + " gen. " +
                              integer_text(item, "generation")) +
                    "  " + text_at(item, "reason"));
    lines.push_back(paint(terminal, Style::dim, text_at(item, "message")));
    Table table(
        {{"RANK", true}, {"NODE", false, true}, {"STEP", true}, {"STATE"}, {"WAITS IN"}, {"AT"}});
    const Json& ranks = items_at(item, "ranks");
    for (std::size_t i = 0; i < ranks.size() && i < most; ++i) {
        const Json& rank = ranks[i];
        const Json& behind = at(rank, "behind");
        const std::string step = integer_text(rank, "step");
        const auto or_dash = [&](const char* key) {
            const std::string text = text_at(rank, key);
            return text.empty() ? std::string{"-"} : text;
        };
        const bool lags = behind.is_boolean() && behind.get<bool>();
        table.row({integer_text(rank, "rank"), text_at(rank, "node"),
                   lags ? paint(terminal, Style::red, step) : step, or_dash("state"),
                   or_dash("wchan"), or_dash("frame")});
    }
    for (std::string& line : table.lines(terminal)) {
        lines.push_back(std::move(line));
    }
    if (ranks.size() > most) {
        lines.push_back("and " + std::to_string(ranks.size() - most) + " more");
    }
    return lines;
}

Exit evidence(Context& context, const std::string& id) {
    const std::string base = "/v1/jobs/" + id;
    if (const Status taken = context.options.now ? take_now(context, base) : Status{}; !taken) {
        return report(context, taken.error());
    }
    const auto list =
        context.client.get_json(base + (context.options.json ? "/evidence" : kNewestEvidence));
    if (!list) {
        return report(context, list.error());
    }
    if (context.options.json) {
        print_json(context, *list);
        return Exit::ok;
    }
    const Json& items = items_at(*list, "items");
    if (items.empty()) {
        context.err << "nothing was captured: the job has not hung; --now captures the state of "
                       "its ranks\n";
        return Exit::not_found;
    }
    const Json& item = items.front();
    const Json& ranks = items_at(item, "ranks");
    const std::string& wanted = context.options.evidence_rank;
    if (wanted.empty() && context.options.what.empty()) {
        print(context, evidence_view(context.terminal, item, ranks.size()));
        return Exit::ok;
    }
    const std::string word = context.options.what.empty() ? "all" : context.options.what;
    const auto kind = std::find_if(kinds().begin(), kinds().end(),
                                   [&](const Kind& one) { return one.word == word; });
    const auto number = to_int(wanted);
    if (kind == kinds().end() || (!wanted.empty() && !number)) {
        return report(context, Error{Errc::invalid, "--rank: a number"});
    }
    std::vector<Json> wanted_ranks;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(wanted_ranks),
                 [&](const Json& rank) { return !number || integer_at(rank, "rank") == number; });
    // The list ends after the first hundreds, the lagging ones; the files are of all.
    const bool listed = !number || !wanted_ranks.empty();
    if (!listed) {
        wanted_ranks.push_back(Json::object({{"rank", *number}}));
    }
    Exit worst = Exit::not_found;  // nothing was printed
    for (const Json& rank : wanted_ranks) {
        const Exit printed = print_files(context, base, item, rank, *kind, listed);
        if (printed != Exit::ok && printed != Exit::not_found) {
            return printed;
        }
        worst = printed == Exit::ok ? Exit::ok : worst;
    }
    if (worst == Exit::not_found) {
        context.err << "there is none of " << (wanted.empty() ? "any rank" : "rank " + wanted)
                    << "\n";
    }
    return worst;
}

}  // namespace lockstep::cli
