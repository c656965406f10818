# Language level, floating-point rules, warnings, sanitizers and the build's helpers, for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(PAGESTATE_CCACHE ccache)
if(PAGESTATE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PAGESTATE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PAGESTATE_CCACHE})
endif()
find_program(PAGESTATE_MOLD mold)
if(PAGESTATE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(pagestate_options INTERFACE)
# The baseline is x86-64-v3 (AVX2 and FMA); wider instruction sets are chosen at run time, in files of their own.
# Results are a contract down to the bit: no fast-math, and a product and a sum fuse only where the code says fma.
target_compile_options(pagestate_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3 -fno-fast-math -ffp-contract=off -Wall -Wextra -Wshadow -Wno-missing-field-initializers>)
# clang 19 does not take libstdc++ 12's own uses of deprecated names (in std::stable_sort) for a system header's.
target_compile_options(pagestate_options INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
target_include_directories(pagestate_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(pagestate_options INTERFACE $<$<CONFIG:Debug>:PAGESTATE_DCHECKS>)
if(PAGESTATE_WERROR)
  target_compile_options(pagestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(PAGESTATE_SANITIZE)
  target_compile_options(pagestate_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PAGESTATE_SANITIZE} -fno-omit-frame-pointer>)
  if(PAGESTATE_SANITIZE MATCHES "undefined")
    target_compile_options(pagestate_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
  endif()
  target_link_options(pagestate_options INTERFACE -fsanitize=${PAGESTATE_SANITIZE})
  target_compile_definitions(pagestate_options INTERFACE PAGESTATE_DCHECKS)
endif()

if(PAGESTATE_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "PAGESTATE_FUZZ=ON needs clang; use the preset `asan`")
endif()

if(NOT PAGESTATE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  # Hopper only. Set before the language is enabled: the default of CMake names architectures that nvcc 13 dropped.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_HOST_COMPILER)  # check_language empties it
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
    enable_language(CUDA)
    set(PAGESTATE_HAS_CUDA ON)
    # CMake 3.25 does not know that nvcc has C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  elseif(PAGESTATE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PAGESTATE_CUDA=ON, but no CUDA compiler was found; legal values: AUTO, ON, OFF")
  endif()
endif()
