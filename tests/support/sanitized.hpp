// Whether the program runs under AddressSanitizer or ThreadSanitizer: what it costs there is no
// measure of the program, and a test that plays the same thing very often plays it less often.
#pragma once

namespace lockstep::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // GCC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;  // clang
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lockstep::test
