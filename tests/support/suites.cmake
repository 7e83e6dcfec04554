# Run by ctest: includes a program's CTests, one for each suite of GoogleTest, after listing them anew where the program
# or this file is newer than its list. A CTest for each TEST would start each one's process and load LibTorch 700 times,
# which takes longer than the tests do.
# From levin_test(): levin_suites(NAME PROGRAM LIST LABEL SECONDS)
function(levin_suites name program list label seconds)
  if(NOT EXISTS "${program}")
    add_test("${name}_test_was_not_built" "${program}")
    return()
  endif()
  if(NOT EXISTS "${list}" OR "${program}" IS_NEWER_THAN "${list}" OR
      "${CMAKE_CURRENT_FUNCTION_LIST_FILE}" IS_NEWER_THAN "${list}")
    execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE output RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${program} --gtest_list_tests: ${status}\n${output}")
    endif()
    string(REGEX MATCHALL "[^\n]+" lines "${output}")
    set(text "")
    set(suite "")
    foreach(line IN LISTS lines)
      if(line MATCHES "^([A-Za-z0-9_/]+)\\.")
        set(suite "${CMAKE_MATCH_1}")
        set(listed FALSE)
      elseif(line MATCHES "^  " AND NOT line MATCHES "^  DISABLED_" AND NOT listed)
        set(listed TRUE)
        string(APPEND text "add_test([[${name}.${suite}]] [[${program}]] [[--gtest_filter=${suite}.*]])\n"
          "set_tests_properties([[${name}.${suite}]] PROPERTIES LABELS ${label} TIMEOUT ${seconds}")
        if(NOT label STREQUAL "cuda")
          string(APPEND text " ENVIRONMENT [[CUDA_VISIBLE_DEVICES=;OMP_NUM_THREADS=2;GOMP_SPINCOUNT=0]]")
        endif()
        # How GoogleTest's output ends where every test was skipped; a suite that has failed ends otherwise.
        string(APPEND text
          " SKIP_REGULAR_EXPRESSION \"PASSED  ] 0 tests[.]\\n([[]  SKIPPED [^\\n]*\\n)+\\n*$\")\n")
      endif()
    endforeach()
    file(WRITE "${list}" "${text}")
  endif()
  include("${list}")
endfunction()
