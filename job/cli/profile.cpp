// `lockstep profile`: what ranks do for some seconds, and the files of it.
#include "job/model/profile.hpp"

#include "job/base/text.hpp"
#include "job/cli/commands.hpp"
#include "job/cli/fields.hpp"
#include "job/cli/new_file.hpp"
#include "job/cli/views.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kProfileTurn{500};

// Of the profile that `asked` describes.
std::optional<Json> found(const Json& list, const Json& asked) {
    for (const Json& item : items_at(list, "items")) {
        if (integer_at(item, "attempt") == integer_at(asked, "attempt") &&
            integer_at(item, "generation") == integer_at(asked, "generation") &&
            integer_at(item, "profile") == integer_at(asked, "profile")) {
            return item;
        }
    }
    return std::nullopt;
}

Result<Json> record(Context& context, const std::string& base) {
    Json wanted = Json::object();
    if (!context.options.ranks.empty()) {
        wanted["ranks"] = context.options.ranks;
    }
    wanted["seconds"] = context.options.profile_seconds;
    const auto asked = context.client.post_json(base + "/profiles", dump_json(wanted));
    LOCKSTEP_TRY(asked);
    if (!context.options.json) {
        const std::size_t ranks = items_at(*asked, "ranks").size();
        context.err << "recording " << ranks << (ranks == 1 ? " rank" : " ranks") << " for "
                    << context.options.profile_seconds << " s" << std::endl;
    }
    const std::chrono::seconds patience{integer_at(*asked, "patience_seconds").value_or(0) + 5};
    for (std::chrono::milliseconds waited{0}; waited < patience; waited += kProfileTurn) {
        context.sleep(kProfileTurn);
        const auto list = context.client.get_json(base + "/profiles?limit=2");
        if (!list && !may_pass(list.error())) {
            return fail(list.error());
        }
        if (auto item = list ? found(*list, *asked) : std::nullopt) {
            return std::move(*item);
        }
    }
    return fail(Errc::timed_out,
                "the ranks were asked, and there is no answer: lockstepd was started again "
                "meanwhile, or is busy; lockstep profile --last fetches it if it comes");
}

Result<Json> newest(Context& context, const std::string& base) {
    const auto list = context.client.get_json(base + "/profiles?limit=1");
    LOCKSTEP_TRY(list);
    const Json& items = items_at(*list, "items");
    if (items.empty()) {
        return fail(Errc::not_found, "no profile was recorded of this job");
    }
    return items.front();
}

// The name is the daemon's: a file in the folder, whatever it says.
Result<std::filesystem::path> place_of(const std::filesystem::path& folder, const Json& rank,
                                       const std::string& name) {
    const bool plain =
        !name.empty() && name.front() != '.' &&
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-_") == std::string::npos;
    const auto number = integer_at(rank, "rank");
    if (!plain || !number) {
        return fail(Errc::corrupt, "lockstepd names a file that cannot be");
    }
    std::array<char, 32> words{};
    std::snprintf(words.data(), words.size(), "rank-%05d.", static_cast<int>(*number));
    return folder / (words.data() + name);
}

Status save(const std::filesystem::path& path, const std::string& bytes) {
    std::error_code ignored;
    const std::filesystem::path draft = path.string() + ".part";
    std::filesystem::remove(draft, ignored);
    auto file = NewFile::create(draft);
    LOCKSTEP_TRY(file);
    LOCKSTEP_TRY(file->write(bytes));
    return file->finish_as(path);
}

Exit fetch(Context& context, const std::string& base, const Json& item) {
    const std::filesystem::path folder =
        context.options.output.empty() ? "." : context.options.output;
    std::error_code ec;
    std::filesystem::create_directories(folder, ec);
    if (ec) {
        context.err << "lockstep: --output: " << folder.string() << ": " << ec.message() << "\n";
        return Exit::not_written;
    }
    bool any = false;
    const std::string query = "?attempt=" + integer_text(item, "attempt") +
                              "&generation=" + integer_text(item, "generation") +
                              "&profile=" + integer_text(item, "profile") + "&rank=";
    for (const Json& rank : items_at(item, "ranks")) {
        const std::string number = integer_text(rank, "rank");
        for (const Json& file : items_at(rank, "files")) {
            const std::string name = text_at(file, "name");
            const auto path = place_of(folder, rank, name);
            if (!path) {
                return report(context, path.error());
            }
            std::string target = base;
            target.append("/profiles/").append(name).append(query).append(number);
            const auto bytes = whole_file(context, target);
            if (!bytes) {
                return report(context, bytes.error());
            }
            if (const Status saved = save(*path, *bytes); !saved) {
                context.err << "lockstep: " << saved.error().message << "\n";
                return Exit::not_written;
            }
            context.out << path->string() << "\n";
            // Of NCCL's operations the agent hears whether or not the processes answer.
            any = any || name != kProfileCollectives;
        }
        for (const Json& gap : items_at(rank, "missing")) {
            const std::string what = text_at(gap, "what");
            context.err << "rank " << number << " on " << harmless(text_at(rank, "node")) << ": no "
                        << (what == "all" ? "profile" : harmless(what)) << ": "
                        << harmless(text_at(gap, "why")) << "\n";
        }
    }
    context.out << std::flush;
    return any ? Exit::ok : Exit::not_found;
}

}  // namespace

Exit profile(Context& context, const std::string& id) {
    const std::string base = "/v1/jobs/" + id;
    const auto item = context.options.last ? newest(context, base) : record(context, base);
    if (!item) {
        return report(context, item.error());
    }
    if (context.options.json) {
        print_json(context, *item);
        return Exit::ok;
    }
    return fetch(context, base, *item);
}

}  // namespace lockstep::cli
