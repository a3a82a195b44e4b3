"""`python -m onnxc`, the same as `onnxc`."""

import sys

from onnxc.cli import main

if __name__ == "__main__":
    sys.exit(main())
