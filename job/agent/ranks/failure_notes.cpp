#include "job/agent/ranks/failure_notes.hpp"

#include "job/base/files.hpp"
#include "job/base/json.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <sys/stat.h>

#include <utility>

namespace lockstep {
namespace {

std::string text_of(const Json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() && found->is_string()
               ? printable(found->get_ref<const std::string&>())
               : std::string{};
}

}  // namespace

// {"message": {"message": "ValueError: …", "extraInfo": {"py_callstack": "…", "timestamp": "…"}}},
// torch/distributed/elastic/multiprocessing/errors/error_handler.py.
std::optional<ExceptionNote> read_error_file(const std::filesystem::path& path, std::int64_t pid) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
        return std::nullopt;
    }
    const auto text = read_file(path, limits::kErrorFileBytes);
    const auto json = text ? parse_json(*text) : fail(text.error());
    if (!json || !json->is_object() || !json->contains("message")) {
        return std::nullopt;
    }
    const Json& body = (*json)["message"];
    const std::string line =
        body.is_string() ? printable(body.get_ref<const std::string&>()) : text_of(body, "message");
    ExceptionNote note;
    note.pid = pid;
    note.final = true;
    note.at =
        static_cast<UnixMillis>(info.st_mtim.tv_sec) * 1000 + info.st_mtim.tv_nsec / 1'000'000;
    const auto colon = line.find(": ");
    note.type = line.substr(0, colon);
    note.message = colon == std::string::npos ? "" : line.substr(colon + 2);
    if (body.is_object() && body.contains("extraInfo")) {
        note.traceback = text_of(body["extraInfo"], "py_callstack");
    }
    if (note.type.empty()) {
        return std::nullopt;
    }
    return note;
}

void judge_exit(wire::Exited& exited, const RankGroup::LastWords& words,
                std::vector<ExceptionNote> notes, std::int64_t clock_offset_ms) {
    if (exited.exit_code == 0) {
        return;
    }
    FailureFacts facts;
    facts.pid = words.pid;
    facts.exit_code = exited.exit_code;
    facts.signal = exited.signal;
    facts.ended_at = exited.time;
    facts.stopped_at = !exited.stopped ? 0 : words.stopped_at != 0 ? words.stopped_at : exited.time;
    facts.notes = std::move(notes);
    facts.output = words.output;
    facts.printed_at = words.crash_at;
    Failure failure = judge_failure(facts);
    exited.stopped = exited.stopped && failure.stopped;
    exited.failure = failure.kind == FailureKind::own ? "" : std::string{to_string(failure.kind)};
    exited.failed_at = failure.at - clock_offset_ms;
    exited.error_type = failure.type.substr(0, limits::kTextBytes);
    exited.error = failure.message.substr(0, limits::kErrorBytes);
    exited.traceback = failure.traceback.substr(
        failure.traceback.size() - std::min(failure.traceback.size(), limits::kTracebackBytes));
}

}  // namespace lockstep
