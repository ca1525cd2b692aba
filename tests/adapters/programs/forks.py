"""Imports a program once, and runs it in a fork for each line of standard input, which has its arguments as JSON.

So a process that is killed costs no import. Prints the process id of each fork, what the fork prints, and then `ended`.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys


def main(program: str) -> None:
    run = importlib.import_module(f"tests.adapters.programs.{program}").main
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            work = run(*json.loads(line))
            if inspect.iscoroutine(work):
                asyncio.run(work)
            os._exit(0)
        print(f"pid {pid}", flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
