#include "job/agent/ranks/socket_owner.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

struct Question {
    nlmsghdr head;
    inet_diag_req_v2 body;
};
static_assert(sizeof(Question) == sizeof(nlmsghdr) + sizeof(inet_diag_req_v2));

template <class Words>
void put_address(Words& out, const net::ip::address& address) {
    if (address.is_v4()) {
        const auto bytes = address.to_v4().to_bytes();
        std::memcpy(&out[0], bytes.data(), bytes.size());
    } else {
        const auto bytes = address.to_v6().to_bytes();
        std::memcpy(&out[0], bytes.data(), bytes.size());
    }
}

SocketOwners::Owner read_owner(const nlmsghdr& head, std::uint16_t port_here) {
    SocketOwners::Owner out;
    if (head.nlmsg_type == NLMSG_ERROR && head.nlmsg_len >= NLMSG_LENGTH(sizeof(nlmsgerr))) {
        nlmsgerr error{};
        std::memcpy(&error, NLMSG_DATA(&head), sizeof(error));
        out.kind =
            error.error == -ENOENT ? SocketOwners::Kind::absent : SocketOwners::Kind::unknown;
    } else if (head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
               head.nlmsg_len >= NLMSG_LENGTH(sizeof(inet_diag_msg))) {
        inet_diag_msg found{};
        std::memcpy(&found, NLMSG_DATA(&head), sizeof(found));
        // A socket that its process has closed has no inode, and root's number for an owner. One
        // that listens at that address is found in place of a connection that is not there.
        const bool connected = found.id.idiag_dport == htons(port_here);
        out.kind = !connected               ? SocketOwners::Kind::absent
                   : found.idiag_inode != 0 ? SocketOwners::Kind::known
                                            : SocketOwners::Kind::gone;
        out.uid = found.idiag_uid;
    }
    return out;
}

}  // namespace

net::ip::address plain_address(const net::ip::address& address) {
    if (!address.is_v6()) {
        return address;
    }
    const auto six = address.to_v6();
    if (six.is_v4_mapped()) {
        return net::ip::make_address_v4(net::ip::v4_mapped, six);
    }
    return net::ip::address_v6{six.to_bytes()};
}

SocketOwners::Owner SocketOwners::of(const tcp::endpoint& there, const tcp::endpoint& here) {
    Owner out = ask(there, here);
    if (out.kind == Kind::known) {
        tells_ = true;
    } else if (out.kind == Kind::absent && !tells()) {
        out.kind = Kind::unknown;
    }
    return out;
}

// "No such entry" is also what a kernel answers that has no tcp_diag: a connection of our own tells
// the two apart.
bool SocketOwners::tells() {
    if (!tells_) {
        net::io_context io{1};
        tcp::acceptor acceptor{io};
        tcp::socket socket{io};
        ErrorCode failed;
        ErrorCode ec;
        const auto note = [&] { failed = failed ? failed : ec; };
        acceptor.open(tcp::v4(), ec);
        note();
        acceptor.bind({net::ip::address_v4::loopback(), 0}, ec);
        note();
        acceptor.listen(1, ec);
        note();
        const tcp::endpoint there = acceptor.local_endpoint(ec);
        note();
        if (!failed) {
            socket.connect(there, ec);
            note();
        }
        const tcp::endpoint mine = failed ? tcp::endpoint{} : socket.local_endpoint(ec);
        tells_ = !failed && !ec && ask(mine, there).kind == Kind::known;
    }
    return *tells_;
}

SocketOwners::Owner SocketOwners::ask(const tcp::endpoint& there, const tcp::endpoint& here) {
    const auto from = plain_address(there.address());
    const auto to = plain_address(here.address());
    if (from.is_v4() != to.is_v4()) {
        return {};
    }
    if (!netlink_) {
        netlink_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    }
    Question question{};
    question.head.nlmsg_len = sizeof(question);
    question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    question.head.nlmsg_flags = NLM_F_REQUEST;
    question.head.nlmsg_seq = ++sequence_;
    question.body.sdiag_family = from.is_v4() ? AF_INET : AF_INET6;
    question.body.sdiag_protocol = IPPROTO_TCP;
    question.body.idiag_states = ~0U;
    question.body.id.idiag_sport = htons(there.port());
    question.body.id.idiag_dport = htons(here.port());
    put_address(question.body.id.idiag_src, from);
    put_address(question.body.id.idiag_dst, to);
    question.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    question.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    sockaddr_nl kernel{};
    kernel.nl_family = AF_NETLINK;
    const auto size = static_cast<ssize_t>(sizeof(question));
    if (!netlink_ || ::sendto(netlink_.get(), &question, sizeof(question), MSG_DONTWAIT,
                              reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel)) != size) {
        return {};
    }
    // The kernel has answered by the time that sendto() returns.
    alignas(nlmsghdr) std::array<char, 8192> answer{};
    for (;;) {
        const auto got = ::recv(netlink_.get(), answer.data(), answer.size(), MSG_DONTWAIT);
        if (got < static_cast<ssize_t>(sizeof(nlmsghdr))) {
            return {};
        }
        nlmsghdr head{};
        std::memcpy(&head, answer.data(), sizeof(head));
        if (head.nlmsg_seq == sequence_ && head.nlmsg_len <= static_cast<std::size_t>(got)) {
            return read_owner(*reinterpret_cast<const nlmsghdr*>(answer.data()), here.port());
        }
    }
}

}  // namespace lockstep
