// Standard output that says when it could not be written: a full disk, a closed descriptor. Owns
// nothing; the main thread.
#pragma once

#include "job/cli/options.hpp"

#include <ostream>
#include <streambuf>
#include <string>

namespace lockstep::cli {

class OutputBuffer final : public std::streambuf {
  public:
    // `fd` outlives it. On a terminal each line is written as it is complete.
    explicit OutputBuffer(int fd);
    ~OutputBuffer() override;
    OutputBuffer(const OutputBuffer&) = delete;
    OutputBuffer& operator=(const OutputBuffer&) = delete;

    // errno of the write that failed, 0 if none has; what comes after it is dropped.
    int error() const { return error_; }

  protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize size) override;
    int sync() override;

  private:
    int fd_;
    int error_ = 0;
    bool by_line_;
    std::string held_;
};

// Descriptors 0 to 2 that are closed are taken by what cannot be read or written: a connection
// would be opened there, and what is printed would be sent over it.
void hold_standard_descriptors();

// How a program ends that was to end with `end`: not_written, with a message on `err`, when its
// output has not arrived. EPIPE has no message: whoever read has seen enough.
Exit end_of_output(const OutputBuffer& output, Exit end, std::ostream& err);

}  // namespace lockstep::cli
