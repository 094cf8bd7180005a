#include "scheduler-integration/exec/reply.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::exec {

void send_reply(const Reply& reply) {
    ReplyHead head{};
    head.magic = kMagic;
    head.status = static_cast<std::uint32_t>(reply.status);
    head.exit = reply.exit;
    head.signal = reply.signal;
    head.message_size = static_cast<std::uint32_t>(reply.message.size());
    head.out_size = static_cast<std::uint32_t>(reply.out.size());
    head.err_size = static_cast<std::uint32_t>(reply.err.size());
    iovec part{&head, sizeof head};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (reply.descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* one = CMSG_FIRSTHDR(&message);
        one->cmsg_level = SOL_SOCKET;
        one->cmsg_type = SCM_RIGHTS;
        one->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(one), &reply.descriptor, sizeof(int));
    }
    // One piece: a head of 28 bytes always fits.
    if (::sendmsg(0, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof head)) {
        return;
    }
    const std::string rest = reply.message + reply.out + reply.err;
    for (std::size_t at = 0; at < rest.size();) {
        const ssize_t sent = ::send(0, rest.data() + at, rest.size() - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return;
        }
        at += static_cast<std::size_t>(sent);
    }
}

}  // namespace lockstep::exec
