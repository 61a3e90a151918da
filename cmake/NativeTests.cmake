# Every test/native/*_test.cpp is a program that returns non-zero on failure. Tests of kernels run once per instruction set: those
# that name INFERX_ISA are compiled for each, those that ask isa_table() are told by the environment, and run on emulated older
# processors too, where qemu-user is installed. Tests of another architecture run emulated, in a small form where there is one.
set(INFERX_TEST_SIZE)
set(INFERX_OLDER_CPUS)
if(CMAKE_CROSSCOMPILING)
  set(INFERX_TEST_SIZE small)
  set(INFERX_QEMU ${CMAKE_CROSSCOMPILING_EMULATOR})
  set(INFERX_OLDER_CPUS cortex-a53)  # ARM is the only one so far
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  find_program(INFERX_QEMU qemu-x86_64)
  set(INFERX_OLDER_CPUS Nehalem Haswell)
endif()
function(inferx_test name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE inferx_core)
  target_compile_definitions(${name} PRIVATE INFERX_FIXTURES="${PROJECT_SOURCE_DIR}/test/fixtures" ${ARGN})
endfunction()

file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/native/*_test.cpp)
foreach(source IN LISTS test_sources)
  get_filename_component(name ${source} NAME_WE)
  file(STRINGS ${source} compiled_per_isa REGEX "INFERX_ISA")
  file(STRINGS ${source} run_per_isa REGEX "isa_table")
  if(NOT compiled_per_isa)
    inferx_test(${name} ${source})
  endif()
  if(compiled_per_isa OR run_per_isa)
    foreach(isa IN LISTS INFERX_ISAS)
      if(compiled_per_isa)
        inferx_test(${name}_${isa} ${source} INFERX_ISA=${isa})
        add_test(NAME ${name}_${isa} COMMAND ${name}_${isa} ${PROJECT_SOURCE_DIR}/test/fixtures/blocks ${INFERX_TEST_SIZE})
      else()
        add_test(NAME ${name}_${isa} COMMAND ${name})
        set_tests_properties(${name}_${isa} PROPERTIES ENVIRONMENT "INFERX_CPU_ISA=${isa}")
      endif()
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  # attention_test takes minutes there
  if(run_per_isa AND INFERX_QEMU AND NOT INFERX_SANITIZE AND NOT name STREQUAL "attention_test")
    foreach(cpu IN LISTS INFERX_OLDER_CPUS)
      add_test(NAME ${name}_on_${cpu} COMMAND ${INFERX_QEMU} -cpu ${cpu} $<TARGET_FILE:${name}>)
    endforeach()
  endif()
endforeach()

if(NOT INFERX_SANITIZE)  # instrumented objects do have initializers
  foreach(isa IN LISTS INFERX_ISAS)
    add_test(NAME isa_objects_${isa} COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJDUMP=${CMAKE_OBJDUMP}
      "-DOBJECTS=$<TARGET_OBJECTS:inferx_cpu_${isa}>" -P ${PROJECT_SOURCE_DIR}/cmake/CheckIsaObject.cmake)
  endforeach()
endif()

# A device that works later: what the engine does with a GPU, tested without one.
add_library(deferred_backend MODULE ${PROJECT_SOURCE_DIR}/test/native/deferred_backend.cpp)
target_link_libraries(deferred_backend PRIVATE inferx_core)
