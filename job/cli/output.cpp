#include "job/cli/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

namespace lockstep::cli {
namespace {

constexpr std::size_t kHeldOutput = 64U << 10U;

}  // namespace

OutputBuffer::OutputBuffer(int fd) : fd_(fd), by_line_(::isatty(fd) == 1) {}

OutputBuffer::~OutputBuffer() {
    OutputBuffer::sync();
}

OutputBuffer::int_type OutputBuffer::overflow(int_type c) {
    if (traits_type::eq_int_type(c, traits_type::eof())) {
        return traits_type::not_eof(c);
    }
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize OutputBuffer::xsputn(const char* text, std::streamsize size) {
    const std::string_view added{text, static_cast<std::size_t>(size)};
    held_ += added;
    const bool full = held_.size() >= kHeldOutput;
    const bool line = by_line_ && added.find('\n') != std::string_view::npos;
    if (full || line) {
        OutputBuffer::sync();
    }
    return error_ == 0 ? size : 0;
}

int OutputBuffer::sync() {
    std::string_view left = held_;
    while (error_ == 0 && !left.empty()) {
        const ssize_t written = ::write(fd_, left.data(), left.size());
        if (written >= 0) {
            left.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno != EINTR) {
            error_ = errno;
        }
    }
    held_.clear();
    errno = error_ != 0 ? error_ : errno;
    return error_ == 0 ? 0 : -1;
}

void hold_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        // The lowest that is free is this one. Read only, so that writing fails and says so.
        if (::fcntl(fd, F_GETFD) < 0 &&
            ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            ::_exit(static_cast<int>(Exit::not_written));
        }
    }
}

Exit end_of_output(const OutputBuffer& output, Exit end, std::ostream& err) {
    if (output.error() == 0) {
        return end;
    }
    // An export has said so itself.
    if (output.error() != EPIPE && end != Exit::not_written) {
        err << "error: write standard output: " << std::generic_category().message(output.error())
            << "\n";
    }
    return Exit::not_written;
}

}  // namespace lockstep::cli
