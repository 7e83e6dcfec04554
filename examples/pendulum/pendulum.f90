! A simulator in Fortran that trains a surrogate of itself through Levin's C interface, on several MPI ranks:
!
!   mpirun -n 2 pendulum_fortran RUN_FILE CHECKPOINT
!
! It computes what pendulum.cpp computes, and ends with the same weights, but steps the simulator between training steps
! instead of beside them. The operations of the simulator have the order of simulator.cpp.
module simulator
  use, intrinsic :: iso_c_binding, only: c_float
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  real(real64), parameter :: pi = 3.14159265358979323846_real64, time_step = 0.1_real64

  type :: pendulum
    real(real64) :: angle, velocity, amplitude, phase
    integer :: steps = 0
  end type

contains

  ! Returns a number from 0 to 1 that depends on `number`; the numbers of a sequence are spread evenly.
  elemental real(real64) function spread_of(number, stride)
    integer, intent(in) :: number
    real(real64), intent(in) :: stride
    spread_of = number * stride
    spread_of = spread_of - floor(spread_of)
  end function

  elemental type(pendulum) function new_pendulum(number)
    integer, intent(in) :: number
    new_pendulum%angle = pi * (2 * spread_of(number, 0.618033988749895_real64) - 1)
    new_pendulum%velocity = 4 * spread_of(number, 0.414213562373095_real64) - 2
    new_pendulum%amplitude = 0.9_real64 + 0.6_real64 * spread_of(number, 0.732050807568877_real64)
    new_pendulum%phase = 2 * pi * spread_of(number, 0.236067977499790_real64)
  end function

  ! The torque of the next step.
  elemental real(real64) function torque_of(p)
    type(pendulum), intent(in) :: p
    torque_of = p%amplitude * cos(2.0_real64 / 3.0_real64 * (p%steps * time_step) + p%phase)
  end function

  elemental real(real64) function energy_of(p)
    type(pendulum), intent(in) :: p
    energy_of = 0.5_real64 * (p%velocity * p%velocity) + (1 - cos(p%angle))
  end function

  elemental real(real64) function acceleration(angle, velocity, torque)
    real(real64), intent(in) :: angle, velocity, torque
    acceleration = (torque - sin(angle)) - 0.5_real64 * velocity
  end function

  ! Advances by time_step with a constant torque, by the classical Runge-Kutta method.
  elemental subroutine advance(p)
    type(pendulum), intent(inout) :: p
    real(real64), parameter :: half = 0.5_real64 * time_step
    real(real64) :: u, v1, v2, v3, v4, a1, a2, a3, a4
    u = torque_of(p)
    v1 = p%velocity
    a1 = acceleration(p%angle, v1, u)
    v2 = p%velocity + half * a1
    a2 = acceleration(p%angle + half * v1, v2, u)
    v3 = p%velocity + half * a2
    a3 = acceleration(p%angle + half * v2, v3, u)
    v4 = p%velocity + time_step * a3
    a4 = acceleration(p%angle + time_step * v3, v4, u)
    p%angle = p%angle + time_step / 6 * ((v1 + 2 * v2) + (2 * v3 + v4))
    p%velocity = p%velocity + time_step / 6 * ((a1 + 2 * a2) + (2 * a3 + a4))
    p%angle = p%angle - 2 * pi * anint(p%angle / (2 * pi))
    p%steps = p%steps + 1
  end subroutine

  ! Advances all pendulums until the arrays are full: a sample for each step and pendulum. states: angle, velocity and
  ! torque; next: angle, which may leave -pi to pi, and velocity after the step.
  subroutine simulate(pendulums, states, next)
    type(pendulum), intent(inout) :: pendulums(:)
    real(c_float), intent(out) :: states(:, :), next(:, :)
    real(real64) :: angle
    integer :: sample, k
    do sample = 1, size(states, 2)
      k = modulo(sample - 1, size(pendulums)) + 1
      angle = pendulums(k)%angle
      states(:, sample) = real([angle, pendulums(k)%velocity, torque_of(pendulums(k))], c_float)
      call advance(pendulums(k))
      next(1, sample) = real(pendulums(k)%angle - 2 * pi * anint((pendulums(k)%angle - angle) / (2 * pi)), c_float)
      next(2, sample) = real(pendulums(k)%velocity, c_float)
    end do
  end subroutine
end module

