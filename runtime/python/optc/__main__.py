"""python -m optc: the optc command."""
import os
import sys

from . import _lib


def main():
    path = _lib.program()
    if path is None:
        sys.exit("the optc program was not found in the package or in the build tree: run make")
    os.execv(path, ["optc"] + sys.argv[1:])


if __name__ == "__main__":
    main()
