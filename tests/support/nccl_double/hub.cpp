#include "tests/support/nccl_double/hub.hpp"

#include "job/collective/reduction.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace nccl_double {
namespace {

struct Message {
    Header header;
    std::vector<char> data;
};
struct Member {
    int fd = -1;
    std::deque<Message> waiting;
};

class Group {
  public:
    explicit Group(std::vector<Member> members) : members_(std::move(members)) {}

    // One thread: until a rank leaves.
    void serve() {
        Header ready;
        ready.kind = static_cast<Kind>(kReady);
        for (const Member& member : members_) {
            write_exactly(member.fd, &ready, sizeof ready);
        }
        while (receive()) {
            while (match()) {
            }
        }
        Header lost;
        lost.kind = static_cast<Kind>(kLost);
        for (const Member& member : members_) {
            write_exactly(member.fd, &lost, sizeof lost);
            ::shutdown(member.fd, SHUT_WR);
        }
    }

  private:
    bool receive() {
        std::vector<pollfd> ready;
        for (const Member& member : members_) {
            ready.push_back({member.fd, POLLIN, 0});
        }
        if (::poll(ready.data(), ready.size(), -1) < 0) {
            return false;
        }
        for (std::size_t i = 0; i < ready.size(); ++i) {
            if (ready[i].revents == 0) {
                continue;
            }
            Message message;
            if (!read_exactly(members_[i].fd, &message.header, sizeof message.header)) {
                return false;
            }
            message.data.resize(message.header.bytes);
            if (!read_exactly(members_[i].fd, message.data.data(), message.data.size())) {
                return false;
            }
            members_[i].waiting.push_back(std::move(message));
        }
        return true;
    }

    void answer(std::size_t rank, const char* data, std::size_t bytes) {
        Header header = members_[rank].waiting.front().header;
        header.bytes = bytes;
        members_[rank].waiting.pop_front();
        write_exactly(members_[rank].fd, &header, sizeof header);
        write_exactly(members_[rank].fd, data, bytes);
    }

    bool match() { return match_pair() || match_all(); }

    bool match_pair() {
        for (std::size_t from = 0; from < members_.size(); ++from) {
            if (members_[from].waiting.empty()) {
                continue;
            }
            const Message& sent = members_[from].waiting.front();
            const auto to = static_cast<std::size_t>(sent.header.peer);
            if (sent.header.kind != Kind::send || members_[to].waiting.empty()) {
                continue;
            }
            const Header& received = members_[to].waiting.front().header;
            if (received.kind != Kind::recv || received.peer != static_cast<std::int32_t>(from) ||
                received.count != sent.header.count || received.type != sent.header.type) {
                continue;
            }
            const std::vector<char> data = sent.data;
            answer(to, data.data(), data.size());
            answer(from, nullptr, 0);
            return true;
        }
        return false;
    }

    // Ranks whose calls differ wait for ever, as they do in NCCL.
    bool match_all() {
        for (const Member& member : members_) {
            if (member.waiting.empty()) {
                return false;
            }
            Header mine = member.waiting.front().header;
            Header first = members_[0].waiting.front().header;
            mine.bytes = first.bytes;
            if (mine.kind == Kind::send || mine.kind == Kind::recv ||
                std::memcmp(&mine, &first, sizeof mine) != 0) {
                return false;
            }
        }
        const Header head = members_[0].waiting.front().header;
        const auto type = static_cast<lockstep::Dtype>(head.type);
        const auto op = static_cast<lockstep::ReduceOp>(head.op);
        const std::size_t bytes = members_[0].waiting.front().data.size();
        std::vector<char> result;
        if (head.kind == Kind::all_gather) {
            for (const Member& member : members_) {
                const auto& data = member.waiting.front().data;
                result.insert(result.end(), data.begin(), data.end());
            }
        } else if (head.kind == Kind::broadcast) {
            result = members_[static_cast<std::size_t>(head.peer)].waiting.front().data;
        } else {
            result = members_[0].waiting.front().data;
            const std::size_t count = bytes / lockstep::size_of(type);
            for (std::size_t rank = 1; rank < members_.size(); ++rank) {
                lockstep::reduce_function(type, op)(result.data(), result.data(),
                                                    members_[rank].waiting.front().data.data(),
                                                    count);
            }
            if (op == lockstep::ReduceOp::average) {
                lockstep::divide(result.data(), count, type,
                                 static_cast<std::int32_t>(members_.size()));
            }
        }
        const std::size_t share = bytes / members_.size();
        // Rank 0, in whose process this thread is, comes last: with its answer it may end.
        for (std::size_t rank = members_.size(); rank-- > 0;) {
            if (head.kind == Kind::reduce_scatter) {
                answer(rank, result.data() + rank * share, share);
            } else if (head.kind == Kind::reduce && static_cast<std::int32_t>(rank) != head.peer) {
                answer(rank, nullptr, 0);
            } else {
                answer(rank, result.data(), result.size());
            }
        }
        return true;
    }

