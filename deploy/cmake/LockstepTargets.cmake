# lockstep_library(<name> LEVEL <n> SOURCES … HEADERS … [DEPS …] [PCH …])
# lockstep_program(<program> SOURCES … DEPS …)
# A library may link only libraries of a lower level; `tests/lint/layers.py` checks the includes,
# this checks the links.

add_library(lockstep_flags INTERFACE)
# -pthread, which some dependencies bring: precompiled headers are for targets with the same options.
target_compile_options(lockstep_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -pthread)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports freed coroutine frames and moved strings that are neither (bugs 104436, 105329).
  target_compile_options(lockstep_flags INTERFACE -fcoroutines -Wno-mismatched-new-delete
                         -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds
                         -Wno-stringop-overread -Wno-free-nonheap-object -Wno-dangling-pointer)
endif()
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_flags INTERFACE -Werror)
endif()
if(LOCKSTEP_HARDENING AND NOT LOCKSTEP_SANITIZE)
  # https://wiki.debian.org/Hardening; the sanitizers bring checks of their own. _FORTIFY_SOURCE needs -O.
  set(optimized $<NOT:$<CONFIG:Debug>>)
  target_compile_options(lockstep_flags INTERFACE -fstack-protector-strong -fstack-clash-protection)
  target_compile_definitions(lockstep_flags INTERFACE $<${optimized}:_FORTIFY_SOURCE=2> _GLIBCXX_ASSERTIONS)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(lockstep_flags INTERFACE -fcf-protection)
  endif()
  target_link_options(lockstep_flags INTERFACE LINKER:-z,relro,-z,now)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE}
                         -fno-omit-frame-pointer)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# Compiles the sources of a target in batches: most of a file's time goes into the headers that all share.
# A batch is small enough that two cores share a library, and that a change to one file costs seconds.
function(lockstep_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE ${LOCKSTEP_UNITY_BATCH})
  if(LOCKSTEP_UNITY AND NOT LOCKSTEP_UNITY_BATCH EQUAL 12)
    # A local name may be that of a constant in a file that it meets in no batch of the usual size.
    target_compile_options(${target} PRIVATE -Wno-error=shadow)
  endif()
endfunction()

if(LOCKSTEP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # To GCC a .cpp in a batch is a header: it warns of each class that has a part of an anonymous namespace.
  target_compile_options(lockstep_flags INTERFACE -Wno-subobject-linkage)
endif()

# lockstep_precompiled(<provider> HEADERS … [DEPS …] [OPTIONS …] [DEFINITIONS …])
#   a target that only precompiles headers, for others to reuse: those of Asio and GoogleTest take eight seconds
#   and 170 MB, which each target would spend for itself.
function(lockstep_precompiled provider)
  cmake_parse_arguments(arg "" "" "HEADERS;DEPS;OPTIONS;DEFINITIONS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${provider}.cpp "")
  add_library(${provider} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${provider}.cpp)
  target_include_directories(${provider} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${provider} PRIVATE ${arg_DEFINITIONS})
  target_compile_options(${provider} PRIVATE ${arg_OPTIONS})
  target_link_libraries(${provider} PRIVATE lockstep_flags ${arg_DEPS})
  target_precompile_headers(${provider} PRIVATE ${arg_HEADERS})
endfunction()

# lockstep_asio(<target> <result>): "asio_" if Asio is in what the target links, else "".
function(lockstep_asio target result)
  set(seen "")
  set(open ${target})
  while(open)
    list(POP_FRONT open next)
    if(NOT TARGET ${next} OR next IN_LIST seen)
      continue()
    endif()
    list(APPEND seen ${next})
    # Of what others link only what they hand on: of that come the definitions.
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked ${next} ${property})
      if(linked AND (next STREQUAL target OR property STREQUAL "INTERFACE_LINK_LIBRARIES"))
        list(APPEND open ${linked})
      endif()
    endforeach()
  endwhile()
  set(${result} "" PARENT_SCOPE)
  if(lockstep_boost IN_LIST seen)
    set(${result} "asio_" PARENT_SCOPE)
  endif()
endfunction()

if(LOCKSTEP_PRECOMPILE)
  set(common ${PROJECT_SOURCE_DIR}/deploy/cmake/precompiled.hpp)
  lockstep_precompiled(lockstep_precompiled_library HEADERS ${common} DEPS nlohmann_json::nlohmann_json)
  lockstep_precompiled(lockstep_precompiled_asio_library HEADERS ${common} DEPS nlohmann_json::nlohmann_json lockstep_boost)
endif()

function(lockstep_library name)
  cmake_parse_arguments(arg "" "LEVEL" "SOURCES;HEADERS;DEPS;PCH" ${ARGN})
  set(target lockstep_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(lockstep::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LOCKSTEP_LEVEL ${arg_LEVEL})
  # A source of the same name includes its header first (tests/lint/layers.py), so compiling it by itself
  # proves that the header needs nothing before it, and all_verify_interface_header_sets compiles only the
  # other headers. In batches no source is compiled by itself: there it compiles them all.
  set(proven "")
  set(unproven ${arg_HEADERS})
  if(NOT LOCKSTEP_UNITY AND NOT LOCKSTEP_PRECOMPILE AND NOT arg_PCH)
    foreach(source ${arg_SOURCES})
      string(REGEX REPLACE "\\.cpp$" ".hpp" header "${source}")
      if(header IN_LIST unproven)
        list(REMOVE_ITEM unproven ${header})
        list(APPEND proven ${header})
      endif()
    endforeach()
  endif()
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${unproven}
                 FILE_SET proven TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${proven})
  set_target_properties(${target} PROPERTIES INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${target} PRIVATE lockstep_flags)
  foreach(dep ${arg_DEPS})
    if(dep MATCHES "^lockstep::(.*)$")
      get_target_property(level lockstep_${CMAKE_MATCH_1} LOCKSTEP_LEVEL)
      if(NOT level LESS arg_LEVEL)
        message(FATAL_ERROR "${target} (level ${arg_LEVEL}) may not link ${dep} (level ${level})")
      endif()
    endif()
    target_link_libraries(${target} PUBLIC ${dep})
  endforeach()
  if(LOCKSTEP_PRECOMPILE)
    lockstep_asio(${target} asio)
    target_precompile_headers(${target} REUSE_FROM lockstep_precompiled_${asio}library)
  elseif(arg_PCH)
    target_precompile_headers(${target} PRIVATE ${arg_PCH})
  endif()
  lockstep_unity(${target})
endfunction()

function(lockstep_program program)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${program} ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE lockstep_flags ${arg_DEPS})
  lockstep_unity(${program})
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${program})
endfunction()
