# The engine as the addon has it: the library in ENGINE, its build folder. So it is not compiled again, and programs on it run the machine code that
# users run. Sets `native`, the folder of its sources.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(Threads REQUIRED)

set(native ${CMAKE_CURRENT_LIST_DIR}/../native)
add_library(engine STATIC IMPORTED)
set_target_properties(engine PROPERTIES IMPORTED_LOCATION ${ENGINE}/libcontinuo.a)
# Where the addon has the CUDA backend, the library calls it.
if(EXISTS ${ENGINE}/libcontinuo_cuda.a)
  find_package(CUDAToolkit REQUIRED)
  set_target_properties(engine PROPERTIES INTERFACE_LINK_LIBRARIES "${ENGINE}/libcontinuo_cuda.a;CUDA::cudart_static")
endif()
