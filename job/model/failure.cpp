#include "job/model/failure.hpp"

#include "job/base/enum_table.hpp"
#include "job/base/limits.hpp"
#include "job/base/text.hpp"
#include "job/model/refusal.hpp"

#include <algorithm>
#include <array>
#include <csignal>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kFailureKinds{"own", "network", "echo"};
static_assert(names_all_of<FailureKind>(kFailureKinds));

// What frameworks say of a peer that is gone, in lower case.
constexpr std::array kEchoWords{
    // Gloo
    "connection closed by peer",
    "application timeout caused pair closure",
    "for recv operation to complete",
    "for send operation to complete",
    "gloo/transport",
    // NCCL and torch above it
    "ncclremoteerror",
    "remote process exited or there was a network error",
    "watchdog caught collective operation timeout",
    "nccl communicator was aborted",
    "nccl timeout",
    "caught collective operation timeout",
    "process group watchdog thread terminated",
    "some nccl operations have failed or timed out",
    "failed to pass monitoredbarrier",
    // torch's store
    "recvvalue failed",
    "sendbytes failed",
    "recvvector failed",
    "socket timeout",
    "wait timeout after",
    "failed to recv, got 0 bytes",
    "connection was likely closed",
    "the client socket has timed out",
    "the client socket has failed to connect",
    "waiting for clients",
    // Horovod, MPI, JAX, TensorFlow, Paddle
    "horovod has been shut down",
    "caused by an exception on one of the ranks",
    "mpi_err_proc_failed",
    "another task died",
    "coordination service",
    "collective ops is aborted",
    "preempted or terminated worker",
    "peer may exit",
    // lockstep-train
    "its peer rank",
    "the other ranks did not finish the step",
    "nccl's initialisation was given up",
    "an operation was given up before it began",
    // lockstep.barrier(): it names those that have not come ("timed_out: missing: rank 3", in C and
    // C++ "barrier b: missing: rank 3"), or nobody if its agent has not answered in time
    ": missing: rank ",
    "missing: unknown: the agent does not answer",
};
constexpr std::array kEchoTypes{
    "DistNetworkError", "DistStoreError", "HorovodInternalError", "NotGoodError",
    "PeerFault",  // job/trainer/nccl_meeting.cpp
};
// What may be a peer's end, or a service that the rank alone has asked.
constexpr std::array kNetworkWords{
    "connection reset",
    "connection refused",
    "connection aborted",
    "broken pipe",
    "connection timed out",
    "socket closed",
    "ncclsystemerror",
    "nccl error",
    "deadline_exceeded",
    "deadline exceeded",
    "unavailable: ",
    "no route to host",
    "network is unreachable",
    "timed out",
    "the agent does not answer",
};
constexpr std::array kNetworkTypes{"BrokenPipeError", "ConnectionResetError",
                                   "ConnectionAbortedError", "ConnectionRefusedError", "EOFError"};
// They say that a child has failed; the child knows why.
constexpr std::array kWrappers{"ChildFailedError", "ProcessRaisedException",
                               "ProcessExitedException", "SystemExit", "CalledProcessError"};
constexpr std::string_view kUncaught = "terminate called after throwing an instance of";
constexpr std::string_view kTracebackLine = "Traceback (most recent call last)";
// A traceback and the one that "was the direct cause" of it.
constexpr std::array<std::string_view, 2> kJoints{
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:"};
constexpr std::size_t kLastLines = 12;   // of an output that holds no traceback
constexpr UnixMillis kRecent = 60'000;   // before the end of a process
constexpr UnixMillis kLeaving = 30'000;  // between an exception and the word to end
constexpr UnixMillis kPrinting = 2'000;  // between a printed traceback and the word to end

std::string lowered(std::string_view text) {
    std::string out{text};
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : static_cast<char>(c);
    });
    return out;
}

bool has_any(const std::string& text, const auto& words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return text.find(word) != std::string::npos; });
}

// "torch.distributed.DistStoreError" is a DistStoreError.
bool is_any(std::string_view type, const auto& names) {
    const auto dot = type.rfind('.');
    const std::string_view last = dot == std::string_view::npos ? type : type.substr(dot + 1);
    return std::find(names.begin(), names.end(), last) != names.end();
}

// "[rank1]: text" as torch prints it, "[default0]:text" as torchrun does, "0: text" as srun.
std::string_view without_prefix(std::string_view line) {
    if (line.empty() || line.front() != '[') {
        return line;
    }
    const auto close = line.find("]:");
    if (close == std::string_view::npos || close > 32) {
        return line;
    }
    line.remove_prefix(close + 2);
    return !line.empty() && line.front() == ' ' ? line.substr(1) : line;
}

