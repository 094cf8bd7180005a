#include "tests/support/nccl_double/ras.hpp"

#include "tests/support/nccl_double/state.hpp"
#include "tests/support/ras_words.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace nccl_double {

// In memory that the processes of a communicator share; zero until its rank is there.
struct RasSlot {
    std::atomic<std::int32_t> pid;
    std::atomic<std::int32_t> ready;
    std::atomic<std::int32_t> gone;
    std::array<std::atomic<std::uint64_t>, 5> launched;  // ncclFunc_t's order
};

namespace {

struct Shared {
    std::string name;
    RasSlot* slots = nullptr;
    int ranks = 0;
};
std::mutex mutex;  // guards what follows
std::vector<Shared> communicators;
bool listening = false;

std::string memory_of(const std::string& communicator) {
    return "/nccl-double-" + std::to_string(std::hash<std::string>{}(communicator));
}

bool answers(int pid) {
    std::ifstream in{"/proc/" + std::to_string(pid) + "/stat"};
    std::string text;
    std::getline(in, text);
    const auto end = text.rfind(')');
    const char state = end == std::string::npos || end + 2 >= text.size() ? 'X' : text[end + 2];
    return std::strchr("TtXZ", state) == nullptr;
}

std::string status() {
    const std::lock_guard lock{mutex};
    std::vector<lockstep::test::RasGroup> groups;
    for (const Shared& one : communicators) {
        lockstep::test::RasGroup group;
        group.hash = std::hash<std::string>{}(one.name);
        group.size = one.ranks;
        bool mine = false;
        for (int rank = 0; rank < one.ranks; ++rank) {
            const RasSlot& slot = one.slots[rank];
            lockstep::test::RasMember member;
            member.rank = rank;
            member.host = "127.0.0.1";
            member.pid = slot.pid;
            if (member.pid == 0) {
                continue;  // it has not begun: NCCL's peers do not know each other yet
            }
            mine = mine || (member.pid == ::getpid() && slot.gone == 0);
            member.unresponsive = !answers(member.pid);
            member.missing = member.unresponsive || slot.gone != 0;
            member.init_state = slot.ready != 0 ? 0 : 7;
            for (std::size_t op = 0; op < member.launched.size(); ++op) {
                member.launched[op] = slot.launched[op];
            }
            group.members.push_back(member);
        }
        if (mine) {
            groups.push_back(std::move(group));
        }
    }
    return lockstep::test::ras_words(groups, "2.32.3");
}

void say(int fd, const std::string& text) {
    write_exactly(fd, text.data(), text.size());
}

// One client; what rasClientEventLoop answers to each line.
void serve(int fd) {
    std::string line;
    bool json = false;
    char letter = 0;
    while (read_exactly(fd, &letter, 1) && line.size() < 1024) {
        if (letter != '\n') {
            line += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
            continue;
        }
        if (line.rfind("client protocol ", 0) == 0) {
            say(fd, "SERVER PROTOCOL 2\n");
        } else if (line.rfind("timeout ", 0) == 0) {
            say(fd, "OK\n");
        } else if (line == "set format json" && directive("ras-json", 0).empty()) {
            json = true;
            say(fd, "OK\n");
        } else if (line == "status" && json) {
            say(fd, status());
            break;
        } else {
            say(fd, "ERROR: Unknown command " + line + "\n");
        }
        line.clear();
    }
    ::close(fd);
}

void listen_at(const char* address) {
    const std::string text = address;
    const auto colon = text.rfind(':');
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(text.c_str() + colon + 1)));
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ::setsockopt(server, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
    if (colon == std::string::npos ||
        ::bind(server, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(server, 64) != 0) {
        std::fprintf(stderr, "NCCL double: no RAS at %s\n", address);
        ::close(server);
        return;
    }
    std::thread{[server] {
        for (;;) {
            const int fd = ::accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd >= 0) {
                std::thread{[fd] { serve(fd); }}.detach();
            }
        }
    }}.detach();
}

}  // namespace

RasSlot* register_with_ras(const std::string& communicator, int rank, int ranks) {
    const char* address = std::getenv("NCCL_RAS_ADDR");
    if (address == nullptr) {
        return nullptr;
    }
    const std::string name = memory_of(communicator);
    const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const std::size_t bytes = sizeof(RasSlot) * static_cast<std::size_t>(ranks);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        return nullptr;
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    auto* slots = static_cast<RasSlot*>(memory);
    const std::lock_guard lock{mutex};
    communicators.push_back({communicator, slots, ranks});
    if (!std::exchange(listening, true)) {
        listen_at(address);
    }
    slots[rank].pid = ::getpid();
    bool all = true;
    for (int other = 0; other < ranks; ++other) {
        all = all && slots[other].pid != 0;
    }
    if (all) {
        ::shm_unlink(name.c_str());  // all have it open: nothing is left behind
    }
    return &slots[rank];
}

void joined_ras(RasSlot* slot) {
    if (slot != nullptr) {
        slot->ready = 1;
    }
}

void count_launch(RasSlot* slot, Kind kind) {
    if (slot == nullptr || kind == Kind::send || kind == Kind::recv) {
        return;
    }
    constexpr std::array kPlaces{4U, 1U, 0U, 2U, 3U};  // of Kind's order
    ++slot->launched[kPlaces[static_cast<std::size_t>(kind)]];
}

void leave_ras(RasSlot* slot) {
    if (slot == nullptr) {
        return;
    }
    slot->gone = 1;
    const std::lock_guard lock{mutex};
    for (const Shared& one : communicators) {
        if (slot >= one.slots && slot < one.slots + one.ranks) {
            ::shm_unlink(memory_of(one.name).c_str());  // should one of its ranks never have come
        }
    }
}

}  // namespace nccl_double
