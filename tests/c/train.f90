! Trains as train.c does, and prints the weights. Arguments: the run file.
program train
  use, intrinsic :: iso_c_binding
  use levin
  implicit none
  integer, parameter :: samples = 8, features = 4, batches = 5, epochs = 2
  real(c_float), target :: x(features, samples), y(1, samples)
  type(c_ptr) :: run, batch(2), name, weight
  type(levin_view) :: view
  real(c_float), pointer :: values(:)
  integer(c_int64_t), pointer :: shape(:)
  integer(c_int32_t) :: count
  real(c_double) :: loss
  character(1024) :: path
  integer :: epoch, b, i, j, number

  call check(levin_init(LEVIN_ABI_VERSION))
  call get_command_argument(1, path)
  call check(levin_run_create(trim(path) // c_null_char, [c_null_ptr], 0, run))
  do epoch = 1, epochs
    do b = 0, batches - 1
      do i = 0, samples - 1
        number = b * samples + i
        do j = 0, features - 1
          x(j + 1, i + 1) = real(modulo(7 * number + 3 * j, 16), c_float) / 8 - 1
        end do
        y(1, i + 1) = real(modulo(5 * number, 8), c_float) / 8
      end do
      call check(levin_tensor_from_data(c_loc(x), LEVIN_FLOAT32, 2, int([samples, features], c_int64_t), &
                                        c_null_ptr, batch(1)))
      call check(levin_tensor_from_data(c_loc(y), LEVIN_FLOAT32, 2, int([samples, 1], c_int64_t), &
                                        c_null_ptr, batch(2)))
      call check(levin_run_step(run, batch, c_null_ptr, 2, loss))
      call check(levin_tensor_free(batch(1)))
      call check(levin_tensor_free(batch(2)))
    end do
    call check(levin_run_end_epoch(run))
  end do

  call check(levin_run_weight_count(run, count))
  do i = 0, count - 1
    call check(levin_run_weight_name(run, i, name))
    call check(levin_run_get_weight(run, levin_text(name) // c_null_char, weight))
    call check(levin_tensor_view(weight, view))
    call c_f_pointer(view%shape, shape, [view%ndim])
    call c_f_pointer(view%data, values, [product(shape)])
    write (*, '(a)', advance='no') levin_text(name)
    do j = 1, size(values)
      write (*, '(a, z8.8)', advance='no') ' ', transfer(values(j), 0_c_int32_t)
    end do
    write (*, '(a)') ''
    call check(levin_tensor_free(weight))
  end do
  call check(levin_run_finish(run))
  call check(levin_run_free(run))
  if (levin_live_handles() /= 0) error stop 'handles are left'

contains

  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status == LEVIN_OK) return
    print '(a)', levin_error_text()
    error stop 1
  end subroutine
end program
