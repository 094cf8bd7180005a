#include "job/cli/new_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>

namespace lockstep::cli {
namespace {

constexpr std::size_t kBuffer = 64U << 10U;

}  // namespace

Error write_error(const std::string& what, int error_number) {
    return {Errc::internal, errno_error(what, error_number).message};
}

Result<NewFile> NewFile::create(std::filesystem::path path) {
    UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
    if (!fd) {
        return fail(write_error("create " + path.string(), errno));
    }
    return NewFile{std::move(fd), std::move(path), true};
}

Result<NewFile> NewFile::open_existing(std::filesystem::path path) {
    UniqueFd fd{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (!fd) {
        return fail(write_error("open " + path.string(), errno));
    }
    return NewFile{std::move(fd), std::move(path), false};
}

NewFile::~NewFile() {
    if (fd_ && temporary_) {
        ::unlink(path_.c_str());
    }
}

Status NewFile::write(std::string_view bytes) {
    buffer_ += bytes;
    return buffer_.size() < kBuffer ? Status{} : flush();
}

Status NewFile::flush() {
    std::string_view left = buffer_;
    while (!left.empty()) {
        const auto written = ::write(fd_.get(), left.data(), left.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            return fail(write_error("write " + path_.string(), errno));
        }
        left.remove_prefix(static_cast<std::size_t>(written));
    }
    buffer_.clear();
    return {};
}

Status NewFile::finish() {
    if (const Status flushed = flush(); !flushed) {
        return flushed;
    }
    // A network file system may say only now that the disk is full.
    if (::close(fd_.release()) != 0) {
        const int number = errno;
        if (temporary_) {
            ::unlink(path_.c_str());
        }
        return fail(write_error("close " + path_.string(), number));
    }
    buffer_ = {};
    return {};
}

Status NewFile::finish_as(const std::filesystem::path& path) {
    Status done = finish();
    if (!done) {
        return done;
    }
    if (std::rename(path_.c_str(), path.c_str()) != 0) {
        const int number = errno;
        ::unlink(path_.c_str());
        return fail(write_error("rename to " + path.string(), number));
    }
    return {};
}

}  // namespace lockstep::cli
