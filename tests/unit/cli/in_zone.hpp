// A time zone for a test; the machine's counts again when it is over.
#pragma once

#include <stdlib.h>
#include <time.h>

namespace lockstep::cli {

class InZone {
  public:
    explicit InZone(const char* zone) {
        ::setenv("TZ", zone, 1);
        ::tzset();
    }
    ~InZone() {
        ::unsetenv("TZ");
        ::tzset();
    }
    InZone(const InZone&) = delete;
    InZone& operator=(const InZone&) = delete;
};

}  // namespace lockstep::cli
