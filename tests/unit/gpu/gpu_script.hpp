// The script of tests/support/fake_nvml in a folder of its own, for as long as a test runs.
#pragma once

#include "tests/support/temporary_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {

class GpuScript {
  public:
    explicit GpuScript(const std::string& text) : path_(folder_.path() / "gpus") {
        write(text);
        ::setenv("FAKE_NVML", path_.c_str(), 1);
    }
    ~GpuScript() { ::unsetenv("FAKE_NVML"); }
    GpuScript(const GpuScript&) = delete;
    GpuScript& operator=(const GpuScript&) = delete;

    // Whole, as the library reads it at any moment.
    void write(const std::string& text) const {
        const auto next = path_.string() + ".new";
        std::ofstream{next} << text;
        std::filesystem::rename(next, path_);
    }

    // Whether a call is in the library that does not return.
    bool hangs() const { return std::filesystem::exists(path_.string() + ".hangs"); }

  private:
    test::TemporaryFolder folder_;
    std::filesystem::path path_;
};

}  // namespace lockstep
