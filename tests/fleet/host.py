"""`holdfast` on a machine of another name: `python -m tests.fleet.host NAME …` is `holdfast …` there.

Only the host name differs: a worker of another machine can be assessed only by its heartbeats.
"""

import sys

from holdfast import process_lookup
from holdfast.__main__ import main

if __name__ == "__main__":
    name = sys.argv.pop(1)
    process_lookup._host = lambda: name
    sys.exit(main())
