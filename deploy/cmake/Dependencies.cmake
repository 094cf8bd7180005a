# Every library Lockstep links, found once. `deploy/install-deps` installs them on Debian 12.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto SSL)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(tl-expected REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(SQLiteCpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SNAPPY REQUIRED IMPORTED_TARGET snappy)
pkg_check_modules(ACL REQUIRED IMPORTED_TARGET libacl)

# A target of our own marks Boost SYSTEM and fixes the macros. Asio's own functions are compiled once, in
# job/async/asio.cpp, not in every file that includes it: a tenth of what those take.
add_library(lockstep_boost INTERFACE)
target_include_directories(lockstep_boost SYSTEM INTERFACE ${Boost_INCLUDE_DIRS})
target_compile_definitions(lockstep_boost INTERFACE BOOST_ASIO_NO_DEPRECATED
                           BOOST_ASIO_SEPARATE_COMPILATION
                           BOOST_ASIO_DISABLE_VISIBILITY BOOST_BEAST_USE_STD_STRING_VIEW)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Asio 1.74 looks for <experimental/coroutine> under clang; C++20's is there.
  target_compile_definitions(lockstep_boost INTERFACE BOOST_ASIO_HAS_CO_AWAIT=1
                             BOOST_ASIO_HAS_STD_COROUTINE=1)
endif()
target_link_libraries(lockstep_boost INTERFACE Threads::Threads)

find_program(CCACHE ccache)
if(CCACHE)
  # pch_defines,time_macros: what ccache needs to accept a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
