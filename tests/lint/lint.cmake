# lockstep_lint(<name> <script> [args…]): one ctest test with label lint, run from the source root.
# A script ends 77 when it cannot run here (ctest says "Skipped", never "Passed").
function(lockstep_lint name script)
  add_test(NAME lint.${name} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/${script}
           ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(lint.${name} PROPERTIES LABELS lint TIMEOUT 300 PROCESSORS 3 SKIP_RETURN_CODE 77)
endfunction()

foreach(lint layers machine caps batches co_await sizes words format shell names documents)
  if(EXISTS ${PROJECT_SOURCE_DIR}/tests/lint/${lint}.py)
    lockstep_lint(${lint} ${lint}.py --root ${PROJECT_SOURCE_DIR})
  endif()
endforeach()
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/lint/selftest.py)
  lockstep_lint(selftest selftest.py)
endif()
# The list of mistakes that the unit tests must notice goes with the sources (tests/mutate; builds nothing).
lockstep_lint(mutants ../mutate --check)
