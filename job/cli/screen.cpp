#include "job/cli/screen.hpp"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace lockstep::cli {
namespace {

// xterm's control sequences: the other screen, no cursor, no wrapping at the right edge.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kCrashing{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
// The rest of a key's sequence comes at once, even over a slow line.
constexpr std::chrono::milliseconds kSequence{100};
// Delivered only while wait() waits, so none is missed between a look and the wait.
constexpr std::array kWaiting{SIGWINCH, SIGTSTP};

// What the handlers need; written before they are installed.
termios before_screen{};
termios during{};
int input = -1;
volatile std::sig_atomic_t entered = 0;
volatile std::sig_atomic_t changed = 0;

void put(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            return;  // the terminal has gone
        }
        text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
}

// Only what is async-signal-safe: write and tcsetattr are.
void take_terminal() {
    if (input >= 0) {
        ::tcsetattr(input, TCSANOW, &during);
    }
    put(kEnter);
    entered = 1;
}
void give_back() {
    if (entered == 0) {
        return;
    }
    entered = 0;
    put(kLeave);
    if (input >= 0) {
        ::tcsetattr(input, TCSANOW, &before_screen);
    }
}

extern "C" void on_end(int /*signal*/) {
    give_back();
    ::_exit(130);
}
extern "C" void on_crash(int signal) {
    give_back();
    std::signal(signal, SIG_DFL);
    ::raise(signal);
}
extern "C" void on_resize(int /*signal*/) {
    changed = 1;
}
extern "C" void on_stop(int /*signal*/) {
    const int error = errno;
    give_back();
    // Continued in the background (bg) the terminal is the shell's.
    do {
        ::kill(::getpid(), SIGSTOP);
    } while (input >= 0 && ::tcgetpgrp(input) >= 0 && ::tcgetpgrp(input) != ::getpgrp());
    take_terminal();
    changed = 1;
    errno = error;
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

sigset_t waiting_signals() {
    sigset_t set{};
    ::sigemptyset(&set);
    for (const int signal : kWaiting) {
        ::sigaddset(&set, signal);
    }
    return set;
}

void handle_signals() {
    const sigset_t set = waiting_signals();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::signal(SIGTTOU, SIG_IGN);  // else giving back from the background would stop
    for (const int signal : kEnding) {
        handle(signal, on_end);
    }
    for (const int signal : kCrashing) {
        handle(signal, on_crash);
    }
    handle(SIGWINCH, on_resize);
    handle(SIGTSTP, on_stop);
    handle(SIGTTIN, on_stop);
}

Key plain_key(char c) {
    switch (c) {
        case 'q':
        case 'Q':
            return Key::quit;
        case 's':
            return Key::sort;
        case 'r':
            return Key::reverse;
        case ' ':
            return Key::pause;
        case '?':
        case 'h':
            return Key::help;
        case 'k':
            return Key::up;
        case 'j':
            return Key::down;
        case 'b':
            return Key::page_up;
        case 'f':
            return Key::page_down;
        case 'g':
            return Key::home;
        case 'G':
            return Key::end;
        case '\x0c':  // Ctrl-L
            return Key::redraw;
        default:
            return Key::other;
    }
}

// What comes after ESC [ or ESC O.
Key sequence_key(std::string_view rest) {
    static constexpr std::array<std::pair<std::string_view, Key>, 10> kKeys{{{"A", Key::up},
                                                                             {"B", Key::down},
                                                                             {"H", Key::home},
                                                                             {"F", Key::end},
                                                                             {"1~", Key::home},
                                                                             {"4~", Key::end},
                                                                             {"5~", Key::page_up},
                                                                             {"6~", Key::page_down},
                                                                             {"7~", Key::home},
                                                                             {"8~", Key::end}}};
    for (const auto& [text, key] : kKeys) {
        if (text == rest) {
            return key;
        }
    }
    return Key::other;
}

}  // namespace

