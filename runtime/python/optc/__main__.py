"""python -m optc: the optc command."""
import os
import sys

from . import _lib


def main():
    path = _lib.program()
    if path is None:
        sys.exit("the optc program is neither in the package nor in the build tree")
    os.execv(path, ["optc"] + sys.argv[1:])


if __name__ == "__main__":
    main()
