# Programs for nodes of other distributions: lockstep-agent and lockstep once more, out of the same objects, into
# portable/ of the build folder. They need glibc 2.28 and nothing else (Rocky 8, Debian 10, Ubuntu 20.04 and later), are
# stripped, and load what is loaded at run time (NVML) as the others do. LOCKSTEP_PORTABLE=AUTO: where zig is found, which
# links them (`deploy/install-deps --portable`); ON: it must be; OFF: not looked for. x86_64 only.
#
# Only linked anew, not compiled: that is two seconds, and what runs on the nodes is what the tests have run.
set(LOCKSTEP_PORTABLE AUTO CACHE STRING "Link portable programs: AUTO (where zig is found), ON, OFF")

function(lockstep_find_zig result)
  set(${result} "" PARENT_SCOPE)
  find_program(LOCKSTEP_ZIG zig)
  mark_as_advanced(LOCKSTEP_ZIG)
  if(LOCKSTEP_ZIG)
    set(${result} "${LOCKSTEP_ZIG}" PARENT_SCOPE)
    return()
  endif()
  foreach(folder ${CMAKE_BINARY_DIR}/zig ${CMAKE_SOURCE_DIR}/build/zig)
    if(EXISTS ${folder}/installed AND EXISTS ${folder}/ziglang/zig)
      set(${result} "${folder}/ziglang/zig" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(reason "")
set(zig "")
if(NOT LOCKSTEP_PORTABLE)
  set(reason "LOCKSTEP_PORTABLE is OFF")
elseif(LOCKSTEP_SANITIZE)
  set(reason "sanitizers")
elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(reason "they are linked of GCC's objects for x86_64")
else()
  lockstep_find_zig(zig)
  if(NOT zig)
    set(reason "zig is not there (deploy/install-deps --portable)")
  endif()
endif()
if(reason)
  if(LOCKSTEP_PORTABLE STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_PORTABLE is ON: ${reason}")
  endif()
  message(STATUS "Portable programs: none: ${reason}")
  return()
endif()
message(STATUS "Portable programs: linked by ${zig}")

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(portable ${PROJECT_SOURCE_DIR}/deploy/portable)
add_library(lockstep_portable STATIC ${portable}/glibc_2_28.cpp ${portable}/spdlog_static.cpp)
target_link_libraries(lockstep_portable PRIVATE spdlog::spdlog)
set_target_properties(lockstep_portable PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_options(lockstep_portable PRIVATE -fstack-protector-strong)
# Where link.py, or its libraries, changes they are linked again.
foreach(program lockstep-agent lockstep)
  set(target portable-${program})
  add_executable(${target} $<TARGET_OBJECTS:${program}>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${program} LINKER_LANGUAGE CXX
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable LINK_DEPENDS ${portable}/link.py
    RULE_LAUNCH_LINK "${Python3_EXECUTABLE} ${portable}/link.py --zig ${zig} --")
  get_target_property(libraries ${program} LINK_LIBRARIES)
  target_link_libraries(${target} PRIVATE ${libraries} lockstep_portable)
  install(PROGRAMS ${CMAKE_BINARY_DIR}/portable/${program} DESTINATION bin COMPONENT portable EXCLUDE_FROM_ALL)
endforeach()
# What lies beside them in a package (Packages.cmake).
set(rank ${PROJECT_SOURCE_DIR}/job/rank/python)
install(DIRECTORY ${rank}/lockstep ${rank}/hooks DESTINATION share/lockstep/python COMPONENT portable EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN __pycache__ EXCLUDE)
install(FILES ${rank}/pyproject.toml ${rank}/build_backend.py ${rank}/README.md DESTINATION share/lockstep/python
        COMPONENT portable EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/man1 ${PROJECT_BINARY_DIR}/share/man/man5 DESTINATION share/man
        COMPONENT portable EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_BINARY_DIR}/share/bash-completion/completions/lockstep DESTINATION share/bash-completion/completions
        COMPONENT portable EXCLUDE_FROM_ALL)