program main
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit, real64
  use levin
  use mpi
  use simulator
  implicit none
  integer, parameter :: all_pendulums = 32, batches = 1000, steps_per_batch = 8, batches_per_report = 250
  integer, parameter :: held_out = 1000, held_out_steps = 100
  type(pendulum), allocatable :: pendulums(:)
  real(c_float), allocatable, target :: states(:, :), next(:, :)
  type(c_ptr) :: run, batch(2)
  real(c_double) :: loss
  character(1024) :: run_file, checkpoint
  integer :: rank, ranks, error, k

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, run_file)
  call get_command_argument(2, checkpoint)

  pendulums = new_pendulum([(k, k = rank, all_pendulums - 1, ranks)])
  allocate (states(3, steps_per_batch * size(pendulums)), next(2, steps_per_batch * size(pendulums)))
  call check(levin_init(LEVIN_ABI_VERSION))
  call check(levin_run_create(trim(run_file) // c_null_char, [c_null_ptr], 0, run))
  batch = [tensor_of(states), tensor_of(next)]
  do k = 1, batches
    call simulate(pendulums, states, next)
    call check(levin_run_step(run, batch, c_null_ptr, 2, loss))
    if (modulo(k, batches_per_report) == 0) then
      call report('simulated', k, 'mean energy', sum(energy_of(pendulums) / all_pendulums))
      call report('trained', k, 'loss', loss / ranks)
    end if
  end do
  call test()
  call compare_ranks()
  call check(levin_run_save(run, trim(checkpoint) // c_null_char))
  call check(levin_run_finish(run))
  call check(levin_tensor_free(batch(1)))
  call check(levin_tensor_free(batch(2)))
  call check(levin_run_free(run))
  call MPI_Finalize(error)

contains

  ! An error ends all ranks: the others would wait for this one.
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    integer :: ignored
    if (status == LEVIN_OK) return
    write (error_unit, '(2a)') 'pendulum: ', levin_error_text()
    flush (error_unit)
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine

  ! Makes a tensor of the array's memory; the array's last dimension is the batch.
  type(c_ptr) function tensor_of(array)
    real(c_float), intent(in), target, contiguous :: array(:, :)
    tensor_of = c_null_ptr
    call check(levin_tensor_from_data(c_loc(array), LEVIN_FLOAT32, 2, &
                                      int([size(array, 2), size(array, 1)], c_int64_t), c_null_ptr, tensor_of))
  end function

  ! Prints the sum over ranks.
  subroutine report(action, count, name, value)
    character(*), intent(in) :: action, name
    integer, intent(in) :: count
    real(real64), intent(in) :: value
    real(real64) :: total
    integer :: ignored
    call MPI_Allreduce(value, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ignored)
    if (rank /= 0) return
    print '(a, 1x, i0, 3a, f11.9)', action, count, ' batches: ', name, ' ', total
    flush (output_unit)
  end subroutine

  function predict(x) result(y)
    real(c_float), intent(in), target, contiguous :: x(:, :)
    real(c_float) :: y(2, size(x, 2))
    real(c_float), pointer :: values(:, :)
    type(c_ptr) :: input(1), output
    type(levin_view) :: view
    input(1) = tensor_of(x)
    output = c_null_ptr
    call check(levin_run_predict(run, input, c_null_ptr, 1, output))
    call check(levin_tensor_view(output, view))
    call c_f_pointer(view%data, values, shape(y))
    y = values
    call check(levin_tensor_free(output))
    call check(levin_tensor_free(input(1)))
  end function

  ! Compares predictions of a trajectory that no rank has trained on with what the simulator computes.
  subroutine test()
    real(c_float) :: x(3, held_out_steps), y(2, held_out_steps), path(2, held_out_steps), predicted(2, held_out_steps)
    type(pendulum) :: other(1)
    integer :: step
    other = new_pendulum([held_out])
    call simulate(other, x, y)
    predicted = predict(x)
    path(:, 1) = x(:2, 1)
    do step = 2, held_out_steps
      path(:, step:step) = predict(reshape([path(:, step - 1), x(3, step - 1)], [3, 1]))
    end do
    ! From the second step on: a line needs two states.
    call print_error('the surrogate', predicted(:, 2:) - y(:, 2:))
    call print_error('a straight line', 2 * x(:2, 2:) - x(:2, :held_out_steps - 1) - y(:, 2:))
    call print_error('the unchanged state', x(:2, 2:) - y(:, 2:))
    call print_error('the surrogate alone', path - x(:2, :))
  end subroutine

  ! Prints the root mean square distance of states; angles differ by half a turn at most.
  subroutine print_error(name, difference)
    character(*), intent(in) :: name
    real(c_float), intent(in) :: difference(:, :)
    real(real64) :: angle(size(difference, 2))
    angle = modulo(difference(1, :) + pi, 2 * pi) - pi
    if (rank == 0) print '(3a, f8.6)', 'error of ', name, ': ', &
      sqrt(sum(angle**2 + real(difference(2, :), real64)**2) / size(angle))
  end subroutine

  ! Prints the largest difference of a weight between two ranks.
  subroutine compare_ranks()
    real(c_float), pointer :: values(:)
    real(c_float), allocatable :: least(:), most(:)
    real(c_float) :: largest
    integer(c_int64_t), pointer :: sizes(:)
    integer(c_int32_t) :: count, index
    type(c_ptr) :: name, weight
    type(levin_view) :: view
    integer :: ignored
    largest = 0
    call check(levin_run_weight_count(run, count))
    do index = 0, count - 1
      call check(levin_run_weight_name(run, index, name))
      call check(levin_run_get_weight(run, levin_text(name) // c_null_char, weight))
      call check(levin_tensor_view(weight, view))
      call c_f_pointer(view%shape, sizes, [view%ndim])
      call c_f_pointer(view%data, values, [product(sizes)])
      least = values
      most = values
      call MPI_Allreduce(values, least, size(values), MPI_REAL, MPI_MIN, MPI_COMM_WORLD, ignored)
      call MPI_Allreduce(values, most, size(values), MPI_REAL, MPI_MAX, MPI_COMM_WORLD, ignored)
      largest = max(largest, maxval(most - least))
      call check(levin_tensor_free(weight))
    end do
    if (rank == 0) print '(a, f8.6)', 'largest difference between the ranks'' weights: ', largest
  end subroutine
end program
