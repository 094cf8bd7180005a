#include "job/agent/ranks/task_wire.hpp"

#include "job/base/limits.hpp"
#include "job/base/text.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep::task_wire {
namespace {

constexpr std::size_t kFrameBytes = limits::kAgentFrameBytes;
constexpr std::size_t kTaskReadBytes = 64U << 10U;

using Variables = std::map<std::string, std::string>;

// Variables need not be UTF-8, which JSON must be.
std::string pack(const Variables& variables) {
    std::string text;
    for (const auto& [name, value] : variables) {
        text.append(name).append("=").append(value).push_back('\0');
    }
    return base64_encode(text);
}

Result<Variables> unpack(const std::string& packed) {
    const auto text = base64_decode(packed);
    if (!text) {
        return fail(Errc::invalid, "environment: not base 64");
    }
    Variables out;
    for (const std::string& entry : split(*text, '\0')) {
        if (const auto equals = entry.find('='); equals != std::string::npos && equals > 0) {
            out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
        }
    }
    return out;
}

// Parses one object and lets `read` take its fields; everything it names must be there.
template <class Read>
Status take(std::string_view text, const Read& read) {
    const auto json = parse_json(text);
    LOCKSTEP_TRY(json);
    std::vector<FieldError> errors;
    ObjectReader in{*json, "", errors};
    read(in);
    if (!errors.empty()) {
        return fail(field_errors(std::move(errors)));
    }
    return {};
}

}  // namespace

std::string encode(const Hello& hello) {
    Json json = Json::object();
    json["rank"] = hello.rank;
    json["local_rank"] = hello.local_rank;
    json["generation"] = hello.generation;
    json["environment"] = pack(hello.environment);
    return dump_json(json);
}

std::string encode(const Plan& plan) {
    Json json = Json::object();
    json["refused"] = plan.refused;
    json["program"] = plan.program;
    json["argv"] = plan.argv;
    json["directory"] = plan.directory;
    json["environment"] = pack(plan.environment);
    return dump_json(json);
}

std::string encode_pid(std::int64_t pid) {
    Json json = Json::object();
    json["pid"] = pid;
    return dump_json(json);
}

std::string encode(const Exited& exited) {
    Json json = Json::object();
    json["exit_code"] = exited.exit_code;
    json["signal"] = exited.signal;
    return dump_json(json);
}

Result<Hello> decode_hello(std::string_view text) {
    Hello out;
    std::string packed;
    out.rank = out.local_rank = -1;
    const Status taken = take(text, [&](ObjectReader& in) {
        in.integer("rank", out.rank, 0, limits::kRanks);
        in.integer("local_rank", out.local_rank, 0, limits::kRanksPerNode);
        in.integer("generation", out.generation, 0, INT32_MAX);
        in.string("environment", packed, kFrameBytes);
    });
    LOCKSTEP_TRY(taken);
    auto environment = unpack(packed);
    LOCKSTEP_TRY(environment);
    out.environment = std::move(*environment);
    return out;
}

Result<Plan> decode_plan(std::string_view text) {
    Plan out;
    std::string packed;
    const Status taken = take(text, [&](ObjectReader& in) {
        in.string("refused", out.refused, kFrameBytes);
        in.string("program", out.program, limits::kPathBytes);
        in.strings("argv", out.argv, limits::kArguments + 64, limits::kArgumentBytes);
        in.string("directory", out.directory, limits::kPathBytes);
        in.string("environment", packed, kFrameBytes);
    });
    LOCKSTEP_TRY(taken);
    auto environment = unpack(packed);
    LOCKSTEP_TRY(environment);
    out.environment = std::move(*environment);
    return out;
}

Result<std::int64_t> decode_pid(std::string_view text) {
    std::int64_t pid = 0;
    const Status taken =
        take(text, [&](ObjectReader& in) { in.integer("pid", pid, 2, std::int64_t{INT32_MAX}); });
    if (!taken || pid == 0) {
        return fail(Errc::invalid, "no pid");
    }
    return pid;
}

Result<Exited> decode_exited(std::string_view text) {
    Exited out;
    const Status taken = take(text, [&](ObjectReader& in) {
        in.integer("exit_code", out.exit_code, -1, 255);
        in.integer("signal", out.signal, 0, 128);
    });
    LOCKSTEP_TRY(taken);
    return out;
}

std::string frame(std::string_view text) {
    const auto size = static_cast<std::uint32_t>(text.size());
    std::string out(4, '\0');
    for (std::size_t i = 0; i < 4; ++i) {
        out[i] = static_cast<char>((size >> (8 * i)) & 0xffU);
    }
    return out.append(text);
}

Result<std::optional<std::string>> Reader::next() {
    if (buffer_.size() < 4) {
        return std::nullopt;
    }
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        size |= static_cast<std::size_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
    }
    if (size > kFrameBytes) {
        return fail(Errc::invalid, "a frame of " + std::to_string(size) + " bytes");
    }
    if (buffer_.size() < 4 + size) {
        return std::nullopt;
    }
    std::string out = buffer_.substr(4, size);
    buffer_.erase(0, 4 + size);
    return out;
}

Result<std::string> receive(int socket, UniqueFd& passed) {
    std::string out(kTaskReadBytes, '\0');
    iovec part{out.data(), out.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return std::string{};
    }
    if (got <= 0) {
        return fail(Errc::unavailable, "the other side has closed");
    }
    const cmsghdr* first = CMSG_FIRSTHDR(&message);
    if (first != nullptr && first->cmsg_type == SCM_RIGHTS &&
        first->cmsg_len == CMSG_LEN(sizeof(int))) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(first), sizeof fd);
        passed.reset(fd);
    }
    out.resize(static_cast<std::size_t>(got));
    return out;
}

std::string file_name(std::int32_t node_rank) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "node-%05d.tasks", node_rank);
    return text.data();
}

}  // namespace lockstep::task_wire