// "ValueError: label 17" → type and message.
void split_last_line(std::string_view line, PrintedTraceback& out) {
    const auto colon = line.find(": ");
    out.type = std::string{line.substr(0, colon)};
    out.message = colon == std::string_view::npos ? "" : std::string{line.substr(colon + 2)};
}

bool is_exception_line(std::string_view line) {
    if (line.empty() || line.front() == ' ' || line.front() == '\t') {
        return false;
    }
    const auto end = line.find(": ");
    const std::string_view type = line.substr(0, end);
    return std::all_of(type.begin(), type.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '.';
    });
}

const ExceptionNote* earlier(const ExceptionNote* known, const ExceptionNote& other) {
    if (known == nullptr) {
        return &other;
    }
    const auto key = [](const ExceptionNote& one) { return std::pair{failure_kind(one), one.at}; };
    return key(other) < key(*known) ? &other : known;
}

// sys.exit(1): not why.
bool is_number_of_exit(const ExceptionNote& note) {
    return note.type == "SystemExit" &&
           note.message.find_first_not_of("-0123456789") == std::string::npos;
}

// Not by itself.
bool killed(const FailureFacts& facts) {
    return facts.signal != 0 && facts.signal != SIGABRT && facts.signal != SIGTERM;
}

// The exception that ended the rank, of all that its processes have told.
const ExceptionNote* choose(const FailureFacts& facts) {
    const ExceptionNote* own = nullptr;     // of the rank's own process
    const ExceptionNote* others = nullptr;  // of its children and threads
    // A child's that may have ended it, by sys.exit() say, and did the rank no harm for a while: it
    // was killed because it did not end in its grace period.
    const auto harmless = [&](const ExceptionNote& note) {
        return killed(facts) && !note.final && note.pid != facts.pid &&
               facts.stopped_at - note.at >= kPrinting;
    };
    // A process that was ended by one exception has survived the others.
    const auto survived = [&](const ExceptionNote& note) {
        return !note.final && (facts.ended_at - note.at > kRecent ||
                               std::any_of(facts.notes.begin(), facts.notes.end(),
                                           [&](const ExceptionNote& other) {
                                               return other.final && other.pid == note.pid;
                                           }));
    };
    for (const ExceptionNote& note : facts.notes) {
        if (survived(note) || harmless(note)) {
            continue;
        }
        if (note.pid == facts.pid && note.thread.empty()) {
            own = own != nullptr && own->final && !note.final ? own : &note;
        } else {
            others = earlier(others, note);
        }
    }
    if (own == nullptr) {
        return others;
    }
    if (others == nullptr || !is_any(own->type, kWrappers)) {
        return own;
    }
    const bool has_words = own->type == "SystemExit" && !is_number_of_exit(*own);
    return has_words && is_number_of_exit(*others) ? own : others;
}

// What it printed last, without the traceback of a note.
void judge_by_output(const FailureFacts& facts, Failure& out) {
    if (const auto printed = last_traceback(facts.output); printed && facts.printed_at != 0) {
        out.type = printed->type;
        out.message = printed->message;
        out.traceback = printed->text;
        out.at = std::min(out.at, facts.printed_at);
        out.kind = failure_kind(printed->type, printed->message);
        return;
    }
    if (facts.printed_at != 0 && facts.ended_at - facts.printed_at < kRecent) {
        out.at = std::min(out.at, facts.printed_at);
    }
    out.kind = failure_kind_of_output(facts.output);
    if (facts.signal == 0) {
        out.message = printed_refusal(facts.output, facts.exit_code).value_or("");
    }
}

}  // namespace

std::string_view to_string(FailureKind kind) {
    return kFailureKinds[static_cast<std::size_t>(kind)];
}

std::optional<FailureKind> parse_failure_kind(std::string_view text) {
    const auto found = std::find(kFailureKinds.begin(), kFailureKinds.end(), text);
    return found == kFailureKinds.end()
               ? std::nullopt
               : std::optional{static_cast<FailureKind>(found - kFailureKinds.begin())};
}

