// The same in C++: strings and exceptions.
#include <lockstep/lockstep.hpp>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

int main(int count, char** arguments) try {
    const long steps = count > 1 ? std::atol(arguments[1]) : 200;
    double target = 3.0;
    if (lockstep_is_lockstep()) {
        if (lockstep_rank() == 0) {
            lockstep::set_once("target", std::to_string(target));
        }
        lockstep::wait("target", std::chrono::minutes(1));
        target = std::stod(lockstep::get("target"));
        lockstep::barrier("start", std::chrono::minutes(1));
    }
    double x = lockstep_rank();
    for (long step = 1; step <= steps; ++step) {
        const double away = x - target;
        x -= 0.1 * away;
        lockstep::report(step, {{"loss", away * away}, {"samples", 1}});
    }
    std::cout << "rank " << lockstep_rank() << " of " << lockstep_world_size() << ": x = " << x
              << '\n';
} catch (const lockstep::Error& error) {
    std::cerr << "rank " << lockstep_rank() << ": " << error.what() << '\n';
    return 1;
}
