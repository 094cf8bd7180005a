#include "scheduler-integration/slurm/exec_client.hpp"

#include "scheduler-integration/exec/exec_limits.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

std::string frame_of(const ExecOrder& order) {
    std::string body;
    const auto field = [&body](exec::Tag tag, const void* value, std::size_t size) {
        const auto bytes = static_cast<std::uint32_t>(size);
        body += static_cast<char>(tag);
        body.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
        body.append(static_cast<const char*>(value), size);
    };
    const auto verb = static_cast<std::uint32_t>(order.verb);
    const auto what = static_cast<std::uint32_t>(order.what);
    const std::uint32_t nil = order.nil ? 1 : 0;
    field(exec::Tag::verb, &verb, sizeof verb);
    field(exec::Tag::what, &what, sizeof what);
    for (const auto& [tag, number] : {std::pair{exec::Tag::attempt, &order.attempt},
                                      {exec::Tag::point, &order.point},
                                      {exec::Tag::nil, &nil}}) {
        field(tag, number, sizeof *number);
    }
    for (const auto& [tag, number] :
         {std::pair{exec::Tag::slurm_job, &order.slurm_job}, {exec::Tag::since, &order.since}}) {
        field(tag, number, sizeof *number);
    }
    for (const auto& [tag, text] : {std::pair{exec::Tag::job, &order.job},
                                    {exec::Tag::name, &order.name},
                                    {exec::Tag::exclude, &order.exclude},
                                    {exec::Tag::time, &order.time},
                                    {exec::Tag::fence, &order.fence},
                                    {exec::Tag::file, &order.file},
                                    {exec::Tag::ticket, &order.ticket},
                                    {exec::Tag::credential, &order.credential},
                                    {exec::Tag::statement, &order.statement}}) {
        if (!text->empty()) {
            field(tag, text->data(), text->size());
        }
    }
    const std::uint32_t head[2] = {exec::kMagic, static_cast<std::uint32_t>(body.size())};
    return std::string(reinterpret_cast<const char*>(head), sizeof head) + body;
}

// Whether there is something to do before the deadline.
bool wait_for(int fd, short what, Deadline until) {
    for (;;) {
        const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
            until - std::chrono::steady_clock::now());
        pollfd watched{fd, what, 0};
        const int ready =
            ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(0, rest.count())));
        if (ready >= 0 || errno != EINTR) {
            return ready > 0;
        }
    }
}

Error no_answer(bool late) {
    return late ? Error{Errc::timed_out, "lockstep-exec does not answer in time"}
                : Error{Errc::corrupt, "lockstep-exec ended without an answer"};
}

Result<std::string> read_text(int fd, std::size_t size, Deadline until) {
    std::string out(size, '\0');
    for (std::size_t at = 0; at < size;) {
        if (!wait_for(fd, POLLIN, until)) {
            return fail(no_answer(true));
        }
        const ssize_t got = ::recv(fd, out.data() + at, size - at, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return fail(no_answer(false));
        }
        at += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
    return out;
}

Result<ExecReply> read_reply(int fd, Deadline until) {
    exec::ReplyHead head{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{&head, sizeof head};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (!wait_for(fd, POLLIN, until)) {
        return fail(no_answer(true));
    }
    const ssize_t got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    ExecReply out;
    if (const cmsghdr* one = CMSG_FIRSTHDR(&message); got > 0 && one != nullptr &&
                                                      one->cmsg_level == SOL_SOCKET &&
                                                      one->cmsg_type == SCM_RIGHTS) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(one), sizeof descriptor);
        out.descriptor.reset(descriptor);
    }
    // It is sent in one piece, and the socket had room.
    if (got != static_cast<ssize_t>(sizeof head) || head.magic != exec::kMagic ||
        head.status > static_cast<std::uint32_t>(exec::Status::failed) ||
        head.message_size > limits::kExecOutputBytes || head.out_size > limits::kExecOutputBytes ||
        head.err_size > limits::kExecOutputBytes) {
        return fail(no_answer(false));
    }
    out.status = static_cast<exec::Status>(head.status);
    out.exit = head.exit;
    out.signal = head.signal;
    for (const auto& [text, size] : {std::pair{&out.message, head.message_size},
                                     {&out.out, head.out_size},
                                     {&out.err, head.err_size}}) {
        auto read = read_text(fd, size, until);
        LOCKSTEP_TRY(read);
        *text = std::move(*read);
    }
    return out;
}

}  // namespace

Status ExecClient::take_place(std::chrono::milliseconds patience) {
    std::unique_lock lock{mutex_};
    const bool free =
        freed_.wait_for(lock, patience, [this] { return stopped_ || calls_ < at_once_; });
    if (stopped_) {
        return fail(Errc::unavailable, "lockstepd is stopping");
    }
    if (!free) {
        return fail(Errc::unavailable, "lockstep-exec has not answered " +
                                           std::to_string(at_once_) + " other calls in time");
    }
    ++calls_;
    return {};
}

void ExecClient::leave_place() {
    {
        const std::lock_guard lock{mutex_};
        --calls_;
    }
    freed_.notify_one();
}

Result<ExecReply> ExecClient::call(const ExecOrder& order, std::chrono::milliseconds patience) {
    LOCKSTEP_TRY(take_place(patience));
    auto reply = call_now(order, patience);
    leave_place();
    return reply;
}

Result<ExecReply> ExecClient::call_now(const ExecOrder& order, std::chrono::milliseconds patience) {
    const Deadline until = std::chrono::steady_clock::now() + patience;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_.size() >= sizeof address.sun_path) {
        return fail(Errc::unavailable, "the path of lockstep-exec's socket is too long");
    }
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!fd ||
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return fail(Errc::unavailable, "lockstep-exec at " + socket_ + ": " + std::strerror(errno));
    }
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != 0) {
        return fail(Errc::unavailable, socket_ + " is not root's: that is no lockstep-exec");
    }
    {
        const std::lock_guard lock{mutex_};
        if (stopped_) {
            return fail(Errc::unavailable, "lockstepd is stopping");
        }
        open_.insert(fd.get());
    }
    const std::string frame = frame_of(order);
    auto reply = Result<ExecReply>{fail(no_answer(false))};
    std::size_t at = 0;
    while (at < frame.size() && wait_for(fd.get(), POLLOUT, until)) {
        const ssize_t sent =
            ::send(fd.get(), frame.data() + at, frame.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            break;  // refused before it was read: the answer says why
        }
        at += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    }
    reply = read_reply(fd.get(), until);
    const std::lock_guard lock{mutex_};
    open_.erase(fd.get());
    return reply;
}

void ExecClient::stop() {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    freed_.notify_all();
    for (const int fd : open_) {
        ::shutdown(fd, SHUT_RDWR);
    }
}

}  // namespace lockstep