std::vector<Key> KeyReader::feed(std::string_view bytes) {
    constexpr std::size_t kLongest = 16;  // no key sends more
    std::vector<Key> keys;
    for (const char c : bytes) {
        if (pending_.empty()) {
            if (c == '\x1b') {
                pending_ = c;
            } else {
                keys.push_back(plain_key(c));
            }
            continue;
        }
        if (pending_.size() == 1 && c != '[' && c != 'O') {
            pending_.clear();
            keys.push_back(Key::other);  // ESC, or Alt with a key
            continue;
        }
        pending_ += c;
        const bool last = pending_.size() > 2 && c >= '@' && c <= '~';
        if (last || pending_.size() > kLongest) {
            keys.push_back(sequence_key(std::string_view(pending_).substr(2)));
            pending_.clear();
        }
    }
    return keys;
}

std::vector<Key> KeyReader::flush() {
    return std::exchange(pending_, {}).empty() ? std::vector<Key>{} : std::vector{Key::other};
}

Result<std::unique_ptr<Screen>> Screen::enter() {
    if (::isatty(STDOUT_FILENO) != 1) {
        return fail(Errc::unavailable, "stdout is no terminal");
    }
    std::unique_ptr<Screen> screen(new Screen);
    screen->input_ = STDIN_FILENO;
    if (::isatty(STDIN_FILENO) != 1) {
        screen->input_ = ::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
        screen->own_input_ = screen->input_ >= 0;
    }
    input = -1;
    if (screen->input_ >= 0 && ::tcgetattr(screen->input_, &before_screen) == 0) {
        input = screen->input_;
        during = before_screen;
        during.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
        during.c_cc[VMIN] = 1;
        during.c_cc[VTIME] = 0;
    }
    handle_signals();
    take_terminal();
    return screen;
}

Screen::~Screen() {
    give_back();
    for (const int signal : kCrashing) {
        std::signal(signal, SIG_DFL);
    }
    for (const int signal : kWaiting) {
        std::signal(signal, SIG_DFL);
    }
    const sigset_t set = waiting_signals();
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    if (own_input_) {
        ::close(input_);
    }
}

Screen::News Screen::wait(std::chrono::milliseconds at_most, int wake) {
    News news;
    std::array<pollfd, 2> fds{{{input_, POLLIN, 0}, {wake, POLLIN, 0}}};
    if (keys_.waiting()) {
        at_most = std::min(at_most, kSequence);
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
    timespec time{};
    time.tv_sec = seconds.count();
    time.tv_nsec = std::chrono::nanoseconds(at_most - seconds).count();
    sigset_t mask{};
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (const int signal : kWaiting) {
        ::sigdelset(&mask, signal);
    }
    const int ready = ::ppoll(fds.data(), fds.size(), &time, &mask);
    if (std::exchange(changed, 0) != 0) {
        news.resized = true;
        shown_.clear();
    }
    if (ready > 0 && fds[0].revents != 0) {
        std::array<char, 256> bytes{};
        const ssize_t count = ::read(input_, bytes.data(), bytes.size());
        if (count > 0) {
            news.keys = keys_.feed({bytes.data(), static_cast<std::size_t>(count)});
        } else {
            news.closed = count == 0 || (errno != EINTR && errno != EAGAIN);
        }
    } else if (ready == 0) {
        news.keys = keys_.flush();
    }
    return news;
}

void Screen::draw(const Terminal& terminal, const std::vector<std::string>& lines) {
    std::string text;
    if (shown_.size() != lines.size() || width_ != terminal.width) {
        shown_.assign(lines.size(), std::string{});
        width_ = terminal.width;
        text += "\x1b[0m\x1b[2J";
    }
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i] == shown_[i]) {
            continue;
        }
        // At the right edge there is nothing to clear, and some terminals would clear the edge.
        const bool full = visible_width(lines[i]) >= terminal.width;
        text += "\x1b[" + std::to_string(i + 1) + ";1H" + lines[i] + (full ? "" : "\x1b[K");
        shown_[i] = lines[i];
    }
    put(text);
}

}  // namespace lockstep::cli
