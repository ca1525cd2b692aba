"""Runs in hermes-agent's environment: fills its store with one session `behind-N` of N messages for each N given."""

import json
import os
import sys
from pathlib import Path

from hermes_state import SessionDB


def main() -> None:
    database = SessionDB(Path(os.environ["HERMES_HOME"]) / "state.db")
    for length in json.loads(sys.argv[1]):
        session = f"behind-{length}-0-0-0"
        database.create_session(session, source="api_server", model="m")
        messages = []
        for number in range(length // 2):
            messages.append({"role": "user", "content": f"Are you there? {number}"})
            messages.append({"role": "assistant", "content": "word " * 12})
        database.replace_messages(session, messages)
    database.close()


if __name__ == "__main__":
    main()
