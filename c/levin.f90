! Levin for Fortran 2003: the interfaces of levin.h, whose comments apply. docs/c_api.md has an example.
!
!   use, intrinsic :: iso_c_binding
!   use levin
!   type(c_ptr) :: run
!   if (levin_init(LEVIN_ABI_VERSION) /= LEVIN_OK) error stop 'levin'
!   if (levin_run_create('run.yaml' // c_null_char, [c_null_ptr], 0, run) /= LEVIN_OK) print *, levin_error_text()
!
! Texts end with c_null_char. Handles are of type(c_ptr). Fortran's first dimension is C's last one: the memory of
! x(features, samples) is a tensor of the shape [samples, features].
module levin
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int32_t), parameter :: LEVIN_ABI_VERSION = 1

  integer(c_int32_t), parameter :: LEVIN_OK = 0, LEVIN_INVALID_ARGUMENT = 1, LEVIN_CONFIG_ERROR = 2, &
    LEVIN_RUN_ERROR = 3, LEVIN_CHECKPOINT_ERROR = 4, LEVIN_NONFINITE_LOSS = 5, LEVIN_OUT_OF_MEMORY = 6, &
    LEVIN_WRONG_VERSION = 7

  integer(c_int32_t), parameter :: LEVIN_FLOAT32 = 1, LEVIN_FLOAT64 = 2, LEVIN_FLOAT16 = 3, LEVIN_BFLOAT16 = 4, &
    LEVIN_INT8 = 5, LEVIN_INT16 = 6, LEVIN_INT32 = 7, LEVIN_INT64 = 8, LEVIN_UINT8 = 9, LEVIN_BOOL = 10

  type, bind(c) :: levin_view
    type(c_ptr) :: data
    type(c_ptr) :: shape    ! int64_t
    type(c_ptr) :: strides  ! int64_t
    integer(c_int32_t) :: dtype
    integer(c_int32_t) :: ndim
    integer(c_int32_t) :: device_type
    integer(c_int32_t) :: device_index
  end type

  interface
    ! Fortran's names have no case, so levin_abi_version() of C has a different one.
    function levin_library_abi_version() bind(c, name='levin_abi_version')
      import
      integer(c_int32_t) :: levin_library_abi_version
    end function
    function levin_version() bind(c)
      import
      type(c_ptr) :: levin_version
    end function
    function levin_init(abi_version) bind(c)
      import
      integer(c_int32_t) :: levin_init
      integer(c_int32_t), value :: abi_version
    end function
    function levin_last_error() bind(c)
      import
      type(c_ptr) :: levin_last_error
    end function
    function levin_live_handles() bind(c)
      import
      integer(c_int64_t) :: levin_live_handles
    end function

    ! strides: c_null_ptr, or the address of ndim integers.
    function levin_tensor_from_data(data, dtype, ndim, shape, strides, out) bind(c)
      import
      integer(c_int32_t) :: levin_tensor_from_data
      type(c_ptr), value :: data
      integer(c_int32_t), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: strides
      type(c_ptr), intent(inout) :: out
    end function
    function levin_tensor_from_dlpack(managed, out) bind(c)
      import
      integer(c_int32_t) :: levin_tensor_from_dlpack
      type(c_ptr), value :: managed
      type(c_ptr), intent(inout) :: out
    end function
    function levin_tensor_to_dlpack(tensor, out) bind(c)
      import
      integer(c_int32_t) :: levin_tensor_to_dlpack
      type(c_ptr), value :: tensor
      type(c_ptr), intent(inout) :: out
    end function
    function levin_tensor_view(tensor, out) bind(c)
      import :: c_int32_t, c_ptr, levin_view
      integer(c_int32_t) :: levin_tensor_view
      type(c_ptr), value :: tensor
      type(levin_view), intent(inout) :: out
    end function
    function levin_tensor_free(tensor) bind(c)
      import
      integer(c_int32_t) :: levin_tensor_free
      type(c_ptr), value :: tensor
    end function

    function levin_run_create(path, arguments, count, out) bind(c)
      import
      integer(c_int32_t) :: levin_run_create
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(in) :: arguments(*)
      integer(c_int32_t), value :: count
      type(c_ptr), intent(inout) :: out
    end function
    function levin_run_create_from_text(yaml, arguments, count, out) bind(c)
      import
      integer(c_int32_t) :: levin_run_create_from_text
      character(kind=c_char), intent(in) :: yaml(*)
      type(c_ptr), intent(in) :: arguments(*)
      integer(c_int32_t), value :: count
      type(c_ptr), intent(inout) :: out
    end function
    function levin_run_finish(run) bind(c)
      import
      integer(c_int32_t) :: levin_run_finish
      type(c_ptr), value :: run
    end function
    function levin_run_free(run) bind(c)
      import
      integer(c_int32_t) :: levin_run_free
      type(c_ptr), value :: run
    end function

    ! names: c_null_ptr, or the address of count pointers to texts.
    function levin_run_step(run, tensors, names, count, loss) bind(c)
      import
      integer(c_int32_t) :: levin_run_step
      type(c_ptr), value :: run
      type(c_ptr), intent(in) :: tensors(*)
      type(c_ptr), value :: names
      integer(c_int32_t), value :: count
      real(c_double), intent(inout) :: loss
    end function
    function levin_run_evaluate(run, tensors, names, count) bind(c)
      import
      integer(c_int32_t) :: levin_run_evaluate
      type(c_ptr), value :: run
      type(c_ptr), intent(in) :: tensors(*)
      type(c_ptr), value :: names
      integer(c_int32_t), value :: count
    end function
    function levin_run_predict(run, tensors, names, count, out) bind(c)
      import
      integer(c_int32_t) :: levin_run_predict
      type(c_ptr), value :: run
      type(c_ptr), intent(in) :: tensors(*)
      type(c_ptr), value :: names
      integer(c_int32_t), value :: count
      type(c_ptr), intent(inout) :: out
    end function
    function levin_run_end_epoch(run) bind(c)
      import
      integer(c_int32_t) :: levin_run_end_epoch
      type(c_ptr), value :: run
    end function

    function levin_run_metric(run, name, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_metric
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(inout) :: value
    end function
    function levin_run_log(run, name, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_log
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value
    end function
    function levin_run_global_step(run, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_global_step
      type(c_ptr), value :: run
      integer(c_int64_t), intent(inout) :: value
    end function
    function levin_run_current_epoch(run, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_current_epoch
      type(c_ptr), value :: run
      integer(c_int64_t), intent(inout) :: value
    end function
    function levin_run_call(run, hook) bind(c)
      import
      integer(c_int32_t) :: levin_run_call
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: hook(*)
    end function
    function levin_run_should_stop(run, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_should_stop
      type(c_ptr), value :: run
      integer(c_int32_t), intent(inout) :: value
    end function

    function levin_run_weight_count(run, count) bind(c)
      import
      integer(c_int32_t) :: levin_run_weight_count
      type(c_ptr), value :: run
      integer(c_int32_t), intent(inout) :: count
    end function
    function levin_run_weight_name(run, index, name) bind(c)
      import
      integer(c_int32_t) :: levin_run_weight_name
      type(c_ptr), value :: run
      integer(c_int32_t), value :: index
      type(c_ptr), intent(inout) :: name
    end function
    function levin_run_get_weight(run, name, out) bind(c)
      import
      integer(c_int32_t) :: levin_run_get_weight
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(inout) :: out
    end function
    function levin_run_set_weight(run, name, value) bind(c)
      import
      integer(c_int32_t) :: levin_run_set_weight
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: value
    end function

    function levin_run_save(run, path) bind(c)
      import
      integer(c_int32_t) :: levin_run_save
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: path(*)
    end function
    function levin_run_load(run, path) bind(c)
      import
      integer(c_int32_t) :: levin_run_load
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: path(*)
    end function
  end interface

contains

  ! Returns a text of Levin's as a Fortran string.
  function levin_text(text) result(string)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: string
    character(kind=c_char), pointer :: characters(:)
    integer :: length, k
    interface
      function strlen(string) bind(c)
        import
        integer(c_size_t) :: strlen
        type(c_ptr), value :: string
      end function
    end interface
    length = int(strlen(text))
    call c_f_pointer(text, characters, [length])
    allocate (character(length) :: string)
    do k = 1, length
      string(k:k) = characters(k)
    end do
  end function

  ! Returns what the last call on this thread did wrong.
  function levin_error_text() result(string)
    character(:), allocatable :: string
    string = levin_text(levin_last_error())
  end function
end module
