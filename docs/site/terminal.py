"""Runs a program in a terminal of any size, and reads what it writes there."""
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time


def run_in_terminal(command, columns, rows=50, cwd=None, env=None, timeout=120, keys=None):
    """[(seconds since the start, bytes)…] of what a program writes until it ends. `keys`: {seconds: bytes to type}. Raises
    RuntimeError with the output if the program fails, and TimeoutError if it does not end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env, start_new_session=True)
    os.close(theirs)
    begin, written, keys = time.monotonic(), [], dict(keys or {})
    try:
        while True:
            now = time.monotonic() - begin
            if now > timeout:
                raise TimeoutError(f"{command} has not ended after {timeout} s")
            for when in [when for when in keys if when <= now]:
                os.write(ours, keys.pop(when))
            if not select.select([ours], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # how Linux reports that the other end is closed
                break
            if not data:
                break
            written.append((time.monotonic() - begin, data))
        if process.wait(timeout=timeout) != 0:
            output = b"".join(data for _, data in written).decode(errors="replace")
            raise RuntimeError(f"{command} ended with status {process.returncode}:\n{output}")
        return written
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