FailureKind failure_kind(std::string_view type, std::string_view message) {
    if (type == "CollectiveError") {  // of ours: its words are of the other ranks, too
        return FailureKind::own;
    }
    const std::string text = lowered(message);
    if (is_any(type, kEchoTypes) || has_any(text, kEchoWords)) {
        return FailureKind::echo;
    }
    return is_any(type, kNetworkTypes) || has_any(text, kNetworkWords) ? FailureKind::network
                                                                       : FailureKind::own;
}

FailureKind failure_kind(const ExceptionNote& note) {
    if (note.chain.empty()) {
        return failure_kind(note.type, note.message);
    }
    return failure_kind(note.chain.front().first, note.chain.front().second);
}

FailureKind failure_kind_of_output(std::string_view tail) {
    std::size_t begin = tail.size();
    for (std::size_t lines = 0; begin > 0 && lines <= kLastLines; ++lines) {
        const auto at = tail.rfind('\n', begin - 1);
        begin = at == std::string_view::npos ? 0 : at;
    }
    // Paddle writes fourteen lines behind what C++ says of an exception that nobody caught.
    begin = std::min(begin, tail.rfind(kUncaught));
    const std::string text = lowered(tail.substr(begin));
    // Words that ranks print of others, too, when nothing is wrong with them, are no proof.
    return has_any(text, kEchoWords)      ? FailureKind::echo
           : has_any(text, kNetworkWords) ? FailureKind::network
                                          : FailureKind::own;
}

std::optional<PrintedTraceback> last_traceback(std::string_view output) {
    std::vector<std::string> lines = split(output, '\n');
    for (std::string& line : lines) {
        line = std::string{without_prefix(line)};
    }
    const auto starts = [&](std::size_t i) { return lines[i].rfind(kTracebackLine, 0) == 0; };
    std::optional<std::size_t> begin;
    for (std::size_t i = lines.size(); i-- > 0 && !begin;) {
        begin = starts(i) ? std::optional{i} : std::nullopt;
    }
    if (!begin) {
        return std::nullopt;
    }
    std::size_t last = *begin + 1;
    while (last < lines.size() && !is_exception_line(lines[last])) {
        ++last;
    }
    if (last == lines.size()) {
        return std::nullopt;  // it was cut
    }
    PrintedTraceback out;
    split_last_line(lines[last], out);
    // What it came from stands before it.
    for (bool more = true; more;) {
        std::size_t at = *begin;
        while (at > 0 && lines[at - 1].empty()) {
            --at;
        }
        more = at > 0 && std::find(kJoints.begin(), kJoints.end(), lines[at - 1]) != kJoints.end();
        while (more && at > 0 && !(at < *begin && starts(at))) {
            --at;
        }
        more = more && starts(at);
        begin = more ? at : *begin;
    }
    for (std::size_t i = *begin; i <= last; ++i) {
        out.text += lines[i] + "\n";
    }
    if (out.text.size() > limits::kTracebackBytes) {
        out.text.erase(0, out.text.size() - limits::kTracebackBytes);
    }
    return out;
}

Failure judge_failure(const FailureFacts& facts) {
    Failure out;
    out.at = facts.ended_at;
    const ExceptionNote* note = choose(facts);
    if (facts.stopped_at != 0) {
        // It was failing already when it was told to end, and had not got to its end yet.
        const auto before = [&](UnixMillis at, UnixMillis most) {
            return at != 0 && at <= facts.stopped_at && facts.stopped_at - at < most;
        };
        const bool failing = note != nullptr ? note->thread.empty() && before(note->at, kLeaving)
                                             : before(facts.printed_at, kPrinting);
        out.stopped = !failing;
        if (out.stopped) {
            return out;
        }
    }
    // What kills a process is not what it has told of and survived.
    if (note == nullptr || (killed(facts) && !note->final)) {
        judge_by_output(facts, out);
        return out;
    }
    out.kind = failure_kind(*note);
    out.at = std::min(note->at, facts.ended_at);
    out.type = note->type;
    out.message = note->message;
    out.traceback = note->traceback;
    if (note->type == "SystemExit" && out.kind == FailureKind::own) {
        out.kind = failure_kind_of_output(facts.output);
    }
    if (is_number_of_exit(*note) && facts.signal == 0) {
        out.message = printed_refusal(facts.output, facts.exit_code).value_or(out.message);
    }
    if (out.kind == FailureKind::own && !note->chain.empty() &&
        failure_kind(note->type, note->message) != FailureKind::own) {
        out.type = note->chain.front().first;  // the clean-up failed, too; this is why
        out.message = note->chain.front().second;
    }
    return out;
}

}  // namespace lockstep
