"""The path of a file that a tool writes."""

import os


def output_path(path, error):
    """Returns the file that `path` leads to: a link is kept, and its target is replaced. Raises `error` for a folder, a
    device or a FIFO."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise error(f"the output {path} is not a regular file, and is not replaced. Give a different name.")
    return path
