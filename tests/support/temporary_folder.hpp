// A folder of the test's own, removed with what is in it; and whole files as text.
#pragma once

#include "job/base/files.hpp"

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace lockstep::test {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name =
            (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw std::runtime_error("mkdtemp");
        }
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ec;
        std::filesystem::remove_all(path_, ec);
    }
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

inline std::string text_of(const std::filesystem::path& path) {
    auto text = read_file(path, 1U << 30U);
    return text ? std::move(*text) : std::string{};
}

}  // namespace lockstep::test
