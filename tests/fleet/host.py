"""`holdfast` on a machine of another name: `python -m tests.fleet.host NAME …` is `holdfast …` there.

Everything but the name is as it is: a worker of another machine can only be judged by its beats.
"""

import sys

from holdfast import identity
from holdfast.__main__ import main

if __name__ == "__main__":
    name = sys.argv.pop(1)
    identity._host = lambda: name
    sys.exit(main())