    std::vector<Member> members_;
};

}  // namespace

namespace {

// The ranks that one id of several brings together: all of them are there before any goes on.
class Root {
  public:
    // False: not one of this id's.
    bool take(const Hello& hello, int fd) {
        const std::int32_t first = first_rank(hello.root, hello.ranks, hello.ids);
        const std::int32_t end = first_rank(hello.root + 1, hello.ranks, hello.ids);
        root_ = root_ < 0 ? hello.root : root_;
        if (hello.root != root_ || hello.rank < first || hello.rank >= end) {
            return false;
        }
        fds_[hello.rank] = fd;
        if (fds_.size() == static_cast<std::size_t>(end - first)) {
            Header ready;
            ready.kind = static_cast<Kind>(kReady);
            for (const auto& [rank, each] : fds_) {
                write_exactly(each, &ready, sizeof ready);
                ::close(each);
            }
            fds_.clear();
        }
        return true;
    }

  private:
    std::int32_t root_ = -1;  // which of the ids this one is
    std::map<std::int32_t, int> fds_;
};

}  // namespace

bool read_exactly(int fd, void* data, std::size_t size) {
    auto* to = static_cast<char*>(data);
    while (size > 0) {
        const ssize_t got = ::recv(fd, to, size, 0);
        if (got <= 0) {
            return false;
        }
        to += got;
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_exactly(int fd, const void* data, std::size_t size) {
    const auto* from = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t put = ::send(fd, from, size, MSG_NOSIGNAL);
        if (put <= 0) {
            return false;
        }
        from += put;
        size -= static_cast<std::size_t>(put);
    }
    return true;
}

bool connect_to(int fd, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const int on = 1;  // small operations do not wait for each other
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

bool meet_at_root(std::uint16_t port, const Hello& hello, const std::function<bool()>& stopped) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Header ready;
    bool met = connect_to(fd, port) && write_exactly(fd, &hello, sizeof hello);
    pollfd answer{fd, POLLIN, 0};
    while (met && ::poll(&answer, 1, 20) == 0) {
        met = !stopped();
    }
    met = met && read_exactly(fd, &ready, sizeof ready);
    ::close(fd);
    return met;
}

std::uint16_t start_hub(const std::string& nonce) {
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(server, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(server, 1024) != 0 ||
        ::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        return 0;
    }
    std::thread{[server, nonce] {
        std::map<std::string, std::vector<Member>> gathering;
        Root root;
        for (;;) {
            const int fd = ::accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
            const int on = 1;
            ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            Hello hello;
            if (fd < 0 || !read_exactly(fd, &hello, sizeof hello) || hello.nonce != nonce ||
                hello.rank < 0 || hello.rank >= hello.ranks) {
                continue;  // a stranger, or one with another id: it waits, as it does in NCCL
            }
            if (hello.root >= 0) {
                static_cast<void>(root.take(hello, fd));  // else it waits, as above
                continue;
            }
            auto& members = gathering[hello.group];
            members.resize(static_cast<std::size_t>(hello.ranks));
            members[static_cast<std::size_t>(hello.rank)].fd = fd;
            bool all = true;
            for (const Member& member : members) {
                all = all && member.fd >= 0;
            }
            if (all) {
                std::thread{[group = std::make_shared<Group>(std::move(members))] {
                    group->serve();
                }}.detach();
                gathering.erase(hello.group);
            }
        }
    }}.detach();
    return ntohs(address.sin_port);
}

}  // namespace nccl_double
