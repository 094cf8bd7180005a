// Reads tests/fixtures/slurm, and shortens what the tests of the Slurm parsers repeat.
#pragma once

#include "scheduler-integration/slurm/slurm_text.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep {

// The fence of 22.05/squeue.txt.
inline constexpr std::string_view kFixtureFence = "5eed0123456789abcdef5eed01234567";

inline std::string slurm_fixture(const std::string& name) {
    const std::string path = LOCKSTEP_SOURCE_DIR "/tests/fixtures/slurm/" + name;
    std::ifstream file{path, std::ios::binary};
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_FALSE(text.str().empty()) << path;
    return text.str();
}

inline ProgramOutput said(std::string_view out, std::string_view err = {}, int status = 0) {
    ProgramOutput output;
    output.exit_status = status;
    output.out = out;
    output.err = err;
    return output;
}

inline const SlurmJob* find_job(const std::vector<SlurmJob>& jobs, std::int64_t id) {
    for (const SlurmJob& job : jobs) {
        if (job.id == id) {
            return &job;
        }
    }
    return nullptr;
}

}  // namespace lockstep
